//! [`Event`]: the end of a command.

use std::ptr;

use super::fault::{OpenClFault, check};
use super::library::Library;
use super::sys::{CL_COMPLETE, CL_EVENT_COMMAND_EXECUTION_STATUS, cl_event, cl_int};

/// How a command ended. Either way nobody accesses its memory any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    Done,
    Failed(OpenClFault),
}

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

    /// How the command ended, if it has.
    ///
    /// # Errors
    /// Whether it has ended cannot be found.
    pub(super) fn ended(&self) -> Result<Option<Ended>, OpenClFault> {
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
            return Ok(Some(Ended::Failed(OpenClFault::failed("a command", status))));
        }
        if status > CL_COMPLETE {
            return Ok(None);
        }
        // The query is no synchronisation point (OpenCL 1.2, 5.9): what the command wrote can be read only after this call, which
        // does not block any more.
        check("clWaitForEvents", self.block())?;
        Ok(Some(Ended::Done))
    }

    fn block(&self) -> cl_int {
        // SAFETY: one event, which lives.
        unsafe { (self.library.api().clWaitForEvents)(1, &raw const self.handle) }
    }

    /// Blocks until the command has ended.
    ///
    /// # Errors
    /// Whether it has ended cannot be found.
    pub(super) fn wait(&self) -> Result<Ended, OpenClFault> {
        // It fails if the command failed, too (-14).
        let code = self.block();
        match self.ended()? {
            Some(ended) => Ok(ended),
            None => Err(OpenClFault::failed("clWaitForEvents", code)),
        }
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
