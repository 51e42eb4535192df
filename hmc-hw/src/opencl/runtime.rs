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
    CL_DEVICE_AVAILABLE, CL_DEVICE_GLOBAL_MEM_SIZE, CL_DEVICE_MAX_MEM_ALLOC_SIZE, CL_DEVICE_NAME,
    CL_DEVICE_NOT_FOUND, CL_DEVICE_TYPE_ALL, CL_PLATFORM_NAME, CL_PLATFORM_NOT_FOUND_KHR,
    CL_SUCCESS, cl_bool, cl_device_id, cl_device_info, cl_int, cl_platform_id, cl_uint, cl_ulong,
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
    faults: Vec<OpenClFault>,
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
    // A call for none is an error.
    if count == 0 {
        return Ok(Vec::new());
    }
    let mut all = vec![empty; usize::try_from(count).unwrap_or(0)];
    let mut found = 0;
    check(call, fill(count, all.as_mut_ptr(), &raw mut found))?;
    all.truncate(usize::try_from(found).unwrap_or(0));
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

impl Platform {
    fn new(api: &OpenCl, handle: cl_platform_id) -> Result<Self> {
        let none = CL_DEVICE_NOT_FOUND;
        let mut devices = list("clGetDeviceIDs", none, ptr::null_mut(), |n, out, count| {
            // SAFETY: the platform is one that the library listed; `out` has `n` places.
            unsafe { (api.clGetDeviceIDs)(handle, CL_DEVICE_TYPE_ALL, n, out, count) }
        })?;
        // A context with one that is not available cannot be made.
        devices.retain(|device| is_available(api, *device));
        let name = text("clGetPlatformInfo", |len, out, used| {
            // SAFETY: as above; `out` has `len` bytes.
            unsafe { (api.clGetPlatformInfo)(handle, CL_PLATFORM_NAME, len, out, used) }
        })?;
        Ok(Self { handle, name, devices, context: Mutex::new(None) })
    }
}

fn is_available(api: &OpenCl, device: cl_device_id) -> bool {
    let mut value: cl_bool = 0;
    let (len, out) = (size_of::<cl_bool>(), (&raw mut value).cast());
    // SAFETY: the device is one that the library listed; the answer is a `cl_bool`.
    let code =
        unsafe { (api.clGetDeviceInfo)(device, CL_DEVICE_AVAILABLE, len, out, ptr::null_mut()) };
    code == CL_SUCCESS && value != 0
}

impl Runtime {
    /// Lists the devices that are available. There may be none: no driver is installed, or none has a device.
    ///
    /// # Errors
    /// `Forked`; [`OpenClFault`] if OpenCL does not list its drivers. One that does not list its devices is left out
    /// ([`Runtime::faults`]).
    pub fn open(library: &'static Library) -> Result<Self> {
        if library.is_inherited() {
            return Err(OpenClFault::of(DeviceErrorKind::Forked));
        }
        let api = library.api();
        let _one_thread = library.listing();
        let none = CL_PLATFORM_NOT_FOUND_KHR;
        let ids = list("clGetPlatformIDs", none, ptr::null_mut(), |n, out, count| {
            // SAFETY: `out` has `n` places.
            unsafe { (api.clGetPlatformIDs)(n, out, count) }
        })?;
        let (mut platforms, mut faults) = (Vec::new(), Vec::new());
        for handle in ids {
            match Platform::new(api, handle) {
                Ok(platform) => platforms.push(platform),
                Err(fault) => faults.push(fault),
            }
        }
        Ok(Self { library, platforms, faults })
    }

    /// Returns why drivers have no devices here, one fault for each that failed.
    #[must_use]
    pub fn faults(&self) -> &[OpenClFault] {
        &self.faults
    }

    /// Returns `true` if two devices are of one driver: each can add memory of the other.
    #[must_use]
    pub fn share_memory(&self, first: u16, second: u16) -> bool {
        match (self.find(first), self.find(second)) {
            (Some((first, _)), Some((second, _))) => ptr::eq(first, second),
            _ => false,
        }
    }

    fn find(&self, index: u16) -> Option<(&Platform, cl_device_id)> {
        let all = self.platforms.iter().flat_map(|p| p.devices.iter().map(move |d| (p, *d)));
        all.into_iter().nth(usize::from(index))
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
        let Some((platform, device)) = self.find(index) else {
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
