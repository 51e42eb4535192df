//! What the fakes of vendors' libraries have in common: loading, numbers of the script, counts, findings.

use std::ffi::{CString, c_char, c_int};
use std::path::Path;
use std::time::{Duration, Instant};

use libloading::Library;

/// How long sessions that were dropped may take until all is given back.
const GIVING_BACK: Duration = Duration::from_secs(20);

/// A loaded fake, and the functions that each of them has.
#[derive(Debug)]
pub struct FakeLibrary {
    library: &'static Library,
    prefix: &'static str,
    set: unsafe extern "C" fn(*const c_char, u64) -> c_int,
    calls: unsafe extern "C" fn(*const c_char) -> u64,
    count: unsafe extern "C" fn(*const c_char) -> u64,
    release: extern "C" fn() -> u64,
    forget: extern "C" fn(),
    collect: extern "C" fn(c_int),
    finding: unsafe extern "C" fn(*mut u8, usize) -> usize,
    reset: extern "C" fn() -> u64,
}

/// # Safety
/// `F` is the type of that function.
unsafe fn function<F: Copy>(library: &Library, prefix: &str, name: &str) -> F {
    // SAFETY: the caller vouched for the type.
    *unsafe { library.get::<F>(format!("{prefix}{name}")) }.expect("a function of the fake library")
}

/// Returns a name as C has it.
pub(crate) fn text(text: &str) -> CString {
    CString::new(text).expect("no zero in it")
}

impl FakeLibrary {
    /// Loads a file that is the fake whose functions begin with `prefix`, or a copy of it.
    pub(crate) fn load(file: &Path, prefix: &'static str) -> Self {
        // SAFETY: the fakes are ours: they run nothing when they are loaded.
        let library = unsafe { Library::new(file) }.expect("the fake library can be loaded");
        // It stays: users keep pointers into it.
        let library = Box::leak(Box::new(library));
        // SAFETY: the types are those of `hmc-sim/vendor/*/src/script.rs`.
        let set = unsafe { function(library, prefix, "set") };
        // SAFETY: as above.
        let calls = unsafe { function(library, prefix, "calls") };
        // SAFETY: as above.
        let count = unsafe { function(library, prefix, "count") };
        // SAFETY: as above.
        let release = unsafe { function(library, prefix, "release") };
        // SAFETY: as above.
        let forget = unsafe { function(library, prefix, "forget") };
        // SAFETY: as above.
        let collect = unsafe { function(library, prefix, "collect") };
        // SAFETY: as above.
        let finding = unsafe { function(library, prefix, "finding") };
        // SAFETY: as above.
        let reset = unsafe { function(library, prefix, "reset") };
        Self { library, prefix, set, calls, count, release, forget, collect, finding, reset }
    }

    /// Returns a function that only this fake has.
    ///
    /// # Safety
    /// `F` is its type.
    pub(crate) unsafe fn function<F: Copy>(&self, name: &str) -> F {
        // SAFETY: the caller vouched for the type.
        unsafe { function(self.library, self.prefix, name) }
    }

    /// Sets a number of the script.
    ///
    /// # Panics
    /// When there is none of that name.
    pub fn set(&self, name: &str, value: u64) {
        // SAFETY: a C string that outlives the call.
        assert_eq!(unsafe { (self.set)(text(name).as_ptr(), value) }, 0, "{name}");
    }

    /// How often a function was called, or an operation posted, in this turn.
    #[must_use]
    pub fn calls(&self, function: &str) -> u64 {
        // SAFETY: a C string that outlives the call.
        unsafe { (self.calls)(text(function).as_ptr()) }
    }

    /// A count of the library; its `script.rs` has their names.
    #[must_use]
    pub fn count(&self, what: &str) -> u64 {
        // SAFETY: a C string that outlives the call.
        unsafe { (self.count)(text(what).as_ptr()) }
    }

    /// Lets held operations and completions come; how many they were.
    #[must_use]
    pub fn release(&self) -> u64 {
        (self.release)()
    }

    /// Forgets rules only; what is held stays so.
    pub fn clear_rules(&self) {
        (self.forget)();
    }

    /// Collects findings instead of ending the process at the first.
    pub fn collect(&self) {
        (self.collect)(1);
    }

    /// The oldest finding.
    #[must_use]
    pub fn finding(&self) -> Option<String> {
        let mut text = vec![0; 512];
        // SAFETY: it may be written for its length.
        let len = unsafe { (self.finding)(text.as_mut_ptr(), text.len()) };
        text.truncate(len);
        (len != 0).then(|| String::from_utf8_lossy(&text).into_owned())
    }

    /// Forgets script and counts, within the turn.
    pub fn restart(&self) {
        (self.reset)();
    }

    /// Waits until sessions that were dropped have given everything back, or have had long enough.
    pub(crate) fn await_none_live(&self) {
        let begun = Instant::now();
        while self.count("live") != 0 && begun.elapsed() < GIVING_BACK {
            std::thread::yield_now();
        }
    }

    /// # Panics
    /// When one of these counts is not 0.
    pub(crate) fn assert_none(&self, counts: &[&str]) {
        for what in counts {
            assert_eq!(self.count(what), 0, "{what}");
        }
    }
}
