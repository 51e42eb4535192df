//! [`Runtime`]: the devices that OpenCL has here.

use std::ffi::c_void;
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};

use hmc_core::device::{DeviceAttributes, DeviceErrorKind, DeviceFeatures};
use hmc_core::place::DeviceId;
use hmc_core::types::MemoryKind;

use super::context::Context;
use super::device::OpenClDevice;
use super::fault::{OpenClFault, check};
use super::functions::OpenCl;
use super::library::Library;
use super::sys::{
    CL_DEVICE_GLOBAL_MEM_SIZE, CL_DEVICE_MAX_MEM_ALLOC_SIZE, CL_DEVICE_NAME, CL_DEVICE_NOT_FOUND,
    CL_DEVICE_TYPE_ALL, CL_PLATFORM_NAME, CL_PLATFORM_NOT_FOUND_KHR, CL_SUCCESS, cl_device_id,
    cl_device_info, cl_int, cl_platform_id, cl_uint, cl_ulong,
};

/// A driver, and the devices that it has.
#[derive(Debug)]
struct Platform {
    handle: cl_platform_id,
    name: String,
    devices: Vec<cl_device_id>,
    /// Made with the first device that is opened.
    context: Mutex<Option<Arc<Context>>>,
}

/// The devices of all drivers, numbered in the order in which OpenCL lists them.
#[derive(Debug)]
pub struct Runtime {
    library: &'static Library,
    platforms: Vec<Platform>,
}

// SAFETY: handles of platforms and devices may be used in any thread (OpenCL 1.2, A.2).
unsafe impl Send for Runtime {}
// SAFETY: as above.
unsafe impl Sync for Runtime {}

type Result<T> = core::result::Result<T, OpenClFault>;

/// A list that a call fills: first asked for its length, then for its entries.
fn list<T>(
    call: &'static str,
    none: cl_int,
    empty: T,
    fill: impl Fn(cl_uint, *mut T, *mut cl_uint) -> cl_int,
) -> Result<Vec<T>>
where
    T: Copy,
{
    let mut count = 0;
    match fill(0, ptr::null_mut(), &raw mut count) {
        CL_SUCCESS => {}
        code if code == none => return Ok(Vec::new()),
        code => return Err(OpenClFault::failed(call, code)),
    }
    let mut all = vec![empty; usize::try_from(count).unwrap_or(0)];
    check(call, fill(count, all.as_mut_ptr(), ptr::null_mut()))?;
    Ok(all)
}

/// A text that a call writes, which ends with a zero.
fn text(
    call: &'static str,
    fill: impl Fn(usize, *mut c_void, *mut usize) -> cl_int,
) -> Result<String> {
    let mut len = 0;
    check(call, fill(0, ptr::null_mut(), &raw mut len))?;
    let mut bytes = vec![0_u8; len];
    check(call, fill(len, bytes.as_mut_ptr().cast(), ptr::null_mut()))?;
    let text = String::from_utf8_lossy(&bytes);
    Ok(text.trim_end_matches('\0').trim().to_owned())
}

/// A number of a device.
fn number(api: &OpenCl, device: cl_device_id, what: cl_device_info) -> Result<u64> {
    let mut value: cl_ulong = 0;
    // SAFETY: the device is one that the library listed; the number is a `cl_ulong`.
    let code = unsafe {
        (api.clGetDeviceInfo)(
            device,
            what,
            size_of::<cl_ulong>(),
            (&raw mut value).cast(),
            ptr::null_mut(),
        )
    };
    check("clGetDeviceInfo", code)?;
    Ok(value)
}

impl Runtime {
    /// Lists the devices. There may be none: no driver is installed, or none has a device.
    ///
    /// # Errors
    /// [`OpenClFault`] of the call that failed.
    pub fn open(library: &'static Library) -> Result<Self> {
        let api = library.api();
        let _one_thread = library.listing();
        let ids = list(
            "clGetPlatformIDs",
            CL_PLATFORM_NOT_FOUND_KHR,
            ptr::null_mut(),
            |n, out, count| {
                // SAFETY: `out` has `n` places.
                unsafe { (api.clGetPlatformIDs)(n, out, count) }
            },
        )?;
        let mut platforms = Vec::new();
        for handle in ids {
            let devices =
                list("clGetDeviceIDs", CL_DEVICE_NOT_FOUND, ptr::null_mut(), |n, out, count| {
                    // SAFETY: the platform is one that the library listed; `out` has `n` places.
                    unsafe { (api.clGetDeviceIDs)(handle, CL_DEVICE_TYPE_ALL, n, out, count) }
                })?;
            let name = text("clGetPlatformInfo", |len, out, used| {
                // SAFETY: as above; `out` has `len` bytes.
                unsafe { (api.clGetPlatformInfo)(handle, CL_PLATFORM_NAME, len, out, used) }
            })?;
            platforms.push(Platform { handle, name, devices, context: Mutex::new(None) });
        }
        Ok(Self { library, platforms })
    }

    /// Returns the library.
    #[must_use]
    pub const fn library(&self) -> &'static Library {
        self.library
    }

    /// Returns how many devices there are.
    #[must_use]
    pub fn count(&self) -> u16 {
        let devices = self.platforms.iter().map(|platform| platform.devices.len());
        u16::try_from(devices.sum::<usize>()).unwrap_or(u16::MAX)
    }

    /// Opens a device; `None` if there are not so many.
    ///
    /// # Errors
    /// [`OpenClFault`] of the call that failed.
    pub fn device(&self, index: u16) -> Result<Option<OpenClDevice>> {
        let all = self.platforms.iter().flat_map(|p| p.devices.iter().map(move |d| (p, *d)));
        let Some((platform, device)) = all.into_iter().nth(usize::from(index)) else {
            return Ok(None);
        };
        if self.library.is_inherited() {
            return Err(OpenClFault::of(DeviceErrorKind::Forked));
        }
        let context = self.context_of(platform)?;
        let api = self.library.api();
        let name = text("clGetDeviceInfo", |len, out, used| {
            // SAFETY: the device is one that the library listed; `out` has `len` bytes.
            unsafe { (api.clGetDeviceInfo)(device, CL_DEVICE_NAME, len, out, used) }
        })?;
        let attributes = DeviceAttributes {
            total_bytes: number(api, device, CL_DEVICE_GLOBAL_MEM_SIZE)?,
            pci: None,
            features: DeviceFeatures::ROWS,
        };
        let max_bytes = number(api, device, CL_DEVICE_MAX_MEM_ALLOC_SIZE)?;
        let id = DeviceId { kind: MemoryKind::OpenCl, index };
        let name = format!("{name} ({})", platform.name);
        OpenClDevice::new(&context, device, (id, name), attributes, max_bytes).map(Some)
    }

    fn context_of(&self, platform: &Platform) -> Result<Arc<Context>> {
        let mut context = platform.context.lock().unwrap_or_else(PoisonError::into_inner);
        match context.as_ref() {
            Some(context) => Ok(Arc::clone(context)),
            None => {
                let new = Context::new(self.library, platform.handle, &platform.devices)?;
                Ok(Arc::clone(context.insert(new)))
            }
        }
    }
}
