//! [`Finding`]: a rule that was broken, and the history of the bytes.

use hmc_core::region::RegionKey;

use super::history::{Actor, Event};

/// A broken rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AccessViolation {
    /// A peer's request accessed a range whose window was fenced.
    AfterFence,
    /// A peer's request accessed bytes outside the window that it named.
    OutsideWindow,
    /// A peer's request made an access that its window does not allow.
    WithoutRight,
    /// A request accessed memory of its own initiator after its completion, or after the memory was reported as free to the
    /// owner.
    AfterCompletion,
    /// A request accessed a region that was deregistered.
    AfterRelease,
    /// A request accessed memory of a process that died.
    AfterDeath,
    /// A guard byte beside a region changed.
    Guard,
    /// A byte changed without a reported access.
    Unaccounted,
}

/// A broken rule and its history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The rule.
    pub violation: AccessViolation,
    /// Virtual time, in nanoseconds.
    pub at_ns: u64,
    /// The end whose memory it is.
    pub end: u16,
    /// The region.
    pub key: RegionKey,
    /// The first byte that was accessed without a right, from the region's start.
    pub at: u64,
    /// Length of the access.
    pub len: u64,
    /// The source of the access.
    pub by: Actor,
    /// The events of the byte at `at`, oldest first.
    pub history: Vec<Event>,
    /// Older events of the region that were forgotten.
    pub forgotten: u64,
}

impl core::fmt::Display for Finding {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let Self { violation, at_ns, end, key, at, len, by, history, forgotten } = self;
        let RegionKey { index, generation } = key;
        writeln!(
            f,
            "{violation:?} at {at_ns} ns: {by} accessed {len} bytes from byte {at} of region \
             {index}:{generation} of end {end}; the history of that byte:"
        )?;
        if *forgotten != 0 {
            writeln!(f, "  ({forgotten} older events of the region were forgotten)")?;
        }
        for event in history {
            writeln!(f, "  {event}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Finding {}
