//! The state of one stand-in, and the function through which its C functions reach it.
//!
//! A C library has process-wide state, so its stand-in has too; it lives in the stand-in's own file,
//! never in a release. A panic never leaves a C function.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::knobs::Knobs;

/// The state of a stand-in: its knobs, and what it stands for.
#[derive(Debug)]
pub struct Stand<T> {
    variable: &'static str,
    make: fn(&Knobs) -> T,
    /// What a C function answers when the stand-in itself is broken.
    broken: i32,
    state: Mutex<Option<(Knobs, T)>>,
}

impl<T> Stand<T> {
    /// A stand-in that reads its first knobs from the environment variable, when it is first used,
    /// and makes its state of them. `broken` is the API's code for "unknown error".
    #[must_use]
    pub const fn new(variable: &'static str, make: fn(&Knobs) -> T, broken: i32) -> Self {
        Self { variable, make, broken, state: Mutex::new(None) }
    }

    fn lock(&self) -> MutexGuard<'_, Option<(Knobs, T)>> {
        // A panic was answered with `broken`; those that call after it may go on.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with<R>(&self, body: impl FnOnce(&mut Knobs, &mut T) -> R) -> Result<R, String> {
        let mut state = self.lock();
        if state.is_none() {
            let mut knobs = Knobs::default();
            knobs.turn(&std::env::var(self.variable).unwrap_or_default())?;
            let value = (self.make)(&knobs);
            *state = Some((knobs, value));
        }
        let (knobs, value) = state.as_mut().ok_or("no state")?;
        Ok(body(knobs, value))
    }

    /// One call of a C function: counted, perhaps failed by a knob, else done by `body`.
    pub fn call(&self, function: &'static str, body: impl FnOnce(&mut T) -> i32) -> i32 {
        let run = || self.with(|knobs, value| knobs.count(function).unwrap_or_else(|| body(value)));
        catch_unwind(AssertUnwindSafe(run)).ok().and_then(Result::ok).unwrap_or(self.broken)
    }

    /// Turns knobs. `reset` forgets all knobs, counts and state first; the environment is not read
    /// again then. Settings hold for state that is made after them.
    ///
    /// # Errors
    /// What made no sense.
    pub fn control(&self, text: &str) -> Result<(), String> {
        let rest = text.strip_prefix("reset");
        if let Some(rest) = rest {
            let mut knobs = Knobs::default();
            knobs.turn(rest)?;
            let value = (self.make)(&knobs);
            *self.lock() = Some((knobs, value));
            return Ok(());
        }
        self.with(|knobs, _| knobs.turn(text))?
    }

    /// How often a function was called.
    #[must_use]
    pub fn calls(&self, function: &str) -> u64 {
        self.with(|knobs, _| knobs.calls(function)).unwrap_or(0)
    }
}

/// Exports the two functions that every stand-in has, over its `static` [`Stand`]:
/// `int hmc_fake_control(const char *text)` (0, or -1 when the text makes no sense; see
/// [`knobs`](crate::vendor::knobs)) and `uint64_t hmc_fake_calls(const char *function)`.
#[macro_export]
macro_rules! stand_in {
    ($stand:ident) => {
        /// Turns knobs of this stand-in.
        ///
        /// # Safety
        /// `text` is a C string.
        // SAFETY: the name carries the project's prefix, and one stand-in exports it once.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn hmc_fake_control(text: *const ::core::ffi::c_char) -> i32 {
            // SAFETY: the caller vouched for a C string that lives during the call.
            let text = unsafe { ::core::ffi::CStr::from_ptr(text) };
            match text.to_str().map(|text| $stand.control(text)) {
                Ok(Ok(())) => 0,
                _ => -1,
            }
        }

        /// How often a function of this stand-in was called.
        ///
        /// # Safety
        /// `function` is a C string.
        // SAFETY: the name carries the project's prefix, and one stand-in exports it once.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn hmc_fake_calls(function: *const ::core::ffi::c_char) -> u64 {
            // SAFETY: the caller vouched for a C string that lives during the call.
            let function = unsafe { ::core::ffi::CStr::from_ptr(function) };
            function.to_str().map_or(0, |function| $stand.calls(function))
        }
    };
}
