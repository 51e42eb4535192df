//! Windows of the peer: how their owner describes them, and the files behind them.

use std::fs::{File, OpenOptions};
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::os::unix::fs::MetadataExt as _;

use hmc_core::range::{ByteRange, Extent, Side};
use hmc_core::region::{Epoch, LocalSlice, WindowDesc, WindowId, WindowSlice};
use hmc_core::types::Access;
use hmc_core::window::WindowFault;
use hmc_core::wire::cursor::{Reader, WireError, WireErrorKind, Writer};
use hmc_std::{Error, ErrorKind, Result};

/// Where a window lies, as its owner tells the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowNote {
    window: WindowId,
    epoch: Epoch,
    access: Access,
    len: u64,
    /// Its first byte in the file.
    at: u64,
    /// The file; `None` if the window has no bytes.
    file: Option<FileName>,
}

/// A file of the owner's: a descriptor of its process, and what the file behind it is. A number may name another file by the time
/// the peer opens it, or another process in another namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileName {
    pid: u32,
    fd: u32,
    device: u64,
    inode: u64,
}

impl WindowNote {
    /// Describes a window of this process: `local` of the memory behind `fd`, unless it has no bytes.
    ///
    /// # Errors
    /// `Io` if the system does not tell what the file is.
    pub fn new(window: &WindowDesc, local: LocalSlice, fd: Option<BorrowedFd<'_>>) -> Result<Self> {
        let file = match fd {
            None => None,
            Some(fd) => {
                let number = fd.as_raw_fd();
                let about = std::fs::metadata(format!("/proc/self/fd/{number}"))
                    .map_err(|e| io("the file of a window cannot be named", e))?;
                Some(FileName {
                    pid: std::process::id(),
                    fd: number.unsigned_abs(),
                    device: about.dev(),
                    inode: about.ino(),
                })
            }
        };
        let (len, at) = (window.extent.len(), local.span.offset());
        let WindowDesc { window, epoch, access, .. } = *window;
        Ok(Self { window, epoch, access, len, at, file })
    }

    /// Writes the note to `out`, and returns its bytes.
    ///
    /// # Errors
    /// `NoSpace`.
    pub fn emit<'a>(&self, out: &'a mut [u8]) -> std::result::Result<&'a [u8], WireError> {
        let mut w = Writer::new(out);
        w.u64_le(self.window.0)?;
        w.u32_le(self.epoch.0)?;
        w.u8(self.access.bits())?;
        w.u64_le(self.len)?;
        w.u64_le(self.at)?;
        if let Some(file) = &self.file {
            w.u32_le(file.pid)?;
            w.u32_le(file.fd)?;
            w.u64_le(file.device)?;
            w.u64_le(file.inode)?;
        }
        let written = usize::try_from(w.written()).unwrap_or(0);
        Ok(out.get(..written).unwrap_or_default())
    }

    /// Reads a note.
    ///
    /// # Errors
    /// `Truncated`, `Value`.
    pub fn parse(bytes: &[u8]) -> std::result::Result<Self, WireError> {
        let mut r = Reader::new(bytes, 0);
        let (window, epoch) = (WindowId(r.u64_le()?), Epoch(r.u32_le()?));
        let at = r.at();
        let rights = r.u8()?;
        let access = Access::from_bits(rights).ok_or(WireError {
            at,
            kind: WireErrorKind::Value { field: "access", value: rights.into() },
        })?;
        let (len, at) = (r.u64_le()?, r.u64_le()?);
        let file = if r.rest().is_empty() {
            None
        } else {
            let (pid, fd) = (r.u32_le()?, r.u32_le()?);
            Some(FileName { pid, fd, device: r.u64_le()?, inode: r.u64_le()? })
        };
        r.end()?;
        Ok(Self { window, epoch, access, len, at, file })
    }
}

fn io(what: &str, e: std::io::Error) -> Error {
    Error::new(ErrorKind::Io, format!("{what}: {e}"))
}

/// A window of the peer that this end can reach.
#[derive(Debug)]
pub(crate) struct PeerWindow {
    id: WindowId,
    epoch: Epoch,
    access: Access,
    extent: Extent,
    /// The window in the file.
    place: ByteRange,
    file: Option<File>,
    revoked: bool,
}

impl PeerWindow {
    /// Opens the file of a window, with the rights that the peer gives.
    ///
    /// # Errors
    /// `Protocol` if the note contradicts itself; `Io` if the file cannot be opened or is another one.
    pub(crate) fn open(note: &WindowNote) -> Result<Self> {
        let place = Extent::new(u64::MAX)
            .span(Side::Remote, note.at, note.len)
            .map_err(|e| Error::new(ErrorKind::Protocol, e.to_string()))?;
        // A window without rights is one that every access to is refused.
        let file = note.file.filter(|_| !note.access.is_empty());
        let file = file.map(|name| opened(name, note.access)).transpose()?;
        Ok(Self {
            id: note.window,
            epoch: note.epoch,
            access: note.access,
            extent: Extent::new(note.len),
            place,
            file,
            revoked: false,
        })
    }

    pub(crate) fn id(&self) -> WindowId {
        self.id
    }

    pub(crate) fn is(&self, id: WindowId, epoch: Epoch) -> bool {
        self.id == id && self.epoch == epoch
    }

    /// The file and the range of it that an access means; no file for no bytes.
    pub(crate) fn check(
        &self,
        slice: WindowSlice,
        access: Access,
    ) -> std::result::Result<(Option<&File>, ByteRange), WindowFault> {
        if slice.window != self.id {
            return Err(WindowFault::Unknown);
        }
        if slice.epoch != self.epoch {
            return Err(WindowFault::StaleEpoch);
        }
        if self.revoked {
            return Err(WindowFault::Revoked);
        }
        if !self.access.contains(access) {
            return Err(WindowFault::Access);
        }
        let (offset, len) = (slice.span.offset(), slice.span.len());
        let inside = self
            .extent
            .span(Side::Remote, offset, len)
            .and_then(|_| self.place.sub(Side::Remote, offset, len))
            .map_err(WindowFault::OutOfWindow)?;
        Ok((self.file.as_ref(), inside))
    }

    /// Ends the use of it. The file is returned to be closed.
    pub(crate) fn revoke(&mut self) -> Option<File> {
        self.revoked = true;
        self.file.take()
    }
}

/// Opens a file of another process and makes sure that it is the one that was meant. `/proc` gives a description of its own, with no
/// more rights than are asked for here.
fn opened(name: FileName, access: Access) -> Result<File> {
    let path = format!("/proc/{}/fd/{}", name.pid, name.fd);
    let file = OpenOptions::new()
        .read(access.contains(Access::READ))
        .write(access.contains(Access::WRITE))
        .open(path)
        .map_err(|e| io("the file of a window of the peer cannot be opened", e))?;
    let about = file.metadata().map_err(|e| io("the file of a window cannot be looked at", e))?;
    if (about.dev(), about.ino()) == (name.device, name.inode) {
        return Ok(file);
    }
    let what =
        "the file of a window is another one here: do both ends share a namespace of processes?";
    Err(Error::new(ErrorKind::Io, what))
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, clippy::arithmetic_side_effects, reason = "tests may panic")]
mod tests {
    use super::{FileName, PeerWindow, WindowNote};
    use hmc_core::region::{Epoch, WindowId};
    use hmc_core::types::Access;
    use hmc_std::ErrorKind;

    const NOTE: WindowNote = WindowNote {
        window: WindowId(7),
        epoch: Epoch(3),
        access: Access::READ,
        len: 10,
        at: 4096,
        file: Some(FileName { pid: 1, fd: 2, device: 3, inode: 4 }),
    };

    #[test]
    fn a_note_means_the_same_at_the_other_end() {
        for note in [NOTE, WindowNote { file: None, ..NOTE }] {
            let mut storage = [0; 64];
            let bytes = note.emit(&mut storage).expect("space").to_vec();
            assert_eq!(WindowNote::parse(&bytes), Ok(note));
            for len in 0..bytes.len() {
                let part = WindowNote::parse(&bytes[..len]);
                assert!(part.is_err() || len == 29, "{len} bytes: {part:?}");
            }
            let mut bad = bytes;
            bad[12] = 4;
            assert!(WindowNote::parse(&bad).is_err(), "no such right");
        }
    }

    #[test]
    fn a_note_that_cannot_be_meant_is_refused() {
        let refused = |note| PeerWindow::open(&note).map_err(|e| e.kind()).expect_err("refused");
        assert_eq!(refused(WindowNote { at: u64::MAX, ..NOTE }), ErrorKind::Protocol);
        // A descriptor of this process, but another file.
        let (pid, file) =
            (std::process::id(), std::fs::File::open("/dev/null").expect("it is there"));
        let fd = std::os::fd::AsRawFd::as_raw_fd(&file).unsigned_abs();
        let name = FileName { pid, fd, device: 3, inode: 4 };
        assert_eq!(refused(WindowNote { file: Some(name), ..NOTE }), ErrorKind::Io);
    }
}
