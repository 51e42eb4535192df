//! The fake libucp, with the script of a test: failing calls, and counters.
//!
//! It is built as a dependency of the tests and lies beside them. Its state is the process's, so tests of one file take
//! turns: [`FakeUcp::take`] waits for its own.

use std::ffi::{c_char, c_int};
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use hmc_hw::ucx::library::{Library, Search};
use hmc_sim::vendor::library::beside;

use crate::fake_library::{FakeLibrary, text};

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

/// Functions that only this fake has.
struct Api {
    common: FakeLibrary,
    rule: unsafe extern "C" fn(*const c_char, u64, c_int, i64) -> c_int,
    lane: unsafe extern "C" fn(*const c_char),
    kill: extern "C" fn(u64, c_int, c_int) -> u64,
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

const PREFIX: &str = "hmc_fake_ucp_";

/// Loads the fake libucp.
fn load() -> Api {
    let common = FakeLibrary::load(&file(), PREFIX);
    // SAFETY: the types are those of `hmc-sim/vendor/ucp/src/script.rs`.
    let rule = unsafe { common.function("rule") };
    // SAFETY: as above.
    let lane = unsafe { common.function("lane") };
    // SAFETY: as above.
    let kill = unsafe { common.function("kill") };
    Api { common, rule, lane, kill }
}

/// Sets numbers of a file that is the fake libucp, or a copy of it, before anybody else loads it.
///
/// # Panics
/// When there is no number of that name.
pub fn set_in(file: &Path, numbers: &[(&str, u64)]) {
    let fake = FakeLibrary::load(file, PREFIX);
    numbers.iter().for_each(|(name, value)| fake.set(name, *value));
}

/// How often a call of UCX was made of a file that is the fake libucp, or a copy of it.
#[must_use]
pub fn calls_in(file: &Path, function: &str) -> u64 {
    FakeLibrary::load(file, PREFIX).calls(function)
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
        let api = API.get_or_init(load);
        let fake_ucp = Self { api, _turn: turn };
        // What a test that failed has left.
        api.common.restart();
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

    /// Names the lanes that endpoints describe, such as `tcp/lo` or `rc_mlx5/mlx5_0:1+cma/memory`.
    pub fn lane(&self, name: &str) {
        // SAFETY: a C string that outlives the call.
        unsafe { (self.api.lane)(text(name).as_ptr()) };
    }

    /// Fails the `nth` endpoint of this turn (0: all) with a status. With `purge` its requests end with it at once.
    #[must_use]
    pub fn kill(&self, nth: u64, status: i8, purge: bool) -> u64 {
        (self.api.kill)(nth, c_int::from(status), c_int::from(purge))
    }

    /// Everything was given back: each registration, key, endpoint, worker and request. No access was refused, no bytes
    /// came for memory that was gone, and no registration outlived its end in a cache.
    ///
    /// # Panics
    /// When not.
    pub fn assert_clean(&self) {
        self.assert_none(&["contexts", "workers", "endpoints", "memories", "keys", "requests"]);
        self.assert_none(&["live", "held", "refused", "late", "cached", "findings"]);
    }

    /// As [`FakeUcp::assert_clean`], once background threads have done their part.
    ///
    /// # Panics
    /// When something is left.
    pub fn await_clean(&self) {
        self.await_none_live();
        self.assert_clean();
    }
}

impl Deref for FakeUcp {
    type Target = FakeLibrary;

    fn deref(&self) -> &FakeLibrary {
        &self.api.common
    }
}

impl Drop for FakeUcp {
    fn drop(&mut self) {
        self.restart();
    }
}
