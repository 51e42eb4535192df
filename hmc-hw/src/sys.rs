//! Functions of the C library that the crate libc does not declare.

use core::ffi::{c_char, c_int, c_void};

/// A list of arguments, as C passes it where the ABI is that of x86-64 or of aarch64: by its address.
#[repr(transparent)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct VaList(*mut c_void);

// SAFETY: the declaration is that of stdio.h, with its list of arguments as the ABI passes it.
unsafe extern "C" {
    /// vsnprintf(3).
    ///
    /// # Safety
    /// `to` is valid for writes of `len` bytes; `arguments` are those of `format`, and no code has read them yet.
    pub(crate) fn vsnprintf(
        to: *mut c_char,
        len: usize,
        format: *const c_char,
        arguments: VaList,
    ) -> c_int;
}
