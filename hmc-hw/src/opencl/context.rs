//! [`Context`]: what all devices of a platform share.

use std::ptr;
use std::sync::Arc;

use super::fault::{OpenClFault, check};
use super::library::Library;
use super::sys::{CL_CONTEXT_PLATFORM, cl_context, cl_device_id, cl_platform_id, cl_uint};

/// A context with all devices of a platform.
#[derive(Debug)]
pub(super) struct Context {
    library: &'static Library,
    handle: cl_context,
}

// SAFETY: OpenCL's calls on a context may come from any thread (OpenCL 1.2, A.2).
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    pub(super) fn new(
        library: &'static Library,
        platform: cl_platform_id,
        devices: &[cl_device_id],
    ) -> Result<Arc<Self>, OpenClFault> {
        let properties = [CL_CONTEXT_PLATFORM, platform.addr().cast_signed(), 0];
        let count = cl_uint::try_from(devices.len()).unwrap_or(cl_uint::MAX);
        let mut code = 0;
        // SAFETY: the properties end with a zero; the devices are the platform's, as the library listed them.
        let handle = unsafe {
            (library.api().clCreateContext)(
                properties.as_ptr(),
                count,
                devices.as_ptr(),
                None,
                ptr::null_mut(),
                &raw mut code,
            )
        };
        check("clCreateContext", code)?;
        Ok(Arc::new(Self { library, handle }))
    }

    pub(super) const fn library(&self) -> &'static Library {
        self.library
    }

    pub(super) const fn handle(&self) -> cl_context {
        self.handle
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        if !self.library.is_inherited() {
            // SAFETY: it is ours, and released once; what was made in it holds it.
            unsafe { (self.library.api().clReleaseContext)(self.handle) };
        }
    }
}
