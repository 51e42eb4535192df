//! [`Report`]: the result of each case of a suite.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Why a case ended early.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The transport broke a rule.
    Failed(String),
    /// The transport does not support it.
    Skipped(String),
}

impl From<String> for Stop {
    fn from(why: String) -> Self {
        Self::Failed(why)
    }
}

/// How a case ends.
pub(super) type Done = Result<(), Stop>;

/// The result of each case.
#[derive(Clone, Debug)]
pub struct Report {
    pub(super) lines: Vec<(&'static str, Done)>,
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

    /// The cases that the transport does not support, with the reason.
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

    /// Ends the test unless every case of the suite passed but those of `skipped`, and unless each of these was skipped. The skipped cases are written to standard output, where `cargo xtask` counts them. `of` names the subject.
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
            // Not by `println!`, which the harness captures. In one write: other tests print too.
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

/// Runs a body on a subject of its own. A panic fails it.
pub(super) fn caught(body: impl FnOnce() -> Done) -> Done {
    // The subject is dropped in any case, so a partial change is not visible.
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        Err(Stop::Failed(format!("panicked: {}", text.unwrap_or("(no message)"))))
    })
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
    fn skips_are_reported_with_their_number_and_reasons() {
        let line = report().skips("tcp").unwrap_or_default();
        assert_eq!(line, "SKIPPED CASES: 2 of tcp: b (no get), c (no tags)");
        assert_eq!(Report { lines: vec![("a", Ok(()))] }.skips("tcp"), None);
    }
}
