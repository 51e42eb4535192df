//! Raw calls of UCX on a context, a worker and an endpoint of their own: the reference of measurements.
//!
//! Uses the same library, settings and kinds of memory and endpoint as [`super::transport`], but has no operations, no
//! windows, no flushes of its own and no shared worker. Only tests and benchmarks of this project need this: no release has it.

use std::ffi::c_void;
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hmc_core::range::{ByteRange, Extent, Side};

use super::conn_info::ConnInfo;
use super::context::{Context, UcxError, check};
use super::cq::{CompletionQueue, NoNotify};
use super::endpoint::{Endpoint, Key, params};
use super::library::Library;
use super::memory::Memory;
use super::process::Process;
use super::result::{NbxResult, Status};
use super::settings::Settings;
use super::sys;
use super::worker::{Worker, WorkerGuard};

/// The record of the endpoint's close, the only one whose completion is queued.
const CLOSE: u32 = 0;
/// Time limit of a request.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time limit of an endpoint's close.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

#[derive(Debug)]
struct RawPath {
    endpoint: Endpoint,
    key: Key,
    /// Address of the peer's memory, which has as many bytes as the local memory.
    base: u64,
}

/// One end: memory, and the path to as much memory of a peer.
#[derive(Debug)]
pub struct RawEndpoint {
    path: Option<RawPath>,
    memory: Memory,
    queue: Arc<CompletionQueue>,
    worker: Arc<Worker>,
}

impl RawEndpoint {
    /// Makes an end with `bytes` bytes of memory that UCX allocates.
    ///
    /// # Errors
    /// [`UcxError`].
    pub fn new(
        library: &'static Library,
        settings: &Settings,
        bytes: usize,
    ) -> Result<Self, UcxError> {
        let context = Context::new(library, settings)?;
        let worker = Worker::new(&context)?;
        let queue = worker.new_queue(1, Box::new(NoNotify))?;
        Ok(Self { path: None, memory: Memory::allocate(&context, bytes)?, queue, worker })
    }

    /// Returns what the peer needs to connect to this end.
    ///
    /// # Errors
    /// [`UcxError`].
    pub fn conn_info(&self) -> Result<Vec<u8>, UcxError> {
        let (address, wireup_page) = (self.worker.address(), self.memory.address());
        let (owner, key) = (Process::own(), &self.memory.pack()?);
        Ok(ConnInfo { target: 0, wireup_page, owner, address, key }.to_bytes())
    }

    /// Opens an endpoint to the peer of that connection info, which has as many bytes. The path opens with the first
    /// calls that follow, while both ends make progress.
    ///
    /// # Errors
    /// [`UcxError`].
    pub fn connect(&mut self, info: &[u8]) -> Result<(), UcxError> {
        let info = ConnInfo::read(info).ok_or_else(|| misuse("connection info"))?;
        let guard = self.worker.lock();
        let endpoint = Endpoint::new(&guard, &info, &self.queue)?;
        let key = endpoint.unpack(&guard, info.key)?;
        self.path = Some(RawPath { endpoint, key, base: info.wireup_page });
        Ok(())
    }

    /// Returns the calls, which hold the progress lock while they live.
    ///
    /// # Errors
    /// [`UcxError`] if it is not connected.
    pub fn calls(&self) -> Result<RawCalls<'_>, UcxError> {
        let path = self.path.as_ref().ok_or_else(|| misuse("an end without a peer"))?;
        let mut param = params();
        param.op_attr_mask = sys::UCP_OP_ATTR_FIELD_MEMORY_TYPE;
        param.memory_type = sys::UCS_MEMORY_TYPE_HOST;
        Ok(RawCalls { guard: self.worker.lock(), path, memory: &self.memory, param })
    }
}

impl Drop for RawEndpoint {
    fn drop(&mut self) {
        let Some(path) = self.path.take() else { return };
        let guard = self.worker.lock();
        path.key.destroy(&guard);
        path.endpoint.close(&guard, &self.queue, CLOSE);
        let deadline = Instant::now().checked_add(CLOSE_TIMEOUT);
        while !self.queue.closed.load(Ordering::Acquire) {
            guard.progress();
            let mut completed = self.queue.take(guard.held());
            if self.queue.next(&mut completed).is_some() {
                self.queue.closed.store(true, Ordering::Release);
            }
            if deadline.is_none_or(|at| Instant::now() >= at) {
                // UCX ends the process if a worker is destroyed before its endpoints.
                std::mem::forget(Arc::clone(&self.worker));
                std::mem::forget(Arc::clone(&self.queue));
                return;
            }
        }
    }
}

/// A request in flight, or none if its call completed at once.
#[derive(Debug)]
#[must_use = "wait for it"]
pub struct RawRequest(Option<NonNull<c_void>>);

impl RawRequest {
    /// Returns `true` if the call completed at once, without the peer.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.0.is_none()
    }
}

/// The calls of one end.
pub struct RawCalls<'a> {
    guard: WorkerGuard<'a>,
    path: &'a RawPath,
    memory: &'a Memory,
    param: sys::ucp_request_param_t,
}

impl fmt::Debug for RawCalls<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RawCalls").field("path", self.path).finish_non_exhaustive()
    }
}

fn misuse(what: &str) -> UcxError {
    UcxError { call: "raw calls", status: Status::INVALID_PARAM, what: what.to_owned() }
}

#[cold]
fn failed(call: &'static str, status: Status) -> UcxError {
    UcxError { call, status, what: String::new() }
}

impl RawCalls<'_> {
    /// Returns the local `len` bytes at `at`, and the peer's at `to`.
    #[inline]
    fn places(&self, at: usize, to: usize, len: usize) -> Result<(*mut u8, u64), UcxError> {
        match (self.part(at, len), self.part(to, len)) {
            (Some(here), Some(there)) => {
                Ok((here.pointer(self.memory.start().as_ptr()), there.address(self.path.base)))
            }
            _ => Err(misuse("a range outside of the memory")),
        }
    }

    /// Returns a range of memory as long as the local memory.
    #[inline]
    fn part(&self, at: usize, len: usize) -> Option<ByteRange> {
        let number = |n: usize| u64::try_from(n).ok();
        let whole = Extent::new(number(self.memory.len())?);
        whole.span(Side::Local, number(at)?, number(len)?).ok()
    }

    #[inline]
    fn result(call: &'static str, result: sys::ucs_status_ptr_t) -> Result<RawRequest, UcxError> {
        match NbxResult::of(result) {
            Ok(NbxResult::Done) => Ok(RawRequest(None)),
            Ok(NbxResult::Request(request)) => Ok(RawRequest(Some(request))),
            Err(status) => Err(failed(call, status)),
        }
    }

    /// `ucp_put_nbx` of `len` bytes from `at` of the local memory to `to` of the peer's.
    ///
    /// # Errors
    /// [`UcxError`].
    #[inline]
    pub fn put(&self, at: usize, to: usize, len: usize) -> Result<RawRequest, UcxError> {
        let (here, there) = self.places(at, to, len)?;
        let (endpoint, key) = (self.path.endpoint.handle(), self.path.key.handle());
        // SAFETY: the range lies in memory that is registered while `self` lives; the peer's by agreement. The
        // progress lock is held.
        let result = unsafe {
            (self.guard.api().ucp_put_nbx)(endpoint, here.cast(), len, there, key, &self.param)
        };
        Self::result("ucp_put_nbx", result)
    }

    /// `ucp_get_nbx` of `len` bytes from `to` of the peer's memory to `at` of the local memory.
    ///
    /// # Errors
    /// [`UcxError`].
    #[inline]
    pub fn get(&self, at: usize, to: usize, len: usize) -> Result<RawRequest, UcxError> {
        let (here, there) = self.places(at, to, len)?;
        let (endpoint, key) = (self.path.endpoint.handle(), self.path.key.handle());
        // SAFETY: as in `put`.
        let result = unsafe {
            (self.guard.api().ucp_get_nbx)(endpoint, here.cast(), len, there, key, &self.param)
        };
        Self::result("ucp_get_nbx", result)
    }

    /// `ucp_ep_flush_nbx`: after its completion the target can read the puts before it.
    ///
    /// # Errors
    /// [`UcxError`].
    #[inline]
    pub fn flush(&self) -> Result<RawRequest, UcxError> {
        // SAFETY: the endpoint lives; the progress lock is held.
        let result = unsafe {
            (self.guard.api().ucp_ep_flush_nbx)(self.path.endpoint.handle(), &self.param)
        };
        Self::result("ucp_ep_flush_nbx", result)
    }

    /// `ucp_am_send_nbx` of message 0, as [`super::am`] sends it: any process that reaches a worker can send it. Waits for the
    /// completion, until which both ranges are borrowed.
    ///
    /// # Errors
    /// [`UcxError`].
    pub fn message(&self, header: &[u8], data: &[u8]) -> Result<(), UcxError> {
        let mut param = self.param;
        param.op_attr_mask |= sys::UCP_OP_ATTR_FIELD_FLAGS;
        param.flags = sys::UCP_AM_SEND_FLAG_EAGER;
        // SAFETY: both ranges are borrowed until the request has ended; the endpoint lives and the progress lock is
        // held.
        let result = unsafe {
            (self.guard.api().ucp_am_send_nbx)(
                self.path.endpoint.handle(),
                0,
                header.as_ptr().cast(),
                header.len(),
                data.as_ptr().cast(),
                data.len(),
                &param,
            )
        };
        Self::result("ucp_am_send_nbx", result).and_then(|pending| self.wait(pending))
    }

    /// Makes progress until the request has completed.
    ///
    /// # Errors
    /// [`UcxError`].
    #[inline]
    pub fn wait(&self, pending: RawRequest) -> Result<(), UcxError> {
        let Some(request) = pending.0 else { return Ok(()) };
        let mut polls: u32 = 0;
        let mut since = None;
        loop {
            // SAFETY: the request is ours until it is freed below.
            let status = unsafe { (self.guard.api().ucp_request_check_status)(request.as_ptr()) };
            if status != sys::UCS_INPROGRESS {
                // SAFETY: it has ended and is freed once.
                unsafe { (self.guard.api().ucp_request_free)(request.as_ptr()) };
                return check("a request", status);
            }
            self.progress();
            polls = polls.wrapping_add(1);
            if polls.trailing_zeros() >= 16
                && since.get_or_insert_with(Instant::now).elapsed() >= PATIENCE
            {
                // UCX still owns it: the memory that it uses must stay.
                return Err(failed("a request", Status::ENDPOINT_TIMEOUT));
            }
        }
    }

    /// `ucp_worker_progress`, once.
    #[inline]
    pub fn progress(&self) {
        // SAFETY: the worker lives; the progress lock is held.
        let _ = unsafe { (self.guard.api().ucp_worker_progress)(self.guard.handle()) };
    }

    /// Returns a word of the local memory, for flags. Returns `None` outside of the memory and for unaligned offsets.
    #[inline]
    #[must_use]
    pub fn word(&self, at: usize) -> Option<&AtomicU64> {
        let place = self.part(at, 8)?.pointer(self.memory.start().as_ptr()).cast::<u64>();
        // SAFETY: eight aligned bytes of memory that lives as long as `self`; Rust code reaches them by this alone.
        place.is_aligned().then(|| unsafe { AtomicU64::from_ptr(place) })
    }
}
