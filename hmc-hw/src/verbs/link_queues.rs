//! The completion queues of a link, one on each of its NICs, with one descriptor that is readable when any of them has an event.

use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::sync::Arc;

use super::error::VerbsError;
use super::objects::CompletionQueue;
use super::sys::ibv_cq;

/// The completion queues of a link, in the order of its NICs.
#[derive(Debug)]
pub(super) struct LinkQueues {
    /// Of the first NIC.
    first: Arc<CompletionQueue>,
    others: Vec<Arc<CompletionQueue>>,
    /// An epoll(7) of all channels, if there are several. A link of one NIC has the channel itself.
    epoll: Option<OwnedFd>,
}

impl AsFd for LinkQueues {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_ref().map_or_else(|| self.first.as_fd(), OwnedFd::as_fd)
    }
}

impl LinkQueues {
    /// # Errors
    /// [`VerbsError`].
    pub(super) fn new(
        first: &Arc<CompletionQueue>,
        others: Vec<Arc<CompletionQueue>>,
    ) -> Result<Self, VerbsError> {
        let first = Arc::clone(first);
        let epoll = if others.is_empty() { None } else { Some(epoll_of(&first, &others)?) };
        Ok(Self { first, others, epoll })
    }

    fn iter(&self) -> impl Iterator<Item = &Arc<CompletionQueue>> {
        std::iter::once(&self.first).chain(&self.others)
    }

    /// What asynchronous events name them by.
    pub(super) fn raw(&self) -> Vec<*mut ibv_cq> {
        self.iter().map(|cq| cq.raw()).collect()
    }

    /// Returns `true` if the process is a forked child: they are the parent's.
    pub(super) fn is_inherited(&self) -> bool {
        self.first.is_inherited()
    }

    /// All are armed from now on. Returns `false` if a device is gone.
    pub(super) fn arm(&self) -> bool {
        let mut all = true;
        for cq in self.iter() {
            all &= cq.arm(false).is_ok();
        }
        all
    }

    /// The queue to which the peer's tags come is armed for those and for failures from now on, if it is not armed for all.
    ///
    /// # Errors
    /// [`VerbsError`].
    pub(super) fn arm_for_peer(&self) -> Result<(), VerbsError> {
        self.first.arm(true)
    }

    /// Takes the events that are there. Returns `true` if there was one.
    pub(super) fn take_events(&self) -> bool {
        let mut any = false;
        for cq in self.iter() {
            any |= cq.take_events();
        }
        any
    }
}

/// A descriptor that is readable when one of the queues' channels is.
///
/// # Errors
/// [`VerbsError`].
fn epoll_of(
    first: &Arc<CompletionQueue>,
    others: &[Arc<CompletionQueue>],
) -> Result<OwnedFd, VerbsError> {
    const STEP: &str = "watching the completion channels of several NICs";
    // SAFETY: it takes no pointer.
    let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
    if fd < 0 {
        return Err(VerbsError::last(STEP, first.device().name()));
    }
    // SAFETY: it is open, and nobody else's.
    let epoll = unsafe { OwnedFd::from_raw_fd(fd) };
    for cq in std::iter::once(first).chain(others) {
        let mut event = libc::epoll_event { events: libc::EPOLLIN.cast_unsigned(), u64: 0 };
        let (epoll, channel) = (epoll.as_raw_fd(), cq.as_fd().as_raw_fd());
        // SAFETY: both are open, and the event outlives the call.
        if unsafe { libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, channel, &mut event) } != 0 {
            return Err(VerbsError::last(STEP, cq.device().name()));
        }
    }
    Ok(epoll)
}
