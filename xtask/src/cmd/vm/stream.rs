//! One output of the command, sent from the guest to the host as files of a shared folder.
//!
//! The guest appends to `NAME.0` up to a fixed size, then to `NAME.1`, and so on. The host removes each file after it has read
//! all of it. The guest waits while [`AHEAD`] files are unread: an endless output does not fill the disk.

use rustix::event::{Timespec, poll};
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// Size of each file in bytes.
const PIECE: u64 = 4 << 20;
/// Number of unread files at which the guest waits.
const AHEAD: u64 = 8;
/// Size of the copy buffer in bytes.
const BUFFER: usize = 1 << 16;

/// Waits 20 ms for progress of the other end.
fn pause() {
    // A signal only shortens the wait.
    let _ = poll(&mut [], Some(&Timespec { tv_sec: 0, tv_nsec: 20_000_000 }));
}

/// Position in the files of one output.
#[derive(Debug)]
struct Pieces {
    folder: PathBuf,
    name: &'static str,
    size: u64,
    /// Number of the current file.
    index: u64,
    /// Number of bytes of the current file that are written or read.
    done: u64,
    file: Option<File>,
}

impl Pieces {
    fn new(folder: &Path, name: &'static str, size: u64) -> Self {
        Self { folder: folder.to_path_buf(), name, size, index: 0, done: 0, file: None }
    }

    fn path(&self, index: u64) -> PathBuf {
        self.folder.join(format!("{}.{index}", self.name))
    }

    /// Counts written or read bytes. Returns `true` if the file is complete; the next file is then current.
    fn count(&mut self, bytes: usize) -> bool {
        self.done = self.done.saturating_add(u64::try_from(bytes).unwrap_or(u64::MAX));
        let full = self.done >= self.size;
        if full {
            self.file = None;
            self.done = 0;
            self.index = self.index.saturating_add(1);
        }
        full
    }

    /// Returns how many of `bytes` bytes the current file still holds.
    fn fits(&self, bytes: usize) -> usize {
        let left = self.size.saturating_sub(self.done);
        usize::try_from(left).unwrap_or(usize::MAX).min(bytes)
    }
}

/// The writing end, in the guest.
#[derive(Debug)]
pub(super) struct Writer(Pieces);

impl Writer {
    /// Creates one end of the output `name` in `folder`.
    pub(super) fn new(folder: &Path, name: &'static str) -> Self {
        Self(Pieces::new(folder, name, PIECE))
    }

    fn file(&mut self) -> io::Result<&mut File> {
        let pieces = &mut self.0;
        if pieces.file.is_none() {
            while pieces.index >= AHEAD && pieces.path(pieces.index.saturating_sub(AHEAD)).exists()
            {
                pause();
            }
            let path = pieces.path(pieces.index);
            pieces.file = Some(OpenOptions::new().create(true).append(true).open(path)?);
        }
        pieces.file.as_mut().ok_or_else(|| ErrorKind::NotFound.into())
    }
}

impl Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let fits = self.0.fits(bytes.len());
        let written = self.file()?.write(bytes.get(..fits).unwrap_or_default())?;
        self.0.count(written);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The reading end, on the host.
#[derive(Debug)]
pub(super) struct Reader(Pieces);

impl Reader {
    /// Creates one end of the output `name` in `folder`.
    pub(super) fn new(folder: &Path, name: &'static str) -> Self {
        Self(Pieces::new(folder, name, PIECE))
    }

    /// Copies bytes as they arrive. Returns after `ended` is set and no byte is left.
    ///
    /// # Errors
    /// An I/O error of the files or of `to`.
    pub(super) fn copy(
        &mut self,
        to: &mut (impl Write + ?Sized),
        ended: &AtomicBool,
    ) -> io::Result<()> {
        let mut buffer = vec![0; BUFFER];
        loop {
            let last = ended.load(Ordering::Acquire);
            let taken = self.read(&mut buffer)?;
            if taken != 0 {
                to.write_all(buffer.get(..taken).unwrap_or_default())?;
                to.flush()?;
            } else if last {
                return Ok(());
            } else {
                pause();
            }
        }
    }
}

impl Read for Reader {
    /// Returns 0 if no byte is available yet.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let pieces = &mut self.0;
        let path = pieces.path(pieces.index);
        if pieces.file.is_none() {
            match File::open(&path) {
                Ok(file) => pieces.file = Some(file),
                Err(e) if e.kind() == ErrorKind::NotFound => return Ok(0),
                Err(e) => return Err(e),
            }
        }
        let fits = pieces.fits(buffer.len());
        let into = buffer.get_mut(..fits).unwrap_or_default();
        let taken = pieces.file.as_mut().map_or(Ok(0), |file| file.read(into))?;
        if pieces.count(taken) {
            std::fs::remove_file(path)?;
        }
        Ok(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::{AHEAD, Pieces, Reader, Writer};
    use std::io::Write;
    use std::path::{Path, PathBuf};
    use std::sync::atomic::{AtomicBool, Ordering};

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("hmc-vm-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }

    fn ends(folder: &Path) -> (Writer, Reader) {
        let pieces = || Pieces::new(folder, "out", 10);
        (Writer(pieces()), Reader(pieces()))
    }

    #[test]
    fn bytes_arrive_in_order_and_read_files_are_removed() {
        let folder = folder("order");
        let bytes: Vec<u8> = (0..=255).collect();
        for size in [1, 9, 10, 11, 64] {
            let (mut writer, mut reader) = ends(&folder);
            let ended = AtomicBool::new(false);
            let mut copy = Vec::new();
            // The output has more than `AHEAD` files: the writer waits for the reader.
            std::thread::scope(|scope| {
                let reading = scope.spawn(|| reader.copy(&mut copy, &ended));
                bytes.chunks(size).for_each(|part| writer.write_all(part).unwrap());
                ended.store(true, Ordering::Release);
                reading.join().unwrap().unwrap();
            });
            assert_eq!(copy, bytes, "in parts of {size}");
            let left: Vec<_> = std::fs::read_dir(&folder).unwrap().flatten().collect();
            assert_eq!(left.len(), 1, "the last file, which is incomplete");
            std::fs::remove_file(left[0].path()).unwrap();
        }
        std::fs::remove_dir(folder).unwrap();
    }

    #[test]
    fn a_writer_waits_for_its_reader() {
        let folder = folder("bound");
        let (mut writer, mut reader) = ends(&folder);
        let files = || u64::try_from(std::fs::read_dir(&folder).unwrap().count()).unwrap();
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let writing = scope.spawn(|| writer.write_all(&[7; 200]).unwrap());
            while files() < AHEAD {
                super::pause();
            }
            super::pause();
            assert!(files() <= AHEAD && !writing.is_finished());
            let mut copy = Vec::new();
            scope.spawn(|| {
                writing.join().unwrap();
                over.store(true, Ordering::Release);
            });
            reader.copy(&mut copy, &over).unwrap();
            assert_eq!(copy, [7; 200]);
        });
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn an_empty_output_has_no_file() {
        let folder = folder("none");
        let (_, mut reader) = ends(&folder);
        reader.copy(&mut std::io::sink(), &AtomicBool::new(true)).unwrap();
        std::fs::remove_dir(folder).unwrap();
    }
}
