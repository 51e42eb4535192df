//! Memory registered with a context, and the keys by which peers reach it.

use std::any::Any;
use std::fmt;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use hmc_core::range::{ByteRange, Extent};
use hmc_core::types::MemoryKind;
use hmc_mem::shared::SharedBytes;

use super::context::{Context, UcxError, check, made};
use super::result::Status;
use super::sys;

/// Memory that UCX may read and write while this value exists. Keep it while an operation or a peer uses it.
pub struct Memory {
    context: Arc<Context>,
    handle: NonNull<sys::ucp_mem>,
    start: NonNull<u8>,
    len: usize,
    kind: MemoryKind,
    /// Dropped after the registration is gone.
    _keep: Option<Box<dyn Any + Send + Sync>>,
}

// SAFETY: registrations belong to their context, whose calls may come from any thread; the bytes are not accessed here.
unsafe impl Send for Memory {}
// SAFETY: as above; nothing is changed through a shared reference.
unsafe impl Sync for Memory {}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").field("len", &self.len).finish_non_exhaustive()
    }
}

/// Returns UCX's number of a kind of memory, if it has one: ROCm stands for both AMD and Hygon.
pub(super) const fn type_of(kind: MemoryKind) -> Option<sys::ucs_memory_type_t> {
    match kind {
        MemoryKind::Cpu => Some(sys::UCS_MEMORY_TYPE_HOST),
        MemoryKind::NvidiaGpu => Some(sys::UCS_MEMORY_TYPE_CUDA),
        MemoryKind::AmdGpu | MemoryKind::HygonDcu => Some(sys::UCS_MEMORY_TYPE_ROCM),
        _ => None,
    }
}

/// Parameters of a registration. They always name the kind of memory: UCX's own detection depends on hooks that it may
/// not have installed in time.
fn params(
    start: *mut u8,
    len: usize,
    flags: u32,
    memory_type: sys::ucs_memory_type_t,
) -> sys::ucp_mem_map_params_t {
    let mut mask = sys::UCP_MEM_MAP_PARAM_FIELD_LENGTH
        | sys::UCP_MEM_MAP_PARAM_FIELD_FLAGS
        | sys::UCP_MEM_MAP_PARAM_FIELD_MEMORY_TYPE;
    if !start.is_null() {
        mask |= sys::UCP_MEM_MAP_PARAM_FIELD_ADDRESS;
    }
    sys::ucp_mem_map_params_t {
        field_mask: mask,
        address: start.cast(),
        length: len,
        flags,
        prot: 0,
        memory_type,
        exported_memh_buffer: ptr::null(),
    }
}

impl Memory {
    fn map(
        context: &Arc<Context>,
        params: &sys::ucp_mem_map_params_t,
        kind: MemoryKind,
        keep: Option<Box<dyn Any + Send + Sync>>,
    ) -> Result<Self, UcxError> {
        let _permit = context.library().ending().enter();
        let api = &context.library().api;
        let mut handle = ptr::null_mut();
        // SAFETY: the context lives; the parameters name memory that is valid (see the callers), or none.
        let status = unsafe { (api.ucp_mem_map)(context.handle(), params, &mut handle) };
        let handle = made("registering memory", status, handle)
            .map_err(|e| UcxError { what: format!("{} bytes", params.length), ..e })?;
        let start = NonNull::new(params.address.cast()).unwrap_or(NonNull::dangling());
        let (context, len) = (Arc::clone(context), params.length);
        // From here on `Drop` releases it.
        Ok(Self { context, handle, start, len, kind, _keep: keep })
    }

    /// Registers `len` bytes of memory of that kind at `start`, in place. A NIC pins their pages.
    ///
    /// # Errors
    /// [`UcxError`] with `UNSUPPORTED` if this UCX cannot access that kind, with `NO_MEMORY` (for example at the limit
    /// of locked memory), or with the device's status.
    ///
    /// # Safety
    /// Until this value is dropped, the bytes are valid for reads and writes from any thread and by devices; `keep`
    /// owns them if they need an owner. During a transfer they are not accessed through Rust references.
    pub unsafe fn register(
        context: &Arc<Context>,
        start: NonNull<u8>,
        len: usize,
        kind: MemoryKind,
        keep: Option<Box<dyn Any + Send + Sync>>,
    ) -> Result<Self, UcxError> {
        let reached = type_of(kind).filter(|t| context.reaches(*t));
        let missing = || UcxError {
            call: "registering memory",
            status: Status::UNSUPPORTED,
            what: format!("{len} bytes of {kind:?}: this UCX has no module for it here"),
        };
        let memory_type = reached.ok_or_else(missing)?;
        Self::map(context, &params(start.as_ptr(), len, 0, memory_type), kind, keep)
    }

    /// Allocates `len` zeroed bytes that UCX's shared-memory lanes map into the peer's process. A small put then takes
    /// about 0.05 us instead of the 2 us of a system call.
    ///
    /// # Errors
    /// Those of [`Memory::register`].
    pub fn allocate(context: &Arc<Context>, len: usize) -> Result<Self, UcxError> {
        let host = sys::UCS_MEMORY_TYPE_HOST;
        let wanted = params(ptr::null_mut(), len, sys::UCP_MEM_MAP_ALLOCATE, host);
        let mut memory = Self::map(context, &wanted, MemoryKind::Cpu, None)?;
        let mut attr = sys::ucp_mem_attr_t {
            field_mask: sys::UCP_MEM_ATTR_FIELD_ADDRESS | sys::UCP_MEM_ATTR_FIELD_LENGTH,
            address: ptr::null_mut(),
            length: 0,
            mem_type: sys::UCS_MEMORY_TYPE_HOST,
        };
        let _permit = context.library().ending().enter();
        let api = &context.library().api;
        // SAFETY: the registration is ours; the mask says what is written.
        let status = unsafe { (api.ucp_mem_query)(memory.handle.as_ptr(), &mut attr) };
        let start = if attr.length >= len { attr.address.cast() } else { ptr::null_mut() };
        memory.start = made("asking where memory is", status, start)
            .map_err(|e| UcxError { what: format!("{len} bytes"), ..e })?;
        // SAFETY: UCX allocated that many bytes, and no peer has a key to them yet.
        unsafe { memory.start.write_bytes(0, len) };
        Ok(memory)
    }

    /// Returns its address.
    #[must_use]
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Returns its address as a number for the peer.
    pub(super) fn address(&self) -> u64 {
        u64::try_from(self.start.as_ptr().expose_provenance()).unwrap_or(0)
    }

    /// Bytes.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "no caller asks whether it is empty")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns the kind of memory.
    #[must_use]
    pub fn kind(&self) -> MemoryKind {
        self.kind
    }

    /// Returns UCX's number of that kind.
    pub(super) fn memory_type(&self) -> sys::ucs_memory_type_t {
        type_of(self.kind).unwrap_or(sys::UCS_MEMORY_TYPE_HOST)
    }

    pub(super) fn handle(&self) -> sys::ucp_mem_h {
        self.handle.as_ptr()
    }

    /// Returns a view of a part, if CPUs can access it.
    pub(super) fn view(&self, part: ByteRange) -> Option<SharedBytes<'_>> {
        let whole = Extent::new(u64::try_from(self.len).ok()?);
        if self.kind != MemoryKind::Cpu || !whole.contains(part) {
            return None;
        }
        let at = NonNull::new(part.pointer(self.start.as_ptr()))?;
        let len = usize::try_from(part.len()).ok()?;
        // SAFETY: registered memory is valid for reads and writes as long as the registration, which the result
        // borrows, and is not touched through references (the contract of `Memory::register`).
        Some(unsafe { SharedBytes::new(at, len) })
    }

    /// Returns the key by which a peer accesses the memory (`ucp_rkey_pack`), about ten bytes for each device. Send it
    /// only through an authenticated channel: a process with the key can read and write the memory, because UCX's lanes
    /// over TCP and shared memory do not check bounds.
    ///
    /// # Errors
    /// [`UcxError`].
    pub fn pack(&self) -> Result<Vec<u8>, UcxError> {
        let _permit = self.context.library().ending().enter();
        let api = &self.context.library().api;
        let (mut bytes, mut len) = (ptr::null_mut(), 0);
        // SAFETY: the registration is ours, and of this context.
        let status = unsafe {
            (api.ucp_rkey_pack)(self.context.handle(), self.handle.as_ptr(), &mut bytes, &mut len)
        };
        check("packing a memory key", status)?;
        // SAFETY: UCX just wrote that many bytes there.
        let key = unsafe { std::slice::from_raw_parts(bytes.cast::<u8>(), len) }.to_vec();
        // SAFETY: packed above, released once.
        unsafe { (api.ucp_rkey_buffer_release)(bytes) };
        Ok(key)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let _permit = self.context.library().ending().enter();
        let api = &self.context.library().api;
        // SAFETY: registered by `map`, released once; users own it until their operation is complete.
        let status = unsafe { (api.ucp_mem_unmap)(self.context.handle(), self.handle.as_ptr()) };
        // An error has no remedy here, and no peer has a key to the memory any more.
        debug_assert_eq!(Status(status), Status::OK);
    }
}

#[cfg(test)]
mod tests {
    use super::{MemoryKind, params, sys, type_of};

    #[test]
    fn each_kind_of_memory_has_its_name_or_none() {
        for (kind, name) in [
            (MemoryKind::Cpu, Some(sys::UCS_MEMORY_TYPE_HOST)),
            (MemoryKind::NvidiaGpu, Some(sys::UCS_MEMORY_TYPE_CUDA)),
            (MemoryKind::AmdGpu, Some(sys::UCS_MEMORY_TYPE_ROCM)),
            (MemoryKind::HygonDcu, Some(sys::UCS_MEMORY_TYPE_ROCM)),
            (MemoryKind::CambriconMlu, None),
        ] {
            assert_eq!(type_of(kind), name, "{kind:?}");
        }
    }

    /// UCX reads the fields that the mask names.
    #[test]
    fn a_registration_names_its_address_unless_ucx_is_to_choose_it() {
        let mut byte = 0;
        let named = params(&raw mut byte, 1, 2, sys::UCS_MEMORY_TYPE_CUDA);
        let chosen = params(std::ptr::null_mut(), 1, 2, sys::UCS_MEMORY_TYPE_CUDA);
        let always = sys::UCP_MEM_MAP_PARAM_FIELD_LENGTH
            | sys::UCP_MEM_MAP_PARAM_FIELD_FLAGS
            | sys::UCP_MEM_MAP_PARAM_FIELD_MEMORY_TYPE;
        assert_eq!(chosen.field_mask, always);
        assert_eq!(named.field_mask, always | sys::UCP_MEM_MAP_PARAM_FIELD_ADDRESS);
        assert_eq!(
            (named.length, named.flags, named.memory_type),
            (1, 2, sys::UCS_MEMORY_TYPE_CUDA)
        );
    }
}
