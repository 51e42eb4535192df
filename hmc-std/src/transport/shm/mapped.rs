//! One mapped window of a peer.

use std::os::fd::AsFd;
use std::sync::Arc;

use hmc_core::range::ByteRange;
use hmc_core::region::{Epoch, WindowSlice};
use hmc_core::types::Access;
use hmc_core::window::WindowFault;
use hmc_core::work::{Failure, Opcode};
use hmc_mem::gate::MAX_EPOCH;
use hmc_mem::os::mapped_window::MappedWindow;
use hmc_mem::os::memfd::Mapping;

use crate::base::error::{Error, Result};
use crate::memory::Region;

/// One window of the peer, mapped, and the file that it lies in.
#[derive(Debug)]
pub(super) struct Mapped {
    pub(super) window: Arc<MappedWindow>,
    pub(super) file: File,
}

/// What tells one open file from all others: its device and its number there (fstat(2)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct File(u64, u64);

impl File {
    pub(super) fn of(fd: impl AsFd) -> Result<Self> {
        let stat = rustix::fs::fstat(fd).map_err(|e| Error::io("fstat of a window", e))?;
        Ok(Self(stat.st_dev, stat.st_ino))
    }
}

impl Mapped {
    /// The mapping of that file, if it is as long and may be used for as much.
    pub(super) fn map_of(&self, file: File, len: u64, writable: bool) -> Option<Arc<Mapping>> {
        let suits = self.file == file
            && self.window.map().extent().len() == len
            && (!writable || self.window.access().contains(Access::WRITE));
        suits.then(|| Arc::clone(self.window.map()))
    }
}

#[cold]
pub(super) fn no_descriptor(e: std::io::Error) -> Error {
    let errno = rustix::io::Errno::from_io_error(&e);
    Error::io("no descriptor left", errno.unwrap_or(rustix::io::Errno::MFILE))
}

pub(super) fn word_epoch(epoch: Epoch) -> u32 {
    epoch.0 & MAX_EPOCH
}

/// Copies between `local` of `region` and a mapped window, inside the window's gate.
#[inline]
pub(super) fn copy_mapped(
    window: &MappedWindow,
    region: &Region,
    opcode: Opcode,
    local: ByteRange,
    remote: WindowSlice,
    whole: u64,
) -> std::result::Result<(), Failure> {
    if window.epoch() != remote.epoch {
        return Err(Failure::Window(WindowFault::StaleEpoch));
    }
    let at = (remote.span.offset(), remote.expected);
    match opcode {
        Opcode::Get => window.read(at, region.bytes(), local, whole),
        Opcode::Put | Opcode::PutNotify { .. } => window.write(at, region.bytes(), local, whole),
    }
}

#[cfg(test)]
mod tests {
    use super::{File, Mapped};
    use hmc_core::range::Extent;
    use hmc_core::region::{Epoch, WindowId};
    use hmc_core::types::Access;
    use hmc_mem::os::mapped_window::{MappedWindow, PeerPages};
    use hmc_mem::os::memfd::Mapping;
    use hmc_mem::os::words::PeerWords;
    use std::sync::Arc;

    /// Pages that were mapped for a window that may only be read serve no other one that may be written, although the
    /// peer passed the same file for both.
    #[test]
    fn a_mapping_serves_windows_of_no_more_rights() {
        let pages = Mapping::create(4096).expect("memory");
        let fd = || pages.fd().expect("a memfd").try_clone_to_owned().expect("a descriptor");
        let file = File::of(fd()).expect("a file");
        let words = Mapping::create(4096).expect("memory");
        let gates = Arc::new(PeerWords::new(words).expect("space for all"));
        let mapped = |access| {
            let map = Arc::new(Mapping::map_peer(fd(), 4096, 0, access).expect("mapped"));
            let (name, all) = ((WindowId(0), Epoch(1)), Extent::new(4096).whole());
            let pages = PeerPages { gates: Arc::clone(&gates), life: None };
            let window = MappedWindow::new(name, access, (map, all), pages, Arc::default());
            Mapped { window: Arc::new(window.expect("all of it")), file }
        };
        let (reading, writable) = (mapped(Access::READ), mapped(Access::all()));
        assert!(reading.map_of(file, 4096, false).is_some());
        assert!(reading.map_of(file, 4096, true).is_none(), "its pages cannot be written");
        assert!(writable.map_of(file, 4096, true).is_some());
        assert!(writable.map_of(file, 4096, false).is_some(), "its rights are checked by the copy");
        assert!(writable.map_of(file, 8192, true).is_none(), "of another length");
        let other = File::of(Mapping::create(4096).expect("memory").fd().expect("a memfd"));
        assert!(writable.map_of(other.expect("a file"), 4096, true).is_none(), "another file");
    }
}
