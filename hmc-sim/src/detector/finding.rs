//! [`Finding`]: a rule that was broken, and the history of the bytes.

use hmc_core::region::RegionKey;

use super::history::{Event, Who};

/// Which rule was broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Breach {
    /// A peer's request touched a range whose window was fenced.
    AfterFence,
    /// A peer's request touched bytes outside the window that it named.
    OutsideWindow,
    /// A peer's request did what its window does not allow.
    WithoutRight,
    /// A request touched memory of its own initiator after its completion, or after the owner was
    /// told that it is free.
    AfterCompletion,
    /// A request touched a region that was deregistered.
    AfterRelease,
    /// A request touched memory of a process that died.
    AfterDeath,
    /// A guard byte beside a region changed.
    Guard,
    /// A byte changed and nobody reported it.
    Unaccounted,
}

/// One broken rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Which.
    pub breach: Breach,
    /// Virtual time, in nanoseconds.
    pub at_ns: u64,
    /// The end whose memory it is.
    pub end: u16,
    /// The region.
    pub key: RegionKey,
    /// The first byte that was touched without right, from the region's start.
    pub at: u64,
    /// How many bytes the access had.
    pub len: u64,
    /// Who touched it.
    pub by: Who,
    /// All that is known about the byte at `at`, oldest first.
    pub history: Vec<Event>,
    /// Older events of the region that were forgotten.
    pub forgotten: u64,
}

impl core::fmt::Display for Finding {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let Self { breach, at_ns, end, key, at, len, by, history, forgotten } = self;
        let RegionKey { index, generation } = key;
        writeln!(
            f,
            "{breach:?} at {at_ns} ns: {by} touched {len} bytes from byte {at} of region \
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
