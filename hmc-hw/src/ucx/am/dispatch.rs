//! AM dispatcher of a worker: the receive callback, which finds the target of a message by its number.

use std::ffi::c_void;
use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, Weak};

use super::header::{AM_ID, parse_header};
use super::replies::AmReplies;
use super::target::AmTarget;
use crate::ucx::context::{UcxError, check};
use crate::ucx::cq::{CompletionQueue, NoNotify, ReadySet};
use crate::ucx::library::Library;
use crate::ucx::lock::lock;
use crate::ucx::result::Status;
use crate::ucx::sys;
use crate::ucx::ucp_worker::LockedWorker;

/// The AM targets of one worker.
pub(in crate::ucx) struct AmDispatcher {
    targets: Mutex<Vec<Option<Weak<AmTarget>>>>,
    count: AtomicU32,
    /// Targets with queued replies.
    pub(in crate::ucx) ready: Arc<ReadySet>,
}

impl fmt::Debug for AmDispatcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AmDispatcher").finish_non_exhaustive()
    }
}

impl AmDispatcher {
    pub(in crate::ucx) fn new() -> Arc<Self> {
        Arc::new(Self {
            targets: Mutex::default(),
            count: AtomicU32::new(1),
            ready: ReadySet::new(),
        })
    }

    /// Registers the receive callback with that worker. The caller keeps the dispatcher alive longer than the worker.
    pub(in crate::ucx) fn receive(
        self: &Arc<Self>,
        library: &Library,
        worker: sys::ucp_worker_h,
    ) -> Result<(), UcxError> {
        let param = sys::ucp_am_handler_param {
            field_mask: sys::UCP_AM_HANDLER_PARAM_FIELD_ID
                | sys::UCP_AM_HANDLER_PARAM_FIELD_FLAGS
                | sys::UCP_AM_HANDLER_PARAM_FIELD_CB
                | sys::UCP_AM_HANDLER_PARAM_FIELD_ARG,
            id: AM_ID,
            flags: sys::UCP_AM_FLAG_WHOLE_MSG,
            cb: Some(on_am),
            arg: Arc::as_ptr(self).cast_mut().cast(),
        };
        // SAFETY: the caller owns the worker and has not shared it yet; the mask says which fields count.
        let status = unsafe { (library.api.ucp_worker_set_am_recv_handler)(worker, &param) };
        check("asking for messages", status)
    }

    /// Makes a target for the transport of that queue. Its number is one that no other target of this worker has had.
    pub(in crate::ucx) fn new_target(
        &self,
        library: &'static Library,
        queue: Arc<CompletionQueue>,
    ) -> Arc<AmTarget> {
        let index = queue.index;
        let number = u64::from(self.count.fetch_add(1, Ordering::Relaxed)) << 32 | u64::from(index);
        let ready = Arc::clone(&self.ready);
        let replies =
            CompletionQueue::new(AmReplies::SENDS, library, ready, index, Box::new(NoNotify));
        let target = AmTarget::new(number, queue, replies);
        self.register(index, &target);
        target
    }

    fn register(&self, index: u32, target: &Arc<AmTarget>) {
        let mut targets = lock(&self.targets);
        let at = usize::try_from(index).unwrap_or(usize::MAX);
        if at >= targets.len() {
            targets.resize_with(at.saturating_add(1), || None);
        }
        if let Some(free) = targets.get_mut(at) {
            *free = Some(Arc::downgrade(target));
        }
    }

    fn at(&self, index: u32) -> Option<Arc<AmTarget>> {
        let at = usize::try_from(index).ok()?;
        lock(&self.targets).get(at)?.as_ref()?.upgrade()
    }

    /// Sends the replies of targets in the ready set. Returns `true` if there were any.
    #[cold]
    pub(in crate::ucx) fn send_replies(&self, guard: &LockedWorker<'_>) -> bool {
        let mut any = false;
        self.ready.take(|index| {
            if let Some(target) = self.at(index) {
                any |= target.send_replies(guard);
            }
        });
        any
    }
}

/// The receive callback.
///
/// # Safety
/// UCX calls it in calls of progress with what [`AmDispatcher::receive`] gave, and with bytes that may be read until it returns.
unsafe extern "C" fn on_am(
    dispatcher: *mut c_void,
    header: *const c_void,
    header_len: usize,
    data: *mut c_void,
    len: usize,
    param: *const sys::ucp_am_recv_param_t,
) -> sys::ucs_status_t {
    let done = Status::OK.0;
    // SAFETY: the argument that `AmDispatcher::receive` set; the worker owns it.
    let dispatcher = unsafe { &*dispatcher.cast::<AmDispatcher>() };
    // SAFETY: UCX's own, until this returns.
    let attributes = unsafe { (*param).recv_attr };
    if header.is_null() || attributes & sys::UCP_AM_RECV_ATTR_FLAG_RNDV != 0 {
        return done;
    }
    // SAFETY: UCX keeps the header's bytes valid until this returns, and no code writes them.
    let header = unsafe { std::slice::from_raw_parts(header.cast::<u8>(), header_len) };
    let Some((number, frame)) = parse_header(header) else { return done };
    let [a, b, c, d, ..] = number.to_le_bytes();
    // A new target at this index has another number: a late message is dropped.
    let index = u32::from_le_bytes([a, b, c, d]);
    let Some(target) = dispatcher.at(index).filter(|d| d.number() == number) else { return done };
    let data = if len == 0 || data.is_null() {
        &[]
    } else {
        // SAFETY: as for the header.
        unsafe { std::slice::from_raw_parts(data.cast::<u8>(), len) }
    };
    target.on_message(&frame, data);
    done
}
