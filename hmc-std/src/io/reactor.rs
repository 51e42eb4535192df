//! Readiness: sockets with events, and links that requested a poll.
//!
//! The reactor handles descriptors and tokens; [`crate::progress::thread`] maps tokens to objects.

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use hmc_core::transport::Readiness;
use rustix::event::{PollFlags, epoll};
use rustix::io::Errno;

use crate::base::config::Progress;
use crate::base::error::{Error, Result};
use crate::io::socket::Socket;

/// Which half of a link a descriptor belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Channel {
    /// Control messages.
    Ctrl,
    /// The data plane.
    Data,
}

/// What became ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Token {
    /// A half of the link with that serial number.
    Link(u32, Channel),
    /// The listener of that number.
    Listener(u32),
    /// The unproven connection of that number.
    Pending(u32),
    /// Another thread woke the reactor.
    Wake,
    /// The shared worker of that number has something to do.
    Worker(u32),
}

impl Token {
    fn encode(self) -> u64 {
        let (n, kind) = match self {
            Self::Link(n, Channel::Ctrl) => (n, 0),
            Self::Link(n, Channel::Data) => (n, 1),
            Self::Listener(n) => (n, 2),
            Self::Pending(n) => (n, 3),
            Self::Wake => (0, 4),
            Self::Worker(n) => (n, 5),
        };
        u64::from(n) << 3 | kind
    }

    fn decode(v: u64) -> Option<Self> {
        let n = u32::try_from(v >> 3).ok()?;
        Some(match v & 7 {
            0 => Self::Link(n, Channel::Ctrl),
            1 => Self::Link(n, Channel::Data),
            2 => Self::Listener(n),
            3 => Self::Pending(n),
            4 => Self::Wake,
            5 => Self::Worker(n),
            _ => return None,
        })
    }
}

/// What poll(2) is asked for. It tells of a connection that both ends have left whatever is asked.
pub(crate) fn flags(wanted: Readiness) -> PollFlags {
    let mut flags = PollFlags::empty();
    flags.set(PollFlags::IN, wanted.read);
    flags.set(PollFlags::OUT, wanted.write);
    flags.set(PollFlags::RDHUP, wanted.end);
    flags
}

/// The kernel refused to watch a descriptor.
pub(crate) fn cannot_watch(e: Errno) -> Error {
    Error::io("cannot watch a descriptor", e)
}

/// What was last registered with the kernel for a descriptor.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Registered(Option<Readiness>);

impl Registered {
    pub(crate) fn differs(&self, wanted: Readiness) -> bool {
        self.0 != Some(wanted)
    }
}

/// Links that asked to be run.
#[derive(Debug)]
struct Queue {
    links: VecDeque<u32>,
    /// Whether the background thread sleeps, or is about to, and has to be woken for a link.
    parked: bool,
}

/// One session's epoll instance and its queue of links to run.
#[derive(Debug)]
pub(crate) struct Reactor {
    epoll: OwnedFd,
    /// With `Progress::Manual` only `progress()` serves data planes: nobody watches them.
    progress: Progress,
    waker: OwnedFd,
    queue: Mutex<Queue>,
    /// Whether the queue may hold links: a look that costs no lock. [`Reactor::wait`] looks under the lock.
    wanted: AtomicBool,
    /// Links have bytes of control connections of which no socket tells.
    unread: AtomicBool,
}

impl Reactor {
    pub(crate) fn new(progress: Progress) -> Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)
            .map_err(|e| Error::io("cannot create an epoll instance", e))?;
        use rustix::event::EventfdFlags;
        let waker = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|e| Error::io("cannot create an eventfd", e))?;
        let queue = Queue { links: VecDeque::with_capacity(64), parked: false };
        let (queue, wanted) = (Mutex::new(queue), AtomicBool::new(false));
        let unread = AtomicBool::new(false);
        let this = Self { epoll, progress, waker, queue, wanted, unread };
        this.watch(&this.waker, Token::Wake)?;
        Ok(this)
    }

    /// Whether the background thread serves data planes.
    pub(crate) fn serves_data(&self) -> bool {
        self.progress != Progress::Manual
    }

    /// Watches a pending connection's socket: tells once of what comes, however long it stays there.
    pub(crate) fn watch_pending(&self, socket: &Socket, token: Token) -> Result<()> {
        let flags = epoll::EventFlags::IN | epoll::EventFlags::RDHUP | epoll::EventFlags::ET;
        socket.fd().map_or(Ok(()), |fd| self.add(fd, token, flags).map_err(cannot_watch))
    }

    pub(crate) fn unwatch_socket(&self, socket: &Socket) {
        if let Some(fd) = socket.fd() {
            self.unwatch(fd);
        }
    }

    /// Watches a descriptor for reading, as long as it is open.
    pub(crate) fn watch(&self, fd: impl AsFd, token: Token) -> Result<()> {
        self.add(fd, token, epoll::EventFlags::IN).map_err(cannot_watch)
    }

    /// As [`Self::watch`], of a shared worker.
    pub(crate) fn watch_worker(
        &self,
        fd: impl AsFd,
        worker: u32,
    ) -> std::result::Result<(), Errno> {
        self.add(fd, Token::Worker(worker), epoll::EventFlags::IN)
    }

    fn add(
        &self,
        fd: impl AsFd,
        token: Token,
        flags: epoll::EventFlags,
    ) -> std::result::Result<(), Errno> {
        let data = epoll::EventData::new_u64(token.encode());
        epoll::add(&self.epoll, fd, data, flags)
    }

    pub(crate) fn unwatch(&self, fd: impl AsFd) {
        let _ = epoll::delete(&self.epoll, fd);
    }

    /// Tells the kernel what a half of a link waits for.
    pub(crate) fn register(
        &self,
        socket: &Socket,
        serial: u32,
        channel: Channel,
        slot: &mut Registered,
        wanted: Readiness,
    ) {
        let Some(fd) = socket.fd() else { return };
        if channel == Channel::Data && !self.serves_data() {
            return;
        }
        let mut flags = epoll::EventFlags::empty();
        flags.set(epoll::EventFlags::IN, wanted.read);
        flags.set(epoll::EventFlags::OUT, wanted.write);
        flags.set(epoll::EventFlags::RDHUP, wanted.end);
        // epoll(7) reports a hang-up whatever was asked for. Nobody may be able to act on it now (a
        // waiter has claimed the socket, or the inbox is full): once is enough then.
        flags.set(epoll::EventFlags::ONESHOT, !wanted.read && !wanted.write);
        let data = epoll::EventData::new_u64(Token::Link(serial, channel).encode());
        let result = if slot.0.is_some() {
            epoll::modify(&self.epoll, fd, data, flags)
        } else {
            epoll::add(&self.epoll, fd, data, flags)
        };
        match result {
            Ok(()) => *slot = Registered(Some(wanted)),
            // The link is over and no more watched.
            Err(Errno::NOENT | Errno::BADF) => {}
            Err(e) => tracing::error!(error = %e, serial, "cannot watch a link"),
        }
    }

    /// Stops watching the sockets of a link.
    pub(crate) fn unwatch_link(&self, ctrl: &Socket, data: Option<&Socket>) {
        for fd in [Some(ctrl), data].into_iter().flatten().filter_map(Socket::fd) {
            let _ = epoll::delete(&self.epoll, fd);
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks for a link to be run.
    pub(crate) fn enqueue(&self, serial: u32) {
        let mut queue = self.queue();
        queue.links.push_back(serial);
        self.wanted.store(true, Ordering::Relaxed);
        let parked = std::mem::take(&mut queue.parked);
        drop(queue);
        if parked {
            self.wake();
        }
    }

    /// Asks for a poll of the control connections that left bytes behind.
    pub(crate) fn request_ctrl_poll(&self) {
        self.unread.store(true, Ordering::Release);
        self.wake();
    }

    /// Whether that was asked for.
    pub(crate) fn take_ctrl_request(&self) -> bool {
        self.unread.load(Ordering::Relaxed) && self.unread.swap(false, Ordering::Acquire)
    }

    /// Moves the links that asked to be run into `out`, so that those who ask meanwhile get their turn after
    /// all others had theirs.
    pub(crate) fn take_queued(&self, out: &mut VecDeque<u32>) {
        out.clear();
        if self.wanted.load(Ordering::Relaxed) {
            let mut queue = self.queue();
            self.wanted.store(false, Ordering::Relaxed);
            std::mem::swap(&mut queue.links, out);
        }
    }

    /// Nobody needs to be run any more: all links are.
    pub(crate) fn clear_queued(&self) {
        self.queue().links.clear();
    }

    /// Wakes whoever waits in [`Reactor::wait`].
    pub(crate) fn wake(&self) {
        let _ = rustix::io::write(&self.waker, &1u64.to_ne_bytes());
    }

    pub(crate) fn clear_wake(&self) {
        let mut count = [0u8; 8];
        let _ = rustix::io::read(&self.waker, &mut count);
    }

    /// Waits up to `timeout` for something to be ready, or not at all when a link wants to be run; `None` waits
    /// for ever.
    pub(crate) fn wait(&self, out: &mut Events, timeout: Option<&rustix::time::Timespec>) {
        let now = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut queue = self.queue();
        let sleeps = queue.links.is_empty() && timeout != Some(&now);
        queue.parked = sleeps;
        drop(queue);
        out.raw.clear();
        let space = rustix::buffer::spare_capacity(&mut out.raw);
        // EINTR: the caller goes round anyway.
        let _ = epoll::wait(&self.epoll, space, if sleeps { timeout } else { Some(&now) });
        if sleeps {
            self.queue().parked = false;
        }
    }
}

/// Storage for events, allocated once.
pub(crate) struct Events {
    raw: Vec<epoll::Event>,
}

impl Events {
    pub(crate) fn new() -> Self {
        Self { raw: Vec::with_capacity(64) }
    }

    /// What became ready.
    pub(crate) fn tokens(&self) -> impl Iterator<Item = Token> + '_ {
        self.raw.iter().filter_map(|e| Token::decode(e.data.u64()))
    }
}

#[cfg(test)]
mod tests {
    use super::{Channel, Events, Reactor, Readiness, Registered, Socket, Token};
    use crate::base::config::Progress;
    use rustix::event::PollFlags;
    use std::collections::VecDeque;
    use std::io::Write as _;
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn tokens_survive_the_kernel() {
        for t in [
            Token::Link(u32::MAX, Channel::Ctrl),
            Token::Link(7, Channel::Data),
            Token::Listener(1),
            Token::Pending(u32::MAX),
            Token::Wake,
            Token::Worker(3),
        ] {
            assert_eq!(Token::decode(t.encode()), Some(t));
        }
        assert_eq!(Token::decode(7), None);
    }

    /// One call of the kernel for each change, not for each look.
    #[test]
    fn what_is_registered_is_not_registered_again() {
        let read = Readiness { read: true, ..Readiness::default() };
        assert!(!Registered(Some(read)).differs(read));
        assert!(Registered(Some(read)).differs(Readiness::default()));
        assert!(Registered::default().differs(read), "nothing is known of a new descriptor");
    }

    fn pair() -> (Socket, UnixStream) {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        (OwnedFd::from(ours).into(), theirs)
    }

    /// What is ready now.
    fn ready(reactor: &Reactor) -> Vec<Token> {
        let mut events = Events::new();
        reactor.wait(&mut events, Some(&rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 }));
        events.tokens().collect()
    }

    const NOTHING: Readiness = Readiness { read: false, write: false, end: false };

    #[test]
    fn a_half_of_a_link_is_notified_of_what_it_waits_for() {
        let reactor = Reactor::new(Progress::Thread).expect("descriptors");
        assert!(reactor.serves_data());
        let (socket, mut peer) = pair();
        let mut slot = Registered::default();
        let token = Token::Link(7, Channel::Data);
        let mut register = |wanted| {
            reactor.register(&socket, 7, Channel::Data, &mut slot, wanted);
            assert!(!slot.differs(wanted));
        };
        register(Readiness { read: true, ..NOTHING });
        assert_eq!(ready(&reactor), []);
        peer.write_all(&[1]).expect("space");
        assert_eq!(ready(&reactor), [token]);
        assert_eq!(ready(&reactor), [token], "as long as bytes lie there");
        register(Readiness { end: true, ..NOTHING });
        assert_eq!(ready(&reactor), []);
        register(Readiness { write: true, ..NOTHING });
        assert_eq!(ready(&reactor), [token]);
        assert_eq!(ready(&reactor), [token], "as long as there is space");
        register(Readiness { end: true, ..NOTHING });
        peer.shutdown(std::net::Shutdown::Write).expect("connected");
        assert_eq!(ready(&reactor), [token]);
        assert_eq!(ready(&reactor), [], "nothing can be done about it");
        register(NOTHING);
        assert_eq!(ready(&reactor), []);
        drop(peer);
        assert_eq!(ready(&reactor), [token], "a hang-up is reported whatever was requested");
        assert_eq!(ready(&reactor), [], "once");
        register(Readiness { read: true, ..NOTHING });
        assert_eq!(ready(&reactor), [token]);
        let (ctrl, _other) = pair();
        reactor.unwatch_link(&ctrl, Some(&socket));
        assert_eq!(ready(&reactor), []);
    }

    #[test]
    fn nobody_watches_data_planes_where_the_application_drives_them() {
        let reactor = Reactor::new(Progress::Manual).expect("descriptors");
        assert!(!reactor.serves_data());
        let read = Readiness { read: true, ..NOTHING };
        let (socket, mut peer) = pair();
        peer.write_all(&[1]).expect("space");
        let mut slot = Registered::default();
        reactor.register(&socket, 7, Channel::Data, &mut slot, read);
        assert!(slot.differs(read) && ready(&reactor).is_empty());
        reactor.register(&socket, 7, Channel::Ctrl, &mut slot, read);
        assert_eq!(ready(&reactor), [Token::Link(7, Channel::Ctrl)]);
        reactor.unwatch_socket(&socket);
        assert_eq!(ready(&reactor), []);
    }

    #[test]
    fn bytes_of_a_pending_conn_are_reported_once_and_the_end_too() {
        let reactor = Reactor::new(Progress::Thread).expect("descriptors");
        let (socket, mut peer) = pair();
        let token = Token::Pending(3);
        reactor.watch_pending(&socket, token).expect("watched");
        assert_eq!(ready(&reactor), []);
        for _ in 0..2 {
            peer.write_all(&[1]).expect("space");
            assert_eq!((ready(&reactor), ready(&reactor)), (vec![token], vec![]));
        }
        peer.shutdown(std::net::Shutdown::Write).expect("connected");
        assert_eq!((ready(&reactor), ready(&reactor)), (vec![token], vec![]));
        reactor.unwatch_socket(&socket);
        drop(peer);
        assert_eq!(ready(&reactor), []);
    }

    #[test]
    fn a_link_that_is_queued_wakes_the_thread_only_if_that_sleeps() {
        let reactor = Reactor::new(Progress::Thread).expect("descriptors");
        let mut queued = VecDeque::from([9]);
        reactor.take_queued(&mut queued);
        assert!(queued.is_empty(), "what was run before");
        reactor.enqueue(1);
        reactor.enqueue(2);
        assert_eq!(ready(&reactor), []);
        // It would sleep for ever otherwise.
        reactor.wait(&mut Events::new(), None);
        reactor.take_queued(&mut queued);
        assert_eq!(queued, [1, 2]);
        reactor.take_queued(&mut queued);
        assert!(queued.is_empty());
        reactor.queue().parked = true;
        reactor.enqueue(3);
        assert_eq!(ready(&reactor), [Token::Wake]);
        reactor.clear_wake();
        reactor.enqueue(4);
        assert_eq!(ready(&reactor), [], "it is awake");
        reactor.clear_queued();
        reactor.take_queued(&mut queued);
        assert!(queued.is_empty());
        let soon = rustix::time::Timespec { tv_sec: 0, tv_nsec: 1 };
        reactor.wait(&mut Events::new(), Some(&soon));
        assert!(!reactor.queue().parked, "it has slept");
        reactor.wake();
        assert_eq!(ready(&reactor), [Token::Wake]);
    }

    #[test]
    fn what_is_waited_for_is_what_poll_gets() {
        for (read, write, end) in [
            (false, false, false),
            (true, false, false),
            (false, true, false),
            (false, false, true),
        ] {
            let flags = super::flags(Readiness { read, write, end });
            let expected =
                [(read, PollFlags::IN), (write, PollFlags::OUT), (end, PollFlags::RDHUP)];
            let all: PollFlags = expected.iter().filter(|(on, _)| *on).map(|(_, f)| *f).collect();
            assert_eq!(flags, all);
        }
    }
}
