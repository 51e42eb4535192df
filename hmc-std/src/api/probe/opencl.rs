//! OpenCL devices, each tried.

use std::path::PathBuf;
use std::ptr::NonNull;
use std::sync::Arc;

use hmc_core::device::{
    Allocation, Copies as _, Device as _, DeviceError as _, DeviceErrorKind, DeviceMemory as _,
};
use hmc_core::place::DeviceId;
use hmc_core::region::{LocalSlice, RegionKey};
use hmc_hw::opencl::{Library, LoadError, Memory, OpenClDevice, OpenClFault, Runtime, Search};
use hmc_mem::os::memfd::Mapping;

use crate::base::config::Environment;
use crate::base::error::{Error, ErrorKind, Result};

/// Bytes that a trial copies to a device and back.
const TRIAL_BYTES: u64 = 1 << 20;

/// A device, and what a trial of it found.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct OpenClDeviceFacts {
    /// Its kind and number.
    pub id: DeviceId,
    /// Its name, and that of its driver.
    pub name: String,
    /// Its memory in bytes.
    pub total_bytes: u64,
    /// Whether bytes came back as they were copied to it; else why not.
    pub trial: std::result::Result<(), String>,
}

/// The OpenCL of this machine.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct OpenClFacts {
    /// The library that was loaded.
    pub path: PathBuf,
    /// Its devices.
    pub devices: Vec<OpenClDeviceFacts>,
    /// Why drivers have no devices here, a text for each that failed.
    pub faults: Vec<String>,
}

impl From<LoadError> for Error {
    fn from(e: LoadError) -> Self {
        let kind = match e {
            LoadError::Forked => ErrorKind::Forked,
            _ => ErrorKind::Unavailable,
        };
        Self::new(kind, e.to_string())
    }
}

impl From<OpenClFault> for Error {
    fn from(e: OpenClFault) -> Self {
        let kind = match e.kind() {
            DeviceErrorKind::NoSpace => ErrorKind::NoSpace,
            DeviceErrorKind::Forked => ErrorKind::Forked,
            _ => ErrorKind::Unavailable,
        };
        Self::new(kind, format!("OpenCL: {e}"))
    }
}

/// Loads OpenCL, opens each device and copies 1 MiB to it, within it and back. Sessions move no memory of devices so far.
///
/// # Errors
/// `Unavailable` when there is no OpenCL that can be used, with what to do about it; `Forked`.
pub fn opencl() -> Result<OpenClFacts> {
    let library = Library::load(&Search { named: Environment::read().opencl_lib })?;
    let runtime = Runtime::open(library)?;
    let mut devices = Vec::new();
    for index in 0..runtime.count() {
        let Some(mut device) = runtime.device(index)? else { break };
        devices.push(OpenClDeviceFacts {
            id: device.id(),
            name: device.name().to_owned(),
            total_bytes: device.attributes().total_bytes,
            trial: trial(&mut device).map_err(|e| e.to_string()),
        });
    }
    let faults = runtime.faults().iter().map(ToString::to_string).collect();
    Ok(OpenClFacts { path: library.path().to_owned(), devices, faults })
}

const fn key(index: u16) -> RegionKey {
    RegionKey { index, generation: 1 }
}

/// Bytes go to the device, within it, and back to other memory.
fn trial(device: &mut OpenClDevice) -> Result<()> {
    let (source, back) = (host(device, key(0))?, host(device, key(1))?);
    let whole = source.extent().whole();
    source.bytes().fill(whole, 0x5A).map_err(hmc_mem::error::MemError::from)?;
    for index in [2, 3] {
        device.alloc(key(index), &Allocation::device(TRIAL_BYTES))?;
    }
    for (from, to) in [(0, 2), (2, 3), (3, 1)] {
        let slice = |index| LocalSlice { key: key(index), span: whole };
        device.copy_now(slice(from), slice(to))?;
    }
    let sum =
        |mapping: &Mapping| mapping.bytes().crc32c(whole).map_err(hmc_mem::error::MemError::from);
    if sum(&source)? == sum(&back)? {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Io, "other bytes came back than were copied to it"))
}

/// Host memory that the device has under `key`.
fn host(device: &mut OpenClDevice, key: RegionKey) -> Result<Arc<Mapping>> {
    let mapping = Arc::new(Mapping::create(TRIAL_BYTES)?);
    let start = NonNull::new(mapping.bytes().as_ptr()).unwrap_or(NonNull::dangling());
    // SAFETY: the handle keeps the mapping, whose bytes are accessed by copies only.
    let memory = unsafe { Memory::host(start, TRIAL_BYTES, Arc::clone(&mapping)) };
    device.add(key, memory)?;
    Ok(mapping)
}

#[cfg(test)]
mod tests {
    use super::{Error, ErrorKind, LoadError, opencl};

    /// The devices of this machine, if it has any.
    #[test]
    fn each_device_gives_bytes_back_or_there_is_a_remedy() {
        match opencl() {
            Ok(facts) => {
                assert!(facts.path.is_file(), "{facts:?}");
                for device in facts.devices {
                    assert!(device.total_bytes > 0 && !device.name.is_empty(), "{device:?}");
                    assert_eq!(device.trial, Ok(()), "{device:?}");
                }
            }
            Err(e) => {
                assert_eq!(e.kind(), ErrorKind::Unavailable, "{e}");
                assert!(e.to_string().contains("apt install"), "{e}");
            }
        }
    }

    #[test]
    fn errors_keep_their_kind() {
        assert_eq!(Error::from(LoadError::Forked).kind(), ErrorKind::Forked);
        let missing = LoadError::Incomplete { path: "/x".into(), missing: vec!["clFlush"] };
        assert_eq!(Error::from(missing).kind(), ErrorKind::Unavailable);
    }
}
