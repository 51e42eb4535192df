//! What was mapped of a peer and is not used any more. It is unmapped where nobody waits for it: whoever unmaps the last of a
//! process's memory frees its pages, which takes a busy machine seconds for each GiB.

use std::sync::Arc;

use hmc_mem::os::memfd::Mapping;

use super::mapped::Mapped;

/// So many bytes at the most are unmapped by the caller: that takes a millisecond or two.
const MOST_AT_ONCE: u64 = 16 << 20;

/// Mappings of a peer's memory that its link does not use any more. Dropped, they are unmapped at once: not under a lock.
#[derive(Debug, Default)]
pub(crate) struct Unused(Vec<Arc<Mapping>>);

impl Unused {
    /// Takes over the mappings of windows that are gone.
    pub(super) fn extend(&mut self, windows: impl IntoIterator<Item = Option<Mapped>>) {
        self.0.extend(windows.into_iter().flatten().map(|m| m.map));
    }

    /// Unmaps them. A thread of their own does it where it takes long, if the system has one left.
    pub(crate) fn unmap(self) {
        let bytes = self.0.iter().fold(0, |sum: u64, m| sum.saturating_add(m.extent().len()));
        if bytes > MOST_AT_ONCE {
            // Without a thread they are dropped here, with the closure.
            let _ = std::thread::Builder::new().name("hmc-unmap".into()).spawn(move || drop(self));
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may panic")]
mod tests {
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;
    use std::sync::{Arc, Mutex, Weak};

    use hmc_core::region::{Epoch, WindowId};
    use hmc_core::types::{Access, Rank};
    use hmc_mem::os::memfd::Mapping;

    use super::super::ShmPort;
    use crate::node::inbox::Inbox;
    use crate::transport::stream::{Arrival, Down, StreamPort, StreamSetup};

    const EPOCH: Epoch = Epoch(1);

    fn port() -> (ShmPort, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let stream = StreamPort::new(StreamSetup {
            socket: Arc::new(OwnedFd::from(ours).into()),
            peer: Rank(1),
            local: true,
            near: true,
            pid: None,
            cma: false,
            batched_acks: true,
            windows: 8,
            inbox: Arc::new(Mutex::new(Inbox::new(16, 4096))),
        });
        (ShmPort::new(stream, None).unwrap(), theirs)
    }

    /// The peer's window of that number, mapped.
    fn arrive(port: &mut ShmPort, window: WindowId, len: u64) -> Weak<Mapping> {
        let theirs = Mapping::create(len).unwrap();
        let fd = theirs.fd().unwrap().try_clone_to_owned().unwrap();
        let (offset, access) = (0, Access::all());
        port.map(Arrival { window, epoch: EPOCH, fd: Ok(fd), offset, len, total: len, access })
            .unwrap();
        let mapped = port.mapped(window).unwrap();
        Arc::downgrade(&mapped.map)
    }

    /// Each of these happens under the lock of the link, where others wait.
    #[test]
    fn nothing_is_unmapped_under_the_lock() {
        let (mut port, _theirs) = port();
        let [a, b, c] = [0, 1, 1].map(|n| arrive(&mut port, WindowId(n), 4096));
        port.forget_remote(WindowId(0), EPOCH);
        assert!(a.strong_count() == 1 && b.strong_count() == 1, "taken back, and replaced");
        port.take_unused().unmap();
        assert!(a.strong_count() == 0 && b.strong_count() == 0 && c.strong_count() == 1);
        port.bring_down(Down::Eof);
        assert_eq!(c.strong_count(), 1, "its process ended");
        port.take_unused().unmap();
        assert_eq!(c.strong_count(), 0);
    }
}
