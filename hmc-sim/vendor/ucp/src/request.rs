//! A request: its kind, the time of its completion, its callback.

use core::ffi::c_void;

use crate::handle::Handle;
use crate::message::Message;
use crate::sys::{self, ucp_request_param_t};

/// The completion is held until the script releases it.
pub(crate) const HELD: u64 = u64::MAX;

/// The kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    Put,
    Get,
    Message,
    Flush,
    WorkerFlush,
    Close,
}

impl What {
    pub(crate) const fn is_data(self) -> bool {
        matches!(self, Self::Put | Self::Get | Self::Message)
    }

    pub(crate) const fn is_flush(self) -> bool {
        matches!(self, Self::Flush | Self::WorkerFlush)
    }
}

/// A request.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) what: What,
    pub(crate) worker: Handle,
    pub(crate) endpoint: Handle,
    pub(crate) seq: u64,
    /// The tick at which it completes, or [`HELD`].
    pub(crate) due: u64,
    /// The status that its callback will receive.
    pub(crate) result: sys::ucs_status_t,
    /// The close of its endpoint cancelled it.
    pub(crate) cancelled: bool,
    pub(crate) here: *mut u8,
    pub(crate) there: *mut u8,
    pub(crate) len: usize,
    pub(crate) memory: Handle,
    pub(crate) key: Handle,
    /// The target's memory; none when the access is refused, and moves nothing.
    pub(crate) target: Handle,
    pub(crate) message: Option<Message>,
    pub(crate) callback: sys::ucp_send_nbx_callback_t,
    pub(crate) user_data: *mut c_void,
    pub(crate) ended: Option<sys::ucs_status_t>,
    /// Its owner freed it before its completion.
    pub(crate) released: bool,
}

impl Request {
    /// A request without bytes and callback.
    pub(crate) const fn of(what: What, worker: Handle, endpoint: Handle, seq: u64) -> Self {
        Self {
            what,
            worker,
            endpoint,
            seq,
            due: HELD,
            result: sys::UCS_OK,
            cancelled: false,
            here: core::ptr::null_mut(),
            there: core::ptr::null_mut(),
            len: 0,
            memory: Handle::NONE,
            key: Handle::NONE,
            target: Handle::NONE,
            message: None,
            callback: None,
            user_data: core::ptr::null_mut(),
            ended: None,
            released: false,
        }
    }
}

/// Returns the completion callback of a request and its data.
pub(crate) fn callback_of(
    param: &ucp_request_param_t,
) -> (sys::ucp_send_nbx_callback_t, *mut c_void) {
    let has = |bit| param.op_attr_mask & bit != 0;
    let callback = if has(sys::UCP_OP_ATTR_FIELD_CALLBACK) {
        // SAFETY: of the calls that come here this is the member that counts; all are pointers of one size.
        unsafe { param.cb.send }
    } else {
        None
    };
    let data =
        if has(sys::UCP_OP_ATTR_FIELD_USER_DATA) { param.user_data } else { core::ptr::null_mut() };
    (callback, data)
}

/// A callback of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended {
    pub(crate) request: Handle,
    pub(crate) callback: sys::ucp_send_nbx_callback_t,
    pub(crate) user_data: *mut c_void,
    pub(crate) status: sys::ucs_status_t,
}

impl Ended {
    /// Calls the callback.
    ///
    /// # Safety
    /// Called once for a completed request, without the lock.
    pub(crate) unsafe fn call_back(&self) {
        if let Some(callback) = self.callback {
            // SAFETY: the callback and its data are those that the owner passed with the request.
            unsafe { callback(self.request.pointer(), self.status, self.user_data) };
        }
    }
}
