//! The file that is sent: opened once, known to be a regular file, read by its data extents so that
//! holes stay holes.

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;

use rustix::fs::{Advice, CWD, Mode, OFlags, SeekFrom};
use rustix::io::Errno;

use crate::failure::{Failure, Result};
use crate::transfer::protocol::{AbortCode, FileInfo};

/// A file to send.
#[derive(Debug)]
pub(crate) struct Source {
    file: File,
    meta: FileInfo,
}

/// Checks that a name is one that a folder can hold, and no way out of it.
pub(crate) fn base_name(bytes: &[u8]) -> Result<&OsStr> {
    let why = match bytes {
        b"" => "it is empty",
        b"." | b".." => "it names a folder",
        _ if bytes.contains(&b'/') => "it contains a slash; only base names are taken",
        _ if bytes.contains(&0) => "it contains a zero byte",
        _ if bytes.len() > 255 => "it is longer than 255 bytes",
        _ => return Ok(OsStr::from_bytes(bytes)),
    };
    Err(Failure::new(format!("`{}` is no name for a file: {why}", String::from_utf8_lossy(bytes))))
}

impl Source {
    /// Opens a file that the user named.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        Self::open_in(CWD, path.as_os_str(), OFlags::empty()).map_err(|f| f.during(path.display()))
    }

    /// Opens a file that a peer asked for: a base name in `dir`, no link.
    pub(crate) fn open_shared(dir: &OwnedFd, name: &OsStr) -> Result<Self> {
        Self::open_in(dir, base_name(name.as_bytes())?, OFlags::NOFOLLOW)
    }

    fn open_in(dir: impl AsFd, name: &OsStr, more: OFlags) -> Result<Self> {
        // NONBLOCK: the open of a pipe would wait for a writer.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | more;
        let fd = rustix::fs::openat(dir, name, flags, Mode::empty()).map_err(|e| match e {
            Errno::NOENT => Failure::new("there is no such file"),
            Errno::LOOP if more.contains(OFlags::NOFOLLOW) => {
                Failure::new("it is a symbolic link, which is not followed")
            }
            e => Failure::new(format!("cannot open it for reading: {}", std::io::Error::from(e))),
        })?;
        let file = File::from(fd);
        let stat = file.metadata().map_err(|e| Failure::new(format!("cannot look at it: {e}")))?;
        if !stat.is_file() {
            return Err(Failure::new("it is not a regular file; only those can be sent"));
        }
        let _ = rustix::fs::fadvise(&file, 0, None, Advice::Sequential);
        let meta = FileInfo {
            size: stat.len(),
            mode: stat.mode() & 0o777,
            mtime_s: stat.mtime(),
            mtime_ns: u32::try_from(stat.mtime_nsec()).unwrap_or(0),
        };
        Ok(Self { file, meta })
    }

    /// What is told about it.
    pub(crate) fn meta(&self) -> FileInfo {
        self.meta
    }

    /// The next range that holds data at or after `at`: its start and its end.
    pub(crate) fn next_data(&self, at: u64) -> std::result::Result<Option<(u64, u64)>, AbortCode> {
        let size = self.meta.size;
        if at >= size {
            return Ok(None);
        }
        let whole = Ok(Some((at, size)));
        // lseek(2): ENXIO when there is only a hole up to the end; EINVAL where holes are unknown.
        let start = match rustix::fs::seek(&self.file, SeekFrom::Data(at)) {
            Ok(start) => start,
            Err(Errno::NXIO) => return Ok(None),
            Err(Errno::INVAL | Errno::OPNOTSUPP) => return whole,
            Err(e) => return Err(AbortCode::Os(e.raw_os_error())),
        };
        let end = rustix::fs::seek(&self.file, SeekFrom::Hole(start)).unwrap_or(size).min(size);
        Ok((start < end).then_some((start, end)))
    }

    /// Fills `into` from `at` on.
    pub(crate) fn read(&self, at: u64, into: &mut [u8]) -> std::result::Result<(), AbortCode> {
        self.file.read_exact_at(into, at).map_err(|e| match e.kind() {
            std::io::ErrorKind::UnexpectedEof => AbortCode::Shrank,
            _ => AbortCode::of(&e),
        })
    }
}

/// The base name under which a path's file is sent.
pub(crate) fn name_of(path: &Path) -> Result<Vec<u8>> {
    let name = path.file_name().ok_or_else(|| {
        Failure::new("it is a folder; name the files in it").during(path.display())
    })?;
    let bytes = name.to_owned().into_vec();
    base_name(&bytes).map_err(|f| f.during(path.display()))?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::{Source, base_name, name_of};
    use crate::transfer::protocol::AbortCode;
    use rustix::fs::{CWD, FileType, Mode};
    use rustix::io::FdFlags;
    use std::os::unix::fs::{FileExt as _, PermissionsExt};
    use std::path::{Path, PathBuf};

    fn scratch(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("hmc-source-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir(&dir).expect("a folder");
        dir
    }

    #[test]
    fn only_base_names_are_names() {
        for bad in [&b""[..], b".", b"..", b"a/b", b"/", b"../x", b"a\0b", &[b'x'; 256]] {
            base_name(bad).expect_err("no base name");
        }
        for good in [&b"a"[..], b"...", b".hidden", b"with space", &[0xff, 0xfe], &[b'x'; 255]] {
            base_name(good).expect("a base name");
        }
        assert_eq!(name_of(Path::new("/tmp/x.bin")).expect("a name"), b"x.bin");
        name_of(Path::new("/tmp/..")).expect_err("a folder");
        name_of(Path::new("/")).expect_err("a folder");
        let failure = name_of(Path::new(".")).expect_err("a folder").to_string();
        assert!(failure.contains("name the files in it"), "{failure}");
    }

    #[test]
    fn a_file_is_opened_with_its_facts_and_for_this_program_alone() {
        let dir = scratch("facts");
        let path = dir.join("a");
        std::fs::write(&path, b"12345").expect("writable");
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o4640)).expect("ours");
        let folder = std::fs::File::open(&dir).expect("there").into();
        let shared = Source::open_shared(&folder, "a".as_ref()).expect("shared");
        for source in [Source::open(&path).expect("there"), shared] {
            assert_eq!((source.meta().size, source.meta().mode), (5, 0o640));
            let flags = rustix::io::fcntl_getfd(&source.file).expect("open");
            assert!(flags.contains(FdFlags::CLOEXEC));
        }
        std::fs::remove_dir_all(&dir).expect("clean");
    }

    #[test]
    fn only_regular_files_are_opened_and_a_pipe_is_not_waited_for() {
        let dir = scratch("kinds");
        let pipe = dir.join("pipe");
        rustix::fs::mknodat(CWD, &pipe, FileType::Fifo, Mode::RWXU, 0).expect("a pipe");
        let folder: std::os::fd::OwnedFd = std::fs::File::open(&dir).expect("there").into();
        std::os::unix::fs::symlink("pipe", dir.join("link")).expect("a link");
        for (failure, why) in [
            (Source::open(&pipe).expect_err("a pipe"), "not a regular file"),
            (Source::open_shared(&folder, "pipe".as_ref()).expect_err("a pipe"), "not a regular"),
            (Source::open_shared(&folder, "link".as_ref()).expect_err("a link"), "is not followed"),
            (Source::open(&dir.join("none")).expect_err("nothing"), "no such file"),
        ] {
            assert!(failure.to_string().contains(why), "{failure}");
        }
        std::os::unix::fs::symlink("round", dir.join("round")).expect("a link to itself");
        let round = Source::open(&dir.join("round")).expect_err("no end");
        assert!(round.to_string().contains("cannot open it for reading"), "{round}");
        std::fs::remove_dir_all(&dir).expect("clean");
    }

    #[test]
    fn ranges_with_data_end_with_the_size_that_was_sent() {
        let dir = scratch("ranges");
        let path = dir.join("a");
        std::fs::write(&path, [7; 5000]).expect("writable");
        let source = Source::open(&path).expect("there");
        let file = std::fs::OpenOptions::new().write(true).open(&path).expect("ours");
        file.write_all_at(&[8; 5000], 5000).expect("it grows");
        assert_eq!(source.next_data(0), Ok(Some((0, 5000))));
        assert_eq!(source.next_data(4999), Ok(Some((4999, 5000))));
        assert_eq!(source.next_data(5000), Ok(None));
        let mut bytes = [0; 2];
        source.read(4998, &mut bytes).expect("there");
        assert_eq!(bytes, [7; 2]);
        file.set_len(4999).expect("ours");
        assert_eq!(source.read(4998, &mut bytes), Err(AbortCode::Shrank));
        std::fs::remove_dir_all(&dir).expect("clean");
    }
}
