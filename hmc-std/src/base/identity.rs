//! Ids that are unique in the process, across sessions, and never reused.
//!
//! These counters are process-wide on purpose: ids of two sessions must differ. Nothing else depends on their
//! values.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use hmc_core::limits::MAX_REGIONS;

static NEXT: AtomicU64 = AtomicU64::new(1);

/// How often each place of all sessions' tables of regions was given out. Pages of it that nobody uses cost nothing.
static GENERATIONS: [AtomicU32; MAX_REGIONS] = [const { AtomicU32::new(0) }; MAX_REGIONS];

/// A number that nothing else in this process was given. 64 bits do not run out.
#[must_use]
pub fn next() -> u64 {
    // Relaxed: a number orders nothing.
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// A generation for a region at `index`: no region of this process had both before. `None` when they are used up.
pub(crate) fn next_generation(index: u16) -> Option<u32> {
    let count = GENERATIONS.get(usize::from(index))?;
    let next = |last: u32| last.checked_add(1);
    count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).ok().and_then(next)
}

#[cfg(test)]
mod tests {
    use super::{GENERATIONS, next, next_generation};
    use std::sync::atomic::Ordering;

    #[test]
    fn a_place_that_is_used_up_is_never_given_out_again() {
        // The last place: no test has that many regions.
        let last = u16::MAX;
        let count = GENERATIONS.get(usize::from(last)).expect("a place");
        count.store(u32::MAX - 1, Ordering::Relaxed);
        assert_eq!(next_generation(last), Some(u32::MAX));
        assert_eq!(next_generation(last), None);
        assert_eq!(next_generation(last), None);
        assert_ne!(next(), next());
    }
}
