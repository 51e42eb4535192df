//! Finds and loads libibverbs, once for the whole process.
//!
//! It is never unloaded: its providers' functions are called through tables of open devices.
//!
//! Forks: a child must not use what its parent made, and the kernel must not give the child pages that a device writes.
//! Kernels since 5.12 copy pinned pages for the child at the fork; with an older one `ibv_fork_init` makes the parent keep
//! such pages, and it must be called before the first registration, which it is here.

use std::collections::HashMap;
use std::ffi::{CStr, c_int, c_void};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use hmc_mem::os::fork::ForkGuard;
use libloading::os::unix;

use super::functions::Verbs;
use super::status::WcStatus;
use super::sys;
use super::window_scheme::WindowScheme;
use crate::loader::{candidate, file_of, reason};

/// The soname of libibverbs.
const SONAME: &str = "libibverbs.so.1";

/// Where to look for libibverbs.
#[derive(Clone, Debug, Default)]
pub struct Search {
    /// The library, or the folder that holds it, by name (`HMC_VERBS_LIB`): nothing else is tried then.
    pub named: Option<PathBuf>,
}

/// How registered memory is kept from forked children.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForkSupport {
    /// The kernel copies pinned pages for the child.
    Unneeded,
    /// A child does not have the pages that are registered, nor what else is in them: it faults there. Huge pages need
    /// `RDMAV_HUGEPAGES_SAFE=1` in the environment of the process.
    Enabled,
}

impl fmt::Display for ForkSupport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unneeded => "the kernel copies registered pages for a forked child",
            Self::Enabled => {
                "a forked child has no registered pages and faults there; huge pages need RDMAV_HUGEPAGES_SAFE=1"
            }
        })
    }
}

/// Reason why libibverbs cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LoadError {
    /// No file of that name could be loaded.
    NotFound {
        /// The file that was tried.
        tried: PathBuf,
        /// The loader's error.
        why: String,
    },
    /// It lacks calls that are needed.
    Incomplete {
        /// Its file.
        path: PathBuf,
        /// The calls.
        missing: Vec<&'static str>,
    },
    /// `ibv_fork_init` failed: a fork of this process could make devices write to pages that nobody reads any more.
    NoForkSupport {
        /// The errno value.
        errno: i32,
    },
    /// This process was forked from one that has devices open.
    Forked,
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound { tried, why } => write!(
                f,
                "libibverbs is not installed here: `apt install libibverbs1 ibverbs-providers` (rdma-core, libibverbs in \
                 other systems), or name its library by HMC_VERBS_LIB; tried {} ({why})",
                tried.display()
            ),
            Self::Incomplete { path, missing } => write!(
                f,
                "{} is no libibverbs that can be used: it has no {}; install rdma-core's",
                path.display(),
                missing.join(", ")
            ),
            Self::NoForkSupport { errno } if *errno == libc::EINVAL => f.write_str(
                "other code of this process registered memory with libibverbs before, without support for forks: start the \
                 session before it, or set RDMAV_FORK_SAFE=1 in the environment of the process",
            ),
            Self::NoForkSupport { errno } => write!(
                f,
                "ibv_fork_init failed ({}), so that a fork would break registered memory: use a kernel of 5.12 or later \
                 with rdma-core 35 or later",
                std::io::Error::from_raw_os_error(*errno)
            ),
            Self::Forked => f.write_str(
                "this process was forked from one that uses RDMA devices, whose queues are not its own: start it anew \
                 (execve; Python's multiprocessing: spawn), or end the parent's sessions over RDMA before the fork",
            ),
        }
    }
}

impl std::error::Error for LoadError {}

/// A loaded libibverbs.
pub struct Library {
    api: Verbs,
    path: PathBuf,
    fork: ForkSupport,
    /// The process that loaded it; `None` if the system call failed: a forked child is not recognised then.
    process: Option<ForkGuard>,
    /// The number of open devices.
    devices: AtomicUsize,
    /// How the devices that were used enforce windows, by their names and GUIDs.
    schemes: Mutex<HashMap<(String, u64), WindowScheme>>,
}

impl fmt::Debug for Library {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Library")
            .field("path", &self.path)
            .field("fork", &self.fork)
            .finish_non_exhaustive()
    }
}

static LOADED: Mutex<Option<&'static Library>> = Mutex::new(None);

impl Library {
    /// Returns the libibverbs of this process: the one that was loaded before, else the one that `search` finds. A
    /// failure is not cached: after an installation the next call succeeds.
    ///
    /// # Errors
    /// [`LoadError`].
    pub fn load(search: &Search) -> Result<&'static Self, LoadError> {
        let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
        let library = match *loaded {
            Some(library) if !library.is_inherited() => return Ok(library),
            Some(library) if library.devices.load(Ordering::Acquire) > 0 => {
                return Err(LoadError::Forked);
            }
            // A child whose parent had no device open: its own state begins here.
            Some(library) => Self::new(library.api, library.path.clone(), library.fork),
            None => Self::open(&candidate(search.named.as_deref(), SONAME))?,
        };
        Ok(loaded.insert(Box::leak(Box::new(library))))
    }

    fn new(api: Verbs, path: PathBuf, fork: ForkSupport) -> Self {
        let devices = AtomicUsize::new(0);
        let (process, schemes) = (ForkGuard::new().ok(), Mutex::default());
        Self { api, path, fork, process, devices, schemes }
    }

    fn open(name: &Path) -> Result<Self, LoadError> {
        // SAFETY: loading runs the library's initialisers; that of libibverbs reads its configuration and may run in any
        // thread.
        let handle = unsafe { unix::Library::open(Some(name), unix::RTLD_NOW) };
        let handle: libloading::Library = handle
            .map_err(|e| LoadError::NotFound { tried: name.to_owned(), why: reason(&e) })?
            .into();
        // SAFETY: the file calls itself libibverbs; the declarations are those of its header, and fit every release of
        // this soname.
        let loaded = unsafe { Verbs::load(&handle) };
        // From here on its code may be referred to, so it stays.
        std::mem::forget(handle);
        let api =
            loaded.map_err(|missing| LoadError::Incomplete { path: name.to_owned(), missing })?;
        // A function's address, as dladdr(3) wants it.
        #[expect(clippy::as_conversions, reason = "the one way from a function to its address")]
        let place = api.ibv_get_device_list as *const c_void;
        let path = file_of(place).unwrap_or_else(|| name.to_owned());
        // SAFETY: it asks the kernel and the library's own state.
        let status = api.ibv_is_fork_initialized.map(|call| unsafe { call() });
        // SAFETY: it may be called at any time; it fails if memory was registered before.
        let fork = fork_support(status, || unsafe { (api.ibv_fork_init)() })
            .map_err(|errno| LoadError::NoForkSupport { errno })?;
        Ok(Self::new(api, path, fork))
    }

    /// Returns the functions.
    pub(crate) fn api(&self) -> &Verbs {
        &self.api
    }

    /// Returns the file that was loaded.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns how registered memory is kept from forked children.
    #[must_use]
    pub fn fork_support(&self) -> ForkSupport {
        self.fork
    }

    /// Returns `true` in a forked child of the process that loaded it. The child must not call anything on objects of
    /// its parent: the descriptors are shared, and a call would change or free the parent's own objects.
    #[must_use]
    #[inline]
    pub fn is_inherited(&self) -> bool {
        self.process.as_ref().is_some_and(ForkGuard::is_child)
    }

    /// Counts one open device more, or one less.
    pub(super) fn count_device(&self, is_new: bool) {
        if is_new {
            self.devices.fetch_add(1, Ordering::AcqRel);
        } else {
            self.devices.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// Returns how the device of that name and GUID enforces windows: as `find` found it, unless that may be otherwise the next time.
    /// Another thread that asks waits for that.
    pub(super) fn window_scheme(
        &self,
        (name, guid): (&str, u64),
        find: impl FnOnce() -> WindowScheme,
    ) -> WindowScheme {
        let mut schemes = self.schemes.lock().unwrap_or_else(PoisonError::into_inner);
        let device = (name.to_owned(), guid);
        if let Some(scheme) = schemes.get(&device) {
            return scheme.clone();
        }
        let scheme = find();
        if scheme.is_lasting() {
            schemes.insert(device, scheme.clone());
        }
        scheme
    }

    /// Returns the library's own text for a status, or `None` if it has none.
    #[must_use]
    pub fn wc_status_text(&self, status: WcStatus) -> Option<&'static str> {
        let call = self.api.ibv_wc_status_str?;
        // SAFETY: any status may be asked for.
        let text = unsafe { call(status.0) };
        if text.is_null() {
            return None;
        }
        // SAFETY: the library's own text, which ends with a zero and lives as long as it: it is never unloaded.
        unsafe { CStr::from_ptr(text) }.to_str().ok()
    }
}

/// Makes sure that forks do no harm. `status` is that of the library, or `None` for one that cannot tell (before rdma-core
/// 35).
///
/// # Errors
/// The errno value of `init`.
fn fork_support(
    status: Option<sys::ibv_fork_status>,
    init: impl FnOnce() -> c_int,
) -> Result<ForkSupport, i32> {
    match status {
        Some(sys::IBV_FORK_UNNEEDED) => Ok(ForkSupport::Unneeded),
        Some(sys::IBV_FORK_ENABLED) => Ok(ForkSupport::Enabled),
        // Disabled, not known, or a number of a later library: calling it again does nothing.
        _ => match init() {
            0 => Ok(ForkSupport::Enabled),
            errno => Err(errno),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::{ForkSupport, Library, LoadError, SONAME, Search, fork_support};
    use crate::verbs::status::WcStatus;
    use std::path::Path;

    #[test]
    fn forks_are_made_safe_before_the_first_registration() {
        let never = || -> i32 { panic!("it must not be called") };
        assert_eq!(fork_support(Some(2), never), Ok(ForkSupport::Unneeded));
        assert_eq!(fork_support(Some(1), never), Ok(ForkSupport::Enabled));
        for status in [Some(0), None, Some(7)] {
            assert_eq!(fork_support(status, || 0), Ok(ForkSupport::Enabled));
            assert_eq!(fork_support(status, || libc::EINVAL), Err(libc::EINVAL));
        }
        assert!(ForkSupport::Enabled.to_string().contains("RDMAV_HUGEPAGES_SAFE=1"));
    }

    #[test]
    fn another_library_is_incomplete() {
        let LoadError::Incomplete { path, missing } =
            Library::open(Path::new("libc.so.6")).unwrap_err()
        else {
            panic!("it has all calls")
        };
        assert_eq!(path, Path::new("libc.so.6"));
        assert!(missing.contains(&"ibv_get_device_list") && missing.len() > 25, "{missing:?}");
    }

    #[test]
    fn a_file_that_is_not_there_has_the_loaders_reason() {
        let e = Library::open(Path::new("/nowhere/libibverbs.so.1")).unwrap_err();
        let LoadError::NotFound { tried, why } = &e else { panic!("{e}") };
        assert_eq!(tried, Path::new("/nowhere/libibverbs.so.1"));
        assert!(why.contains("No such file"), "{why}");
    }

    /// The installed library, if any.
    #[test]
    fn the_library_is_loaded_once() {
        match Library::load(&Search::default()) {
            Ok(library) => {
                let named = Search { named: Some("/nowhere".into()) };
                let again = Library::load(&named).unwrap();
                assert!(std::ptr::eq(library, again), "another one");
                assert!(library.path().is_file(), "{}", library.path().display());
                assert!(!library.is_inherited());
            }
            Err(e) => assert!(matches!(e, LoadError::NotFound { .. }), "{e}"),
        }
    }

    /// The installed library, if any.
    #[test]
    fn texts_of_statuses_are_those_of_the_library() {
        let Ok(library) = Library::load(&Search::default()) else { return };
        for status in (0..24).map(WcStatus) {
            assert_eq!(library.wc_status_text(status), status.text());
        }
    }

    #[test]
    fn errors_have_a_remedy() {
        let e = LoadError::NotFound { tried: SONAME.into(), why: "no such file".into() };
        let text = e.to_string();
        for part in [
            "apt install libibverbs1 ibverbs-providers",
            "HMC_VERBS_LIB",
            "libibverbs.so.1 (no such file)",
        ] {
            assert!(text.contains(part), "{text}");
        }
        let missing = vec!["ibv_one", "ibv_two"];
        let e = LoadError::Incomplete { path: "/x/libibverbs.so.1".into(), missing };
        assert!(e.to_string().contains("it has no ibv_one, ibv_two;"), "{e}");
        let e = LoadError::NoForkSupport { errno: libc::EINVAL };
        assert!(e.to_string().contains("RDMAV_FORK_SAFE=1"), "{e}");
        let e = LoadError::NoForkSupport { errno: libc::ENOSYS };
        assert!(e.to_string().contains("Function not implemented"), "{e}");
        assert!(LoadError::Forked.to_string().contains("spawn"));
    }
}
