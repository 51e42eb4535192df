//! Waiting for several operations: for all of them, or for whichever ends first.
//!
//! [`Communicator::wait_any`] watches the sockets of the links concerned and a bell of its own: whoever else reads an
//! answer (a leader, the background thread) rings it. No look is repeated for want of a signal. What a wait needs is kept
//! for the next one, so that it allocates nothing but the first time.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hmc_core::time::{Duration as NanoDuration, Instant};
use rustix::event::{EventfdFlags, PollFd, PollFlags};

use crate::clock;
use crate::communicator::Communicator;
use crate::config::Progress;
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
            let busy = data.has_work() || data.test(op.op) != Ok(false);
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

/// Sockets that one wait watches at most, and its bell. Answers on others are read by the background thread, which rings.
const WATCHED: usize = 128;
/// How long a wait sleeps at most that cannot watch all sockets, where no thread but it reads them.
const UNWATCHED_NAP: NanoDuration = NanoDuration::from_millis(1);

/// Sleeps until the bell rings, a socket is ready, or the time of an operation or of the caller has come.
fn sleep(peers: &[(Peer, OpId)], bell: &Bell, deadline: Instant) {
    let mut until = deadline;
    let mut fds: heapless::Vec<PollFd<'_>, WATCHED> = heapless::Vec::new();
    let _ = fds.push(PollFd::new(&bell.0, PollFlags::IN));
    let mut last = None;
    for (peer, _) in peers {
        // Operations of one peer often stand side by side: one look at it is enough.
        if last.replace(peer.link.serial) == Some(peer.link.serial) {
            continue;
        }
        let (interest, earliest) = {
            let mut data = peer.link.data();
            (data.port().interest(), data.lane().next_deadline())
        };
        until = until.min(earliest);
        let flags = interest.wanted.flags();
        let socket = peer.link.data_socket().filter(|_| !flags.is_empty());
        if let Some(fd) = socket.and_then(|s| s.fd())
            && fds.push(PollFd::from_borrowed_fd(fd, flags)).is_err()
            && peer.shared.config.progress == Progress::Manual
        {
            until = until.min(clock::now().after(UNWATCHED_NAP));
        }
    }
    let timeout = clock::timespec(clock::left(until));
    // EINTR is one more reason to look again.
    let _ = rustix::event::poll(&mut fds, timeout.as_ref());
}

/// What a wait needs beside its operations.
#[derive(Debug)]
struct Wait {
    bell: Arc<Bell>,
}

/// What waits have left behind for the next ones.
#[derive(Debug)]
pub(crate) struct Waits(Mutex<heapless::Vec<Box<Room>, KEPT>>);

/// How many are kept: threads that wait at the same time and allocate nothing.
const KEPT: usize = 16;

/// The operations that a wait looks at, with their peers, and what it sleeps with, once it has to.
#[derive(Debug, Default)]
struct Room {
    peers: Vec<(Peer, OpId)>,
    wait: Option<Wait>,
}

impl Waits {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(heapless::Vec::new()))
    }

    /// Never waits: what another thread is just taking or leaving is made anew.
    fn take(&self) -> Box<Room> {
        let kept = self.0.try_lock().ok().and_then(|mut kept| kept.pop());
        kept.unwrap_or_default()
    }

    fn leave(&self, mut room: Box<Room>) {
        room.peers.clear();
        if let Ok(mut kept) = self.0.try_lock() {
            let _ = kept.push(room);
        }
    }
}

impl Room {
    fn wait(&mut self) -> Result<(&[(Peer, OpId)], &Wait)> {
        let wait = match &mut self.wait {
            Some(wait) => wait,
            place => place.insert(Wait { bell: Bell::new()? }),
        };
        Ok((&self.peers, wait))
    }
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
        let mut room = self.shared.waits.take();
        let ended = self.wait_any_in(ops, timeout, &mut room);
        self.shared.waits.leave(room);
        ended
    }

    fn wait_any_in(
        &self,
        ops: &[OpId],
        timeout: Duration,
        room: &mut Room,
    ) -> Result<(usize, Result<u64>)> {
        let mut vigil = self.shared.until(timeout).vigil();
        let spin_until = clock::now().after(clock::from_std(self.shared.config.spin));
        for (i, op) in ops.iter().enumerate() {
            match self.peer_of(*op) {
                Ok(peer) => room.peers.push((peer, *op)),
                Err(e) => return Ok((i, Err(e))),
            }
        }
        loop {
            for (i, (peer, op)) in room.peers.iter().enumerate() {
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
            let (peers, wait) = room.wait()?;
            if let Some(armed) = Armed::put(peers, &wait.bell) {
                sleep(peers, &wait.bell, vigil.nap_until());
                drop(armed);
                wait.bell.hush();
            }
        }
    }
}
