//! Messages of the system's loader about libraries.

use std::ffi::{CStr, OsStr, c_void};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// Returns the file that the code at an address is from, or `None` if it is from none.
pub(crate) fn file_of(place: *const c_void) -> Option<PathBuf> {
    let mut info = MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: it reads the loader's tables and writes to `info`.
    if unsafe { libc::dladdr(place, info.as_mut_ptr()) } == 0 {
        return None;
    }
    // SAFETY: zeroed, then written: pointers and numbers.
    let info = unsafe { info.assume_init() };
    if info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: the loader's own text, which lives as long as the library.
    let name = unsafe { CStr::from_ptr(info.dli_fname) };
    Some(OsStr::from_bytes(name.to_bytes()).into())
}

/// Returns the file to load: the one that the user named, that of `soname` in the folder that the user named, or the one that
/// the system finds by `soname`.
pub(crate) fn candidate(named: Option<&Path>, soname: &str) -> PathBuf {
    match named {
        None => PathBuf::from(soname),
        Some(named) if named.is_dir() => named.join(soname),
        Some(named) => named.to_path_buf(),
    }
}

/// Returns the loader's error without the name of the file.
pub(crate) fn reason(e: &libloading::Error) -> String {
    let said = std::error::Error::source(e).map_or_else(|| e.to_string(), ToString::to_string);
    said.split_once(": ").map_or(said.clone(), |(_, rest)| rest.to_owned())
}

#[cfg(test)]
mod tests {
    use super::{candidate, file_of, reason};
    use libloading::os::unix;
    use std::ffi::c_void;
    use std::path::{Path, PathBuf};

    #[test]
    fn a_named_library_is_the_only_candidate() {
        let named = |name: &str| candidate(Some(Path::new(name)), "libx.so.1");
        assert_eq!(candidate(None, "libx.so.1"), PathBuf::from("libx.so.1"));
        assert_eq!(named("/x/libx.so"), PathBuf::from("/x/libx.so"));
        assert_eq!(named("/"), PathBuf::from("/libx.so.1"));
    }

    #[test]
    fn code_is_from_the_file_that_was_loaded() {
        #[expect(clippy::as_conversions, reason = "the one way from a function to its address")]
        let place = libc::strlen as *const c_void;
        let file = file_of(place).unwrap();
        assert!(file.exists(), "{}", file.display());
        assert_eq!(file_of(std::ptr::null()), None);
    }

    #[test]
    fn the_reason_is_without_the_name() {
        // SAFETY: there is no such file, so none of its code is run.
        let e = unsafe { unix::Library::open(Some("libhmc-none.so"), unix::RTLD_NOW) }.unwrap_err();
        let reason = reason(&e);
        assert!(!reason.is_empty() && !reason.contains("libhmc-none.so"), "{reason}");
    }
}
