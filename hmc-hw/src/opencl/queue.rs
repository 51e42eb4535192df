//! [`Queue`]: a queue of commands, one after the other.

use std::ptr;
use std::sync::Arc;

use hmc_core::device::{DeviceErrorKind, Rows};

use super::context::Context;
use super::event::Event;
use super::fault::{OpenClFault, check};
use super::memory::Start;
use super::sys::{CL_FALSE, cl_command_queue, cl_device_id, cl_event, cl_int, cl_mem};

/// What a queue is to do. Ranges lie within their memory, and their memory lives until the command has ended.
#[derive(Clone, Copy, Debug)]
pub(super) enum Command {
    Copy {
        from: Start,
        to: Start,
        len: usize,
    },
    CopyRows {
        from: Start,
        to: Start,
        rows: Rows,
    },
    Fill {
        to: cl_mem,
        offset: usize,
        len: usize,
        byte: u8,
    },
    Record,
    /// What follows begins after the event, which lives until then.
    Wait(cl_event),
}

/// A queue that keeps the order of its commands.
#[derive(Debug)]
pub(super) struct Queue {
    context: Arc<Context>,
    handle: cl_command_queue,
    /// Commands were accepted, and may not begin by themselves: a flush failed.
    needs_flush: bool,
}

// SAFETY: OpenCL's calls on a queue may come from any thread (OpenCL 1.2, A.2).
unsafe impl Send for Queue {}

impl Queue {
    pub(super) fn new(context: &Arc<Context>, device: cl_device_id) -> Result<Self, OpenClFault> {
        let mut code = 0;
        // SAFETY: the device is one of the context's; without properties a queue is in order.
        let handle = unsafe {
            (context.library().api().clCreateCommandQueue)(
                context.handle(),
                device,
                0,
                &raw mut code,
            )
        };
        check("clCreateCommandQueue", code).map_err(OpenClFault::of_memory)?;
        Ok(Self { context: Arc::clone(context), handle, needs_flush: false })
    }

    /// Submits a command, which begins without a further call, unless the queue has to be flushed again.
    ///
    /// # Safety
    /// The memory of its ranges is valid for reads and writes until the event has ended.
    pub(super) unsafe fn submit(&mut self, command: &Command) -> Result<Event, OpenClFault> {
        let mut event = ptr::null_mut();
        // SAFETY: as the caller promises.
        let (call, code) = unsafe { self.enqueue(command, &raw mut event)? };
        check(call, code)?;
        // SAFETY: the command was accepted, so the event was returned to us.
        let event = unsafe { Event::new(self.context.library(), event) };
        // It was accepted, whatever the flush says.
        self.needs_flush = true;
        let _ = self.flush();
        Ok(event)
    }

    /// # Safety
    /// That of `submit`; an event may be written to `event`.
    unsafe fn enqueue(
        &self,
        command: &Command,
        event: *mut cl_event,
    ) -> Result<(&'static str, cl_int), OpenClFault> {
        let (api, queue, none) = (self.context.library().api(), self.handle, ptr::null());
        Ok(match *command {
            Command::Copy { from: Start::Host(from), to: Start::Buffer(to, at), len } => {
                let from = from.cast_const().cast();
                // SAFETY: the queue lives, the buffer is of its context; ranges as the caller promises.
                let code = unsafe {
                    (api.clEnqueueWriteBuffer)(queue, to, CL_FALSE, at, len, from, 0, none, event)
                };
                ("clEnqueueWriteBuffer", code)
            }
            Command::Copy { from: Start::Buffer(from, at), to: Start::Host(to), len } => {
                let to = to.cast();
                // SAFETY: as above.
                let code = unsafe {
                    (api.clEnqueueReadBuffer)(queue, from, CL_FALSE, at, len, to, 0, none, event)
                };
                ("clEnqueueReadBuffer", code)
            }
            Command::Copy { from: Start::Buffer(from, f), to: Start::Buffer(to, t), len } => {
                // SAFETY: as above.
                let code = unsafe {
                    (api.clEnqueueCopyBuffer)(queue, from, to, f, t, len, 0, none, event)
                };
                ("clEnqueueCopyBuffer", code)
            }
            Command::CopyRows { from, to, rows } => {
                // SAFETY: as the caller promises.
                return unsafe { self.enqueue_rows(from, to, &rows, event) };
            }
            Command::Fill { to, offset, len, byte } => {
                let (call, byte) = (api.clEnqueueFillBuffer, (&raw const byte).cast());
                // SAFETY: as above; the pattern of one byte is read in the call.
                let code = unsafe { call(queue, to, byte, 1, offset, len, 0, none, event) };
                ("clEnqueueFillBuffer", code)
            }
            Command::Record => {
                // SAFETY: the queue lives.
                let code = unsafe { (api.clEnqueueMarkerWithWaitList)(queue, 0, none, event) };
                ("clEnqueueMarkerWithWaitList", code)
            }
            Command::Wait(awaited) => {
                let list = &raw const awaited;
                // SAFETY: the queue lives; the event lives, and is of its context.
                let code = unsafe { (api.clEnqueueBarrierWithWaitList)(queue, 1, list, event) };
                ("clEnqueueBarrierWithWaitList", code)
            }
            Command::Copy { from: Start::Host(_), to: Start::Host(_), .. } => {
                return Err(OpenClFault::of(DeviceErrorKind::Unsupported));
            }
        })
    }

    /// # Safety
    /// That of `enqueue`.
    unsafe fn enqueue_rows(
        &self,
        from: Start,
        to: Start,
        rows: &Rows,
        event: *mut cl_event,
    ) -> Result<(&'static str, cl_int), OpenClFault> {
        let too_long = |_| OpenClFault::of(DeviceErrorKind::Range);
        let len = usize::try_from(rows.len).map_err(too_long)?;
        let count = usize::try_from(rows.count).map_err(too_long)?;
        // With one row there is no distance, and a driver may refuse one that leaves the buffer.
        let pitch = |stride: u64| match count {
            1 => Ok(len),
            _ => usize::try_from(stride).map_err(too_long),
        };
        let (from_pitch, to_pitch) = (pitch(rows.from_stride)?, pitch(rows.to_stride)?);
        let (region, zero) = ([len, count, 1], [0, 0, 0]);
        let (region, zero) = (region.as_ptr(), zero.as_ptr());
        let (api, queue, none) = (self.context.library().api(), self.handle, ptr::null());
        let (f, t) = (from_pitch, to_pitch);
        Ok(match (from, to) {
            (Start::Host(from), Start::Buffer(to, at)) => {
                let (from, at) = (from.cast_const().cast(), [at, 0, 0]);
                let (call, at) = (api.clEnqueueWriteBufferRect, at.as_ptr());
                // SAFETY: that of `enqueue`; origins and the region have three numbers each.
                let code = unsafe {
                    call(queue, to, CL_FALSE, at, zero, region, t, 0, f, 0, from, 0, none, event)
                };
                ("clEnqueueWriteBufferRect", code)
            }
            (Start::Buffer(from, at), Start::Host(to)) => {
                let (to, at) = (to.cast(), [at, 0, 0]);
                let (call, at) = (api.clEnqueueReadBufferRect, at.as_ptr());
                // SAFETY: as above.
                let code = unsafe {
                    call(queue, from, CL_FALSE, at, zero, region, f, 0, t, 0, to, 0, none, event)
                };
                ("clEnqueueReadBufferRect", code)
            }
            (Start::Buffer(from, source), Start::Buffer(to, target)) => {
                let (source, target) = ([source, 0, 0], [target, 0, 0]);
                let (source, target) = (source.as_ptr(), target.as_ptr());
                let call = api.clEnqueueCopyBufferRect;
                // SAFETY: as above.
                let code = unsafe {
                    call(queue, from, to, source, target, region, f, 0, t, 0, 0, none, event)
                };
                ("clEnqueueCopyBufferRect", code)
            }
            (Start::Host(_), Start::Host(_)) => {
                return Err(OpenClFault::of(DeviceErrorKind::Unsupported));
            }
        })
    }

    /// Commands begin, also those that another queue waits for (OpenCL 1.2, 5.13).
    pub(super) fn flush(&mut self) -> Result<(), OpenClFault> {
        if self.needs_flush {
            // SAFETY: the queue lives.
            check("clFlush", unsafe { (self.context.library().api().clFlush)(self.handle) })?;
            self.needs_flush = false;
        }
        Ok(())
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        let library = self.context.library();
        if !library.is_inherited() {
            // SAFETY: it is ours, and released once; its commands have ended.
            unsafe { (library.api().clReleaseCommandQueue)(self.handle) };
        }
    }
}
