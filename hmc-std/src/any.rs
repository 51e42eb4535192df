//! Waiting for several operations: for all of them, or for whichever ends first.
//!
//! [`Communicator::wait_any`] watches the sockets of all links concerned and a bell of its own: whoever else reads an
//! answer (a leader, the background thread) rings it. No look is repeated for want of a signal.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use hmc_core::time::Instant;
use rustix::event::{EventfdFlags, PollFd, PollFlags};

use crate::clock;
use crate::communicator::Communicator;
use crate::error::{Error, ErrorKind, Result};
use crate::op::OpId;
use crate::peer::Peer;
use crate::wakers::Notice;

/// Rung when an operation that is waited for ends.
#[derive(Debug)]
pub(crate) struct Bell(OwnedFd);

impl Bell {
    fn new() -> Result<Arc<Self>> {
        rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map(|fd| Arc::new(Self(fd)))
            .map_err(|e| Error::io("cannot create an eventfd to wait on", e))
    }

    /// Wakes the wait.
    pub(crate) fn ring(&self) {
        // eventfd(2): fails only when the counter is full, and then it rings already.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    /// Forgets what was rung.
    fn hush(&self) {
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.0, &mut count);
    }
}

/// A bell at operations, taken off again on drop: it must not ring for somebody else's wait.
struct Armed<'a> {
    peers: &'a [(Peer, OpId)],
}

impl<'a> Armed<'a> {
    /// Hangs `bell` at every operation. `None` when there is something to do first: one has ended, or bytes are to
    /// be copied by this process itself.
    fn put(peers: &'a [(Peer, OpId)], bell: &Arc<Bell>) -> Option<Self> {
        let armed = Armed { peers };
        for (peer, op) in peers {
            // What it replaces may be a waker: dropped outside the lock.
            let waker = Notice::Own(Arc::clone(bell));
            let mut data = peer.link.data();
            let busy = data.has_work() || data.lane().test(op.op) != Ok(false);
            let left = if busy { Some(waker) } else { data.set_waker(op.op, waker) };
            drop(data);
            drop(left);
            if busy {
                return None;
            }
        }
        Some(armed)
    }
}

impl Drop for Armed<'_> {
    fn drop(&mut self) {
        for (peer, op) in self.peers {
            let waker = peer.link.data().take_waker(op.op);
            drop(waker);
        }
    }
}

/// Sleeps until the bell rings, a socket is ready, or the time of an operation or of the caller has come.
fn sleep(peers: &[(Peer, OpId)], bell: &Bell, deadline: Instant) {
    let mut until = deadline;
    let mut fds = Vec::with_capacity(peers.len().saturating_add(1));
    fds.push(PollFd::new(&bell.0, PollFlags::IN));
    for (peer, _) in peers {
        let (interest, earliest) = {
            let mut data = peer.link.data();
            (data.port().interest(), data.lane().next_deadline())
        };
        until = until.min(earliest);
        let mut flags = PollFlags::empty();
        flags.set(PollFlags::IN, interest.read);
        flags.set(PollFlags::OUT, interest.write);
        let socket = peer.link.data_socket().filter(|_| !flags.is_empty());
        if let Some(fd) = socket.and_then(|s| s.fd()) {
            fds.push(PollFd::from_borrowed_fd(fd, flags));
        }
    }
    let timeout = clock::timespec(clock::left(until));
    // EINTR is one more reason to look again.
    let _ = rustix::event::poll(&mut fds, timeout.as_ref());
}

impl Communicator {
    /// Waits for all operations, whatever becomes of each. Gives the bytes moved by all.
    ///
    /// # Errors
    /// The first failure, in the order of the list, after all have ended. `Interrupted` at once: this one and those after
    /// it can be waited for again.
    pub fn wait_all(&self, ops: &[OpId]) -> Result<u64> {
        self.shared.check_process()?;
        let until = self.shared.until(self.shared.config.deadline);
        let mut total: u64 = 0;
        let mut failure = None;
        for op in ops {
            let left = Duration::from_nanos(clock::left(until.at).as_nanos());
            match self.peer_of(*op).and_then(|p| p.wait_within(*op, left)) {
                Ok(n) => total = total.saturating_add(n),
                Err(e) if e.kind() == ErrorKind::Interrupted => return Err(e),
                Err(e) => failure = failure.or(Some(e)),
            }
        }
        failure.map_or(Ok(total), Err)
    }

    /// Waits until one of the operations has ended, takes its result and says which. They may be of different
    /// peers.
    ///
    /// # Errors
    /// `InvalidConfig` for an empty list; `DeadlineExceeded`; `Interrupted`; `Stale` for a name that is none.
    /// The failure of an operation that ended is the second half of the pair.
    pub fn wait_any(&self, ops: &[OpId], timeout: Duration) -> Result<(usize, Result<u64>)> {
        self.shared.check_process()?;
        if ops.is_empty() {
            return Err(Error::config("wait_any needs at least one operation"));
        }
        let mut vigil = self.shared.until(timeout).vigil();
        let spin_until = clock::now().after(clock::from_std(self.shared.config.spin));
        let mut peers = Vec::with_capacity(ops.len());
        for (i, op) in ops.iter().enumerate() {
            match self.peer_of(*op) {
                Ok(peer) => peers.push((peer, *op)),
                Err(e) => return Ok((i, Err(e))),
            }
        }
        let mut bell = None;
        loop {
            for (i, (peer, op)) in peers.iter().enumerate() {
                if peer.test(*op)? {
                    return Ok((i, peer.wait(*op)));
                }
            }
            let what = "waiting for any of several operations";
            vigil.check().map_err(|stop| stop.error(what))?;
            if clock::now() < spin_until {
                std::hint::spin_loop();
                continue;
            }
            let bell = match &bell {
                Some(bell) => bell,
                None => bell.insert(Bell::new()?),
            };
            if let Some(armed) = Armed::put(&peers, bell) {
                sleep(&peers, bell, vigil.nap_until());
                drop(armed);
                bell.hush();
            }
        }
    }
}
