//! A campaign in words: the table of its sums, and each failure with what replays it.

use std::fmt;

use super::run::{Failure, Summary};
use super::stats::{FAULTS, OUTSIDERS, RESULTS};

/// Lines of a failure's trace that are shown.
const TAIL_LINES: usize = 40;
/// Steps of a shrunk script that are shown.
const STEP_LINES: usize = 40;

impl Summary {
    /// Events for each second of a core: of processor time if it is known, so that a busy machine
    /// does not change it.
    #[must_use]
    pub fn events_per_core_second(&self) -> u64 {
        let elapsed = self.elapsed.as_secs_f64() * self.threads.max(1) as f64;
        let seconds = if self.cpu.is_zero() { elapsed } else { self.cpu.as_secs_f64() };
        if seconds > 0.0 { (self.stats.events as f64 / seconds) as u64 } else { 0 }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stats = &self.stats;
        let mut line = |name: &str, value: String| writeln!(f, "{name:<24} {value:>16}");
        line("seeds", format!("{} ({} without faults)", self.seeds, self.clean))?;
        line("operations", stats.requests.to_string())?;
        for (name, count) in RESULTS.iter().zip(stats.results).filter(|(_, count)| *count > 0) {
            line(&format!("  {name}"), count.to_string())?;
        }
        line("messages", stats.messages.to_string())?;
        line("  under way at a kill", stats.last_messages.to_string())?;
        line("bytes carried", stats.bytes.to_string())?;
        line("faults", stats.all_faults().to_string())?;
        for (name, count) in FAULTS.iter().zip(stats.faults).filter(|(_, count)| *count > 0) {
            line(&format!("  {name}"), count.to_string())?;
        }
        for (name, count) in OUTSIDERS.iter().zip(stats.outsiders).filter(|(_, n)| *n > 0) {
            line(name, count.to_string())?;
        }
        line("restarts", stats.restarts.to_string())?;
        line("simulated hours", format!("{:.2}", stats.virtual_ns as f64 / 3.6e12))?;
        line("events", stats.events.to_string())?;
        line("events/s per core", self.events_per_core_second().to_string())?;
        line("elapsed seconds", format!("{:.1}", self.elapsed.as_secs_f64()))?;
        line("hash", format!("{:016x}", self.hash))?;
        line("failures", self.failures.len().to_string())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, ranks, finding, full_steps, steps, shrunk, tail, replay } = self;
        writeln!(f, "seed {seed} ({ranks} ranks): {:?}: {}", finding.kind, finding.text)?;
        writeln!(f, "shrunk from {full_steps} to {} steps: {}", steps.len(), shrunk.text)?;
        for step in steps.iter().take(STEP_LINES) {
            writeln!(f, "  {:>14.6} ms  {:?}", step.at_ns as f64 / 1e6, step.event)?;
        }
        if steps.len() > STEP_LINES {
            writeln!(f, "  and {} more", steps.len() - STEP_LINES)?;
        }
        writeln!(f, "the end of its trace:")?;
        for line in tail.iter().skip(tail.len().saturating_sub(TAIL_LINES)) {
            writeln!(f, "  {line}")?;
        }
        writeln!(f, "replay: cargo xtask sim {replay}")
    }
}
