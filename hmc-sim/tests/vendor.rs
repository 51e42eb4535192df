//! The support for fake vendor libraries, end to end: a fake library is built, loaded with dlopen and driven,
//! fails when it is told to, and can lack a symbol.

#![allow(unsafe_code, reason = "functions of a C library cannot be called without it")]
#![allow(clippy::arithmetic_side_effects, clippy::indexing_slicing, reason = "tests may panic")]

use core::ffi::{CStr, c_char, c_int, c_void};
use std::ffi::CString;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use hmc_sim::vendor::library::{build, without};
use libloading::{Library, Symbol};

type Malloc = unsafe extern "C" fn(*mut *mut c_void, usize) -> c_int;
type Free = extern "C" fn(*mut c_void) -> c_int;
type Copy = unsafe extern "C" fn(*mut c_void, *const c_void, usize, u16) -> c_int;
type Stream = extern "C" fn(u16) -> c_int;
type Create = unsafe extern "C" fn(*mut u16) -> c_int;
type Text = extern "C" fn(c_int) -> *const c_char;
type Control = unsafe extern "C" fn(*const c_char) -> c_int;
type Calls = unsafe extern "C" fn(*const c_char) -> u64;

/// A library has one state in a process, and the tests of this file share it.
static TURN: Mutex<()> = Mutex::new(());

struct Vendor {
    library: Library,
    _turn: MutexGuard<'static, ()>,
}

fn load(path: &Path) -> Library {
    // SAFETY: the fake library is ours: it runs nothing when it is loaded or dropped.
    unsafe { Library::new(path) }.expect("a library that was just built")
}

impl Vendor {
    fn new(knobs: &str) -> Self {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let library = load(&build("fake_vendor").expect("cargo builds it"));
        let vendor = Self { library, _turn: turn };
        assert_eq!(vendor.control(&format!("reset{knobs}")), 0);
        vendor
    }

    /// # Safety
    /// `T` is the type of that function.
    unsafe fn get<T>(&self, name: &str) -> Symbol<'_, T> {
        // SAFETY: the caller vouched for the type.
        unsafe { self.library.get(name.as_bytes()) }.expect("a symbol of the fake library")
    }

    fn control(&self, text: &str) -> c_int {
        let text = CString::new(text).expect("no zero in it");
        // SAFETY: `export_control!` exports it with this type.
        let control = unsafe { self.get::<Control>("hmc_fake_control") };
        // SAFETY: the text is a C string that outlives the call.
        unsafe { control(text.as_ptr()) }
    }

    fn calls(&self, function: &str) -> u64 {
        let function = CString::new(function).expect("no zero in it");
        // SAFETY: `export_control!` exports it with this type.
        let calls = unsafe { self.get::<Calls>("hmc_fake_calls") };
        // SAFETY: the name is a C string that outlives the call.
        unsafe { calls(function.as_ptr()) }
    }

    fn malloc(&self, size: usize) -> Result<*mut c_void, c_int> {
        let mut out = core::ptr::null_mut();
        // SAFETY: `fake_vendor.rs` declares it with this type.
        let malloc = unsafe { self.get::<Malloc>("fake_malloc") };
        // SAFETY: `out` may be written.
        match unsafe { malloc(&raw mut out, size) } {
            0 => Ok(out),
            code => Err(code),
        }
    }

    fn free(&self, memory: *mut c_void) -> c_int {
        // SAFETY: `fake_vendor.rs` declares it with this type.
        let free = unsafe { self.get::<Free>("fake_free") };
        free(memory)
    }

    /// # Safety
    /// As `fake_memcpy_async`'s.
    unsafe fn copy(&self, to: *mut c_void, from: *const c_void, size: usize, stream: u16) -> c_int {
        // SAFETY: `fake_vendor.rs` declares it with this type.
        let copy = unsafe { self.get::<Copy>("fake_memcpy_async") };
        // SAFETY: the caller vouched for the ranges.
        unsafe { copy(to, from, size, stream) }
    }

    fn stream(&self, function: &str, stream: u16) -> c_int {
        // SAFETY: `fake_vendor.rs` declares `fake_stream_query` and `fake_stream_sync` with this type.
        let call = unsafe { self.get::<Stream>(function) };
        call(stream)
    }

    fn create(&self) -> u16 {
        let mut id = 0;
        // SAFETY: `fake_vendor.rs` declares it with this type.
        let create = unsafe { self.get::<Create>("fake_stream_create") };
        // SAFETY: `id` may be written.
        assert_eq!(unsafe { create(&raw mut id) }, 0);
        id
    }

    fn text(&self, code: c_int) -> String {
        // SAFETY: `fake_vendor.rs` declares it with this type.
        let text = unsafe { self.get::<Text>("fake_error_string") };
        // SAFETY: it gives C strings that live as long as the library.
        unsafe { CStr::from_ptr(text(code)) }.to_string_lossy().into_owned()
    }
}

#[test]
fn bytes_go_to_the_device_and_back() {
    let vendor = Vendor::new(";.delay_max_ns=100000");
    let (source, mut end) = (vec![7u8; 5000], vec![0u8; 5000]);
    let memory = vendor.malloc(5000).expect("memory");
    let stream = vendor.create();
    // SAFETY: both vectors live until the stream was synchronised, and nobody uses them meanwhile.
    assert_eq!(unsafe { vendor.copy(memory, source.as_ptr().cast(), 5000, stream) }, 0);
    // SAFETY: as above.
    assert_eq!(unsafe { vendor.copy(end.as_mut_ptr().cast(), memory, 5000, stream) }, 0);
    let mut waits = 0;
    while vendor.stream("fake_stream_query", stream) == 600 {
        waits += 1;
    }
    assert!(waits > 3, "it was done after {waits} questions");
    assert_eq!(vendor.stream("fake_stream_sync", stream), 0);
    assert_eq!(end, source);
    assert_eq!((vendor.free(memory), vendor.free(memory)), (0, 1));
    assert_eq!(vendor.calls("fake_memcpy_async"), 2);
}

#[test]
fn addresses_of_the_device_are_checked() {
    let vendor = Vendor::new(";.capacity_bytes=10000");
    let (first, host) = (vendor.malloc(4000).expect("memory"), vec![7u8; 4000]);
    let second = vendor.malloc(4000).expect("memory");
    assert_eq!(vendor.malloc(4000), Err(2), "the memory has run out");
    assert_eq!(vendor.text(2), "out of memory");
    for (to, size) in [(first.wrapping_byte_add(1), 4000), (second.wrapping_byte_add(4000), 1)] {
        // SAFETY: refused before any access; the host's range is valid.
        assert_eq!(unsafe { vendor.copy(to, host.as_ptr().cast(), size, 0) }, 1);
    }
    // SAFETY: no memory of the host is named.
    assert_eq!(unsafe { vendor.copy(second, first, 4000, 0) }, 0);
    assert_eq!((vendor.stream("fake_stream_sync", 0), vendor.free(first)), (0, 0));
    assert!(vendor.malloc(4000).is_ok(), "a shortage passes");
}

#[test]
fn errors_are_injected() {
    let vendor = Vendor::new("");
    assert_eq!(vendor.control("fake_malloc=2@2;fake_stream_sync=719"), 0);
    assert!(vendor.malloc(8).is_ok());
    assert_eq!(vendor.malloc(8), Err(2));
    assert!(vendor.malloc(8).is_ok());
    assert_eq!(vendor.stream("fake_stream_sync", 0), 719);
    assert_eq!((vendor.calls("fake_malloc"), vendor.calls("fake_free")), (3, 0));
    assert_eq!(vendor.control("nonsense"), -1);
    assert_eq!(
        (vendor.text(719), vendor.text(700)),
        ("unknown error".into(), "device lost".into())
    );
}

#[test]
fn a_lost_device_stays_lost() {
    let vendor = Vendor::new(";.lost_after=1");
    let (memory, host) = (vendor.malloc(64).expect("memory"), vec![7u8; 64]);
    // SAFETY: the vector is leaked below: a lost device has no fence.
    assert_eq!(unsafe { vendor.copy(memory, host.as_ptr().cast(), 64, 0) }, 0);
    std::mem::forget(host);
    for _ in 0..3 {
        assert_eq!(vendor.stream("fake_stream_sync", 0), 700);
        assert_eq!((vendor.malloc(8), vendor.free(memory)), (Err(700), 700));
    }
}

/// A folder of this test's own, beside it, removed in the end.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder");
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What is left behind does no harm.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_symbol_can_be_missing() {
    let folder = Folder::new();
    let whole = build("fake_vendor").expect("cargo builds it");
    let older = without(&whole, &["fake_stream_query"], &folder.0).expect("it has that symbol");
    let (whole, older) = (load(&whole), load(&older));
    for name in ["fake_malloc", "fake_free", "fake_stream_sync", "fake_stream_query"] {
        // SAFETY: the address is looked at only.
        let found = unsafe { older.get::<*const c_void>(name.as_bytes()) }.is_ok();
        assert_eq!(found, name != "fake_stream_query", "{name}");
        // SAFETY: as above.
        assert!(unsafe { whole.get::<*const c_void>(name.as_bytes()) }.is_ok(), "{name}");
    }
    let err = without(Path::new("/proc/self/exe"), &["no_such_symbol_anywhere"], &folder.0);
    assert!(err.is_err());
}

#[test]
fn a_missing_fake_library_is_an_error() {
    let err = build("no_such_stand_in").expect_err("there is none");
    assert!(err.contains("no_such_stand_in"), "{err}");
}
