//! `libfake_vendor.so`: the smallest fake library. A GPU runtime with five ideas: memory, copies that take
//! time, streams, codes and their texts. Read it as the pattern for others.
//!
//! Codes: 0 done, 1 bad argument, 2 out of memory, 600 not ready, 700 device lost, 999 anything else.

use core::ffi::{c_char, c_int, c_void};

use hmc_core::device::{DeviceErrorKind, StreamId};
use hmc_core::types::MemoryKind;
use hmc_sim::vendor::fake_state::FakeState;
use hmc_sim::vendor::gpu::Gpu;

const DONE: c_int = 0;
const BAD_ARGUMENT: c_int = 1;
const NO_MEMORY: c_int = 2;
const NOT_READY: c_int = 600;
const LOST: c_int = 700;
const UNKNOWN: c_int = 999;

static STATE: FakeState<Gpu> =
    FakeState::new("HMC_FAKE_VENDOR", |knobs| Gpu::new(MemoryKind::NvidiaGpu, knobs), UNKNOWN);

hmc_sim::export_control!(STATE);

fn code<T>(result: Result<T, DeviceErrorKind>) -> c_int {
    match result {
        Ok(_) => DONE,
        Err(DeviceErrorKind::NoSpace) => NO_MEMORY,
        Err(DeviceErrorKind::Region | DeviceErrorKind::Range | DeviceErrorKind::Unsupported) => {
            BAD_ARGUMENT
        }
        Err(DeviceErrorKind::Busy) => NOT_READY,
        Err(DeviceErrorKind::Lost) => LOST,
        Err(_) => UNKNOWN,
    }
}

fn number(size: usize) -> u64 {
    u64::try_from(size).unwrap_or(u64::MAX)
}

fn address(pointer: *const c_void) -> u64 {
    number(pointer.expose_provenance())
}

/// `int fake_malloc(void **out, size_t size)`
///
/// # Safety
/// `out` is null or may be written.
// SAFETY: no other library has a function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fake_malloc(out: *mut *mut c_void, size: usize) -> c_int {
    STATE.call("fake_malloc", |gpu| {
        if out.is_null() {
            return BAD_ARGUMENT;
        }
        let memory = gpu.malloc(number(size));
        if let Some(at) = memory.ok().and_then(|at| usize::try_from(at).ok()) {
            // SAFETY: the caller vouched that `out`, which is not null, may be written.
            unsafe { out.write(core::ptr::without_provenance_mut(at)) };
        }
        code(memory)
    })
}

/// `int fake_free(void *memory)`
// SAFETY: no other library has a function of this name.
#[unsafe(no_mangle)]
pub extern "C" fn fake_free(memory: *mut c_void) -> c_int {
    STATE.call("fake_free", |gpu| code(gpu.free(address(memory))))
}

/// `int fake_stream_create(unsigned short *out)`
///
/// # Safety
/// `out` is null or may be written.
// SAFETY: no other library has a function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fake_stream_create(out: *mut u16) -> c_int {
    STATE.call("fake_stream_create", |gpu| {
        if out.is_null() {
            return BAD_ARGUMENT;
        }
        let stream = gpu.stream_create();
        if let Ok(StreamId(id)) = stream {
            // SAFETY: the caller vouched that `out`, which is not null, may be written.
            unsafe { out.write(id) };
        }
        code(stream)
    })
}

/// `int fake_memcpy_async(void *to, const void *from, size_t size, unsigned short stream)`
///
/// # Safety
/// What of the two is host memory has `size` bytes, which stay where they are and are used by nobody
/// else until the stream has passed the copy.
// SAFETY: no other library has a function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fake_memcpy_async(
    to: *mut c_void,
    from: *const c_void,
    size: usize,
    stream: u16,
) -> c_int {
    STATE.call("fake_memcpy_async", |gpu| {
        let (to, from) = (address(to), address(from));
        // SAFETY: the caller vouched for the same.
        code(unsafe { gpu.copy_async(to, from, number(size), StreamId(stream)) })
    })
}

/// `int fake_stream_query(unsigned short stream)`: 0 when all is done, 600 when not.
// SAFETY: no other library has a function of this name.
#[unsafe(no_mangle)]
pub extern "C" fn fake_stream_query(stream: u16) -> c_int {
    STATE.call("fake_stream_query", |gpu| match gpu.query(StreamId(stream)) {
        Ok(false) => NOT_READY,
        passed => code(passed),
    })
}

/// `int fake_stream_sync(unsigned short stream)`
// SAFETY: no other library has a function of this name.
#[unsafe(no_mangle)]
pub extern "C" fn fake_stream_sync(stream: u16) -> c_int {
    STATE.call("fake_stream_sync", |gpu| code(gpu.synchronize(StreamId(stream))))
}

/// `const char *fake_error_string(int code)`: never null, also for codes that there are not.
// SAFETY: no other library has a function of this name.
#[unsafe(no_mangle)]
pub extern "C" fn fake_error_string(code: c_int) -> *const c_char {
    let text = match code {
        DONE => c"done",
        BAD_ARGUMENT => c"bad argument",
        NO_MEMORY => c"out of memory",
        NOT_READY => c"not ready",
        LOST => c"device lost",
        _ => c"unknown error",
    };
    text.as_ptr()
}
