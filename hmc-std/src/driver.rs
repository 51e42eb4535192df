//! Readiness: which sockets have something to do, and links that asked to be run.
//!
//! The driver knows descriptors and tokens, nothing of what they mean: [`crate::engine`] does.

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Mutex, PoisonError};

use rustix::event::epoll;
use rustix::io::Errno;

use crate::config::Progress;
use crate::error::{Error, Result};
use crate::link::Link;
use crate::socket::Socket;

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
    /// Somebody rang the bell.
    Bell,
}

impl Token {
    fn encode(self) -> u64 {
        let (n, kind) = match self {
            Self::Link(n, Channel::Ctrl) => (n, 0),
            Self::Link(n, Channel::Data) => (n, 1),
            Self::Listener(n) => (n, 2),
            Self::Pending(n) => (n, 3),
            Self::Bell => (0, 4),
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
            4 => Self::Bell,
            _ => return None,
        })
    }
}

/// What the kernel was last told about a descriptor.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Registered {
    added: bool,
    read: bool,
    write: bool,
}

impl Registered {
    pub(crate) fn differs(&self, read: bool, write: bool) -> bool {
        !self.added || self.read != read || self.write != write
    }
}

/// One session's epoll instances and its queue of links to run.
#[derive(Debug)]
pub(crate) struct Driver {
    main: OwnedFd,
    /// With `Progress::Manual`, data planes are watched apart: only `progress()` serves them.
    data: Option<OwnedFd>,
    bell: OwnedFd,
    queue: Mutex<VecDeque<u32>>,
}

fn new_epoll() -> Result<OwnedFd> {
    epoll::create(epoll::CreateFlags::CLOEXEC)
        .map_err(|e| Error::io("cannot create an epoll instance", e))
}

impl Driver {
    pub(crate) fn new(progress: Progress) -> Result<Self> {
        let main = new_epoll()?;
        let data = match progress {
            Progress::Thread => None,
            Progress::Manual => Some(new_epoll()?),
        };
        use rustix::event::EventfdFlags;
        let bell = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|e| Error::io("cannot create an eventfd", e))?;
        let this = Self { main, data, bell, queue: Mutex::new(VecDeque::with_capacity(64)) };
        this.watch(&this.bell, Token::Bell)?;
        Ok(this)
    }

    /// Watches a stranger's socket for reading.
    pub(crate) fn watch_socket(&self, socket: &Socket, token: Token) -> Result<()> {
        socket.fd().map_or(Ok(()), |fd| self.watch(fd, token))
    }

    pub(crate) fn unwatch_socket(&self, socket: &Socket) {
        if let Some(fd) = socket.fd() {
            self.unwatch(fd);
        }
    }

    /// Watches a descriptor for reading, as long as it is open.
    pub(crate) fn watch(&self, fd: impl AsFd, token: Token) -> Result<()> {
        let data = epoll::EventData::new_u64(token.encode());
        epoll::add(&self.main, fd, data, epoll::EventFlags::IN)
            .map_err(|e| Error::io("cannot watch a descriptor", e))
    }

    pub(crate) fn unwatch(&self, fd: impl AsFd) {
        let _ = epoll::delete(&self.main, fd);
    }

    fn instance(&self, channel: Channel) -> &OwnedFd {
        match (channel, &self.data) {
            (Channel::Data, Some(data)) => data,
            _ => &self.main,
        }
    }

    /// Tells the kernel what a half of a link waits for.
    pub(crate) fn register(
        &self,
        socket: &Socket,
        serial: u32,
        channel: Channel,
        slot: &mut Registered,
        read: bool,
        write: bool,
    ) {
        let Some(fd) = socket.fd() else { return };
        let mut flags = epoll::EventFlags::empty();
        flags.set(epoll::EventFlags::IN, read);
        flags.set(epoll::EventFlags::OUT, write);
        // epoll(7) reports a hang-up whatever was asked for. Nobody may be able to act on it now (a
        // waiter attends the socket, or the inbox is full): once is enough then.
        flags.set(epoll::EventFlags::ONESHOT, !read && !write);
        let data = epoll::EventData::new_u64(Token::Link(serial, channel).encode());
        let at = self.instance(channel);
        let told = if slot.added {
            epoll::modify(at, fd, data, flags)
        } else {
            epoll::add(at, fd, data, flags)
        };
        match told {
            Ok(()) => *slot = Registered { added: true, read, write },
            // The link is over and was forgotten.
            Err(Errno::NOENT | Errno::BADF) => {}
            Err(e) => tracing::error!(error = %e, serial, "cannot watch a link"),
        }
    }

    /// Stops watching a link.
    pub(crate) fn forget(&self, link: &Link) {
        if let Some(fd) = link.ctrl_socket().fd() {
            let _ = epoll::delete(&self.main, fd);
        }
        if let Some(fd) = link.data_socket().and_then(|s| s.fd()) {
            let _ = epoll::delete(self.instance(Channel::Data), fd);
        }
    }

    /// Asks for a link to be run.
    pub(crate) fn enqueue(&self, serial: u32) {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).push_back(serial);
        self.ring();
    }

    pub(crate) fn next_queued(&self) -> Option<u32> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }

    /// Wakes whoever waits in [`Driver::wait`].
    pub(crate) fn ring(&self) {
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }

    pub(crate) fn silence(&self) {
        let mut count = [0u8; 8];
        let _ = rustix::io::read(&self.bell, &mut count);
    }

    /// Waits up to `timeout` for something to be ready; `None` waits for ever. Says how many events
    /// `out` got.
    pub(crate) fn wait(
        &self,
        manual_data: bool,
        out: &mut Events,
        timeout: Option<&rustix::time::Timespec>,
    ) -> usize {
        let at = match (&self.data, manual_data) {
            (Some(data), true) => data,
            _ => &self.main,
        };
        out.raw.clear();
        let room = rustix::buffer::spare_capacity(&mut out.raw);
        // EINTR: the caller goes round anyway.
        epoll::wait(at, room, timeout).unwrap_or_default()
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
    use super::{Channel, Token};

    #[test]
    fn tokens_survive_the_kernel() {
        for t in [
            Token::Link(u32::MAX, Channel::Ctrl),
            Token::Link(7, Channel::Data),
            Token::Listener(1),
            Token::Pending(u32::MAX),
            Token::Bell,
        ] {
            assert_eq!(Token::decode(t.encode()), Some(t));
        }
        assert_eq!(Token::decode(7), None);
    }
}
