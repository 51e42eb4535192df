//! One window of a peer, mapped; and the words that say who is inside a window.

use std::os::fd::AsFd;
use std::sync::Arc;

#[cfg(hmc_mutants)]
use hmc_core::mutant::{self, Mutant};
use hmc_core::range::{ByteRange, Side};
use hmc_core::region::{Epoch, WindowId, WindowSlice};
use hmc_core::types::Access;
use hmc_core::window::WindowFault;
use hmc_core::work::{Failure, Opcode};
use hmc_mem::gate::{Drain, MAX_EPOCH, WindowGate};
use hmc_mem::os::life::PeerLife;
use hmc_mem::os::memfd::Mapping;
use hmc_mem::os::words::PeerWords;
use hmc_mem::shared::{SharedBytes, SharedError};

use crate::clock;
use crate::error::{Error, Result};
use crate::memory::Region;
use crate::until::{Stop, Until};

/// The longest sleep between two looks at the peer's end, of which its word tells nothing.
const LONGEST_NAP_NS: u64 = 20_000_000;

/// One window of the peer, mapped.
#[derive(Debug)]
pub(super) struct Mapped {
    pub(super) id: WindowId,
    pub(super) epoch: Epoch,
    /// Windows over one memfd share a mapping: its pages are looked up once.
    pub(super) map: Arc<Mapping>,
    pub(super) file: File,
    pub(super) range: ByteRange,
    pub(super) access: Access,
}

/// What a peer shares beside its windows.
#[derive(Clone, Copy)]
pub(super) struct PeerPages<'a> {
    /// The words of its windows.
    pub(super) words: &'a PeerWords,
    pub(super) life: Option<&'a PeerLife>,
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
            && self.map.extent().len() == len
            && (!writable || self.access.contains(Access::WRITE));
        suits.then(|| Arc::clone(&self.map))
    }
}

/// Waits for the peer's last copy into a revoked window.
#[derive(Debug)]
pub(crate) struct ShmFence {
    pub(super) page: Arc<Mapping>,
    pub(super) index: u16,
}

impl ShmFence {
    /// Whether nobody is inside any more, waiting up to `timeout`.
    pub(crate) fn wait(&self, timeout: std::time::Duration) -> bool {
        match self.page.bytes().word(word_at(self.index)) {
            Ok(word) => WindowGate::new(word).wait_drained(timeout) == Drain::Drained,
            Err(_) => true,
        }
    }

    /// Sleeps until nobody is inside any more, `is_over` says that nobody can be, or the wait is over.
    pub(crate) fn wait_until(
        &self,
        until: Until,
        mut is_over: impl FnMut() -> bool,
    ) -> std::result::Result<(), Stop> {
        let mut vigil = until.vigil();
        loop {
            let nap = clock::left(vigil.nap_until()).as_nanos().min(LONGEST_NAP_NS);
            if self.wait(std::time::Duration::from_nanos(nap)) || is_over() {
                return Ok(());
            }
            vigil.check()?;
        }
    }
}

#[cold]
pub(super) fn no_descriptor(e: std::io::Error) -> Error {
    let what = "no descriptor left; raise the limit of open files (ulimit -n)";
    Error::new(crate::error::ErrorKind::SystemLimit, what).with_source(e)
}

pub(super) fn word_at(index: u16) -> u64 {
    u64::from(index).saturating_mul(8)
}

pub(super) fn word_epoch(epoch: Epoch) -> u32 {
    epoch.0 & MAX_EPOCH
}

/// Copies between `local` of `region` and a mapped window, inside the window's word.
#[inline]
pub(super) fn copy_mapped(
    m: &Mapped,
    pages: PeerPages<'_>,
    region: &Region,
    opcode: Opcode,
    local: ByteRange,
    remote: WindowSlice,
    whole: u64,
) -> std::result::Result<(), Failure> {
    let needed = if opcode == Opcode::Get { Access::READ } else { Access::WRITE };
    inside(m, pages, needed, remote, |there| {
        if opcode == Opcode::Get {
            m.map.bytes().copy_piece_to(there, &region.bytes(), local, whole)
        } else {
            region.bytes().copy_piece_to(local, &m.map.bytes(), there, whole)
        }
    })
}

/// Copies `bytes`, which are in no region, into a mapped window, inside the window's word.
pub(super) fn write_mapped(
    m: &Mapped,
    pages: PeerPages<'_>,
    bytes: &SharedBytes<'_>,
    remote: WindowSlice,
) -> std::result::Result<(), Failure> {
    let all = bytes.extent().whole();
    inside(m, pages, Access::WRITE, remote, |there| bytes.copy_to(all, &m.map.bytes(), there))
}

/// Does `copy` at the place of `remote` in a mapped window, inside the window's word.
#[inline]
fn inside(
    m: &Mapped,
    pages: PeerPages<'_>,
    needed: Access,
    remote: WindowSlice,
    copy: impl FnOnce(ByteRange) -> std::result::Result<(), SharedError>,
) -> std::result::Result<(), Failure> {
    if m.epoch != remote.epoch {
        return Err(Failure::Window(WindowFault::StaleEpoch));
    }
    if !m.access.contains(needed) {
        return Err(Failure::Window(WindowFault::Access));
    }
    let there = m
        .range
        .sub(Side::Remote, remote.span.offset(), remote.span.len())
        .map_err(|e| Failure::Window(WindowFault::OutOfWindow(e)))?;
    let word = pages.words.get(remote.window.index());
    let word = WindowGate::new(word.ok_or(Failure::Window(WindowFault::Unknown))?);
    let revoked = Failure::Window(WindowFault::Revoked);
    word.enter(word_epoch(remote.epoch)).map_err(|_| revoked)?;
    let copied = copy(there);
    let stayed_open = word.exit_open(word_epoch(remote.epoch));
    // Pages outlive their owner: bytes for nobody are no success. The kernel says so before anybody can wait for its end.
    let ended = pages.life.is_some_and(PeerLife::has_ended);
    #[cfg(hmc_mutants)]
    let ended = ended && !mutant::is(Mutant::IgnoreMark);
    if ended {
        return Err(Failure::PeerDead);
    }
    // An owner that gave up waiting has put fresh pages under its window: bytes in the old ones are no success either.
    if !stayed_open && needed.contains(Access::WRITE) {
        return Err(revoked);
    }
    copied.map_err(|_| Failure::UnknownRegion)
}

#[cfg(test)]
mod tests {
    use super::{File, Mapped, PeerPages, ShmFence, inside};
    use crate::clock;
    use crate::until::{Stop, Until};
    use hmc_core::range::Extent;
    use hmc_core::region::{Epoch, WindowId, WindowSlice};
    use hmc_core::time::{Duration, Instant};
    use hmc_core::types::Access;
    use hmc_core::window::WindowFault;
    use hmc_core::work::Failure;
    use hmc_mem::gate::WindowGate;
    use hmc_mem::os::memfd::Mapping;
    use hmc_mem::os::words::PeerWords;
    use std::sync::Arc;

    #[test]
    fn the_wait_for_a_peer_that_stays_inside_can_be_interrupted() {
        let page = Arc::new(Mapping::create(4096).expect("memory"));
        let word = WindowGate::new(page.bytes().word(0).expect("aligned"));
        word.open(1).expect("closed before");
        word.enter(1).expect("open");
        let fence = ShmFence { page: Arc::clone(&page), index: 0 };
        let interrupted = Until::new(Instant::NEVER, Some(|| true));
        assert_eq!(fence.wait_until(interrupted, || false), Err(Stop::Interrupted));
        let soon = clock::now().after(Duration::from_millis(1));
        assert_eq!(
            fence.wait_until(Until::new(soon, Some(|| true)), || false),
            Err(Stop::Deadline)
        );
        assert_eq!(fence.wait_until(interrupted, || true), Ok(()), "the peer has ended");
        word.exit();
        assert_eq!(fence.wait_until(interrupted, || false), Ok(()));
    }

    /// An owner that waits no longer puts fresh pages under its window while a copy is inside: the bytes of a put are in
    /// the old pages, which nobody reads.
    #[test]
    fn a_put_into_a_window_that_was_closed_meanwhile_is_no_success() {
        let pages = Mapping::create(4096).expect("memory");
        let fd = pages.fd().expect("a memfd").try_clone_to_owned().expect("a descriptor");
        let words = PeerWords::new(Mapping::create(4096).expect("memory")).expect("room for all");
        let word = WindowGate::new(words.get(0).expect("the first"));
        let mapped = Mapped {
            id: WindowId(0),
            epoch: Epoch(1),
            file: File::of(&fd).expect("a file"),
            map: Arc::new(Mapping::map_peer(fd, 4096, 0, Access::all()).expect("mapped")),
            range: Extent::new(4096).whole(),
            access: Access::all(),
        };
        let there =
            WindowSlice { window: mapped.id, epoch: mapped.epoch, span: Extent::new(8).whole() };
        let copy = |needed, meanwhile: &dyn Fn()| {
            let at = PeerPages { words: &words, life: None };
            inside(&mapped, at, needed, there, |_| {
                meanwhile();
                Ok(())
            })
        };
        let open = || {
            word.close();
            word.open(1).expect("an epoch");
        };
        let revoked = Err(Failure::Window(WindowFault::Revoked));
        open();
        assert_eq!(copy(Access::WRITE, &|| ()), Ok(()));
        assert_eq!(copy(Access::WRITE, &|| word.close()), revoked);
        open();
        assert_eq!(copy(Access::READ, &|| word.close()), Ok(()), "bytes of before");
        open();
        let reopen = || word.open(2).expect("an epoch");
        assert_eq!(copy(Access::WRITE, &reopen), revoked, "it is another window");
        assert_eq!(word.active(), 0);
    }

    /// Pages that were mapped for a window that may only be read serve no other one that may be written, although the
    /// peer passed the same file for both.
    #[test]
    fn a_mapping_serves_windows_of_no_more_rights() {
        let pages = Mapping::create(4096).expect("memory");
        let fd = || pages.fd().expect("a memfd").try_clone_to_owned().expect("a descriptor");
        let file = File::of(fd()).expect("a file");
        let mapped = |access| Mapped {
            id: WindowId(0),
            epoch: Epoch(1),
            map: Arc::new(Mapping::map_peer(fd(), 4096, 0, access).expect("mapped")),
            file,
            range: Extent::new(4096).whole(),
            access,
        };
        let (reading, writable) = (mapped(Access::READ), mapped(Access::all()));
        assert!(reading.map_of(file, 4096, false).is_some());
        assert!(reading.map_of(file, 4096, true).is_none(), "its pages cannot be written");
        assert!(writable.map_of(file, 4096, true).is_some());
        assert!(writable.map_of(file, 4096, false).is_some(), "its rights are judged by the copy");
        assert!(writable.map_of(file, 8192, true).is_none(), "of another length");
        let other = File::of(Mapping::create(4096).expect("memory").fd().expect("a memfd"));
        assert!(writable.map_of(other.expect("a file"), 4096, true).is_none(), "another file");
    }
}
