//! The fake libibverbs, with the script of a test: failing calls and operations, devices, events, and counters.
//!
//! It is built as a dependency of the tests and lies beside them. Its state is the process's, so tests of one file take
//! turns: [`FakeIbv::take`] waits for its own.

use std::ffi::{OsStr, c_char, c_int};
use std::ops::Deref;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, Once, OnceLock, PoisonError};

use hmc_hw::verbs::library::{Library, Search};
use hmc_hw::verbs::select::{Port, Selector};
use hmc_hw::verbs::window_probe::window_scheme;
use hmc_hw::verbs::window_scheme::WindowScheme;
use hmc_sim::vendor::library::beside;

use crate::fake_library::{FakeLibrary, text};

/// What becomes of a call, or of an operation that is posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VerbsFate {
    /// The call fails with that errno; an operation is not posted.
    Refused(c_int),
    /// The operation moves half of its bytes and completes with that status and vendor's number.
    Failed(u8, u16),
    /// It is carried out that many ticks later.
    Late(u32),
    /// It is carried out when held operations are released.
    Held,
    /// It is carried out, and completes that many ticks later.
    AckLate(u32),
    /// It is carried out, and completes when held operations are released.
    AckHeld,
    /// It is carried out, and its completion is lost.
    Dropped,
}

/// Functions that only this fake has.
struct Api {
    common: FakeLibrary,
    rule: unsafe extern "C" fn(*const c_char, u64, c_int, u64) -> c_int,
    device: unsafe extern "C" fn(u32, *const c_char, u64) -> c_int,
    port: unsafe extern "C" fn(u32, u32, *const c_char, u64) -> c_int,
    gid: unsafe extern "C" fn(u32, u32, u32, u32, *const u8) -> c_int,
    kill: extern "C" fn(u64) -> u64,
    event: extern "C" fn(u32, u32, u32) -> c_int,
    progress: extern "C" fn(u64),
}

/// The library, for one test at a time.
pub struct FakeIbv {
    api: &'static Api,
    _turn: MutexGuard<'static, ()>,
}

impl std::fmt::Debug for FakeIbv {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FakeIbv").finish_non_exhaustive()
    }
}

/// The library's file, beside the running test.
///
/// # Panics
/// When it is not there.
#[must_use]
pub fn file() -> PathBuf {
    beside("hmc_vendor_ibverbs").expect("cargo builds the fake libibverbs with the tests")
}

/// A port of a device of the fake libibverbs.
///
/// # Panics
/// When it cannot be used.
#[must_use]
pub fn port(device: u32) -> Port {
    let library = Library::load(&Search { named: Some(file()) }).expect("a whole libibverbs");
    let selector = Selector { device: Some(format!("fake_{device}")), ..Selector::default() };
    Port::open(library, &selector).expect("a port")
}

/// Loads the fake libibverbs.
fn load() -> Api {
    let common = FakeLibrary::load(&file(), "hmc_fake_ibv_");
    // SAFETY: the types are those of `hmc-sim/vendor/ibverbs/src/script.rs`.
    let rule = unsafe { common.function("rule") };
    // SAFETY: as above.
    let device = unsafe { common.function("device") };
    // SAFETY: as above.
    let port = unsafe { common.function("port") };
    // SAFETY: as above.
    let gid = unsafe { common.function("gid") };
    // SAFETY: as above.
    let kill = unsafe { common.function("kill") };
    // SAFETY: as above.
    let event = unsafe { common.function("event") };
    // SAFETY: as above.
    let progress = unsafe { common.function("progress") };
    Api { common, rule, device, port, gid, kill, event, progress }
}

/// Runs the ignored tests of this program one by one, in processes whose sessions use the fake libibverbs: `HMC_VERBS_LIB` names it.
/// Its devices have windows in the first, and none in the second.
///
/// # Panics
/// When one fails.
pub fn run_ignored() {
    for windows in ["1", "0"] {
        let file = file();
        let names = [(NAMES, file.as_os_str()), (WINDOWS, OsStr::new(windows))];
        run(&["--ignored", "--test-threads=1"], &names);
    }
}

/// Runs tests of this program once more, in a process in which the devices of the fake libibverbs have no windows: those of these
/// names, or all.
///
/// # Panics
/// When one fails.
pub fn run_without_windows(names: &[&str]) {
    if has_windows() {
        run(names, &[(WINDOWS, OsStr::new("0"))]);
    }
}

/// Runs tests of this program once more, in a process whose sessions use these NICs of the fake libibverbs.
///
/// # Panics
/// When one fails.
pub fn run_over(nics: &str, arguments: &[&str]) {
    let file = file();
    run(arguments, &[(NAMES, file.as_os_str()), (NICS, OsStr::new(nics))]);
}

/// The NICs that sessions of this process use, if it is one of [`run_over`].
#[must_use]
pub fn named_nics() -> Option<String> {
    std::env::var(NICS).ok()
}

fn run(arguments: &[&str], variables: &[(&str, &OsStr)]) {
    let program = std::env::current_exe().expect("this program");
    let mut command = Command::new(program);
    let out = command.args(arguments).envs(variables.iter().copied()).output().expect("it runs");
    let said = String::from_utf8_lossy(&out.stdout);
    let errors = String::from_utf8_lossy(&out.stderr);
    let passed = out.status.success() && !said.contains(" 0 passed");
    assert!(passed, "{variables:?}: {said}{errors}");
}

/// Returns `true` if the devices have windows in this process, so that links share a protection domain.
#[must_use]
pub fn has_windows() -> bool {
    std::env::var_os(WINDOWS).is_none_or(|windows| windows != "0")
}

/// The variable that names the library of sessions.
const NAMES: &str = "HMC_VERBS_LIB";
/// The variable that names the NICs of sessions.
const NICS: &str = "HMC_RDMA_PORT";
/// The variable by which a test's process has devices with windows (1) or without (0).
const WINDOWS: &str = "HMC_FAKE_WINDOWS";
/// The number of devices that there can be.
const DEVICES: u32 = 4;

impl FakeIbv {
    /// As [`Self::take`], in a process of [`run_ignored`]; `None` in any other.
    #[must_use]
    pub fn take_for_sessions() -> Option<Self> {
        let is_named = std::env::var_os(NAMES).is_some_and(|name| name == file());
        is_named.then(Self::take)
    }

    /// Waits until sessions have given everything back; see [`Self::assert_clean`].
    ///
    /// # Panics
    /// When they do not.
    pub fn await_clean(&self) {
        self.await_none_live();
        self.assert_clean();
    }

    /// Waits for this test's turn and resets the library. The windows of its devices have been tried.
    #[must_use]
    pub fn take() -> Self {
        static TRIED: Once = Once::new();
        let fake = Self::take_untried();
        TRIED.call_once(|| {
            fake.set("devices", DEVICES.into());
            for device in 0..DEVICES {
                let scheme = window_scheme(&port(device));
                assert_eq!(scheme == WindowScheme::Type2b, has_windows(), "{scheme}");
            }
            fake.reset();
        });
        fake
    }

    /// Forgets script and counts.
    fn reset(&self) {
        self.api.common.restart();
        if !has_windows() {
            for device in 0..DEVICES {
                self.set_device(device, "windows", 0);
            }
        }
    }

    /// As [`Self::take`], but nobody may have used the devices yet.
    #[must_use]
    pub fn take_untried() -> Self {
        static TURN: Mutex<()> = Mutex::new(());
        static API: OnceLock<Api> = OnceLock::new();
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let api = API.get_or_init(load);
        let fake = Self { api, _turn: turn };
        // What a test that failed has left.
        fake.reset();
        fake
    }

    /// Scripts the `nth` call of a function, or post of an operation, from now; 1 is the next, 0 means all.
    ///
    /// # Panics
    /// When there is no such function, or it cannot have that fate.
    pub fn rule(&self, function: &str, nth: u64, fate: VerbsFate) {
        let (action, value) = match fate {
            VerbsFate::Refused(errno) => (1, u64::from(errno.unsigned_abs())),
            VerbsFate::Failed(status, vendor) => (2, u64::from(status) | u64::from(vendor) << 8),
            VerbsFate::Late(ticks) => (3, u64::from(ticks)),
            VerbsFate::Held => (4, 0),
            VerbsFate::AckLate(ticks) => (5, u64::from(ticks)),
            VerbsFate::AckHeld => (6, 0),
            VerbsFate::Dropped => (7, 0),
        };
        // SAFETY: a C string that outlives the call.
        let done = unsafe { (self.api.rule)(text(function).as_ptr(), nth, action, value) };
        assert_eq!(done, 0, "{function} {fate:?}");
    }

    /// Sets a number of a device, which counts from 0.
    ///
    /// # Panics
    /// When there is none of that name.
    pub fn set_device(&self, device: u32, name: &str, value: u64) {
        // SAFETY: a C string that outlives the call.
        let done = unsafe { (self.api.device)(device, text(name).as_ptr(), value) };
        assert_eq!(done, 0, "{device} {name}");
    }

    /// Sets a number of a port, which counts from 1.
    ///
    /// # Panics
    /// When there is none of that name.
    pub fn set_port(&self, device: u32, port: u32, name: &str, value: u64) {
        // SAFETY: a C string that outlives the call.
        let done = unsafe { (self.api.port)(device, port, text(name).as_ptr(), value) };
        assert_eq!(done, 0, "{device} {port} {name}");
    }

    /// Writes an entry of a port's GID table, or empties it.
    ///
    /// # Panics
    /// When there is no such entry.
    pub fn set_gid(&self, device: u32, port: u32, index: u32, gid: Option<(u32, [u8; 16])>) {
        let (kind, raw) = gid.unwrap_or_default();
        let raw = if gid.is_some() { raw.as_ptr() } else { std::ptr::null() };
        // SAFETY: null, or 16 bytes that outlive the call.
        let done = unsafe { (self.api.gid)(device, port, index, kind, raw) };
        assert_eq!(done, 0, "{device} {port} {index}");
    }

    /// Moves the `nth` queue pair of this turn (0: all) to the error state; how many were moved.
    #[must_use]
    pub fn kill(&self, nth: u64) -> u64 {
        (self.api.kill)(nth)
    }

    /// Raises an asynchronous event of a device, of the `nth` of its ports or queues.
    ///
    /// # Panics
    /// When there is no such object.
    pub fn event(&self, device: u32, event_type: u32, nth: u32) {
        assert_eq!((self.api.event)(device, event_type, nth), 0, "{device} {event_type} {nth}");
    }

    /// Makes ticks, besides those of polls.
    pub fn progress(&self, ticks: u64) {
        (self.api.progress)(ticks);
    }

    /// Everything was given back, no access was refused, and there was no misuse.
    ///
    /// # Panics
    /// When not.
    pub fn assert_clean(&self) {
        self.assert_none(&["contexts", "pds", "mrs", "mws", "channels", "cqs", "qps", "srqs"]);
        self.assert_none(&["live", "registered", "refused", "findings"]);
    }
}

impl Deref for FakeIbv {
    type Target = FakeLibrary;

    fn deref(&self) -> &FakeLibrary {
        &self.api.common
    }
}

impl Drop for FakeIbv {
    fn drop(&mut self) {
        self.restart();
    }
}
