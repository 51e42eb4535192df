//! Finds and loads libucp, once for the whole process.
//!
//! Two versions of UCX cannot be loaded in one process (the second finds the first one's libucs by its soname), so the
//! first one stays, even if the application or Python loaded it. It is never unloaded: UCX keeps hooks in the
//! allocator.

use std::ffi::{CStr, c_void};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use hmc_mem::os::exit::at_exit;
use libloading::os::unix;

use super::ending::{Ending, Inherited, STOP_TIMEOUT};
use super::functions::Ucp;
use super::result::Status;
use super::ucs_log::PushHandlerFn;
use crate::loader::{file_of, reason};

/// The soname of libucp, by which the loader finds a libucp that is loaded already.
const SONAME: &str = "libucp.so.0";
/// The oldest release whose calls are those that are declared here; also the version that `ucp_init_version` gets.
pub const OLDEST: Version = Version { major: 1, minor: 10, release: 0 };

/// A release of UCX.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// Changes with the ABI; 1 in all releases so far.
    pub major: u32,
    /// Grows with each release.
    pub minor: u32,
    /// Changes with bug fixes.
    pub release: u32,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.release)
    }
}

/// Where to look for libucp.
#[derive(Clone, Debug, Default)]
pub struct Search {
    /// The library, or the folder that holds it, by name (`HMC_UCX_LIB`): nothing else is tried then.
    pub named: Option<PathBuf>,
    /// Folders to try after those of the loader.
    pub folders: Vec<PathBuf>,
}

impl Search {
    /// `named`, or what the loader finds, else what lies in folders of usual installations, and of Python packages under
    /// `prefixes`.
    #[must_use]
    pub fn usual(named: Option<PathBuf>, prefixes: &[PathBuf]) -> Self {
        let mut folders: Vec<PathBuf> =
            ["/usr/local/ucx/lib", "/opt/ucx/lib", "/usr/local/lib"].map(PathBuf::from).into();
        for prefix in prefixes {
            folders.push(prefix.join("lib"));
            // The wheel libucx: lib/pythonX.Y/site-packages/libucx/lib.
            let Ok(versions) = std::fs::read_dir(prefix.join("lib")) else { continue };
            for version in versions.flatten() {
                if version.file_name().to_string_lossy().starts_with("python") {
                    for packages in ["site-packages", "dist-packages"] {
                        folders.push(version.path().join(packages).join("libucx/lib"));
                    }
                }
            }
        }
        Self { named, folders }
    }
}

/// Reason why UCX cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LoadError {
    /// No file of that name could be loaded.
    NotFound {
        /// The files that were tried, and the loader's errors.
        tried: Vec<(PathBuf, String)>,
    },
    /// It lacks calls that are needed.
    Incomplete {
        /// Its file.
        path: PathBuf,
        /// The calls.
        missing: Vec<&'static str>,
    },
    /// It is older than [`OLDEST`], or of another major version.
    Version {
        /// Its file.
        path: PathBuf,
        /// Its version.
        found: Version,
    },
    /// This process was forked from one that uses UCX: UCX's threads are not in it.
    Forked,
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound { tried } => {
                f.write_str(
                    "UCX is not installed here: `apt install libucx0`, `pip install libucx-cu12`, or name its library \
                     by HMC_UCX_LIB; tried",
                )?;
                for (at, (path, why)) in tried.iter().enumerate() {
                    let mark = if at == 0 { "" } else { ";" };
                    write!(f, "{mark} {} ({why})", path.display())?;
                }
                Ok(())
            }
            Self::Incomplete { path, missing } => write!(
                f,
                "{} is no UCX that can be used: it has no {}; install UCX {OLDEST} or later",
                path.display(),
                missing.join(", ")
            ),
            Self::Version { path, found } => write!(
                f,
                "{} is UCX {found}, and {OLDEST} or a later 1.x is needed: install one, or name it by HMC_UCX_LIB",
                path.display()
            ),
            Self::Forked => f.write_str(
                "this process was forked from one that uses UCX, whose threads are not here: start it anew (execve; \
                 Python's multiprocessing: spawn), or end the parent's sessions over UCX before the fork",
            ),
        }
    }
}

impl std::error::Error for LoadError {}

/// A loaded UCX.
pub struct Library {
    pub(super) api: Ucp,
    /// Puts a handler before UCX's own log; of libucs, which comes along with it.
    push_handler: Option<PushHandlerFn>,
    version: Version,
    path: PathBuf,
    ending: Ending,
}

impl fmt::Debug for Library {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Library")
            .field("version", &self.version)
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

static LOADED: Mutex<Option<&'static Library>> = Mutex::new(None);

impl Library {
    /// Returns the UCX of this process: the one that is loaded already, else the first that `search` finds. A failure
    /// is not cached: after an installation the next call succeeds.
    ///
    /// # Errors
    /// [`LoadError`].
    pub fn load(search: &Search) -> Result<&'static Self, LoadError> {
        let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(library) = *loaded {
            return match library.ending.inherited() {
                None => Ok(library),
                Some(Inherited::InUse) => Err(LoadError::Forked),
                Some(Inherited::Idle) => Ok(loaded.insert(library.of_this_process())),
            };
        }
        let mut tried = Vec::new();
        for candidate in candidates(search) {
            // SAFETY: loading runs the library's initialisers; those of UCX set up its own tables and may be run in
            // any thread.
            let opened = unsafe { unix::Library::open(Some(&candidate), unix::RTLD_NOW) };
            match opened {
                Ok(handle) => {
                    let library = Self::of(handle.into(), &candidate)?;
                    let library: &'static Self = Box::leak(Box::new(library));
                    *loaded = Some(library);
                    // Registered after the library's own handlers, so that it is called before them. If the system
                    // cannot register it, the end of the process is as UCX leaves it.
                    let _noted = at_exit(stop_calls);
                    return Ok(library);
                }
                Err(e) => tried.push((candidate, reason(&e))),
            }
        }
        Err(LoadError::NotFound { tried })
    }

    /// Makes a copy for a forked child, which has its parent's code and no threads of UCX.
    fn of_this_process(&self) -> &'static Self {
        let Self { api, push_handler, version, .. } = *self;
        let (path, ending) = (self.path.clone(), Ending::new());
        Box::leak(Box::new(Self { api, push_handler, version, path, ending }))
    }

    fn of(handle: libloading::Library, name: &Path) -> Result<Self, LoadError> {
        // SAFETY: the file calls itself libucp; the declarations are those of its headers, and fit every release of
        // its major version.
        let loaded = unsafe { Ucp::load(&handle) };
        let push_handler = if cfg!(any(target_arch = "x86_64", target_arch = "aarch64")) {
            // SAFETY: the type is that of ucs/debug/log_def.h, in all releases from 1.10 to 1.22. Lists of arguments
            // are passed by address on these machines alone.
            unsafe { crate::api::lookup::<PushHandlerFn>(&handle, "ucs_log_push_handler") }
        } else {
            None
        };
        // From here on its code may be referred to, so it stays.
        std::mem::forget(handle);
        let api =
            loaded.map_err(|missing| LoadError::Incomplete { path: name.to_owned(), missing })?;
        // A function's address, as dladdr(3) wants it.
        #[expect(clippy::as_conversions, reason = "the one way from a function to its address")]
        let place = api.ucp_get_version_string as *const c_void;
        let path = file_of(place).unwrap_or_else(|| name.to_owned());
        let mut version = Version { major: 0, minor: 0, release: 0 };
        // SAFETY: it writes to the three numbers.
        unsafe {
            (api.ucp_get_version)(&mut version.major, &mut version.minor, &mut version.release);
        }
        if version.major != OLDEST.major || version < OLDEST {
            return Err(LoadError::Version { path, found: version });
        }
        Ok(Self { api, push_handler, version, path, ending: Ending::new() })
    }

    pub(super) fn ending(&self) -> &Ending {
        &self.ending
    }

    /// Returns `true` if the process is about to end by exit(3): from then on other threads block before they call UCX.
    #[must_use]
    pub fn is_ending(&self) -> bool {
        self.ending.has_begun()
    }

    pub(super) fn push_handler(&self) -> Option<PushHandlerFn> {
        self.push_handler
    }

    /// Returns the release of the library (`ucp_get_version`).
    #[must_use]
    pub fn version(&self) -> Version {
        self.version
    }

    /// Returns the path of the loaded file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the library's text for a status (`ucs_status_string`).
    #[must_use]
    pub fn text(&self, status: Status) -> &'static str {
        // SAFETY: any status may be asked for.
        let text = unsafe { (self.api.ucs_status_string)(status.0) };
        if text.is_null() {
            return "unknown";
        }
        // SAFETY: UCX returns texts that end with a zero and live as long as the library, which is never unloaded.
        unsafe { CStr::from_ptr(text) }.to_str().unwrap_or("unknown")
    }
}

/// Exit handler of the process.
extern "C" fn stop_calls() {
    let start = Instant::now();
    while start.elapsed() < STOP_TIMEOUT {
        // Another thread may hold the lock.
        if let Ok(loaded) = LOADED.try_lock() {
            let library = *loaded;
            drop(loaded);
            return library.map_or((), |library| library.ending.stop_calls());
        }
        std::thread::yield_now();
    }
}

fn candidates(search: &Search) -> Vec<PathBuf> {
    let file_in = |place: &Path| if place.is_dir() { place.join(SONAME) } else { place.to_owned() };
    if let Some(named) = &search.named {
        return vec![file_in(named)];
    }
    let known =
        search.folders.iter().map(|folder| folder.join(SONAME)).filter(|file| file.exists());
    std::iter::once(PathBuf::from(SONAME)).chain(known).collect()
}

#[cfg(test)]
mod tests {
    use super::{LoadError, SONAME, Search, Version, candidates};
    use std::path::{Path, PathBuf};

    #[test]
    fn a_named_library_is_the_only_candidate() {
        let named = Search { named: Some("/x/libucp.so".into()), folders: vec!["/usr/lib".into()] };
        assert_eq!(candidates(&named), [PathBuf::from("/x/libucp.so")]);
        let folder = Search { named: Some("/".into()), folders: Vec::new() };
        assert_eq!(candidates(&folder), [Path::new("/").join(SONAME)]);
    }

    #[test]
    fn the_loader_is_tried_first_then_folders_that_have_the_library() {
        let search = Search { named: None, folders: vec!["/nowhere".into()] };
        assert_eq!(candidates(&search), [PathBuf::from(SONAME)]);
    }

    #[test]
    fn usual_folders_are_those_of_installations_and_of_python_packages() {
        let prefix = std::env::temp_dir().join(format!("hmc-prefix-{}", std::process::id()));
        for folder in ["lib/python3.11", "lib/other"] {
            std::fs::create_dir_all(prefix.join(folder)).unwrap();
        }
        let named = Some(PathBuf::from("/x/libucp.so"));
        let search = Search::usual(named.clone(), &[prefix.clone(), "/nowhere".into()]);
        std::fs::remove_dir_all(&prefix).unwrap();
        assert_eq!(search.named, named);
        let of_prefix = [
            "lib",
            "lib/python3.11/site-packages/libucx/lib",
            "lib/python3.11/dist-packages/libucx/lib",
        ];
        let mut folders =
            ["/usr/local/ucx/lib", "/opt/ucx/lib", "/usr/local/lib"].map(PathBuf::from).to_vec();
        folders.extend(of_prefix.map(|folder| prefix.join(folder)));
        folders.push("/nowhere/lib".into());
        assert_eq!(search.folders, folders);
    }

    #[test]
    fn errors_have_a_remedy() {
        let e = LoadError::NotFound { tried: vec![("libucp.so.0".into(), "no such file".into())] };
        let text = e.to_string();
        for part in [
            "apt install libucx0",
            "pip install libucx-cu12",
            "HMC_UCX_LIB",
            "libucp.so.0 (no such file)",
        ] {
            assert!(text.contains(part), "{text}");
        }
        let tried = [("a", "b"), ("c", "d")].map(|(path, why)| (path.into(), why.to_owned()));
        let e = LoadError::NotFound { tried: tried.into() };
        assert!(e.to_string().ends_with(" tried a (b); c (d)"), "{e}");
        let missing = vec!["ucp_one", "ucp_two"];
        let e = LoadError::Incomplete { path: "/x/libucp.so.0".into(), missing };
        assert!(e.to_string().contains("it has no ucp_one, ucp_two;"), "{e}");
        let found = Version { major: 1, minor: 9, release: 2 };
        let e = LoadError::Version { path: "/x/libucp.so.0".into(), found };
        assert!(e.to_string().starts_with("/x/libucp.so.0 is UCX 1.9.2, and 1.10.0"), "{e}");
    }
}
