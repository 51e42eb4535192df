//! The suite that every transport must pass, and what it needs to know of one.
//!
//! Implement [`Subject`] for a pair of ends of your transport and call [`run`]. Each case gets a
//! fresh subject. No case sleeps: it drives the subject until something happened, for at most as
//! long as its [`Patience`].

use core::time::Duration;
use std::panic::{AssertUnwindSafe, catch_unwind};

use hmc_core::kinds::Access;
use hmc_core::region::{LocalRegion, RemoteRegion};
use hmc_core::transport::Transport;

use super::cases;
use super::ledger::Ledger;

/// Whether a subject could do what a case asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Support {
    /// It was done.
    Done,
    /// This transport has no such thing; the case is reported as skipped, with this reason.
    Unsupported(&'static str),
}

/// How long a case waits for something to happen, counted from the last completion.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// Turns (one drive and one poll each) without any completion.
    pub turns: u64,
    /// Time without any completion.
    pub wall: Duration,
    /// Turns after the end of a case in which nothing more may happen.
    pub settle: u64,
}

impl Patience {
    /// For a transport whose peer is another thread or process.
    pub const REAL: Self = Self { turns: u64::MAX, wall: Duration::from_secs(30), settle: 2_000 };
    /// For a transport that runs only when it is driven.
    pub const VIRTUAL: Self = Self { turns: 20_000, wall: Duration::from_secs(30), settle: 200 };
}

/// A pair of ends of one transport: the initiator, whose [`Transport`] is tested, and its target.
pub trait Subject {
    /// The transport under test.
    type T: Transport;

    /// Builds the pair anew: one local region of `local_len` bytes at the initiator, one window of
    /// `window_len` bytes with `access` at the target. Earlier pairs may be dropped. If the window
    /// is part of a larger region, [`Subject::check`] should look at the bytes around it.
    ///
    /// # Errors
    /// Why it could not be built; the case fails with it.
    fn fresh(&mut self, local_len: u64, window_len: u64, access: Access) -> Result<(), String>;
    /// The initiator's transport.
    fn transport(&mut self) -> &mut Self::T;
    /// The initiator's region.
    fn local(&self) -> LocalRegion;
    /// The target's window.
    fn remote(&self) -> RemoteRegion;
    /// Writes straight into the local region.
    fn write_local(&mut self, offset: u64, bytes: &[u8]);
    /// Reads straight from the local region.
    fn read_local(&mut self, offset: u64, out: &mut [u8]);
    /// Writes straight into the window's memory, as its owner does. Not used after a kill.
    fn write_remote(&mut self, offset: u64, bytes: &[u8]);
    /// Reads straight from the window's memory, as its owner does: it must move nothing and wait
    /// for nothing. Not used after a kill.
    fn read_remote(&mut self, offset: u64, out: &mut [u8]);
    /// Lets the target and the world make progress. Does nothing where they do so by themselves.
    /// Must not poll the initiator's completions.
    fn drive(&mut self);
    /// All tags that were delivered at the target since `fresh`.
    fn notifications(&mut self) -> Vec<u64>;
    /// The target takes the window back. Returns when its fence was reached.
    fn revoke(&mut self) -> Support;
    /// The target dies, or the link to it is cut for good.
    fn kill_peer(&mut self) -> Support;
    /// Looks for bytes that nobody may write and somebody wrote.
    ///
    /// # Errors
    /// What was found.
    fn check(&mut self) -> Result<(), String> {
        Ok(())
    }
    /// How long a case waits for this subject.
    fn patience(&self) -> Patience {
        Patience::REAL
    }
    /// The seed of the suite's own chance, for payloads and scripts.
    fn seed(&self) -> u64 {
        1
    }
}

/// Why a case ended early.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The transport broke a promise.
    Failed(String),
    /// The transport has no such thing.
    Skipped(String),
}

impl From<String> for Stop {
    fn from(why: String) -> Self {
        Self::Failed(why)
    }
}

/// A promise, and the function that tries to catch the transport breaking it.
#[derive(Debug)]
pub struct Case<S: Subject> {
    /// Its name, unique in the suite.
    pub name: &'static str,
    pub(super) body: fn(&mut Ledger<'_, S>) -> Result<(), Stop>,
}

/// All cases.
#[must_use]
pub fn cases<S: Subject>() -> Vec<Case<S>> {
    cases::all()
}

/// What became of each case.
#[derive(Clone, Debug)]
pub struct Report {
    pub(super) lines: Vec<(&'static str, Result<(), Stop>)>,
}

impl Report {
    /// The cases that passed.
    pub fn passed(&self) -> impl Iterator<Item = &'static str> {
        self.lines.iter().filter(|(_, end)| end.is_ok()).map(|(name, _)| *name)
    }

    /// The cases that failed, with the reason.
    pub fn failed(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.lines.iter().filter_map(|(name, end)| match end {
            Err(Stop::Failed(why)) => Some((*name, why.as_str())),
            _ => None,
        })
    }

    /// The cases that the transport cannot be asked, with the reason.
    pub fn skipped(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.lines.iter().filter_map(|(name, end)| match end {
            Err(Stop::Skipped(why)) => Some((*name, why.as_str())),
            _ => None,
        })
    }

    /// Ends the test unless every case passed.
    ///
    /// # Panics
    /// With the whole report when a case failed or was skipped.
    pub fn assert_all_passed(&self) {
        self.assert_passed_but("a subject that skips none", &[]);
    }

    /// Ends the test unless every case of the suite passed but those of `skipped`, and unless each of these was skipped. A
    /// subject that lacks something says so: its skipped cases are written to standard output, where `cargo xtask` counts
    /// them. `of` names the subject.
    ///
    /// # Panics
    /// With the whole report when a case failed, or was skipped and is not listed, or the other way round.
    pub fn assert_passed_but(&self, of: &str, skipped: &[&str]) {
        assert!(self.failed().next().is_none(), "{of}: promises were broken\n{self}");
        let mut left: Vec<&str> = self.skipped().map(|(name, _)| name).collect();
        let mut listed = skipped.to_vec();
        left.sort_unstable();
        listed.sort_unstable();
        assert_eq!(left, listed, "{of}: the cases that are skipped, and those that may be\n{self}");
        if let Some(line) = self.skips(of) {
            use std::io::Write as _;
            // Not by `println!`, which the harness keeps to itself. In one piece: other tests print too.
            let line = format!("\n{line}\n");
            std::io::stdout().write_all(line.as_bytes()).expect("standard output is open");
        }
    }

    /// How many cases were skipped, and which for what reason; `None` if none was.
    #[must_use]
    pub fn skips(&self, of: &str) -> Option<String> {
        let cases: Vec<String> =
            self.skipped().map(|(name, why)| format!("{name} ({why})")).collect();
        (!cases.is_empty())
            .then(|| format!("SKIPPED CASES: {} of {of}: {}", cases.len(), cases.join(", ")))
    }
}

impl core::fmt::Display for Report {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        for (name, end) in &self.lines {
            match end {
                Ok(()) => writeln!(f, "passed  {name}")?,
                Err(Stop::Skipped(why)) => writeln!(f, "skipped {name}: {why}")?,
                Err(Stop::Failed(why)) => writeln!(f, "FAILED  {name}: {why}")?,
            }
        }
        Ok(())
    }
}

/// Runs one case on a fresh subject. A panic fails the case.
///
/// # Errors
/// Why it did not pass.
pub fn run_case<S: Subject>(case: &Case<S>, make: impl FnOnce() -> S) -> Result<(), Stop> {
    let body = || {
        let mut subject = make();
        let mut ledger = Ledger::new(&mut subject);
        (case.body)(&mut ledger)
    };
    caught(body)
}

/// Runs a body on a subject of its own. A panic fails it.
pub(super) fn caught(body: impl FnOnce() -> Result<(), Stop>) -> Result<(), Stop> {
    // The subject is dropped whatever happens, so nobody sees it half changed.
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        Err(Stop::Failed(format!("panicked: {}", text.unwrap_or("(no message)"))))
    })
}

/// Runs all cases, each on a fresh subject.
pub fn run<S: Subject>(make: impl Fn() -> S) -> Report {
    let lines = cases::all::<S>().iter().map(|case| (case.name, run_case(case, &make))).collect();
    Report { lines }
}

#[cfg(test)]
mod tests {
    use super::{Report, Stop};
    use std::panic::catch_unwind;

    fn report() -> Report {
        let skipped = |why: &str| Err(Stop::Skipped(why.to_owned()));
        let lines = vec![("a", Ok(())), ("b", skipped("no get")), ("c", skipped("no tags"))];
        Report { lines }
    }

    #[test]
    fn only_the_listed_cases_may_be_skipped_and_each_of_them_is() {
        let passes = |report: Report, listed: &'static [&'static str]| {
            catch_unwind(move || report.assert_passed_but("x", listed)).is_ok()
        };
        assert!(passes(report(), &["c", "b"]));
        assert!(!passes(report(), &["b"]), "a new skip");
        assert!(!passes(report(), &["a", "b", "c"]), "it passes now");
        assert!(!passes(report(), &[]));
        assert!(catch_unwind(|| report().assert_all_passed()).is_err());
        let failed = Report { lines: vec![("a", Err(Stop::Failed("no".to_owned())))] };
        assert!(!passes(failed, &["a"]));
        let sound = Report { lines: vec![("a", Ok(()))] };
        assert!(passes(sound, &[]));
    }

    #[test]
    fn skips_are_said_with_their_number_and_reasons() {
        let line = report().skips("tcp").unwrap_or_default();
        assert_eq!(line, "SKIPPED CASES: 2 of tcp: b (no get), c (no tags)");
        assert_eq!(Report { lines: vec![("a", Ok(()))] }.skips("tcp"), None);
    }
}
