//! A completion queue, with the channel that reports completions.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::verbs::device::{Device, set_nonblocking};
use crate::verbs::error::{VerbsError, check};
use crate::verbs::ops;
use crate::verbs::sys::{ibv_comp_channel, ibv_cq, ibv_wc};

/// Events that are acknowledged together: the call takes a lock.
const ACK_BATCH: u32 = 64;

/// A completion queue and its channel.
pub(in crate::verbs) struct CompletionQueue {
    cq: NonNull<ibv_cq>,
    channel: NonNull<ibv_comp_channel>,
    device: Arc<Device>,
    /// Events that were read and not acknowledged.
    unacknowledged: AtomicU32,
}

// SAFETY: libibverbs may be called from any thread, and two threads may call it for one object.
unsafe impl Send for CompletionQueue {}
// SAFETY: as above.
unsafe impl Sync for CompletionQueue {}

impl fmt::Debug for CompletionQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompletionQueue").field("device", &self.device).finish_non_exhaustive()
    }
}

impl AsFd for CompletionQueue {
    /// The channel's descriptor: readable when there is an event.
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: libibverbs made the channel, which lives as long as this value.
        let fd = unsafe { self.channel.as_ref().fd };
        // SAFETY: it is open as long as the channel.
        unsafe { BorrowedFd::borrow_raw(fd) }
    }
}

impl CompletionQueue {
    /// A queue of at least `entries` completions.
    ///
    /// # Errors
    /// [`VerbsError`].
    pub(in crate::verbs) fn new(
        device: &Arc<Device>,
        entries: usize,
    ) -> Result<Arc<Self>, VerbsError> {
        let (api, context) = (device.api(), device.context());
        let count = i32::try_from(entries).unwrap_or(i32::MAX);
        // SAFETY: the context is open as long as the device.
        let channel = unsafe { (api.ibv_create_comp_channel)(context) };
        let channel = NonNull::new(channel)
            .ok_or_else(|| VerbsError::last("making a completion channel", device.name()))?;
        // SAFETY: as above; the channel exists.
        let cq =
            unsafe { (api.ibv_create_cq)(context, count, ptr::null_mut(), channel.as_ptr(), 0) };
        let Some(cq) = NonNull::new(cq) else {
            let e = VerbsError::last(
                "making a completion queue",
                format!("{}, {entries} entries", device.name()),
            );
            // SAFETY: made above, and no queue uses it.
            let _ = unsafe { (api.ibv_destroy_comp_channel)(channel.as_ptr()) };
            return Err(e);
        };
        let unacknowledged = AtomicU32::new(0);
        let queue = Self { cq, channel, device: Arc::clone(device), unacknowledged };
        set_nonblocking(queue.as_fd(), "setting up a completion channel", device.name())?;
        Ok(Arc::new(queue))
    }

    /// What libibverbs knows it by.
    pub(in crate::verbs) fn raw(&self) -> *mut ibv_cq {
        self.cq.as_ptr()
    }

    /// Its device.
    pub(in crate::verbs) fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Returns `true` in a forked child of the process that made it.
    pub(in crate::verbs) fn is_inherited(&self) -> bool {
        self.device.library().is_inherited()
    }

    /// Takes completions, the oldest first. Returns those that were written to `out`.
    ///
    /// # Errors
    /// [`VerbsError`]: the queue has failed.
    #[inline]
    pub(in crate::verbs) fn poll<'w>(
        &self,
        out: &'w mut [ibv_wc],
    ) -> Result<&'w [ibv_wc], Box<VerbsError>> {
        let count = i32::try_from(out.len()).unwrap_or(i32::MAX);
        // SAFETY: the queue exists, and `out` has that many places.
        let taken = unsafe { ops::poll_cq(self.cq.as_ptr(), count, out.as_mut_ptr()) };
        usize::try_from(taken)
            .ok()
            .and_then(|taken| out.get(..taken))
            .ok_or_else(|| self.failure(taken))
    }

    /// Why none were taken.
    #[cold]
    fn failure(&self, returned: i32) -> Box<VerbsError> {
        let (call, errno) = ("polling completions", returned.saturating_abs());
        Box::new(VerbsError::new(call, self.device.name(), errno))
    }

    /// The next completion that is added makes an event; `solicited_only`: the next of a receive whose sender asks for one, or of a
    /// failure. A queue that is armed for all stays so. Completions that are there make none: poll after this.
    ///
    /// # Errors
    /// [`VerbsError`].
    pub(in crate::verbs) fn arm(&self, solicited_only: bool) -> Result<(), VerbsError> {
        // SAFETY: the queue exists.
        let returned = unsafe { ops::req_notify_cq(self.cq.as_ptr(), solicited_only) };
        check("arming a completion queue", self.device.name(), returned)
    }

    /// Takes the events that are there. Returns whether there was one.
    pub(in crate::verbs) fn take_events(&self) -> bool {
        let api = self.device.api();
        let mut any = false;
        loop {
            let (mut cq, mut context) = (ptr::null_mut(), ptr::null_mut());
            // SAFETY: the channel exists; both places are written to. It does not wait: the descriptor is set so.
            let got =
                unsafe { (api.ibv_get_cq_event)(self.channel.as_ptr(), &mut cq, &mut context) };
            if got != 0 {
                return any;
            }
            any = true;
            if self.unacknowledged.fetch_add(1, Ordering::Relaxed) >= ACK_BATCH {
                self.acknowledge();
            }
        }
    }

    fn acknowledge(&self) {
        let count = self.unacknowledged.swap(0, Ordering::Relaxed);
        if count != 0 {
            // SAFETY: so many events of this queue were read.
            unsafe { (self.device.api().ibv_ack_cq_events)(self.cq.as_ptr(), count) };
        }
    }
}

impl Drop for CompletionQueue {
    fn drop(&mut self) {
        // In a forked child it is the parent's.
        if self.is_inherited() {
            return;
        }
        // Otherwise ibv_destroy_cq waits for ever.
        let _ = self.take_events();
        self.acknowledge();
        let api = self.device.api();
        // SAFETY: made in `new`; queue pairs that use it hold this value, and are destroyed.
        let result = unsafe { (api.ibv_destroy_cq)(self.cq.as_ptr()) };
        debug_assert_eq!(result, 0, "ibv_destroy_cq");
        // SAFETY: its one queue is destroyed.
        let result = unsafe { (api.ibv_destroy_comp_channel)(self.channel.as_ptr()) };
        debug_assert_eq!(result, 0, "ibv_destroy_comp_channel");
    }
}
