//! An active message on its way, and who receives it.

use core::ffi::{c_uint, c_void};

use crate::handle::Handle;
use crate::sys::ucp_am_recv_callback_t;

/// Who receives the messages of an id.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Handler {
    pub(crate) id: c_uint,
    pub(crate) flags: u32,
    pub(crate) callback: ucp_am_recv_callback_t,
    pub(crate) arg: *mut c_void,
}

/// A message on its way.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) id: c_uint,
    pub(crate) header: Vec<u8>,
    pub(crate) data: Vec<u8>,
    /// The worker that sent it, if it wants an answer.
    pub(crate) reply_to: Option<Handle>,
}
