//! Registered memory, and keys to it.

use core::ffi::{c_uint, c_void};
use std::alloc::Layout;

use crate::faults::{Call, refused};
use crate::handle::Handle;
use crate::state::{FakeUcp, Key, Memory, enter, given, state};
use crate::sys::{
    self, ucp_context_h, ucp_ep_h, ucp_mem_attr_t, ucp_mem_h, ucp_mem_map_params_t, ucp_rkey_h,
    ucs_status_t,
};

/// All rights, where none are asked for.
const ALL: c_uint = sys::UCP_MEM_MAP_PROT_LOCAL_READ
    | sys::UCP_MEM_MAP_PROT_LOCAL_WRITE
    | sys::UCP_MEM_MAP_PROT_REMOTE_READ
    | sys::UCP_MEM_MAP_PROT_REMOTE_WRITE;
/// The beginning of a packed key.
const KEY_MARK: [u8; 4] = *b"skey";
const KEY_BYTES: usize = 4 + 8 + 8 + 8 + 4;
/// What fills memory that the library makes: UCX promises no zeros.
const FRESH: u8 = 0xEE;
const PAGE: usize = 4096;

impl FakeUcp {
    /// Hands bytes out that are given back by their address.
    pub(crate) fn allocate(&mut self, bytes: Vec<u8>) -> (*mut c_void, usize) {
        let mut paper = bytes.into_boxed_slice();
        let out = (paper.as_mut_ptr().cast(), paper.len());
        self.packed.push(paper);
        out
    }

    /// Takes such bytes back. Whether they were out.
    pub(crate) fn take_back(&mut self, start: *const c_void) -> bool {
        let at = self.packed.iter().position(|p| core::ptr::eq(p.as_ptr().cast(), start));
        at.map(|at| self.packed.swap_remove(at)).is_some()
    }
}

// SAFETY: the name is UCX's own, and a process has one libucp. The pointers are valid, as UCX asks.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ucp_mem_map(
    context: ucp_context_h,
    params: *const ucp_mem_map_params_t,
    memh: *mut ucp_mem_h,
) -> ucs_status_t {
    let mut w = state();
    if let Some(status) = refused(w.script.count(Call::MemMap)) {
        return status;
    }
    if w.contexts.get(Handle::of(context)).is_none() {
        return w.misuse(Call::MemMap, "this context was given back, or never made");
    }
    // SAFETY: the caller's parameters.
    let Some(p) = (unsafe { given(params) }) else { return sys::UCS_ERR_INVALID_PARAM };
    let has = |bit| p.field_mask & bit != 0;
    let flags = if has(sys::UCP_MEM_MAP_PARAM_FIELD_FLAGS) { p.flags } else { 0 };
    let rights = if has(sys::UCP_MEM_MAP_PARAM_FIELD_PROT) { p.prot } else { ALL };
    if !has(sys::UCP_MEM_MAP_PARAM_FIELD_LENGTH) {
        return sys::UCS_ERR_INVALID_PARAM;
    }
    let address = if has(sys::UCP_MEM_MAP_PARAM_FIELD_ADDRESS) {
        p.address.cast()
    } else {
        core::ptr::null_mut()
    };
    let mut memory = Memory {
        context: Handle::of(context),
        start: address,
        len: p.length,
        rights,
        layout: None,
        users: 0,
    };
    if flags & sys::UCP_MEM_MAP_ALLOCATE != 0 {
        let Ok(layout) = Layout::from_size_align(p.length.max(1), PAGE) else {
            return sys::UCS_ERR_NO_MEMORY;
        };
        // SAFETY: the layout has at least one byte.
        memory.start = unsafe { std::alloc::alloc(layout) };
        if memory.start.is_null() {
            return sys::UCS_ERR_NO_MEMORY;
        }
        // SAFETY: that many bytes were just made.
        unsafe { memory.start.write_bytes(FRESH, layout.size()) };
        memory.layout = Some(layout);
    } else if memory.start.is_null() && p.length != 0 {
        return sys::UCS_ERR_INVALID_PARAM;
    }
    let name = w.memories.insert(0, memory);
    // SAFETY: the caller's, to be written.
    unsafe { memh.write(name.pointer()) };
    sys::UCS_OK
}

// SAFETY: as above.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ucp_mem_unmap(
    _context: ucp_context_h,
    memh: ucp_mem_h,
) -> ucs_status_t {
    let mut w = state();
    w.script.count(Call::MemUnmap);
    let name = Handle::of(memh);
    match w.memories.get(name) {
        None => {
            return w.misuse(Call::MemUnmap, "this memory was unmapped already, or never mapped");
        }
        Some(m) if m.users != 0 => {
            return w.misuse(Call::MemUnmap, "a request under way still uses this memory");
        }
        Some(_) => {}
    }
    let removed = w.memories.remove(name);
    let cached = removed.as_ref().and_then(|m| w.contexts.get(m.context)) == Some(&true);
    if cached && w.has_nic() {
        w.counters.cached += 1;
    }
    if let Some(Memory { start, layout: Some(layout), .. }) = removed {
        // SAFETY: made by `ucp_mem_map` with that layout, and given back once.
        unsafe { std::alloc::dealloc(start, layout) };
    }
    sys::UCS_OK
}

// SAFETY: as above.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ucp_mem_query(
    memh: ucp_mem_h,
    attr: *mut ucp_mem_attr_t,
) -> ucs_status_t {
    let mut w = state();
    if let Some(status) = refused(w.script.count(Call::MemQuery)) {
        return status;
    }
    let Some(memory) = w.memories.get(Handle::of(memh)) else {
        return w.misuse(Call::MemQuery, "this memory was unmapped, or never mapped");
    };
    // SAFETY: the caller's, to be read and written.
    if let Some(attr) = unsafe { attr.as_mut() } {
        let has = |bit| attr.field_mask & bit != 0;
        let (address, length) =
            (has(sys::UCP_MEM_ATTR_FIELD_ADDRESS), has(sys::UCP_MEM_ATTR_FIELD_LENGTH));
        if address {
            attr.address = memory.start.cast();
        }
        if length {
            attr.length = memory.len;
        }
    }
    sys::UCS_OK
}

// SAFETY: as above.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ucp_rkey_pack(
    _context: ucp_context_h,
    memh: ucp_mem_h,
    buffer: *mut *mut c_void,
    size: *mut usize,
) -> ucs_status_t {
    let mut w = state();
    if let Some(status) = refused(w.script.count(Call::Pack)) {
        return status;
    }
    let name = Handle::of(memh);
    let Some(memory) = w.memories.get(name) else {
        return w.misuse(Call::Pack, "this memory was unmapped, or never mapped");
    };
    let numbers = [name.0, memory.start.expose_provenance(), memory.len];
    let mut bytes = KEY_MARK.to_vec();
    numbers.iter().for_each(|n| bytes.extend_from_slice(&n.to_le_bytes()));
    bytes.extend_from_slice(&memory.rights.to_le_bytes());
    let (start, len) = w.allocate(bytes);
    // SAFETY: the caller's, to be written.
    unsafe { buffer.write(start) };
    // SAFETY: as above.
    unsafe { size.write(len) };
    sys::UCS_OK
}

// SAFETY: as above.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ucp_rkey_buffer_release(buffer: *mut c_void) {
    let mut w = state();
    w.script.count(Call::BufferRelease);
    if !w.take_back(buffer) {
        w.misuse(Call::BufferRelease, "this packed key was released already, or never packed");
    }
}

// SAFETY: as above; the buffer holds a packed key, or begins with other bytes than one.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ucp_ep_rkey_unpack(
    ep: ucp_ep_h,
    buffer: *const c_void,
    rkey: *mut ucp_rkey_h,
) -> ucs_status_t {
    let endpoint = Handle::of(ep);
    let _inside = enter(Call::Unpack, endpoint);
    let mut w = state();
    if let Some(status) = refused(w.script.count(Call::Unpack)) {
        return status;
    }
    if let Err(status) = w.endpoint(Call::Unpack, endpoint) {
        return status;
    }
    // SAFETY: the caller's bytes.
    if unsafe { buffer.cast::<[u8; 4]>().read_unaligned() } != KEY_MARK {
        return sys::UCS_ERR_INVALID_ADDR;
    }
    // SAFETY: what begins like a key is one.
    let bytes = unsafe { buffer.cast::<[u8; KEY_BYTES]>().read_unaligned() };
    let number = |at: usize| {
        let mut n = [0; 8];
        n.copy_from_slice(&bytes[at..at + 8]);
        u64::from_le_bytes(n)
    };
    let rights = u32::from_le_bytes([bytes[28], bytes[29], bytes[30], bytes[31]]);
    let key = Key {
        endpoint,
        memory: Handle(usize::try_from(number(4)).unwrap_or(0)),
        start: number(12),
        len: number(20),
        rights,
        users: 0,
    };
    let name = w.keys.insert(endpoint.owner(), key);
    // SAFETY: the caller's, to be written.
    unsafe { rkey.write(name.pointer()) };
    sys::UCS_OK
}

// SAFETY: as above.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ucp_rkey_destroy(rkey: ucp_rkey_h) {
    let name = Handle::of(rkey);
    let _inside = enter(Call::KeyDestroy, name);
    let mut w = state();
    w.script.count(Call::KeyDestroy);
    match w.keys.remove(name) {
        None => {
            w.misuse(Call::KeyDestroy, "this key was destroyed already, or never unpacked");
        }
        Some(key) if key.users != 0 => {
            w.misuse(Call::KeyDestroy, "a request under way still uses this key");
        }
        Some(_) => {}
    }
}

// SAFETY: as above.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ucp_rkey_ptr(
    rkey: ucp_rkey_h,
    address: u64,
    pointer: *mut *mut c_void,
) -> ucs_status_t {
    let w = state();
    let Some(key) = w.keys.get(Handle::of(rkey)) else { return sys::UCS_ERR_INVALID_PARAM };
    if !w.script.knobs.maps {
        return sys::UCS_ERR_UNREACHABLE;
    }
    if w.memories.get(key.memory).is_none() || !(key.start..key.start + key.len).contains(&address)
    {
        return sys::UCS_ERR_INVALID_ADDR;
    }
    // Everybody is in this process.
    let at = usize::try_from(address).unwrap_or(0);
    // SAFETY: the caller's, to be written.
    unsafe { pointer.write(core::ptr::with_exposed_provenance_mut(at)) };
    sys::UCS_OK
}
