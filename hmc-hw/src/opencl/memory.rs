//! [`Memory`]: what a device can copy to and from.

use std::any::Any;
use std::fmt;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use hmc_core::device::DeviceErrorKind;
use hmc_core::place::Place;
use hmc_core::range::ByteRange;

use super::context::Context;
use super::fault::{OpenClFault, check};
use super::sys::{CL_MEM_READ_WRITE, cl_mem};

/// A handle of memory, to add it to a device: host memory, or a buffer of a device of the same platform.
#[derive(Clone, Debug)]
pub struct Memory {
    pub(super) bytes: Bytes,
    pub(super) len: u64,
    pub(super) place: Place,
}

#[derive(Clone, Debug)]
pub(super) enum Bytes {
    Host(Arc<HostBytes>),
    Buffer(Arc<Buffer>),
}

/// Where a copy begins.
#[derive(Clone, Copy, Debug)]
pub(super) enum Start {
    Host(*mut u8),
    Buffer(cl_mem, usize),
}

impl Start {
    /// Returns `true` if both are in one buffer of a device.
    pub(super) fn is_in_the_buffer_of(self, other: Self) -> bool {
        matches!((self, other), (Self::Buffer(a, _), Self::Buffer(b, _)) if a == b)
    }
}

/// Host memory that another owns.
pub(super) struct HostBytes {
    start: NonNull<u8>,
    _keep: Box<dyn Any + Send + Sync>,
}

// SAFETY: the bytes are valid in every thread, and are accessed by copies only (`Memory::host`).
unsafe impl Send for HostBytes {}
// SAFETY: as above.
unsafe impl Sync for HostBytes {}

impl fmt::Debug for HostBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostBytes").field("start", &self.start).finish_non_exhaustive()
    }
}

/// A buffer of a device.
#[derive(Debug)]
pub(super) struct Buffer {
    context: Arc<Context>,
    handle: cl_mem,
}

// SAFETY: OpenCL's calls on a buffer may come from any thread (OpenCL 1.2, A.2).
unsafe impl Send for Buffer {}
// SAFETY: as above.
unsafe impl Sync for Buffer {}

impl Memory {
    /// Host memory of `len` bytes at `start`. Any memory of the process will do; nothing is pinned.
    ///
    /// # Safety
    /// While a device has the memory in its table, or a clone of this handle exists, the bytes are valid for reads and writes
    /// from any thread; `keep` owns them if they need an owner. While a copy uses them, they are not accessed through Rust
    /// references.
    pub unsafe fn host(start: NonNull<u8>, len: u64, keep: impl Any + Send + Sync) -> Self {
        let bytes = Bytes::Host(Arc::new(HostBytes { start, _keep: Box::new(keep) }));
        Self { bytes, len, place: Place::HOST }
    }

    /// A new buffer. What it holds is not defined.
    pub(super) fn buffer(
        context: &Arc<Context>,
        len: u64,
        place: Place,
    ) -> Result<Self, OpenClFault> {
        let too_long = |_| OpenClFault::of(DeviceErrorKind::NoSpace);
        // There are no empty buffers.
        let size = usize::try_from(len.max(1)).map_err(too_long)?;
        let mut code = 0;
        // SAFETY: the context lives; there is no host memory to use.
        let handle = unsafe {
            (context.library().api().clCreateBuffer)(
                context.handle(),
                CL_MEM_READ_WRITE,
                size,
                ptr::null_mut(),
                &raw mut code,
            )
        };
        check("clCreateBuffer", code).map_err(OpenClFault::of_memory)?;
        let buffer = Buffer { context: Arc::clone(context), handle };
        Ok(Self { bytes: Bytes::Buffer(Arc::new(buffer)), len, place })
    }

    /// Returns `true` if a device of that context can reach it.
    pub(super) fn is_within_reach_of(&self, context: &Arc<Context>) -> bool {
        match &self.bytes {
            Bytes::Host(_) => true,
            Bytes::Buffer(buffer) => Arc::ptr_eq(&buffer.context, context),
        }
    }

    /// Where a range begins, which lies within the memory. `None` if no memory of this machine is so long.
    pub(super) fn start_of(&self, range: ByteRange) -> Option<Start> {
        Some(match &self.bytes {
            Bytes::Host(host) => Start::Host(range.pointer(host.start.as_ptr())),
            Bytes::Buffer(buffer) => {
                Start::Buffer(buffer.handle, usize::try_from(range.offset()).ok()?)
            }
        })
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let library = self.context.library();
        if !library.is_inherited() {
            // SAFETY: it is ours, and released once. The library keeps it until commands that use it have ended.
            unsafe { (library.api().clReleaseMemObject)(self.handle) };
        }
    }
}
