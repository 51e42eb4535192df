//! What a session does for its part in a transport.

use std::fmt;
use std::os::fd::BorrowedFd;

use hmc_core::time::Instant;

/// A descriptor cannot be watched, for the reason of that number (errno).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WatchError(pub i32);

/// What a session should know, and no call returns.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub enum Event<'a> {
    /// A worker could not be armed for a second: it is polled each millisecond.
    NeverArmed,
    /// A worker is not watched any more.
    NotWatched(WatchError),
    /// A request was refused, because its memory cannot be registered.
    NotRegistered(&'a dyn fmt::Display),
}

/// Notifies the threads that wait for operations of one peer that another thread's progress has completed one. Called
/// often, from any thread, without locks of this crate.
pub trait Notify: Send + Sync {
    /// Called when there are completions.
    fn notify(&self);
}

/// A session: it has the clock, and a thread that watches descriptors.
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
