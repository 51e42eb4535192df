//! Where messages come in: the doors of a worker, and the callback that finds the right one.

use std::ffi::c_void;
use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, Weak};

use super::answers::Answers;
use super::door::Door;
use super::header::{AM_ID, parse_header};
use crate::ucx::context::{UcxError, check};
use crate::ucx::cq::{CompletionQueue, NoNotify, ReadySet};
use crate::ucx::library::Library;
use crate::ucx::lock::lock;
use crate::ucx::result::Status;
use crate::ucx::sys;
use crate::ucx::ucp_worker::LockedWorker;

/// The doors of one worker.
pub(in crate::ucx) struct Hall {
    doors: Mutex<Vec<Option<Weak<Door>>>>,
    opened: AtomicU32,
    /// Doors that have something to answer.
    pub(in crate::ucx) calls: Arc<ReadySet>,
}

impl fmt::Debug for Hall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hall").finish_non_exhaustive()
    }
}

impl Hall {
    pub(in crate::ucx) fn new() -> Arc<Self> {
        Arc::new(Self {
            doors: Mutex::default(),
            opened: AtomicU32::new(1),
            calls: ReadySet::new(),
        })
    }

    /// Has messages of that worker brought here. The hall outlives the worker, which the caller sees to.
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
            cb: Some(came),
            arg: Arc::as_ptr(self).cast_mut().cast(),
        };
        // SAFETY: the worker is the caller's and nobody else has it yet; the mask says which fields count.
        let status = unsafe { (library.api.ucp_worker_set_am_recv_handler)(worker, &param) };
        check("asking for messages", status)
    }

    /// A door for the transport of that queue. Its number is one that no other door of this worker has had.
    pub(in crate::ucx) fn door(
        &self,
        library: &'static Library,
        queue: Arc<CompletionQueue>,
    ) -> Arc<Door> {
        let place = queue.index;
        let number =
            u64::from(self.opened.fetch_add(1, Ordering::Relaxed)) << 32 | u64::from(place);
        let calls = Arc::clone(&self.calls);
        let replies =
            CompletionQueue::new(Answers::SENDS, library, calls, place, Box::new(NoNotify));
        let door = Door::new(number, queue, replies);
        self.hang(place, &door);
        door
    }

    fn hang(&self, place: u32, door: &Arc<Door>) {
        let mut doors = lock(&self.doors);
        let at = usize::try_from(place).unwrap_or(usize::MAX);
        if at >= doors.len() {
            doors.resize_with(at.saturating_add(1), || None);
        }
        if let Some(free) = doors.get_mut(at) {
            *free = Some(Arc::downgrade(door));
        }
    }

    fn at(&self, place: u32) -> Option<Arc<Door>> {
        let at = usize::try_from(place).ok()?;
        lock(&self.doors).get(at)?.as_ref()?.upgrade()
    }

    /// Sends what the doors that were called have to say. Whether any had something.
    #[cold]
    pub(in crate::ucx) fn answer(&self, guard: &LockedWorker<'_>) -> bool {
        let mut any = false;
        self.calls.take(|place| {
            if let Some(door) = self.at(place) {
                any |= door.answer(guard);
            }
        });
        any
    }
}

/// The callback of all messages.
///
/// # Safety
/// UCX calls it in calls of progress with what [`Hall::receive`] gave, and with bytes that may be read until it returns.
unsafe extern "C" fn came(
    hall: *mut c_void,
    header: *const c_void,
    header_len: usize,
    data: *mut c_void,
    len: usize,
    param: *const sys::ucp_am_recv_param_t,
) -> sys::ucs_status_t {
    let done = Status::OK.0;
    // SAFETY: what `Hall::receive` gave; the worker keeps it.
    let hall = unsafe { &*hall.cast::<Hall>() };
    // SAFETY: UCX's own, until this returns.
    let attributes = unsafe { (*param).recv_attr };
    if header.is_null() || attributes & sys::UCP_AM_RECV_ATTR_FLAG_RNDV != 0 {
        return done;
    }
    // SAFETY: UCX vouches for the header's bytes until this returns; nobody writes them.
    let header = unsafe { std::slice::from_raw_parts(header.cast::<u8>(), header_len) };
    let Some((number, frame)) = parse_header(header) else { return done };
    let [a, b, c, d, ..] = number.to_le_bytes();
    // A door that was replaced has another number: what comes late finds nobody.
    let place = u32::from_le_bytes([a, b, c, d]);
    let Some(door) = hall.at(place).filter(|d| d.number() == number) else { return done };
    let data = if len == 0 || data.is_null() {
        &[]
    } else {
        // SAFETY: as for the header.
        unsafe { std::slice::from_raw_parts(data.cast::<u8>(), len) }
    };
    door.take(&frame, data);
    done
}
