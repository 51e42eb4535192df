//! A UCP context: the devices, and the memory that is registered with them.

use std::ffi::{CStr, CString};
use std::fmt;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use super::library::{Library, OLDEST};
use super::print_info::{capture, resources};
use super::result::Status;
use super::settings::{NO_CACHE, Settings, has_rdma};
use super::sys;

/// A call of UCX failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UcxError {
    /// The step that failed.
    pub call: &'static str,
    /// The status that UCX returned.
    pub status: Status,
    /// The object of the step.
    pub what: String,
}

impl fmt::Display for UcxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.call)?;
        if !self.what.is_empty() {
            write!(f, " ({})", self.what)?;
        }
        write!(f, ": {}", self.status)
    }
}

impl std::error::Error for UcxError {}

/// Turns a status into a result.
pub(super) fn check(call: &'static str, status: sys::ucs_status_t) -> Result<(), UcxError> {
    match Status(status) {
        Status::OK => Ok(()),
        status => Err(UcxError { call, status, what: String::new() }),
    }
}

/// Returns what a call made, if it succeeded and made something.
pub(super) fn made<T>(
    call: &'static str,
    status: sys::ucs_status_t,
    handle: *mut T,
) -> Result<NonNull<T>, UcxError> {
    check(call, status)?;
    let nothing = UcxError { call, status: Status::NO_MEMORY, what: String::new() };
    NonNull::new(handle).ok_or(nothing)
}

/// A UCX context (`ucp_context_h`). Its workers and its registered memory share it; the last owner destroys it. All
/// methods may be called by several threads at a time.
pub struct Context {
    library: &'static Library,
    handle: NonNull<sys::ucp_context>,
    /// A bit for each kind of memory that it reaches.
    kinds: u64,
}

// SAFETY: the context is made with `mt_workers_shared`: its calls take UCX's own lock (ucp.h, `ucp_params_t`).
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("library", &self.library).finish_non_exhaustive()
    }
}

/// Settings while they are read and changed.
struct Config<'a> {
    library: &'a Library,
    handle: *mut sys::ucp_config_t,
}

impl Config<'_> {
    fn read(library: &Library) -> Result<Config<'_>, UcxError> {
        let mut handle = ptr::null_mut();
        // SAFETY: both strings may be null: the prefix is then `UCX_`, and there is no file.
        let status =
            unsafe { (library.api.ucp_config_read)(ptr::null(), ptr::null(), &mut handle) };
        check("reading the UCX_* variables", status)?;
        Ok(Config { library, handle })
    }

    fn set(&mut self, key: &CStr, value: &CStr) -> Result<(), UcxError> {
        // SAFETY: the configuration is ours until it is released; both texts end with a zero and are copied.
        let status = unsafe {
            (self.library.api.ucp_config_modify)(self.handle, key.as_ptr(), value.as_ptr())
        };
        check("setting", status).map_err(|e| UcxError {
            what: format!("{}={}", key.to_string_lossy(), value.to_string_lossy()),
            ..e
        })
    }
}

impl Drop for Config<'_> {
    fn drop(&mut self) {
        // SAFETY: read by `read`, released once.
        unsafe { (self.library.api.ucp_config_release)(self.handle) };
    }
}

impl Context {
    /// Creates a context for puts, gets and messages. Takes about 10 ms, because UCX queries all devices.
    ///
    /// # Errors
    /// [`UcxError`] if UCX does not know a setting, or if no device matches `TLS`.
    pub fn new(library: &'static Library, settings: &Settings) -> Result<Arc<Self>, UcxError> {
        let _permit = library.ending().enter();
        let mut config = Config::read(library)?;
        for (key, value) in settings.own(library.version(), has_rdma()) {
            // A release without a key does not need it. The key of the cache must be set if the release has it.
            let set = config.set(key, value);
            if key == NO_CACHE.0 {
                set?;
            }
        }
        for (key, value) in &settings.keys {
            let text = |s: &str| {
                CString::new(s).map_err(|_| UcxError {
                    call: "setting",
                    status: Status::INVALID_PARAM,
                    what: format!("{key}={value}: a zero byte"),
                })
            };
            config.set(&text(key)?, &text(value)?)?;
        }
        let params = sys::ucp_params_t {
            field_mask: sys::UCP_PARAM_FIELD_FEATURES | sys::UCP_PARAM_FIELD_MT_WORKERS_SHARED,
            features: sys::UCP_FEATURE_RMA | sys::UCP_FEATURE_AM | sys::UCP_FEATURE_WAKEUP,
            mt_workers_shared: 1,
            ..zeroed_params()
        };
        let mut handle = ptr::null_mut();
        // SAFETY: the parameters say which of their fields count; the configuration lives until the end of this call.
        // The version is the one whose calls are used: an older library complains about a later one.
        let status = unsafe {
            (library.api.ucp_init_version)(
                OLDEST.major,
                OLDEST.minor,
                &params,
                config.handle,
                &mut handle,
            )
        };
        let handle = made("starting UCX", status, handle)?;
        library.ending().count_context(true);
        let mut context = Self { library, handle, kinds: 0 };
        context.kinds = context.ask_kinds()?;
        Ok(Arc::new(context))
    }

    /// Returns its library.
    #[must_use]
    pub fn library(&self) -> &'static Library {
        self.library
    }

    pub(super) fn handle(&self) -> sys::ucp_context_h {
        self.handle.as_ptr()
    }

    /// Returns the kinds of memory that the context can access, one bit for each value of `ucs_memory_type_t`
    /// (ucs/memory/memory_type.h): host 0, CUDA 1, CUDA managed 2, ROCm 3, ROCm managed 4.
    #[must_use]
    pub fn memory_kinds(&self) -> u64 {
        self.kinds
    }

    /// Returns `true` if it reaches that kind.
    pub(super) fn reaches(&self, memory_type: sys::ucs_memory_type_t) -> bool {
        self.kinds.checked_shr(memory_type).is_some_and(|bits| bits & 1 == 1)
    }

    fn ask_kinds(&self) -> Result<u64, UcxError> {
        let mut attr = sys::ucp_context_attr_t {
            field_mask: sys::UCP_ATTR_FIELD_MEMORY_TYPES,
            request_size: 0,
            thread_mode: 0,
            memory_types: 0,
            name: [0; 32],
            device_counter_size: 0,
        };
        // SAFETY: the context lives; the mask says what may be written.
        let status = unsafe { (self.library.api.ucp_context_query)(self.handle(), &mut attr) };
        check("asking for kinds of memory", status)?;
        Ok(attr.memory_types)
    }
}

impl Context {
    /// Returns the transports and devices that the context may use, such as `tcp/eth0` and `rc_mlx5/mlx5_0:1`.
    #[must_use]
    pub fn transports(&self) -> Vec<String> {
        let _permit = self.library.ending().enter();
        resources(&capture(|stream| {
            // SAFETY: the context lives; the stream is open.
            unsafe { (self.library.api.ucp_context_print_info)(self.handle(), stream) };
        }))
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        let _permit = self.library.ending().enter();
        // SAFETY: workers and memory own the context, so none of them is left.
        unsafe { (self.library.api.ucp_cleanup)(self.handle.as_ptr()) };
        self.library.ending().count_context(false);
    }
}

const fn zeroed_params() -> sys::ucp_params_t {
    sys::ucp_params_t {
        field_mask: 0,
        features: 0,
        request_size: 0,
        request_init: None,
        request_cleanup: None,
        tag_sender_mask: 0,
        mt_workers_shared: 0,
        estimated_num_eps: 0,
        estimated_num_ppn: 0,
        name: ptr::null(),
        node_local_id: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::{Status, UcxError, check};

    #[test]
    fn an_error_says_which_step_failed_on_what() {
        let e = check("opening it", Status::IO_ERROR.0).unwrap_err();
        assert_eq!(e.to_string(), "opening it: Input/output error (UCX status -3)");
        let e = UcxError { what: "a device".into(), ..e };
        assert_eq!(e.to_string(), "opening it (a device): Input/output error (UCX status -3)");
        assert_eq!(check("opening it", 0), Ok(()));
        assert!(check("opening it", 1).is_err(), "it is under way");
    }
}
