//! [`Event`]: the end of a command.

use std::ptr;

use super::fault::{OpenClFault, check};
use super::library::Library;
use super::sys::{CL_COMPLETE, CL_EVENT_COMMAND_EXECUTION_STATUS, cl_event, cl_int};

/// The event of a command that was submitted.
#[derive(Debug)]
pub(super) struct Event {
    library: &'static Library,
    handle: cl_event,
}

// SAFETY: OpenCL's calls on an event may come from any thread (OpenCL 1.2, A.2).
unsafe impl Send for Event {}

impl Event {
    /// # Safety
    /// The event was returned to the caller, who has not released it.
    pub(super) const unsafe fn new(library: &'static Library, handle: cl_event) -> Self {
        Self { library, handle }
    }

    pub(super) const fn handle(&self) -> cl_event {
        self.handle
    }

    /// Whether the command is done. An error is a fence as well: the command has ended.
    pub(super) fn is_done(&self) -> Result<bool, OpenClFault> {
        let mut status: cl_int = 0;
        // SAFETY: the event lives; a status is a `cl_int`.
        let code = unsafe {
            (self.library.api().clGetEventInfo)(
                self.handle,
                CL_EVENT_COMMAND_EXECUTION_STATUS,
                size_of::<cl_int>(),
                (&raw mut status).cast(),
                ptr::null_mut(),
            )
        };
        check("clGetEventInfo", code)?;
        // Queued, submitted and running are positive (OpenCL 1.2, table 5.18).
        if status < CL_COMPLETE {
            return Err(OpenClFault::failed("a command", status));
        }
        Ok(status == CL_COMPLETE)
    }

    /// Blocks until the command has ended.
    pub(super) fn wait(&self) -> Result<(), OpenClFault> {
        // SAFETY: one event, which lives.
        let code = unsafe { (self.library.api().clWaitForEvents)(1, &raw const self.handle) };
        // With a failed command the call fails, too (-14), and gives the wrong reason.
        self.is_done()?;
        check("clWaitForEvents", code)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if !self.library.is_inherited() {
            // SAFETY: it is ours, and released once.
            unsafe { (self.library.api().clReleaseEvent)(self.handle) };
        }
    }
}
