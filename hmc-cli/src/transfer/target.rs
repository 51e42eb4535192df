//! The file that is received: written under a temporary name in its folder, renamed when whole,
//! removed when not. Nothing outside that folder is touched, and no link is followed.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use hmc_std::Window;
use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags, Timespec, Timestamps};
use rustix::io::Errno;

use crate::failure::{Failure, Result};
use crate::transfer::protocol::{AbortCode, FileInfo};
use crate::transfer::source::base_name;

/// How names of partial files start. Such names are taken from nobody.
const PART: &str = ".hmc-part-";

/// Numbers the partial files of this process.
static NEXT: AtomicU32 = AtomicU32::new(0);

/// A folder that receives files.
#[derive(Debug)]
pub(crate) struct TargetDir {
    fd: OwnedFd,
    path: PathBuf,
}

impl TargetDir {
    /// Opens a folder.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::open(path, flags, Mode::empty()).map_err(|e| {
            let e = std::io::Error::from(e);
            let path = path.display();
            Failure::new(format!("cannot open the folder {path}: {e}; name one that exists"))
        })?;
        Ok(Self { fd, path: path.to_path_buf() })
    }

    pub(crate) fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    /// Checks that a file of that name may be made here.
    pub(crate) fn check_free(&self, name: &[u8], overwrite: bool) -> Result<&Self> {
        let name = base_name(name)?;
        if name.as_bytes().starts_with(PART.as_bytes()) {
            return Err(Failure::new(format!(
                "names that start with {PART} are for partial files"
            )));
        }
        let taken = rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW).is_ok();
        if taken && !overwrite {
            return Err(Failure::new(format!(
                "{} exists; remove it, or allow --overwrite where it is received",
                self.path.join(name).display()
            )));
        }
        Ok(self)
    }
}

/// A file that is being received.
#[derive(Debug)]
pub(crate) struct Target<'a> {
    folder: &'a TargetDir,
    name: OsString,
    temp: OsString,
    file: File,
    meta: FileInfo,
    overwrite: bool,
    whole: bool,
}

impl<'a> Target<'a> {
    /// Makes the partial file, of its full size and all holes.
    pub(crate) fn create(
        folder: &'a TargetDir,
        name: &[u8],
        meta: FileInfo,
        overwrite: bool,
    ) -> Result<Self> {
        folder.check_free(name, overwrite)?;
        let name = OsStr::from_bytes(name);
        let shown = folder.path.join(name);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let temp = OsString::from(format!("{PART}{}-{number}", std::process::id()));
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(meta.mode & 0o777);
        let fd = rustix::fs::openat(&folder.fd, &temp, flags, mode).map_err(|e| {
            let e = std::io::Error::from(e);
            Failure::new(format!("cannot make a file in {}: {e}", folder.path.display()))
        })?;
        let target = Self {
            folder,
            name: name.to_owned(),
            temp,
            file: File::from(fd),
            meta,
            overwrite,
            whole: false,
        };
        target.file.set_len(meta.size).map_err(|e| {
            Failure::new(format!("cannot make {} of {} bytes: {e}", shown.display(), meta.size))
        })?;
        Ok(target)
    }

    /// Bytes that the file will have.
    pub(crate) fn size(&self) -> u64 {
        self.meta.size
    }

    /// Writes `len` bytes of a window to `at`.
    pub(crate) fn write(
        &self,
        window: &Window<hmc_std::Span>,
        offset: u64,
        len: u64,
        at: u64,
    ) -> std::result::Result<(), AbortCode> {
        window.write_to(offset, len, &self.file, at).map_err(|e| AbortCode::of(&e))
    }

    /// Gives the file its time and its name.
    pub(crate) fn commit(mut self) -> std::result::Result<PathBuf, AbortCode> {
        let os = |e: Errno| AbortCode::Os(e.raw_os_error());
        let time = Timespec { tv_sec: self.meta.mtime_s, tv_nsec: i64::from(self.meta.mtime_ns) };
        // A time that this file system cannot keep is no reason to lose the file.
        let _ = rustix::fs::futimens(
            &self.file,
            &Timestamps { last_access: time, last_modification: time },
        );
        let dir = &self.folder.fd;
        if self.overwrite {
            rustix::fs::renameat(dir, &self.temp, dir, &self.name).map_err(os)?;
        } else {
            self.rename_new()?;
        }
        self.whole = true;
        Ok(self.folder.path.join(&self.name))
    }

    /// Renames unless the name is taken.
    fn rename_new(&self) -> std::result::Result<(), AbortCode> {
        let dir = &self.folder.fd;
        match rustix::fs::renameat_with(dir, &self.temp, dir, &self.name, RenameFlags::NOREPLACE) {
            Ok(()) => Ok(()),
            Err(Errno::EXIST) => Err(AbortCode::Exists),
            // rename(2): the file system does not know the flag. link(2) never replaces either.
            Err(Errno::INVAL | Errno::NOSYS) => {
                let link = rustix::fs::linkat(dir, &self.temp, dir, &self.name, AtFlags::empty());
                link.map_err(|e| match e {
                    Errno::EXIST => AbortCode::Exists,
                    e => AbortCode::Os(e.raw_os_error()),
                })?;
                let _ = rustix::fs::unlinkat(dir, &self.temp, AtFlags::empty());
                Ok(())
            }
            Err(e) => Err(AbortCode::Os(e.raw_os_error())),
        }
    }
}

impl Drop for Target<'_> {
    fn drop(&mut self) {
        if !self.whole {
            let _ = rustix::fs::unlinkat(&self.folder.fd, &self.temp, AtFlags::empty());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{NEXT, PART, Target, TargetDir};
    use crate::transfer::protocol::{AbortCode, FileInfo};
    use rustix::io::FdFlags;
    use std::os::unix::fs::PermissionsExt as _;
    use std::sync::atomic::Ordering;

    const META: FileInfo = FileInfo { size: 3, mode: 0o640, mtime_s: 1_000_000, mtime_ns: 5 };

    fn scratch(name: &str) -> std::path::PathBuf {
        let dir = std::env::temp_dir().join(format!("hmc-target-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir(&dir).expect("a folder");
        dir
    }

    #[test]
    fn a_file_appears_whole_or_not_at_all() {
        let dir = scratch("whole");
        let folder = TargetDir::open(&dir).expect("there");
        drop(Target::create(&folder, b"a", META, false).expect("made"));
        assert_eq!(std::fs::read_dir(&dir).expect("there").count(), 0, "a partial file is left");
        let target = Target::create(&folder, b"a", META, false).expect("made");
        let path = target.commit().expect("renamed");
        let stat = std::fs::metadata(&path).expect("there");
        assert_eq!(stat.len(), 3);
        let time = stat.modified().expect("known").duration_since(std::time::UNIX_EPOCH);
        assert_eq!(time.expect("after 1970").as_nanos(), 1_000_000_000_000_005);
        assert_eq!(std::fs::read_dir(&dir).expect("there").count(), 1);
        std::fs::remove_dir_all(&dir).expect("clean");
    }

    #[test]
    fn nothing_is_overwritten_without_leave() {
        let dir = scratch("over");
        let folder = TargetDir::open(&dir).expect("there");
        let late = Target::create(&folder, b"a", META, false).expect("free");
        std::fs::write(dir.join("a"), b"first").expect("writable");
        assert_eq!(late.commit().expect_err("taken meanwhile"), AbortCode::Exists);
        Target::create(&folder, b"a", META, false).expect_err("taken");
        assert_eq!(std::fs::read(dir.join("a")).expect("there"), b"first");
        let over = Target::create(&folder, b"a", META, true).expect("allowed");
        over.commit().expect("replaced");
        assert_eq!(std::fs::read(dir.join("a")).expect("there"), [0; 3]);
        Target::create(&folder, b".hmc-part-1-1", META, true).expect_err("reserved");
        std::fs::remove_dir_all(&dir).expect("clean");
    }

    #[test]
    fn rights_beyond_those_of_the_three_classes_are_not_taken() {
        let dir = scratch("mode");
        let folder = TargetDir::open(&dir).expect("there");
        for (mode, want) in [(0o640, 0o640), (0o6700, 0o700), (0o100_400, 0o400)] {
            let meta = FileInfo { mode, ..META };
            let path = Target::create(&folder, b"a", meta, true).expect("made").commit();
            let stat = std::fs::metadata(path.expect("renamed")).expect("there");
            assert_eq!(stat.permissions().mode() & 0o7777, want, "{mode:o}");
        }
        std::fs::remove_dir_all(&dir).expect("clean");
    }

    #[test]
    fn a_folder_is_one_and_other_programs_inherit_neither_it_nor_its_files() {
        let dir = scratch("cloexec");
        let file = dir.join("file");
        std::fs::write(&file, b"").expect("writable");
        let failure = TargetDir::open(&file).expect_err("a file");
        assert!(failure.to_string().contains("cannot open the folder"), "{failure}");
        let failure = TargetDir::open(&dir.join("missing")).expect_err("there is none");
        assert!(failure.to_string().ends_with("name one that exists"), "{failure}");
        let folder = TargetDir::open(&dir).expect("there");
        let target = Target::create(&folder, b"a", META, false).expect("made");
        assert_eq!(target.size(), 3);
        for flags in [rustix::io::fcntl_getfd(folder.fd()), rustix::io::fcntl_getfd(&target.file)] {
            assert!(flags.expect("open").contains(FdFlags::CLOEXEC));
        }
        drop(target);
        std::fs::remove_dir_all(&dir).expect("clean");
    }

    #[test]
    fn a_partial_file_takes_no_name_that_is_there() {
        let dir = scratch("part");
        let folder = TargetDir::open(&dir).expect("there");
        std::fs::write(dir.join("first"), b"first").expect("writable");
        // Other tests draw numbers meanwhile.
        let next = NEXT.load(Ordering::Relaxed);
        for number in next..next + 1000 {
            let name = format!("{PART}{}-{number}", std::process::id());
            std::os::unix::fs::symlink("first", dir.join(name)).expect("a link");
        }
        let failure = Target::create(&folder, b"a", META, false).expect_err("taken");
        assert!(failure.to_string().starts_with("cannot make a file in "), "{failure}");
        assert_eq!(std::fs::read(dir.join("first")).expect("there"), b"first");
        std::fs::remove_dir_all(&dir).expect("clean");
    }
}
