//! The suite for devices over the OpenCL devices of this machine. Without one it is skipped.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "tests may panic"
)]

use std::cell::UnsafeCell;
use std::collections::HashMap;
use std::ptr::NonNull;
use std::sync::Arc;

use hmc_core::device::{
    Allocation, Copies as _, Device as _, DeviceError as _, DeviceErrorKind, DeviceMemory as _,
    StreamId, Streams as _,
};
use hmc_core::region::{LocalRegion, RegionKey};
use hmc_hw::opencl::{Library, Memory, OpenClDevice, Runtime, Search};
use hmc_sim::conformance::device::{DeviceSubject, run};
use hmc_tests::env::skipped;

/// Bytes beside host memory that nobody may write.
const GUARD: usize = 64;
const GUARDED: u8 = 0xA5;

/// Host memory that devices copy to and from, between guards.
struct HostBytes(Box<[UnsafeCell<u8>]>);

// SAFETY: the bytes are accessed through raw pointers, by one thread at a time: a case touches them when no copy is under way.
unsafe impl Sync for HostBytes {}

impl HostBytes {
    fn new(len: usize) -> Arc<Self> {
        Arc::new(Self((0..len + 2 * GUARD).map(|_| UnsafeCell::new(GUARDED)).collect()))
    }

    /// The byte at `offset`, as far as `len` bytes are there.
    fn at(&self, offset: usize, len: usize) -> NonNull<u8> {
        assert!(offset + len <= self.len());
        NonNull::new(self.0[GUARD + offset..].as_ptr().cast_mut().cast()).unwrap()
    }

    fn len(&self) -> usize {
        self.0.len() - 2 * GUARD
    }

    fn has_guards(&self) -> bool {
        let mut all = self.0[..GUARD].iter().chain(&self.0[GUARD + self.len()..]);
        // SAFETY: nobody writes there.
        all.all(|byte| unsafe { *byte.get() } == GUARDED)
    }
}

struct Subject<'r> {
    runtime: &'r Runtime,
    index: u16,
    device: Option<OpenClDevice>,
    other: Option<OpenClDevice>,
    hosts: HashMap<RegionKey, Arc<HostBytes>>,
}

/// Another device of the same driver.
fn partner(runtime: &Runtime, index: u16) -> Option<u16> {
    (0..runtime.count()).find(|other| *other != index && runtime.share_memory(index, *other))
}

impl<'r> Subject<'r> {
    fn new(runtime: &'r Runtime, index: u16) -> Self {
        Self { runtime, index, device: None, other: None, hosts: HashMap::new() }
    }
}

impl DeviceSubject for Subject<'_> {
    type D = OpenClDevice;

    fn fresh(&mut self) -> Result<(), String> {
        let open = |index| self.runtime.device(index).map_err(|e| e.to_string());
        self.device = open(self.index)?;
        self.other = match partner(self.runtime, self.index) {
            Some(other) => open(other)?,
            None => None,
        };
        Ok(())
    }

    fn device(&mut self) -> &mut OpenClDevice {
        self.device.as_mut().unwrap()
    }

    fn other(&mut self) -> Option<&mut OpenClDevice> {
        self.other.as_mut()
    }

    fn host(&mut self, key: RegionKey, len: u64) -> Result<LocalRegion, String> {
        let bytes = HostBytes::new(usize::try_from(len).unwrap());
        // SAFETY: the handle keeps them; the suite touches them when no copy uses them.
        let memory = unsafe { Memory::host(bytes.at(0, bytes.len()), len, Arc::clone(&bytes)) };
        self.hosts.insert(key, bytes);
        self.device().add(key, memory).map_err(|e| e.to_string())
    }

    fn write_host(&mut self, region: LocalRegion, offset: u64, bytes: &[u8]) {
        let to = self.hosts[&region.key].at(usize::try_from(offset).unwrap(), bytes.len());
        // SAFETY: so many bytes are there, and no copy uses them.
        unsafe { to.as_ptr().copy_from(bytes.as_ptr(), bytes.len()) };
    }

    fn read_host(&mut self, region: LocalRegion, offset: u64, out: &mut [u8]) {
        let from = self.hosts[&region.key].at(usize::try_from(offset).unwrap(), out.len());
        // SAFETY: as above.
        unsafe { from.as_ptr().copy_to(out.as_mut_ptr(), out.len()) };
    }

    /// Only a device with little memory is filled: `POCL_MEMORY_LIMIT=1` gives PoCL's 1 GiB.
    fn capacity(&self) -> Option<u64> {
        let total = self.device.as_ref()?.attributes().total_bytes;
        (total <= 1 << 30).then_some(total)
    }

    fn check(&mut self) -> Result<(), String> {
        match self.hosts.iter().find(|(_, bytes)| !bytes.has_guards()) {
            Some((key, _)) => Err(format!("bytes beside host memory {key:?} were written")),
            None => Ok(()),
        }
    }
}

/// The devices, or why there are none.
fn runtime() -> Result<Runtime, String> {
    let library = Library::load(&Search::default()).map_err(|e| e.to_string())?;
    let runtime = Runtime::open(library).map_err(|e| e.to_string())?;
    match runtime.count() {
        0 => Err("OpenCL has no device here: `apt install pocl-opencl-icd`".to_owned()),
        _ => Ok(runtime),
    }
}

/// Cases that an OpenCL device cannot be asked for: it has no pinned memory, and is never lost on purpose.
const LACKING: [&str; 2] = ["pinned_memory_is_the_hosts", "loss_is_for_ever"];

/// Those that fill it.
const FILLING: [&str; 3] =
    ["usage_counts_what_is_allocated", "memory_comes_back", "memory_runs_out"];

#[test]
fn every_device_passes_the_suite() {
    let runtime = match runtime() {
        Ok(runtime) => runtime,
        Err(why) => return skipped(&why),
    };
    for index in 0..runtime.count() {
        let device = runtime.device(index).unwrap().unwrap();
        let (name, total) = (device.name().to_owned(), device.attributes().total_bytes);
        println!("device {index}: {name}");
        let report = run(|| Subject::new(&runtime, index));
        let mut lacking = LACKING.to_vec();
        if total > 1 << 30 {
            lacking.extend(FILLING);
        }
        if partner(&runtime, index).is_none() {
            lacking.push("copies_between_devices");
        }
        report.assert_passed_but(&format!("device {index}, {name}"), &lacking);
    }
    assert!(runtime.device(runtime.count()).unwrap().is_none());
}

/// The first call initialises drivers.
#[test]
fn threads_that_list_devices_at_once_find_the_same() {
    let Ok(library) = Library::load(&Search::default()) else {
        return skipped("OpenCL is not installed here");
    };
    let listed = std::thread::scope(|s| {
        let threads = [(); 8].map(|()| s.spawn(|| Runtime::open(library).unwrap().count()));
        threads.map(|thread| thread.join().unwrap())
    });
    assert!(listed.iter().all(|count| *count == listed[0]), "{listed:?}");
}

const KEY: RegionKey = RegionKey { index: 1, generation: 1 };

/// What is not there is refused before OpenCL is called.
#[test]
fn more_memory_than_there_is_is_refused() {
    let runtime = match runtime() {
        Ok(runtime) => runtime,
        Err(why) => return skipped(&why),
    };
    let mut device = runtime.device(0).unwrap().unwrap();
    let total = device.attributes().total_bytes;
    assert!(total > 0);
    for len in [total + 1, u64::MAX] {
        let refused = device.alloc(KEY, &Allocation::device(len)).unwrap_err();
        assert_eq!(refused.kind(), DeviceErrorKind::NoSpace, "{refused}");
    }
    assert_eq!(device.usage().unwrap().free_bytes, total);
    device.alloc(KEY, &Allocation::device(0)).unwrap();
}

/// A child has none of the threads of its parent's drivers.
#[test]
fn a_forked_child_is_refused_and_drops_nothing() {
    let runtime = match runtime() {
        Ok(runtime) => runtime,
        Err(why) => return skipped(&why),
    };
    let mut device = runtime.device(0).unwrap().unwrap();
    let region = device.alloc(KEY, &Allocation::device(64)).unwrap();
    let slice = region.slice(0, 8).unwrap();
    // SAFETY: the child compares numbers and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let key = RegionKey { index: 2, generation: 1 };
        let kinds = [
            device.alloc(key, &Allocation::device(8)).err(),
            device.free(KEY).err(),
            device.usage().err(),
            device.fill(StreamId::FIRST, slice, 1).err(),
            device.open_stream().err(),
            device.record(StreamId::FIRST).err(),
            runtime.device(0).err(),
            Runtime::open(runtime.library()).err(),
        ]
        .map(|fault| fault.map(|fault| fault.kind()));
        drop(device);
        let is_refused = kinds.iter().all(|kind| *kind == Some(DeviceErrorKind::Forked));
        let is_inherited = Library::load(&Search::default()).is_err();
        // SAFETY: it ends the child alone.
        unsafe { libc::_exit(if is_refused && is_inherited { 0 } else { 1 }) };
    }
    let mut status = 0;
    // SAFETY: a child of this process.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0, "the child was not refused");
    device.free(KEY).unwrap();
}
