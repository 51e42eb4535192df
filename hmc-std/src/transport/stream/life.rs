//! Whether a peer of this system may still copy: its stream and its process are looked at.
//!
//! Each end looks: the initiator before it has back what the target reads and writes by itself, the target before each
//! piece that it copies. It says nothing of what was received before: frames in the socket are still there to be read.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use hmc_core::time::Duration;
use rustix::event::{PollFd, PollFlags};
use rustix::process::{Pid, PidfdFlags};

use crate::clock;
use crate::socket::Socket;

/// What tells of the end of a peer of this host.
#[derive(Clone, Debug, Default)]
pub(crate) struct PeerLife {
    /// Readable once all threads of the process have ended, reaped or not (pidfd_open(2)).
    process: Option<Arc<OwnedFd>>,
    /// A stream, which the kernel closes at execve(2), or after the last thread of the process.
    stream: Option<Arc<Socket>>,
}

impl PeerLife {
    /// Of the peer at the other end of `stream`, and of its process `pid` where the kernel has named it.
    pub(super) fn of(pid: Option<u32>, stream: &Arc<Socket>) -> Self {
        let pid = pid.and_then(|p| i32::try_from(p).ok()).and_then(Pid::from_raw);
        let open = |p| rustix::process::pidfd_open(p, PidfdFlags::empty()).ok().map(Arc::new);
        let life = Self { process: pid.and_then(open), stream: Some(Arc::clone(stream)) };
        // If it ended before, another process may have its number.
        if life.has_ended() { Self { process: None, ..life } } else { life }
    }

    /// Whether the end of its process can be seen.
    pub(super) fn has_process(&self) -> bool {
        self.process.is_some()
    }

    /// Whether its process has ended, or it has ended its direction of the stream.
    pub(crate) fn has_ended(&self) -> bool {
        self.ends_within(Duration::ZERO)
    }

    /// As [`Self::has_ended`], waiting up to `timeout`.
    pub(crate) fn ends_within(&self, timeout: Duration) -> bool {
        let mut fds: heapless::Vec<PollFd<'_>, 2> = heapless::Vec::new();
        fds.extend(self.descriptors());
        // EINTR: not seen yet.
        let seen = rustix::event::poll(&mut fds, clock::timespec(timeout).as_ref());
        !fds.is_empty() && seen.is_ok_and(|n| n > 0)
    }

    /// What to poll: whatever becomes ready, it has ended.
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = PollFd<'_>> {
        let process = self.process.as_deref().map(|p| PollFd::new(p, PollFlags::IN));
        let stream = self.stream.as_deref().and_then(Socket::fd);
        // Its direction alone: ours may have ended before.
        let stream = stream.map(|s| PollFd::from_borrowed_fd(s, PollFlags::RDHUP));
        process.into_iter().chain(stream)
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;
    use std::sync::{Arc, Mutex};

    use hmc_core::kinds::Rank;
    use hmc_core::region::{Epoch, RemoteSlice, WindowId};
    use hmc_core::slots::OpId;
    use hmc_core::transport::Transport as _;
    use hmc_core::work::{CompleteWhen, Completion, Opcode, WorkRequest};

    use crate::memory::RegionTable;
    use crate::node::inbox::Inbox;
    use crate::transport::stream::{Down, StreamPort, StreamSetup};

    /// The memory of a get that the peer serves by itself, whose link is declared dead because another connection ended.
    #[test]
    fn the_end_of_another_connection_is_no_fence() {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        let mut port = StreamPort::new(StreamSetup {
            socket: Arc::new(OwnedFd::from(ours).into()),
            peer: Rank(1),
            local: true,
            near: true,
            pid: Some(std::process::id()),
            cma: true,
            batched_acks: true,
            windows: 1,
            inbox: Arc::new(Mutex::new(Inbox::new(1, 1))),
        });
        let region = Arc::new(RegionTable::default()).allocate(4096).expect("memory");
        port.regions().learn(&region);
        let local = region.slice(0, 4096).expect("all of it");
        let op = OpId { index: 0, generation: 1 };
        let (opcode, when) = (Opcode::Get, CompleteWhen::Visible);
        let remote = RemoteSlice { window: WindowId(1), epoch: Epoch(1), span: local.span };
        let work = WorkRequest { op, opcode, when, local, remote };
        port.submit(&work, true, 4096).expect("room");
        port.flush();
        port.bring_down(Down::Eof);
        let mut done = [Completion { op, result: Ok(0) }];
        assert_eq!(port.poll(&mut done), 0, "the peer may be copying");
        assert!(!port.is_harmless() && !port.peer_has_ended());
        drop(theirs);
        assert!(port.is_harmless() && port.peer_has_ended());
    }
}
