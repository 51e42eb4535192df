//! The only module that uses atomics, cells, spin hints and parking: those of `core` and the kernel, or loom's.
//!
//! No other module of the crate may import `core::sync::atomic` for a word that threads share, so the loom models
//! run the released code. [`Word64`] is an atomic whose high half threads can park on.

use core::time::Duration;

/// The number of parked threads to wake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wakes {
    /// Any one sleeper.
    One,
    /// All of them.
    All,
}

/// Which threads may park on a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Threads of this process only (futex with `FUTEX_PRIVATE_FLAG`).
    Process,
    /// Every process that maps the word (a shared futex).
    Host,
}

/// Returns the high half of a word's value, on which threads park.
#[must_use]
#[inline]
pub const fn high(value: u64) -> u32 {
    let [.., a, b, c, d] = (value >> 32).to_be_bytes();
    u32::from_be_bytes([a, b, c, d])
}

/// Returns the low half of a word's value.
#[must_use]
#[inline]
pub const fn low(value: u64) -> u32 {
    let [.., a, b, c, d] = value.to_be_bytes();
    u32::from_be_bytes([a, b, c, d])
}

/// Returns the word with these halves.
#[must_use]
#[inline]
pub fn join(high: u32, low: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

#[cfg(not(loom))]
mod real {
    use super::{Duration, Scope, Wakes};
    use core::ptr::NonNull;

    pub use core::hint::spin_loop;
    pub use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

    /// A 64-bit atomic on which threads can park (futex(2)). Its layout is that of a `u64`, so that it can lie in a
    /// page shared by two processes.
    #[derive(Debug, Default)]
    #[repr(transparent)]
    pub struct Word64(AtomicU64);

    impl Word64 {
        /// Returns a word with `value`.
        #[must_use]
        pub const fn new(value: u64) -> Self {
            Self(AtomicU64::new(value))
        }

        /// Returns the atomic.
        #[must_use]
        #[inline]
        pub const fn atomic(&self) -> &AtomicU64 {
            &self.0
        }

        /// Returns the word at `at`, which others may access, too.
        ///
        /// # Safety
        /// `at` is aligned to 8 bytes, and its 8 bytes stay readable and writable for `'a`. During `'a`, all accesses
        /// of this process to them are atomic.
        #[must_use]
        #[inline]
        pub const unsafe fn from_raw<'a>(at: NonNull<u64>) -> &'a Self {
            let at = at.cast::<Self>();
            // SAFETY: `Word64` is a transparent `AtomicU64`, which has the size of `u64` and alignment 8;
            // the caller vouches for alignment, validity for `'a` and atomic access by others.
            unsafe { at.as_ref() }
        }

        /// Parks while the high half is `expected`, for at most `timeout` (`None`: no limit). May return early without
        /// a reason: check the word again. Without the feature `std` this is one spin hint.
        pub fn wait_high(&self, expected: u32, timeout: Option<Duration>, scope: Scope) {
            park::wait(&self.0, expected, timeout, scope);
        }

        /// Wakes threads that are parked in [`Self::wait_high`] with the same scope. One system call.
        pub fn wake_high(&self, wakes: Wakes, scope: Scope) {
            park::wake(&self.0, wakes, scope);
        }
    }

    #[cfg(all(feature = "std", target_os = "linux"))]
    mod park {
        use super::{AtomicU32, AtomicU64, Duration, NonNull, Scope, Wakes};
        use rustix::thread::futex;

        fn half(word: &AtomicU64) -> &AtomicU32 {
            let halves = NonNull::from(word).cast::<[AtomicU32; 2]>();
            // SAFETY: two `AtomicU32` have the size of an `AtomicU64` and a smaller alignment, and the
            // reference lives as long as `word`. It is handed to the kernel only: this crate makes no
            // 4-byte access to the word.
            let [first, second] = unsafe { halves.as_ref() };
            if cfg!(target_endian = "little") { second } else { first }
        }

        const fn flags(scope: Scope) -> futex::Flags {
            match scope {
                Scope::Process => futex::Flags::PRIVATE,
                Scope::Host => futex::Flags::empty(),
            }
        }

        pub(super) fn wait(
            word: &AtomicU64,
            expected: u32,
            timeout: Option<Duration>,
            scope: Scope,
        ) {
            let spec = timeout.map(|t| futex::Timespec {
                tv_sec: i64::try_from(t.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: i64::from(t.subsec_nanos()),
            });
            // Every error (EAGAIN: it changed; ETIMEDOUT; EINTR) means the same to the caller: look again.
            let _ = futex::wait(half(word), flags(scope), expected, spec.as_ref());
        }

        pub(super) fn wake(word: &AtomicU64, wakes: Wakes, scope: Scope) {
            let count = match wakes {
                Wakes::One => 1,
                // futex(2): the count is an int; "All" is INT_MAX.
                Wakes::All => 0x7fff_ffff,
            };
            // Cannot fail for a mapped, aligned word; if it did, the sleeper's time-out would end its sleep.
            let _ = futex::wake(half(word), flags(scope), count);
        }
    }

    #[cfg(not(all(feature = "std", target_os = "linux")))]
    mod park {
        use super::{AtomicU64, Duration, Scope, Wakes};

        pub(super) fn wait(_: &AtomicU64, _: u32, _: Option<Duration>, _: Scope) {
            core::hint::spin_loop();
        }

        pub(super) fn wake(_: &AtomicU64, _: Wakes, _: Scope) {}
    }

    /// A moment after which a wait gives up.
    #[derive(Clone, Copy, Debug)]
    pub struct Deadline(
        #[cfg(feature = "std")] Option<std::time::Instant>,
        #[cfg(not(feature = "std"))] u64,
    );

    #[cfg(feature = "std")]
    impl Deadline {
        /// The moment `timeout` from now.
        #[must_use]
        pub fn after(timeout: Duration) -> Self {
            Self(std::time::Instant::now().checked_add(timeout))
        }

        /// What is left, `None` when the moment has passed. A moment beyond the clock's range is far away.
        pub fn left(&mut self) -> Option<Duration> {
            let Some(end) = self.0 else {
                return Some(Duration::from_secs(3600));
            };
            end.checked_duration_since(std::time::Instant::now()).filter(|left| !left.is_zero())
        }
    }

    #[cfg(not(feature = "std"))]
    impl Deadline {
        /// Without a clock a wait ends after one look for each microsecond of `timeout`, and at least one.
        #[must_use]
        pub fn after(timeout: Duration) -> Self {
            Self(u64::try_from(timeout.as_micros()).unwrap_or(u64::MAX))
        }

        /// What is left, `None` when the looks are used up.
        pub fn left(&mut self) -> Option<Duration> {
            self.0 = self.0.checked_sub(1)?;
            Some(Duration::from_micros(self.0))
        }
    }
}

#[cfg(loom)]
mod model {
    use super::{Duration, Scope, Wakes, high};

    pub use loom::hint::spin_loop;
    pub use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
    use loom::sync::{Condvar, Mutex};

    /// The model of a word with a futex: the mutex is the kernel's hash bucket lock, under which it
    /// compares the word before it sleeps and under which a waker looks for sleepers (futex(2), NOTES).
    #[derive(Debug)]
    pub struct Word64 {
        word: AtomicU64,
        bucket: Mutex<()>,
        changed: Condvar,
    }

    impl Word64 {
        /// A word that holds `value`.
        #[must_use]
        pub fn new(value: u64) -> Self {
            Self { word: AtomicU64::new(value), bucket: Mutex::new(()), changed: Condvar::new() }
        }

        /// The atomic itself.
        #[must_use]
        pub fn atomic(&self) -> &AtomicU64 {
            &self.word
        }

        /// There is no raw memory in a model.
        ///
        /// # Safety
        /// Never called.
        #[must_use]
        pub unsafe fn from_raw<'a>(_: core::ptr::NonNull<u64>) -> &'a Self {
            unreachable!("a loom model holds its words by value")
        }

        /// Sleeps while the high half is `expected`. Never times out: a lost wake-up is a deadlock, which
        /// loom reports.
        pub fn wait_high(&self, expected: u32, _timeout: Option<Duration>, _scope: Scope) {
            if let Ok(held) = self.bucket.lock()
                && high(self.word.load(Ordering::SeqCst)) == expected
            {
                drop(self.changed.wait(held));
            }
        }

        /// Wakes sleepers.
        pub fn wake_high(&self, wakes: Wakes, _scope: Scope) {
            if let Ok(held) = self.bucket.lock() {
                match wakes {
                    Wakes::One => self.changed.notify_one(),
                    Wakes::All => self.changed.notify_all(),
                }
                drop(held);
            }
        }
    }

    /// Time stands still in a model.
    #[derive(Clone, Copy, Debug)]
    pub struct Deadline(());

    impl Deadline {
        /// Never.
        #[must_use]
        pub fn after(_timeout: Duration) -> Self {
            Self(())
        }

        /// Always some.
        pub fn left(&mut self) -> Option<Duration> {
            Some(Duration::from_secs(1))
        }
    }
}

#[cfg(loom)]
pub use model::{AtomicU32, AtomicU64, Deadline, Ordering, Word64, fence, spin_loop};
#[cfg(not(loom))]
pub use real::{AtomicU32, AtomicU64, Deadline, Ordering, Word64, fence, spin_loop};
