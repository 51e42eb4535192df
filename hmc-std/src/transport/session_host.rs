//! A session, as its parts in the transports of hmc-hw use it.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use hmc_core::time::Instant;
use hmc_hw::host::{Event, Host, Notify, TagSink, WatchError};
use rustix::io::Errno;

use crate::base::clock;
use crate::base::error::Error;
use crate::io::reactor::{Reactor, cannot_watch};
use crate::transport::link_waker::LinkWaker;
use crate::transport::tag_inbox::TagInbox;

/// A descriptor cannot be watched.
pub(crate) fn not_watched(e: WatchError) -> Error {
    cannot_watch(Errno::from_raw_os_error(e.0))
}

/// The session: its clock and its reactor.
pub(crate) struct SessionHost(pub(crate) Arc<Reactor>);

impl Host for SessionHost {
    fn now(&self) -> Instant {
        clock::now()
    }

    fn watch(&self, worker: u32, fd: BorrowedFd<'_>) -> std::result::Result<(), WatchError> {
        self.0.watch_worker(fd, worker).map_err(|e| WatchError(e.raw_os_error()))
    }

    fn unwatch(&self, fd: BorrowedFd<'_>) {
        self.0.unwatch(fd);
    }

    fn report(&self, event: Event<'_>) {
        match event {
            Event::NeverArmed => tracing::warn!(
                "a worker of UCX's cannot be slept on: its peer stopped in the middle of a message; it is looked at each millisecond"
            ),
            Event::NotWatched(e) => {
                tracing::error!(error = %not_watched(e), "cannot watch a worker");
            }
            Event::NotRegistered(error) => tracing::warn!(%error, "memory cannot be registered"),
            Event::PortDown(what) => {
                tracing::warn!(%what, "a port is down: no link begins over it until it is active");
            }
            Event::PortChanged(what) => tracing::info!(%what, "a port has changed"),
            Event::NotDestroyed(error) => {
                tracing::error!(%error, "a queue pair was not destroyed");
            }
            Event::DeviceFailed(what) => tracing::error!(%what, "an RDMA device has failed"),
            _ => {}
        }
    }
}

/// Tells a link's waiter of completions.
pub(crate) struct NotifyLink(pub(crate) Arc<LinkWaker>);

impl Notify for NotifyLink {
    fn notify(&self) {
        self.0.notify();
    }
}

impl TagSink for TagInbox {
    fn has_space(&self) -> bool {
        Self::has_space(self)
    }

    fn push(&self, tag: u64) {
        Self::push(self, tag);
    }
}
