//! An active message in flight, and its handler.

use core::ffi::{c_uint, c_void};

use crate::handle::Handle;
use crate::sys::ucp_am_recv_callback_t;

/// The handler of the messages of an id.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Handler {
    pub(crate) id: c_uint,
    pub(crate) flags: u32,
    pub(crate) callback: ucp_am_recv_callback_t,
    pub(crate) arg: *mut c_void,
}

/// A message in flight.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) id: c_uint,
    pub(crate) header: Vec<u8>,
    pub(crate) data: Vec<u8>,
    /// The receiver has to fetch its data: too many bytes for a message that is not sent eagerly.
    pub(crate) is_rendezvous: bool,
    /// The worker that sent it, if it expects a reply.
    pub(crate) reply_to: Option<Handle>,
}
