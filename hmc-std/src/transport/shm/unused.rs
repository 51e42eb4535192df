//! Unused mappings of a peer's memory. They are unmapped where no thread waits for it: the process that unmaps the
//! last reference to pages frees them, which takes seconds for each GiB on a busy machine.

use std::sync::Arc;

use hmc_mem::os::mapped_window::MappedWindow;

use super::mapped::Mapped;

/// So many bytes at the most are unmapped by the caller: that takes a millisecond or two.
const MOST_AT_ONCE: u64 = 16 << 20;

/// A window of a peer that its link does not use any more.
#[derive(Debug)]
struct Gone {
    window: Arc<MappedWindow>,
    /// Whether the link uses no other window of the same mapping.
    is_last: bool,
}

impl Gone {
    /// Whether a handle of the application keeps the mapping.
    fn is_held(&self) -> bool {
        Arc::strong_count(&self.window) > 1 || Arc::strong_count(self.window.map()) > 1
    }
}

impl Drop for Gone {
    fn drop(&mut self) {
        if !self.is_last || !self.is_held() {
            return;
        }
        // The peer's memory is not kept by a handle that its owner forgot.
        if let Err(error) = self.window.map().detach() {
            tracing::debug!(%error, "the pages of a window that is gone stay mapped until its handles are dropped");
        }
    }
}

/// Windows of a peer that its link does not use any more. Dropped, they are unmapped at once: not under a lock.
#[derive(Debug, Default)]
pub(crate) struct Unused(Vec<Gone>);

impl Unused {
    /// Takes over a window that is gone; `others` are the windows that the link still has.
    pub(super) fn push(&mut self, mapped: Mapped, others: &[Option<Mapped>]) {
        let window = mapped.window;
        let shares = |m: &Mapped| Arc::ptr_eq(m.window.map(), window.map());
        let is_last = !others.iter().flatten().any(shares);
        // Before its pages go: threads that copy through a handle hold no lock.
        window.retire();
        self.0.push(Gone { window, is_last });
    }

    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// A thread of its own unmaps them where that takes long, if the system has one left.
impl Drop for Unused {
    fn drop(&mut self) {
        let bytes = self
            .0
            .iter()
            .fold(0, |sum: u64, gone| sum.saturating_add(gone.window.map().extent().len()));
        let gone = std::mem::take(&mut self.0);
        if bytes > MOST_AT_ONCE {
            // Without a thread they are dropped here, with the closure.
            let _ = std::thread::Builder::new().name("hmc-unmap".into()).spawn(move || drop(gone));
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may panic")]
mod tests {
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;
    use std::sync::{Arc, Mutex, Weak};

    use hmc_core::range::Extent;
    use hmc_core::region::{Epoch, WindowId};
    use hmc_core::types::{Access, Rank};
    use hmc_core::window::WindowFault;
    use hmc_core::wire::hello::Features;
    use hmc_core::work::Failure;
    use hmc_mem::gate::WindowGate;
    use hmc_mem::os::mapped_window::MappedWindow;
    use hmc_mem::os::memfd::Mapping;
    use hmc_mem::os::words::PeerWords;

    use hmc_core::transport::{
        DataCloseReason, DataPlane as _, PeerWindows as _, Registration as _,
    };

    use super::super::ShmDataPlane;
    use crate::node::inbox::Inbox;
    use crate::transport::stream::{Arrival, StreamDataPlane, StreamSetup};

    const EPOCH: Epoch = Epoch(1);

    fn plane() -> (ShmDataPlane, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let stream = StreamDataPlane::new(StreamSetup {
            socket: Arc::new(OwnedFd::from(ours).into()),
            peer: Rank(1),
            local: true,
            near: true,
            pid: None,
            cma: false,
            batched_acks: true,
            generations: true,
            gathers: true,
            windows: 8,
            inbox: Arc::new(Mutex::new(Inbox::new(16, 4096))),
        });
        let mut plane = ShmDataPlane::new(stream, None, Features::empty()).unwrap();
        plane.peer_page = Some(Arc::new(PeerWords::new(Mapping::create(4096).unwrap()).unwrap()));
        (plane, theirs)
    }

    /// The peer's window of that number, mapped.
    fn arrive(plane: &mut ShmDataPlane, window: WindowId, len: u64) -> Weak<Mapping> {
        let theirs = Mapping::create(len).unwrap();
        let fd = theirs.fd().unwrap().try_clone_to_owned().unwrap();
        let (offset, access) = (0, Access::all());
        plane
            .map(Arrival {
                window,
                epoch: EPOCH,
                fd: Ok(fd),
                offset,
                len,
                total: len,
                tag: access.bits().into(),
                is_generations: false,
            })
            .unwrap();
        let mapped = plane.mapped_window(window).unwrap();
        Arc::downgrade(mapped.map())
    }

    /// A handle of the application keeps a window's addresses, not its pages: these are the peer's to use again.
    #[test]
    fn pages_of_a_window_that_is_gone_are_not_kept_by_its_handles() {
        let (mut plane, _theirs) = plane();
        let whole = Extent::new(4096).whole();
        let byte = |w: &MappedWindow| {
            let mut byte = [0];
            w.map().bytes().read_at(whole.split_at_most(1).0, &mut byte).unwrap();
            byte[0]
        };
        let held = [0, 1].map(|n| {
            let _ = arrive(&mut plane, WindowId::new(n, 0), 4096);
            let gate = plane.peer_page.as_ref().unwrap().get(n).unwrap();
            WindowGate::new(gate).open(EPOCH.0).unwrap();
            let window = Arc::clone(plane.mapped_window(WindowId::new(n, 0)).unwrap());
            window.map().bytes().fill(whole, 7).unwrap();
            window
        });
        plane.remove_window(WindowId::new(0, 0), EPOCH);
        assert_eq!(held.each_ref().map(|w| byte(w)), [7, 7], "not under the lock");
        let reads = |w: &MappedWindow| w.read((0, None), w.map().bytes(), whole, 4096);
        let revoked = Err(Failure::Window(WindowFault::Revoked));
        assert_eq!(
            held.each_ref().map(|w| reads(w)),
            [revoked, Ok(())],
            "the pages go at any moment"
        );
        drop(plane.take_released());
        assert_eq!(held.each_ref().map(|w| byte(w)), [0, 7], "taken back, and in use");
        plane.close(DataCloseReason::Eof);
        drop(plane.take_released());
        assert_eq!(held.each_ref().map(|w| byte(w)), [0, 0]);
    }

    /// The handle is of the one that was taken back first, and keeps the mapping of both.
    #[test]
    fn pages_of_two_windows_go_with_the_last_one() {
        let (mut plane, _theirs) = plane();
        let theirs = Mapping::create(4096).unwrap();
        let both = [WindowId::new(0, 0), WindowId::new(1, 0)];
        for (window, offset) in both.into_iter().zip([0, 2048]) {
            let fd = Ok(theirs.fd().unwrap().try_clone_to_owned().unwrap());
            let (len, total, access) = (2048, 4096, Access::all());
            plane
                .map(Arrival {
                    window,
                    epoch: EPOCH,
                    fd,
                    offset,
                    len,
                    total,
                    tag: access.bits().into(),
                    is_generations: false,
                })
                .unwrap();
        }
        let held = Arc::clone(plane.mapped_window(both[0]).unwrap());
        let last = plane.mapped_window(both[1]).unwrap();
        assert!(Arc::ptr_eq(held.map(), last.map()), "one mapping");
        theirs.bytes().fill(Extent::new(4096).whole(), 7).unwrap();
        let byte = || {
            let mut byte = [1];
            let first = Extent::new(4096).whole().split_at_most(1).0;
            held.map().bytes().read_at(first, &mut byte).unwrap();
            byte[0]
        };
        for (window, left) in both.into_iter().zip([7, 0]) {
            plane.remove_window(window, EPOCH);
            drop(plane.take_released());
            assert_eq!(byte(), left);
        }
    }

    /// Each of these happens under the lock of the link, where others wait.
    #[test]
    fn nothing_is_unmapped_under_the_lock() {
        let (mut plane, _theirs) = plane();
        let [a, b, c] = [0, 1, 1].map(|n| arrive(&mut plane, WindowId(n), 4096));
        plane.remove_window(WindowId(0), EPOCH);
        assert!(a.strong_count() == 1 && b.strong_count() == 1, "taken back, and replaced");
        drop(plane.take_released());
        assert!(a.strong_count() == 0 && b.strong_count() == 0 && c.strong_count() == 1);
        plane.close(DataCloseReason::Eof);
        assert_eq!(c.strong_count(), 1, "its process ended");
        drop(plane.take_released());
        assert_eq!(c.strong_count(), 0);
    }
}
