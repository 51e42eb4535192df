//! Table of memory that requests may name: local memory and the peer's windows, each by its key. Every range is checked
//! before it is used.

use std::ptr::NonNull;
use std::sync::Arc;

use hmc_core::range::{ByteRange, Side};
use hmc_core::region::{RegionKey, WindowDesc, WindowId, WindowSlice};
use hmc_core::types::Access;
use hmc_core::window::WindowFault;
use hmc_core::work::{Failure, Opcode, WorkRequest};

use super::mapped::MappedWindow;
use crate::ucx::endpoint::Key;
use crate::ucx::memory::Memory;
use crate::ucx::sys;

#[derive(Debug)]
pub(in crate::ucx) struct LocalEntry {
    pub(in crate::ucx) key: RegionKey,
    /// UCX's number of its kind.
    memory_type: sys::ucs_memory_type_t,
    pub(in crate::ucx) bytes: u64,
    pub(in crate::ucx) start: NonNull<u8>,
    handle: sys::ucp_mem_h,
    pub(in crate::ucx) memory: Arc<Memory>,
}

// SAFETY: an address and a handle, of memory that `memory` owns, which any thread may use.
unsafe impl Send for LocalEntry {}

impl LocalEntry {
    pub(in crate::ucx) fn new(key: RegionKey, memory: Arc<Memory>) -> Self {
        Self {
            key,
            memory_type: memory.memory_type(),
            bytes: u64::try_from(memory.len()).unwrap_or(0),
            start: memory.start(),
            handle: memory.handle(),
            memory,
        }
    }

    /// Returns the address of a range.
    #[inline]
    pub(in crate::ucx) fn at(&self, span: ByteRange) -> Option<*mut u8> {
        (span.end() <= self.bytes).then(|| span.pointer(self.start.as_ptr()))
    }

    /// Returns `true` if CPUs can access it.
    #[inline]
    pub(in crate::ucx) fn is_host(&self) -> bool {
        self.memory_type == sys::UCS_MEMORY_TYPE_HOST
    }
}

#[derive(Debug)]
pub(in crate::ucx) struct RemoteEntry {
    pub(in crate::ucx) region: WindowDesc,
    /// Address of the window in the peer's process.
    pub(in crate::ucx) base: u64,
    pub(in crate::ucx) key: Key,
    /// Address of the window in this process, if a lane maps it.
    pub(in crate::ucx) mapped: Option<MappedWindow>,
    /// The peer revokes it: nothing new is posted, and the key is destroyed after the last operation.
    pub(in crate::ucx) leaving: bool,
}

impl RemoteEntry {
    /// Checks an access to this window.
    #[inline]
    pub(in crate::ucx) fn check_access(
        &self,
        opcode: Opcode,
        r: WindowSlice,
    ) -> Result<ByteRange, Failure> {
        let fault = |f| Err(Failure::Window(f));
        if self.region.epoch != r.epoch {
            return fault(WindowFault::StaleEpoch);
        }
        if self.leaving {
            return fault(WindowFault::Revoked);
        }
        let needed = if opcode == Opcode::Get { Access::READ } else { Access::WRITE };
        if !self.region.access.contains(needed) {
            return fault(WindowFault::Access);
        }
        match self.region.extent.span(Side::Remote, r.span.offset(), r.span.len()) {
            Ok(span) => Ok(span),
            Err(e) => fault(WindowFault::OutOfWindow(e)),
        }
    }
}

/// Arguments of a request.
pub(in crate::ucx) struct RequestArgs {
    pub(in crate::ucx) here: *mut u8,
    pub(in crate::ucx) len: usize,
    pub(in crate::ucx) there: u64,
    pub(in crate::ucx) memory: sys::ucp_mem_h,
    pub(in crate::ucx) memory_type: sys::ucs_memory_type_t,
    pub(in crate::ucx) key: sys::ucp_rkey_h,
}

/// Local memory and the peer's windows that requests may name.
#[derive(Debug, Default)]
pub(in crate::ucx) struct MemoryTable {
    pub(in crate::ucx) locals: Vec<Option<LocalEntry>>,
    pub(in crate::ucx) remotes: Vec<Option<RemoteEntry>>,
}

impl MemoryTable {
    #[inline]
    pub(in crate::ucx) fn local(&self, key: RegionKey) -> Option<&LocalEntry> {
        self.locals.get(usize::from(key.index))?.as_ref().filter(|l| l.key == key)
    }

    #[inline]
    pub(in crate::ucx) fn remote(&self, window: WindowId) -> Option<&RemoteEntry> {
        self.remotes
            .get(usize::from(window.index()))?
            .as_ref()
            .filter(|r| r.region.window == window)
    }

    /// Checks an access as the target would. Lanes of shared memory check nothing.
    #[inline]
    pub(in crate::ucx) fn check_access(
        &self,
        opcode: Opcode,
        r: WindowSlice,
    ) -> Result<(&RemoteEntry, ByteRange), Failure> {
        let unknown = Failure::Window(WindowFault::Unknown);
        let remote = self.remote(r.window).ok_or(unknown)?;
        Ok((remote, remote.check_access(opcode, r)?))
    }

    /// Checks both ranges of a request and returns its arguments.
    #[inline]
    pub(in crate::ucx) fn request_args(&self, work: &WorkRequest) -> Result<RequestArgs, Failure> {
        let local = self.local(work.local.key).ok_or(Failure::UnknownRegion)?;
        let here = local.at(work.local.span).ok_or(Failure::UnknownRegion)?;
        let (remote, span) = self.check_access(work.opcode, work.remote)?;
        Ok(RequestArgs {
            here,
            len: to_usize(work.local.span.len())?,
            there: span.address(remote.base),
            memory: local.handle,
            memory_type: local.memory_type,
            key: remote.key.handle(),
        })
    }
}

fn to_usize(n: u64) -> Result<usize, Failure> {
    usize::try_from(n).map_err(|_| Failure::UnknownRegion)
}
