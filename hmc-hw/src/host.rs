//! Services that a session provides to its part in a transport.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};

use hmc_core::time::Instant;

/// A descriptor could not be watched. The number is the errno.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WatchError(pub i32);

/// An event for the session that no call returns.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub enum Event<'a> {
    /// A worker could not be armed for a second: it is polled each millisecond.
    NeverArmed,
    /// A worker is not watched any more.
    NotWatched(WatchError),
    /// A request was refused, because its memory cannot be registered.
    NotRegistered(&'a dyn fmt::Display),
    /// A port is down: no link begins over it until it is active again.
    PortDown(&'a dyn fmt::Display),
    /// Attributes of a port have changed: links that begin from now on use the new ones.
    PortChanged(&'a dyn fmt::Display),
    /// A queue pair was not destroyed, with this error: it stays, and so may memory of its link.
    NotDestroyed(&'a dyn fmt::Display),
    /// A device has failed, and all its links.
    DeviceFailed(&'a dyn fmt::Display),
}

/// Wakes the threads that wait for operations of one peer, after progress of another thread has completed one. Called
/// often, from any thread, without a lock of this crate.
pub trait Notify: Send + Sync {
    /// Called when there are completions.
    fn notify(&self);
}

/// The bounded inbox to which the tags of one peer's puts are delivered.
pub trait TagSink: Send + Sync {
    /// Returns `true` if it takes one more. If not, the session has the data plane asked again once it does.
    fn has_space(&self) -> bool;

    /// Delivers one. At the end of a link those that have come are delivered though there is no space.
    fn push(&self, tag: u64);
}

/// The services of a session: its clock, and a thread that watches descriptors.
pub trait Host: Send + Sync {
    /// Returns the time by the session's clock.
    fn now(&self) -> Instant;

    /// Watches a descriptor for reading as long as it is open. The thread calls the domain of that worker when it is readable.
    ///
    /// # Errors
    /// [`WatchError`].
    fn watch(&self, worker: u32, fd: BorrowedFd<'_>) -> Result<(), WatchError>;

    /// Ends that. Does nothing if the descriptor is not watched.
    fn unwatch(&self, fd: BorrowedFd<'_>);

    /// Reports what no call returns.
    fn report(&self, event: Event<'_>);
}

/// A worker that links share: its descriptor becomes readable when there is progress to make.
pub trait SharedWorker: AsFd + Send + Sync {
    /// A caller that waits makes progress from now on: the progress thread leaves the worker alone.
    fn claim(&self);

    /// The caller waits no more.
    fn release(&self);

    /// Returns `true` if the descriptor can be slept on: it becomes readable when there is something to do. After `false` the caller
    /// makes progress and asks again.
    #[must_use]
    fn can_sleep(&self) -> bool;

    /// Returns `true` if it cannot be slept on for some time, and is to be polled each millisecond.
    #[must_use]
    fn must_poll(&self) -> bool;

    /// Makes progress for requests whose caller does not wait, and watches for their completions. The host may look once a
    /// millisecond only, unless [`wake_on_completion`](Self::wake_on_completion) was called.
    fn resume(&self);

    /// Requests that the host's thread wakes at each completion of the requests that were posted.
    fn wake_on_completion(&self);
}
