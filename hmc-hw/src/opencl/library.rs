//! Finds and loads OpenCL's loader (libOpenCL), once for the whole process. It is never unloaded.

use std::ffi::c_void;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use hmc_mem::os::fork::ForkGuard;
use libloading::os::unix;

use super::functions::OpenCl;
use crate::loader::{candidate, file_of, reason};

/// The soname of the loader.
const SONAME: &str = "libOpenCL.so.1";

/// Where to look for OpenCL.
#[derive(Clone, Debug, Default)]
pub struct Search {
    /// The library, or the folder that holds it, by name (`HMC_OPENCL_LIB`): nothing else is tried then.
    pub named: Option<PathBuf>,
}

/// Reason why OpenCL cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LoadError {
    /// No file of that name could be loaded.
    NotFound {
        /// The file that was tried.
        tried: PathBuf,
        /// The system's reason.
        why: String,
    },
    /// It lacks functions that are needed.
    Incomplete {
        /// Its file.
        path: PathBuf,
        /// The functions.
        missing: Vec<&'static str>,
    },
    /// This process was forked from one that loaded OpenCL.
    Forked,
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound { tried, why } => write!(
                f,
                "OpenCL is not installed here: `apt install ocl-icd-libopencl1` and the driver of a device, such as \
                 pocl-opencl-icd for the processor, or name its library by HMC_OPENCL_LIB; tried {} ({why})",
                tried.display()
            ),
            Self::Incomplete { path, missing } => write!(
                f,
                "{} is no OpenCL of version 1.2 or later: it has no {}",
                path.display(),
                missing.join(", ")
            ),
            Self::Forked => f.write_str(
                "this process was forked from one that uses OpenCL: start it anew (execve; Python's multiprocessing: spawn)",
            ),
        }
    }
}

impl std::error::Error for LoadError {}

/// A loaded OpenCL.
pub struct Library {
    api: OpenCl,
    path: PathBuf,
    /// Held while devices are listed: a driver may initialise itself in the first such call, and tell another thread meanwhile that
    /// it has no device (PoCL 3.1 does).
    listing: Mutex<()>,
    /// The process that loaded it; `None` if the system call failed: a forked child is not recognised then.
    process: Option<ForkGuard>,
}

impl fmt::Debug for Library {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Library").field("path", &self.path).finish_non_exhaustive()
    }
}

/// Without a lock: a forked child could find it taken by a thread that it does not have.
static LOADED: OnceLock<Library> = OnceLock::new();

impl Library {
    /// Returns the OpenCL of this process: the one that was loaded before, else the one that `search` finds. A
    /// failure is not cached: after an installation the next call succeeds.
    ///
    /// # Errors
    /// [`LoadError`].
    pub fn load(search: &Search) -> Result<&'static Self, LoadError> {
        let library = match LOADED.get() {
            Some(library) => library,
            None => {
                let new = Self::open(&candidate(search.named.as_deref(), SONAME))?;
                LOADED.get_or_init(|| new)
            }
        };
        if library.is_inherited() { Err(LoadError::Forked) } else { Ok(library) }
    }

    fn open(name: &Path) -> Result<Self, LoadError> {
        // SAFETY: loading runs the library's initialisers; those of an OpenCL loader read its configuration and may run in
        // any thread.
        let handle = unsafe { unix::Library::open(Some(name), unix::RTLD_NOW) };
        let handle: libloading::Library = handle
            .map_err(|e| LoadError::NotFound { tried: name.to_owned(), why: reason(&e) })?
            .into();
        // SAFETY: the file calls itself libOpenCL; the declarations are those of the standard's header, which later versions
        // keep.
        let loaded = unsafe { OpenCl::load(&handle) };
        // From here on its code may be referred to, so it stays.
        std::mem::forget(handle);
        let api =
            loaded.map_err(|missing| LoadError::Incomplete { path: name.to_owned(), missing })?;
        // A function's address, as dladdr(3) wants it.
        #[expect(clippy::as_conversions, reason = "the one way from a function to its address")]
        let place = api.clGetPlatformIDs as *const c_void;
        let path = file_of(place).unwrap_or_else(|| name.to_owned());
        Ok(Self { path, ..Self::of(api) })
    }

    /// One of these functions.
    pub(super) fn of(api: OpenCl) -> Self {
        let path = PathBuf::from(SONAME);
        Self { api, path, listing: Mutex::new(()), process: ForkGuard::new().ok() }
    }

    /// Returns the functions.
    pub(super) const fn api(&self) -> &OpenCl {
        &self.api
    }

    /// Returns a guard under which one thread lists devices.
    pub(super) fn listing(&self) -> MutexGuard<'_, ()> {
        self.listing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the file that was loaded.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns `true` in a forked child of the process that loaded it. Nothing of it may be called there.
    #[must_use]
    #[inline]
    pub fn is_inherited(&self) -> bool {
        self.process.as_ref().is_some_and(ForkGuard::is_child)
    }
}

#[cfg(test)]
mod tests {
    use super::{Library, LoadError, Search};
    use std::path::Path;

    #[test]
    fn another_library_is_incomplete() {
        let e = Library::open(Path::new("libc.so.6")).unwrap_err();
        let LoadError::Incomplete { path, missing } = &e else { panic!("it has all functions") };
        assert_eq!(path, Path::new("libc.so.6"));
        assert!(missing.contains(&"clCreateBuffer") && missing.len() > 20, "{missing:?}");
        assert!(e.to_string().contains("clCreateBuffer"), "{e}");
    }

    #[test]
    fn a_file_that_is_not_there_has_the_systems_reason_and_a_remedy() {
        let e = Library::open(Path::new("/nowhere/libOpenCL.so.1")).unwrap_err();
        for part in [
            "apt install ocl-icd-libopencl1",
            "/nowhere/libOpenCL.so.1",
            "No such file",
            "HMC_OPENCL_LIB",
        ] {
            assert!(e.to_string().contains(part), "{e}");
        }
        assert!(LoadError::Forked.to_string().contains("spawn"));
    }

    /// The installed library, if any.
    #[test]
    fn the_library_is_loaded_once() {
        match Library::load(&Search::default()) {
            Ok(library) => {
                let again = Library::load(&Search { named: Some("/nowhere".into()) }).unwrap();
                assert!(std::ptr::eq(library, again), "another one");
                assert!(library.path().is_file(), "{}", library.path().display());
                assert!(!library.is_inherited());
            }
            Err(e) => assert!(matches!(e, LoadError::NotFound { .. }), "{e}"),
        }
    }
}
