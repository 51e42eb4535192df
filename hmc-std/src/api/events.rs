//! The descriptor by which a session joins an event loop.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;

use crate::api::session::Session;
use crate::base::error::Result;
use crate::io::eventfd::EventfdWaker;
use crate::state::inner::SessionInner;

impl Session {
    /// Returns the descriptor to sleep on, for poll(2), epoll(7) and event loops: it polls readable when something has happened
    /// since [`Events::clear`] was called last. That is:
    ///
    /// - an operation has ended, by success, failure or its deadline, or has passed its fence after it had failed; a message of
    ///   `send_data` or `recv_data` has ended;
    /// - a message has come into an inbox: a tag, a number, bytes, or the notification of a put;
    /// - a peer has connected, has described a window or taken one back, is leaving, has left or has died.
    ///
    /// It is level-triggered and has one bit: readable from the first event until `clear`, however many events there are.
    /// It is readable when this call makes it, so that a loop begins with a look. It may be readable although nothing is to be
    /// found: an event may tell of what another thread has taken, or of what an earlier look has found. Heartbeats and bytes that
    /// peers put or get do not count as events, nor does an operation that is over when [`Request::start`](crate::Request::start)
    /// returns ([`Op::name`](crate::Op::name) is `None`).
    ///
    /// A loop sleeps, clears, and looks *after* it has cleared at everything that it waits for, until nothing more is there: at
    /// each operation by [`Op::wait_for`](crate::Op::wait_for) with a limit of zero, at each inbox by `recv` with a timeout of zero
    /// until there is no message (those that stay do not make the descriptor readable again), at peers by
    /// [`Peer::is_connected`](crate::Peer::is_connected). In this order no event is missed.
    ///
    /// ```
    /// # use std::os::fd::AsFd as _;
    /// # use std::time::Duration;
    /// # use hmc_std::{Session, Waited};
    /// # fn main() -> hmc_std::Result<()> {
    /// let session = Session::builder(0).buffer(4096).start()?;
    /// let to = session.peer(0)?.buffer()?;
    /// let range = session.buffer().range(0, 64)?;
    /// let events = session.events()?;
    /// let op = to.put(1024, range).notify(7).start()?;
    /// let moved = loop {
    ///     let mut fds = [rustix::event::PollFd::from_borrowed_fd(events.as_fd(), rustix::event::PollFlags::IN)];
    ///     let _ = rustix::event::poll(&mut fds, None); // or a loop's own call, over the descriptors of others too
    ///     events.clear()?;
    ///     if let Waited::Ended(result) = op.wait_for(Duration::ZERO) {
    ///         break result?;
    ///     }
    /// };
    /// assert_eq!(moved, 64);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// The session's thread moves operations on while the program sleeps. With [`Progress::Manual`](crate::Progress::Manual) it
    /// only receives messages and notices the ends of peers: operations end, and notifications come, in
    /// [`Session::progress`], which a loop then has to call periodically.
    ///
    /// The first call makes the descriptor (an eventfd(2), closed on exec); all calls return the same. It stays open as long as the
    /// session and the [`Events`] of it. Poll it only: do not read, write or close it. Any thread may call this at any time. A
    /// session that was never asked for its descriptor has none, and its events cost nothing.
    ///
    /// # Errors
    /// - `SystemLimit` if the system has no descriptor left.
    /// - `Forked` in the child of a fork, which must not use a descriptor that its parent got, either: it is the parent's.
    pub fn events(&self) -> Result<Events> {
        self.shared.check_process()?;
        let wanted = self.shared.wakers.events.is_wanted();
        let fd = self.shared.wakers.events.get_or_make()?;
        if !wanted {
            // What was started before completes without a look of anybody from now on.
            self.shared.links().iter().for_each(|link| link.wake_on_completion());
        }
        Ok(Events { shared: Arc::clone(&self.shared), fd })
    }
}

/// The descriptor of a session's events: [`Session::events`]. The descriptor stays open while this
/// is there, also after the session's end.
#[derive(Clone, Debug)]
pub struct Events {
    shared: Arc<SessionInner>,
    fd: Arc<EventfdWaker>,
}

impl Events {
    /// Clears the descriptor: it is not readable until the next event. Call this before the look at what has happened, never
    /// after. One thread or loop at a time is to do so: another one that sleeps on the same descriptor is not woken by events
    /// that were cleared.
    ///
    /// # Errors
    /// `Forked`.
    pub fn clear(&self) -> Result<()> {
        self.shared.check_process()?;
        self.shared.wakers.events.clear();
        Ok(())
    }
}

impl AsFd for Events {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl AsRawFd for Events {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_fd().as_raw_fd()
    }
}
