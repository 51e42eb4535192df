//! The state of a fake library, and the access of its C functions to it.
//!
//! A C library has process-wide state, so a fake one has too; it is in the fake library's own file, never in a release. A panic never leaves a C function.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::knobs::Knobs;

/// The state of a fake library: its knobs, and the value that it simulates.
#[derive(Debug)]
pub struct FakeState<T> {
    variable: &'static str,
    make: fn(&Knobs) -> T,
    /// The result of a C function after an error of the fake library itself.
    broken: i32,
    state: Mutex<Option<(Knobs, T)>>,
}

impl<T> FakeState<T> {
    /// A fake library that reads its first knobs from the environment variable, at its first use, and
    /// makes its state of them. `broken` is the API's code for "unknown error".
    #[must_use]
    pub const fn new(variable: &'static str, make: fn(&Knobs) -> T, broken: i32) -> Self {
        Self { variable, make, broken, state: Mutex::new(None) }
    }

    fn lock(&self) -> MutexGuard<'_, Option<(Knobs, T)>> {
        // A panic returned `broken`; later calls may continue.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with<R>(&self, body: impl FnOnce(&mut Knobs, &mut T) -> R) -> Result<R, String> {
        let mut state = self.lock();
        if state.is_none() {
            let mut knobs = Knobs::default();
            knobs.set(&std::env::var(self.variable).unwrap_or_default())?;
            let value = (self.make)(&knobs);
            *state = Some((knobs, value));
        }
        let (knobs, value) = state.as_mut().ok_or("no state")?;
        Ok(body(knobs, value))
    }

    /// One call of a C function: counted, then failed by a knob or executed by `body`.
    pub fn call(&self, function: &'static str, body: impl FnOnce(&mut T) -> i32) -> i32 {
        let run = || self.with(|knobs, value| knobs.count(function).unwrap_or_else(|| body(value)));
        catch_unwind(AssertUnwindSafe(run)).ok().and_then(Result::ok).unwrap_or(self.broken)
    }

    /// Changes knobs. `reset` removes all knobs, counts and state first; the environment is not read again then. Settings apply
    /// to state that is created after them.
    ///
    /// # Errors
    /// The invalid entry.
    pub fn control(&self, text: &str) -> Result<(), String> {
        let rest = text.strip_prefix("reset");
        if let Some(rest) = rest {
            let mut knobs = Knobs::default();
            knobs.set(rest)?;
            let value = (self.make)(&knobs);
            *self.lock() = Some((knobs, value));
            return Ok(());
        }
        self.with(|knobs, _| knobs.set(text))?
    }

    /// How often a function was called.
    #[must_use]
    pub fn calls(&self, function: &str) -> u64 {
        self.with(|knobs, _| knobs.calls(function)).unwrap_or(0)
    }
}

/// Exports the two functions that every fake library has, over its `static` [`FakeState`]:
/// `int hmc_fake_control(const char *text)` (0, or -1 if the text is invalid; see
/// [`knobs`](crate::vendor::knobs)) and `uint64_t hmc_fake_calls(const char *function)`.
#[macro_export]
macro_rules! export_control {
    ($state:ident) => {
        /// Changes knobs of this fake library.
        ///
        /// # Safety
        /// `text` is a C string.
        // SAFETY: the name carries the project's prefix, and one fake library exports it once.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn hmc_fake_control(text: *const ::core::ffi::c_char) -> i32 {
            // SAFETY: the caller vouched for a C string that lives during the call.
            let text = unsafe { ::core::ffi::CStr::from_ptr(text) };
            match text.to_str().map(|text| $state.control(text)) {
                Ok(Ok(())) => 0,
                _ => -1,
            }
        }

        /// How often a function of this fake library was called.
        ///
        /// # Safety
        /// `function` is a C string.
        // SAFETY: the name carries the project's prefix, and one fake library exports it once.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn hmc_fake_calls(function: *const ::core::ffi::c_char) -> u64 {
            // SAFETY: the caller vouched for a C string that lives during the call.
            let function = unsafe { ::core::ffi::CStr::from_ptr(function) };
            function.to_str().map_or(0, |function| $state.calls(function))
        }
    };
}
