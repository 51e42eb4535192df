//! A device of functions that fail when they are told to: what no real driver can be made to do.
#![allow(clippy::arithmetic_side_effects, reason = "tests may panic")]

use core::ffi::{c_char, c_void};
use std::cell::{Cell, RefCell};
use std::ptr::{self, NonNull};
use std::sync::Arc;

use hmc_core::device::{
    Allocation, Copies as _, DeviceAttributes, DeviceError as _, DeviceErrorKind, DeviceFeatures,
    DeviceMemory as _, Rows, StreamId, Streams as _,
};
use hmc_core::place::DeviceId;
use hmc_core::region::{LocalRegion, LocalSlice, RegionKey};
use hmc_core::types::MemoryKind;

use crate::opencl::context::Context;
use crate::opencl::functions::OpenCl;
use crate::opencl::library::Library;
use crate::opencl::memory::Memory;
use crate::opencl::sys::*;
use crate::opencl::{OpenClDevice, Runtime};

thread_local! {
    /// What the next calls return.
    static FLUSH: Cell<cl_int> = const { Cell::new(0) };
    static QUERY: Cell<cl_int> = const { Cell::new(0) };
    static BLOCK: Cell<cl_int> = const { Cell::new(0) };
    static CREATE: Cell<cl_int> = const { Cell::new(0) };
    static FILL: Cell<cl_int> = const { Cell::new(0) };
    /// Of the copies within the device, those that are accepted before one is refused.
    static COPIES: Cell<u32> = const { Cell::new(u32::MAX) };
    /// The status of all events.
    static STATUS: Cell<cl_int> = const { Cell::new(0) };
    static FLUSHES: Cell<u32> = const { Cell::new(0) };
    static WAITS: Cell<u32> = const { Cell::new(0) };
    static PLATFORMS: RefCell<Vec<cl_int>> = const { RefCell::new(Vec::new()) };
}

/// An object that is only named.
fn handle<T>(n: usize) -> *mut T {
    ptr::without_provenance_mut(n << 4)
}

/// # Safety
/// `out` may be written, or is null.
unsafe fn put<T>(out: *mut T, value: T) {
    if !out.is_null() {
        // SAFETY: as the caller promises.
        unsafe { out.write(value) };
    }
}

macro_rules! functions {
    ($(fn $name:ident($($arg:ident: $kind:ty),* $(,)?) -> $result:ty $body:block)+) => {
        $(#[allow(unused_variables, unused_unsafe, reason = "most arguments do not matter")]
        // SAFETY: only the table of `library` has it, whose callers give pointers as OpenCL wants them.
        unsafe extern "C" fn $name($($arg: $kind),*) -> $result {
            // SAFETY: the callers are the declarations' own: pointers are as OpenCL wants them.
            unsafe { $body }
        })+
    };
}

functions! {
    fn platform_ids(n: cl_uint, out: *mut cl_platform_id, count: *mut cl_uint) -> cl_int {
        let all = PLATFORMS.with_borrow(Vec::len);
        for at in 0..all.min(usize::try_from(n).unwrap_or(0)) {
            out.add(at).write(handle(at + 1));
        }
        put(count, cl_uint::try_from(all).unwrap_or(0));
        0
    }
    fn platform_info(p: cl_platform_id, what: cl_uint, len: usize, out: *mut c_void, used: *mut usize) -> cl_int {
        put(used, 2);
        if !out.is_null() { out.cast::<[u8; 2]>().write(*b"P\0"); }
        0
    }
    fn device_ids(p: cl_platform_id, kind: cl_ulong, n: cl_uint, out: *mut cl_device_id, count: *mut cl_uint) -> cl_int {
        let code = PLATFORMS.with_borrow(|all| all[(p.addr() >> 4) - 1]);
        put(count, 1);
        if code == 0 && !out.is_null() { out.write(handle(7)); }
        code
    }
    fn device_info(d: cl_device_id, what: cl_uint, len: usize, out: *mut c_void, used: *mut usize) -> cl_int {
        put(used, len.max(2));
        match len {
            2 => out.cast::<[u8; 2]>().write(*b"D\0"),
            4 => out.cast::<u32>().write(1),
            8 => out.cast::<u64>().write(1 << 20),
            _ => {}
        }
        0
    }
    fn new_context(p: *const isize, n: cl_uint, d: *const cl_device_id, notify: Option<unsafe extern "C" fn(*const c_char, *const c_void, usize, *mut c_void)>, data: *mut c_void, code: *mut cl_int) -> cl_context {
        put(code, 0);
        handle(1)
    }
    fn end_context(c: cl_context) -> cl_int { 0 }
    fn new_queue(c: cl_context, d: cl_device_id, p: cl_ulong, code: *mut cl_int) -> cl_command_queue {
        put(code, 0);
        handle(1)
    }
    fn end_queue(q: cl_command_queue) -> cl_int { 0 }
    fn new_buffer(c: cl_context, flags: cl_ulong, size: usize, host: *mut c_void, code: *mut cl_int) -> cl_mem {
        put(code, CREATE.get());
        handle(1 + size)
    }
    fn end_buffer(m: cl_mem) -> cl_int { 0 }
    fn read(q: cl_command_queue, b: cl_mem, block: cl_bool, at: usize, len: usize, to: *mut c_void, n: cl_uint, list: *const cl_event, event: *mut cl_event) -> cl_int {
        put(event, handle(1));
        0
    }
    fn write(q: cl_command_queue, b: cl_mem, block: cl_bool, at: usize, len: usize, from: *const c_void, n: cl_uint, list: *const cl_event, event: *mut cl_event) -> cl_int {
        put(event, handle(1));
        0
    }
    fn copy(q: cl_command_queue, from: cl_mem, to: cl_mem, f: usize, t: usize, len: usize, n: cl_uint, list: *const cl_event, event: *mut cl_event) -> cl_int {
        put(event, handle(1));
        match COPIES.get().checked_sub(1) {
            Some(left) => { COPIES.set(left); 0 }
            None => -5,
        }
    }
    fn read_rect(q: cl_command_queue, b: cl_mem, block: cl_bool, o: *const usize, h: *const usize, r: *const usize, a: usize, c: usize, d: usize, e: usize, to: *mut c_void, n: cl_uint, list: *const cl_event, event: *mut cl_event) -> cl_int { -1 }
    fn write_rect(q: cl_command_queue, b: cl_mem, block: cl_bool, o: *const usize, h: *const usize, r: *const usize, a: usize, c: usize, d: usize, e: usize, from: *const c_void, n: cl_uint, list: *const cl_event, event: *mut cl_event) -> cl_int { -1 }
    fn copy_rect(q: cl_command_queue, from: cl_mem, to: cl_mem, f: *const usize, t: *const usize, r: *const usize, a: usize, b: usize, c: usize, d: usize, n: cl_uint, list: *const cl_event, event: *mut cl_event) -> cl_int { -30 }
    fn fill(q: cl_command_queue, b: cl_mem, pattern: *const c_void, size: usize, at: usize, len: usize, n: cl_uint, list: *const cl_event, event: *mut cl_event) -> cl_int {
        put(event, handle(1));
        FILL.get()
    }
    fn marker(q: cl_command_queue, n: cl_uint, list: *const cl_event, event: *mut cl_event) -> cl_int {
        put(event, handle(1));
        0
    }
    fn flush(q: cl_command_queue) -> cl_int {
        FLUSHES.set(FLUSHES.get() + 1);
        FLUSH.get()
    }
    fn block(n: cl_uint, list: *const cl_event) -> cl_int {
        WAITS.set(WAITS.get() + 1);
        BLOCK.get()
    }
    fn event_info(e: cl_event, what: cl_uint, len: usize, out: *mut c_void, used: *mut usize) -> cl_int {
        out.cast::<cl_int>().write(STATUS.get());
        QUERY.get()
    }
    fn end_event(e: cl_event) -> cl_int { 0 }
}

fn library() -> &'static Library {
    let api = OpenCl {
        clGetPlatformIDs: platform_ids,
        clGetPlatformInfo: platform_info,
        clGetDeviceIDs: device_ids,
        clGetDeviceInfo: device_info,
        clCreateContext: new_context,
        clReleaseContext: end_context,
        clCreateCommandQueue: new_queue,
        clReleaseCommandQueue: end_queue,
        clCreateBuffer: new_buffer,
        clReleaseMemObject: end_buffer,
        clEnqueueReadBuffer: read,
        clEnqueueWriteBuffer: write,
        clEnqueueCopyBuffer: copy,
        clEnqueueReadBufferRect: read_rect,
        clEnqueueWriteBufferRect: write_rect,
        clEnqueueCopyBufferRect: copy_rect,
        clEnqueueFillBuffer: fill,
        clEnqueueMarkerWithWaitList: marker,
        clEnqueueBarrierWithWaitList: marker,
        clFlush: flush,
        clWaitForEvents: block,
        clGetEventInfo: event_info,
        clReleaseEvent: end_event,
    };
    Box::leak(Box::new(Library::of(api)))
}

fn device() -> OpenClDevice {
    let context = Context::new(library(), handle(1), &[handle(7)]).unwrap();
    let attributes =
        DeviceAttributes { total_bytes: 1 << 20, pci: None, features: DeviceFeatures::ROWS };
    let id = DeviceId { kind: MemoryKind::OpenCl, index: 0 };
    OpenClDevice::new(&context, handle(7), (id, "D".to_owned()), attributes, 1 << 20).unwrap()
}

const fn key(index: u16) -> RegionKey {
    RegionKey { index, generation: 1 }
}

fn whole(region: LocalRegion) -> LocalSlice {
    LocalSlice { key: region.key, span: region.extent.whole() }
}

/// A device, 64 bytes of it, and as many of the host, which are dropped with the last handle of the `Arc`.
fn fixture() -> (OpenClDevice, LocalRegion, LocalRegion, Arc<[u8; 64]>) {
    let (mut device, bytes) = (device(), Arc::new([0_u8; 64]));
    let near = device.alloc(key(1), &Allocation::device(64)).unwrap();
    let start = NonNull::new(bytes.as_ptr().cast_mut()).unwrap();
    // SAFETY: the handle keeps them; no function of this module touches them.
    let memory = unsafe { Memory::host(start, 64, Arc::clone(&bytes)) };
    let host = device.add(key(2), memory).unwrap();
    (device, near, host, bytes)
}

/// It may still begin, so its memory stays in use; a later call flushes again.
#[test]
fn a_command_whose_flush_failed_was_accepted() {
    let (mut device, near, host, bytes) = fixture();
    FLUSH.set(-5);
    STATUS.set(3);
    let event = device.copy(StreamId::FIRST, whole(near), whole(host)).unwrap();
    FLUSH.set(0);
    let before = FLUSHES.get();
    assert_eq!(device.passed(event), Ok(false));
    assert_eq!(FLUSHES.get(), before + 1);
    assert_eq!(device.free(host.key).unwrap_err().kind(), DeviceErrorKind::Region);
    assert_eq!(Arc::strong_count(&bytes), 2);
    STATUS.set(0);
    assert_eq!(device.passed(event), Ok(true));
    device.free(host.key).unwrap();
    assert_eq!(Arc::strong_count(&bytes), 1);
}

/// Nobody knows then whether commands have ended: nothing is given back, not even when the device is dropped.
#[test]
fn a_device_whose_events_cannot_be_asked_is_lost() {
    for what in ["query", "flush", "the wait at the end"] {
        let (mut device, near, host, bytes) = fixture();
        STATUS.set(1);
        let event = device.copy(StreamId::FIRST, whole(near), whole(host)).unwrap();
        match what {
            "query" => QUERY.set(-5),
            "flush" => {
                FLUSH.set(-6);
                device.record(StreamId::FIRST).unwrap();
            }
            _ => {
                STATUS.set(0);
                BLOCK.set(-5);
            }
        }
        let kind = |answer: Result<bool, crate::opencl::OpenClFault>| answer.unwrap_err().kind();
        assert_eq!(kind(device.passed(event)), DeviceErrorKind::Lost, "{what}");
        // It stays so.
        QUERY.set(0);
        FLUSH.set(0);
        BLOCK.set(0);
        assert_eq!(kind(device.passed(event)), DeviceErrorKind::Lost);
        assert_eq!(device.free(host.key).unwrap_err().kind(), DeviceErrorKind::Lost);
        assert_eq!(device.usage().unwrap_err().kind(), DeviceErrorKind::Lost);
        STATUS.set(1);
        QUERY.set(-5);
        drop(device);
        assert_eq!(Arc::strong_count(&bytes), 2, "{what}: memory of a running copy was released");
        STATUS.set(0);
        QUERY.set(0);
    }
}

#[test]
fn a_command_that_failed_fails_its_event_and_gives_its_memory_back() {
    let (mut device, near, host, bytes) = fixture();
    let before = device.record(StreamId::FIRST).unwrap();
    assert_eq!(device.passed(before), Ok(true));
    STATUS.set(-9999);
    let event = device.copy(StreamId::FIRST, whole(near), whole(host)).unwrap();
    let fault = device.passed(event).unwrap_err();
    assert_eq!((fault.kind(), fault.code()), (DeviceErrorKind::Other, -9999));
    STATUS.set(0);
    // Those before it did not fail, and those behind it did.
    assert_eq!(device.passed(before), Ok(true));
    let later = device.record(StreamId::FIRST).unwrap();
    assert_eq!(device.passed(later).unwrap_err().code(), -9999);
    device.free(host.key).unwrap();
    assert_eq!(Arc::strong_count(&bytes), 1);
}

#[test]
fn a_copy_in_the_call_that_failed_does_not_fail_the_next_one() {
    let (mut device, near, host, _bytes) = fixture();
    STATUS.set(-9999);
    let fault = device.copy_now(whole(near), whole(host)).unwrap_err();
    assert_eq!((fault.kind(), fault.code()), (DeviceErrorKind::Other, -9999));
    STATUS.set(0);
    device.copy_now(whole(near), whole(host)).unwrap();
    // One that is not seen to end is no fence.
    STATUS.set(1);
    BLOCK.set(-5);
    let fault = device.copy_now(whole(near), whole(host)).unwrap_err();
    assert_eq!(fault.kind(), DeviceErrorKind::Lost);
    STATUS.set(0);
    BLOCK.set(0);
}

/// A status is no synchronisation point.
#[test]
fn an_event_has_passed_after_a_wait_for_it() {
    let (mut device, near, host, _bytes) = fixture();
    STATUS.set(1);
    let event = device.copy(StreamId::FIRST, whole(near), whole(host)).unwrap();
    assert_eq!((device.passed(event), WAITS.get()), (Ok(false), WAITS.get()));
    let before = WAITS.get();
    STATUS.set(0);
    assert_eq!(device.passed(event), Ok(true));
    assert_eq!(WAITS.get(), before + 1);
}

/// Rows within one buffer are copies of their own.
#[test]
fn rows_of_which_some_were_accepted_are_one_event_that_fails() {
    let (mut device, near, _host, _bytes) = fixture();
    let part = |at, len| near.slice(at, len).unwrap();
    let rows = Rows { count: 3, len: 4, from_stride: 8, to_stride: 8 };
    COPIES.set(0);
    let refused = device.copy_rows(StreamId::FIRST, part(0, 20), part(40, 20), &rows);
    assert_eq!(refused.unwrap_err().code(), -5);
    COPIES.set(2);
    STATUS.set(1);
    let event = device.copy_rows(StreamId::FIRST, part(0, 20), part(40, 20), &rows).unwrap();
    assert_eq!(device.passed(event), Ok(false));
    assert_eq!(device.free(near.key).unwrap_err().kind(), DeviceErrorKind::Region);
    STATUS.set(0);
    assert_eq!(device.passed(event).unwrap_err().code(), -5);
    COPIES.set(u32::MAX);
    device.free(near.key).unwrap();
}

#[test]
fn only_what_makes_something_fails_for_want_of_memory() {
    let mut device = device();
    CREATE.set(-61);
    let alloc = |device: &mut OpenClDevice| device.alloc(key(1), &Allocation::device(64));
    assert_eq!(alloc(&mut device).unwrap_err().kind(), DeviceErrorKind::NoSpace);
    CREATE.set(0);
    FILL.set(-4);
    assert_eq!(alloc(&mut device).unwrap_err().kind(), DeviceErrorKind::NoSpace);
    assert_eq!((device.region(key(1)), device.usage().unwrap().free_bytes), (None, 1 << 20));
    FILL.set(0);
    let region = alloc(&mut device).unwrap();
    FILL.set(-4);
    let fault = device.fill(StreamId::FIRST, whole(region), 1).unwrap_err();
    assert_eq!((fault.kind(), fault.code()), (DeviceErrorKind::Other, -4));
    FILL.set(0);
}

#[test]
fn a_driver_that_fails_does_not_hide_the_others() {
    PLATFORMS.set(vec![-5, 0, CL_DEVICE_NOT_FOUND, 0]);
    let runtime = Runtime::open(library()).unwrap();
    assert_eq!(runtime.count(), 2);
    let codes: Vec<_> = runtime.faults().iter().map(|fault| fault.code()).collect();
    assert_eq!(codes, [-5]);
    assert!(runtime.share_memory(1, 1) && !runtime.share_memory(0, 1));
    assert!(runtime.device(1).unwrap().is_some() && runtime.device(2).unwrap().is_none());
    PLATFORMS.set(Vec::new());
    assert_eq!(Runtime::open(library()).unwrap().count(), 0);
}
