//! The functions that compiled code calls by name (the platform requirements in the documentation of
//! `core`), for programs without libc.
//!
//! Simple, not fast. Volatile, so that they are not compiled into calls of themselves.

/// As memset(3).
///
/// # Safety
/// As memset(3).
// SAFETY: this program has no other `memset`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memset(to: *mut u8, byte: i32, n: usize) -> *mut u8 {
    for i in 0..n {
        // SAFETY: the caller vouches for `n` bytes at `to`, and `i < n`.
        let at = unsafe { to.add(i) };
        // SAFETY: as above; a `u8` has no alignment.
        unsafe { at.write_volatile(byte.to_le_bytes()[0]) };
    }
    to
}

/// As memcpy(3).
///
/// # Safety
/// As memcpy(3).
// SAFETY: this program has no other `memcpy`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memcpy(to: *mut u8, from: *const u8, n: usize) -> *mut u8 {
    for i in 0..n {
        // SAFETY: the caller vouches for `n` bytes at `from`, and `i < n`.
        let source = unsafe { from.add(i) };
        // SAFETY: as above; a `u8` has no alignment.
        let byte = unsafe { source.read_volatile() };
        // SAFETY: the caller vouches for `n` bytes at `to`, and `i < n`.
        let at = unsafe { to.add(i) };
        // SAFETY: as above; a `u8` has no alignment.
        unsafe { at.write_volatile(byte) };
    }
    to
}

/// As memmove(3).
///
/// # Safety
/// As memmove(3).
// SAFETY: this program has no other `memmove`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memmove(to: *mut u8, from: *const u8, n: usize) -> *mut u8 {
    let backward = from.addr() < to.addr();
    for k in 0..n {
        // From the end when the target lies behind the source. Cannot wrap: `k < n`.
        let i = if backward { n.wrapping_sub(k).wrapping_sub(1) } else { k };
        // SAFETY: the caller vouches for `n` bytes at `from`, and `i < n`.
        let source = unsafe { from.add(i) };
        // SAFETY: as above; a `u8` has no alignment.
        let byte = unsafe { source.read_volatile() };
        // SAFETY: the caller vouches for `n` bytes at `to`, and `i < n`.
        let at = unsafe { to.add(i) };
        // SAFETY: as above; a `u8` has no alignment.
        unsafe { at.write_volatile(byte) };
    }
    to
}

/// As memcmp(3).
///
/// # Safety
/// As memcmp(3).
// SAFETY: this program has no other `memcmp`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memcmp(a: *const u8, b: *const u8, n: usize) -> i32 {
    for i in 0..n {
        // SAFETY: the caller vouches for `n` bytes at `a`, and `i < n`.
        let left = unsafe { a.add(i) };
        // SAFETY: as above; a `u8` has no alignment.
        let x = unsafe { left.read_volatile() };
        // SAFETY: the caller vouches for `n` bytes at `b`, and `i < n`.
        let right = unsafe { b.add(i) };
        // SAFETY: as above; a `u8` has no alignment.
        let y = unsafe { right.read_volatile() };
        if x != y {
            return i32::from(x).wrapping_sub(i32::from(y));
        }
    }
    0
}

/// LLVM's name for a comparison of which only "equal or not" matters.
///
/// # Safety
/// As [`memcmp`].
// SAFETY: this program has no other `bcmp`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bcmp(a: *const u8, b: *const u8, n: usize) -> i32 {
    // SAFETY: the caller's promise is the one that `memcmp` asks for.
    unsafe { memcmp(a, b, n) }
}

/// Named by the unwind tables of `core`; never called with `panic = "abort"`.
// SAFETY: this program has no other personality routine.
#[unsafe(no_mangle)]
pub extern "C" fn rust_eh_personality() {}

/// As [`rust_eh_personality`].
// SAFETY: this program has no unwinder.
#[unsafe(no_mangle)]
pub extern "C" fn _Unwind_Resume() -> ! {
    loop {
        core::hint::spin_loop();
    }
}
