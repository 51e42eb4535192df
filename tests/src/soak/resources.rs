//! Resources of a process: they must not grow during the soak.

use std::time::Duration;

use crate::env::status_of;

/// Tolerance: a closed link keeps regions, of 4 MiB at the most each, until the next one takes its place.
const SLACK_KIB: u64 = 48 << 10;
/// A closed link keeps its mappings of its peer until the next one: four buffers of 12 MiB at the most.
const SLACK_MAPPED_KIB: u64 = 56 << 10;
const SLACK_FILES: u64 = 4;
const SLACK_THREADS: u64 = 1;
/// How often it looks, and how often it has to see the same.
const LOOK: Duration = Duration::from_millis(100);
const STILL: usize = 10;
/// Looks at the most.
const LOOKS: usize = 100;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Use {
    pub(super) memory_kib: u64,
    pub(super) mapped_kib: u64,
    pub(super) files: u64,
    pub(super) threads: u64,
}

impl Use {
    /// Of this process, now.
    pub(super) fn now() -> Self {
        let own = std::process::id();
        let files = std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
        Self {
            memory_kib: status_of(own, "RssAnon"),
            mapped_kib: status_of(own, "RssShmem"),
            files: files as u64,
            threads: status_of(own, "Threads"),
        }
    }

    /// When nothing goes on any more: what is kept for a while (regions of windows, links that have ended) is gone.
    pub(super) fn when_idle() -> Self {
        let (mut last, mut same) = (Self::now(), 0);
        for _ in 0..LOOKS {
            std::thread::park_timeout(LOOK);
            let now = Self::now();
            same =
                if (now.files, now.threads) == (last.files, last.threads) { same + 1 } else { 0 };
            last = now;
            if same == STILL {
                break;
            }
        }
        give_back();
        Self::now()
    }
}

impl std::fmt::Display for Use {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} MiB and {} MiB shared, {} descriptors, {} threads",
            self.memory_kib >> 10,
            self.mapped_kib >> 10,
            self.files,
            self.threads
        )
    }
}

/// Gives the system the memory that the allocator only keeps: it is not in use.
fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim(3) may be called at any time, from any thread.
    let _ = unsafe { libc::malloc_trim(0) };
}

/// Compares the least that the process used at rest in the last third of its rounds with the most in the first third: what
/// comes and goes is in both, and a leak lifts even the least.
///
/// # Errors
/// Words, when something has grown.
pub(super) fn check(rests: &[Use]) -> Result<String, String> {
    let third = rests.len() / 3;
    let (first, last) = (&rests[..third], &rests[rests.len() - third..]);
    let bound = |some: &[Use], pick: fn(u64, u64) -> u64, of: fn(&Use) -> u64| {
        some.iter().map(of).reduce(pick).unwrap_or(0)
    };
    let all = |some, pick| Use {
        memory_kib: bound(some, pick, |u| u.memory_kib),
        mapped_kib: bound(some, pick, |u| u.mapped_kib),
        files: bound(some, pick, |u| u.files),
        threads: bound(some, pick, |u| u.threads),
    };
    let (before, after) = (all(first, u64::max), all(last, u64::min));
    let said = format!("at rest at first {before}; at last {after}");
    let grown = after.memory_kib > before.memory_kib + SLACK_KIB
        || after.mapped_kib > before.mapped_kib + SLACK_MAPPED_KIB
        || after.files > before.files + SLACK_FILES
        || after.threads > before.threads + SLACK_THREADS;
    if grown { Err(format!("the process grows: {said}")) } else { Ok(said) }
}

#[cfg(test)]
mod tests {
    use super::{Use, check};

    #[test]
    fn growth_is_seen_and_chance_is_not() {
        let still = Use { memory_kib: 100 << 10, mapped_kib: 50 << 10, files: 50, threads: 20 };
        let now_and_then = Use { memory_kib: 150 << 10, files: 80, ..still };
        assert!(check(&[still, still, still, still, now_and_then, still]).is_ok());
        assert!(check(&[still, now_and_then, still, still, now_and_then, now_and_then]).is_ok());
        for grown in [
            Use { memory_kib: 180 << 10, ..still },
            Use { mapped_kib: 110 << 10, ..still },
            Use { files: 60, ..still },
            Use { threads: 22, ..still },
        ] {
            assert!(check(&[still, still, still, grown, grown, grown]).is_err(), "{grown}");
        }
    }
}
