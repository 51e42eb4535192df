//! The fake libucp, with the script of a test: failing calls, and counters.
//!
//! It is built as a dependency of the tests and lies beside them. Its state is the process's, so tests of one file take
//! turns: [`FakeUcp::take`] waits for its own.

use std::ffi::{CString, c_char, c_int};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use hmc_hw::ucx::library::{Library, Search};
use hmc_sim::vendor::library::beside;

/// What becomes of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallResult {
    /// The call answers that status, and nothing is begun.
    Refused(i8),
    /// It is begun and ends with that status, half done.
    Failed(i8),
    /// It ends that many calls of progress later.
    Late(i64),
    /// It ends when held operations are released, or when its endpoint is closed by force.
    Held,
    /// It never ends, and UCX knows nothing of it any more.
    Lost,
}

/// How long sessions that were dropped may take until all is given back.
const GIVING_BACK: Duration = Duration::from_secs(10);

/// `UCS_ERR_IO_ERROR`
pub const IO_ERROR: i8 = -3;
/// `UCS_ERR_NO_MEMORY`
pub const NO_MEMORY: i8 = -4;
/// `UCS_ERR_BUSY`
pub const BUSY: i8 = -15;
/// `UCS_ERR_UNSUPPORTED`
pub const UNSUPPORTED: i8 = -22;
/// `UCS_ERR_CONNECTION_RESET`
pub const CONNECTION_RESET: i8 = -25;
/// `UCS_ERR_ENDPOINT_TIMEOUT`
pub const ENDPOINT_TIMEOUT: i8 = -80;

struct Api {
    rule: unsafe extern "C" fn(*const c_char, u64, c_int, i64) -> c_int,
    set: unsafe extern "C" fn(*const c_char, u64) -> c_int,
    lane: unsafe extern "C" fn(*const c_char),
    calls: unsafe extern "C" fn(*const c_char) -> u64,
    count: unsafe extern "C" fn(*const c_char) -> u64,
    kill: extern "C" fn(u64, c_int, c_int) -> u64,
    release: extern "C" fn() -> u64,
    forget: extern "C" fn(),
    collect: extern "C" fn(c_int),
    finding: unsafe extern "C" fn(*mut u8, usize) -> usize,
    reset: extern "C" fn() -> u64,
}

/// The library, for one test at a time.
pub struct FakeUcp {
    api: &'static Api,
    _turn: MutexGuard<'static, ()>,
}

impl std::fmt::Debug for FakeUcp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FakeUcp").finish_non_exhaustive()
    }
}

/// The library's file, beside the running test.
///
/// # Panics
/// When it is not there.
#[must_use]
pub fn file() -> PathBuf {
    beside("hmc_vendor_ucp").expect("cargo builds the fake libucp with the tests")
}

/// # Safety
/// `F` is the type of that function.
unsafe fn get<F: Copy>(library: &libloading::Library, name: &str) -> F {
    // SAFETY: the caller vouched for the type.
    *unsafe { library.get::<F>(name) }.expect("a function of the fake libucp")
}

/// Loads a file that is the fake libucp, or a copy of it.
fn load(file: &Path) -> Api {
    // SAFETY: the fake libucp is ours: it runs nothing when it is loaded.
    let library = unsafe { libloading::Library::new(file) }.expect("the fake libucp can be loaded");
    // It stays: hmc-hw keeps pointers into it.
    let library = Box::leak(Box::new(library));
    // SAFETY: the types are those of `hmc-sim/vendor/ucp/src/script.rs`.
    let rule = unsafe { get(library, "hmc_fake_ucp_rule") };
    // SAFETY: as above.
    let set = unsafe { get(library, "hmc_fake_ucp_set") };
    // SAFETY: as above.
    let lane = unsafe { get(library, "hmc_fake_ucp_lane") };
    // SAFETY: as above.
    let calls = unsafe { get(library, "hmc_fake_ucp_calls") };
    // SAFETY: as above.
    let count = unsafe { get(library, "hmc_fake_ucp_count") };
    // SAFETY: as above.
    let kill = unsafe { get(library, "hmc_fake_ucp_kill") };
    // SAFETY: as above.
    let release = unsafe { get(library, "hmc_fake_ucp_release") };
    // SAFETY: as above.
    let forget = unsafe { get(library, "hmc_fake_ucp_forget") };
    // SAFETY: as above.
    let collect = unsafe { get(library, "hmc_fake_ucp_collect") };
    // SAFETY: as above.
    let finding = unsafe { get(library, "hmc_fake_ucp_finding") };
    // SAFETY: as above.
    let reset = unsafe { get(library, "hmc_fake_ucp_reset") };
    Api { rule, set, lane, calls, count, kill, release, forget, collect, finding, reset }
}

fn text(text: &str) -> CString {
    CString::new(text).expect("no zero in it")
}

/// Sets numbers of a file that is the fake libucp, or a copy of it, before anybody else loads it.
///
/// # Panics
/// When there is no number of that name.
pub fn set_in(file: &Path, numbers: &[(&str, u64)]) {
    let api = load(file);
    for (name, value) in numbers {
        // SAFETY: a C string that outlives the call.
        assert_eq!(unsafe { (api.set)(text(name).as_ptr(), *value) }, 0, "{name}");
    }
}

/// How often a call of UCX was made of a file that is the fake libucp, or a copy of it.
#[must_use]
pub fn calls_in(file: &Path, function: &str) -> u64 {
    // SAFETY: a C string that outlives the call.
    unsafe { (load(file).calls)(text(function).as_ptr()) }
}

impl FakeUcp {
    /// Waits for this test's turn and resets the library. From here on it is the UCX of this process.
    ///
    /// # Panics
    /// When the process has loaded another UCX.
    #[must_use]
    pub fn take() -> Self {
        static TURN: Mutex<()> = Mutex::new(());
        static API: OnceLock<Api> = OnceLock::new();
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let api = API.get_or_init(|| load(&file()));
        let fake_ucp = Self { api, _turn: turn };
        // What a test that failed has left.
        (api.reset)();
        assert_eq!(fake_ucp.library().path(), file());
        fake_ucp
    }

    /// It, as hmc-hw sees it.
    ///
    /// # Panics
    /// When it cannot be loaded.
    #[must_use]
    pub fn library(&self) -> &'static Library {
        let search = Search { named: Some(file()), ..Search::default() };
        Library::load(&search).expect("a whole UCX")
    }

    /// Scripts the `nth` call of a function from now; 1 is the next, 0 means all.
    ///
    /// # Panics
    /// When there is no such function.
    pub fn rule(&self, function: &str, nth: u64, fate: CallResult) {
        let (action, value) = match fate {
            CallResult::Refused(status) => (1, i64::from(status)),
            CallResult::Failed(status) => (2, i64::from(status)),
            CallResult::Late(more) => (3, more),
            CallResult::Held => (4, 0),
            CallResult::Lost => (5, 0),
        };
        // SAFETY: a C string that outlives the call.
        let done = unsafe { (self.api.rule)(text(function).as_ptr(), nth, action, value) };
        assert_eq!(done, 0, "{function} {fate:?}");
    }

    /// Sets a number of the script.
    ///
    /// # Panics
    /// When there is none of that name.
    pub fn set(&self, name: &str, value: u64) {
        // SAFETY: a C string that outlives the call.
        assert_eq!(unsafe { (self.api.set)(text(name).as_ptr(), value) }, 0, "{name}");
    }

    /// Names the lanes that endpoints describe, such as `tcp/lo` or `rc_mlx5/mlx5_0:1+cma/memory`.
    pub fn lane(&self, name: &str) {
        // SAFETY: a C string that outlives the call.
        unsafe { (self.api.lane)(text(name).as_ptr()) };
    }

    /// How often a function was called in this turn.
    #[must_use]
    pub fn calls(&self, function: &str) -> u64 {
        // SAFETY: a C string that outlives the call.
        unsafe { (self.api.calls)(text(function).as_ptr()) }
    }

    /// A count of the library; `hmc-sim/vendor/ucp/src/script.rs` has their names.
    #[must_use]
    pub fn count(&self, what: &str) -> u64 {
        // SAFETY: a C string that outlives the call.
        unsafe { (self.api.count)(text(what).as_ptr()) }
    }

    /// Fails the `nth` endpoint of this turn (0: all) with a status. With `purge` its requests end with it at once.
    #[must_use]
    pub fn kill(&self, nth: u64, status: i8, purge: bool) -> u64 {
        (self.api.kill)(nth, c_int::from(status), c_int::from(purge))
    }

    /// Lets held operations end; how many they were.
    #[must_use]
    pub fn release(&self) -> u64 {
        (self.api.release)()
    }

    /// Collects findings instead of ending the process at the first.
    pub fn collect(&self) {
        (self.api.collect)(1);
    }

    /// The oldest finding.
    #[must_use]
    pub fn finding(&self) -> Option<String> {
        let mut text = vec![0; 512];
        // SAFETY: it may be written for its length.
        let len = unsafe { (self.api.finding)(text.as_mut_ptr(), text.len()) };
        text.truncate(len);
        (len != 0).then(|| String::from_utf8_lossy(&text).into_owned())
    }

    /// Everything was given back: each registration, key, endpoint, worker and request. No access was refused, no bytes
    /// came for memory that was gone, and no registration outlived its end in a cache.
    ///
    /// # Panics
    /// When not.
    pub fn assert_clean(&self) {
        for what in
            ["contexts", "workers", "endpoints", "memories", "keys", "requests", "live", "held"]
        {
            assert_eq!(self.count(what), 0, "{what} that are left");
        }
        for what in ["refused", "late", "cached", "findings"] {
            assert_eq!(self.count(what), 0, "{what}");
        }
    }

    /// As [`FakeUcp::assert_clean`], once background threads have done their part.
    ///
    /// # Panics
    /// When something is left.
    pub fn await_clean(&self) {
        let begun = Instant::now();
        while self.count("live") != 0 && begun.elapsed() < GIVING_BACK {
            std::thread::yield_now();
        }
        self.assert_clean();
    }

    /// Forgets rules only; what is held stays so.
    pub fn clear_rules(&self) {
        (self.api.forget)();
    }

    /// Forgets script and counts, within the turn.
    pub fn restart(&self) {
        (self.api.reset)();
    }
}

impl Drop for FakeUcp {
    fn drop(&mut self) {
        (self.api.reset)();
    }
}
