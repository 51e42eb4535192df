//! The results of a sample of mutants: lines, figures, JSON, and whether it is enough.

use super::list::Mutant;
use super::run::Fate;
use crate::cmd::certify::listed;
use std::collections::BTreeMap;
use std::path::Path;

/// The result of one mutant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Caught(String),
    Missed(String),
    /// Missed, and listed with this reason.
    Equivalent(String),
    /// It does not compile, and another was drawn in its place.
    Unviable,
    /// Its code is not compiled here, and another was drawn in its place.
    Absent,
}

impl Outcome {
    const fn word(&self) -> &'static str {
        match self {
            Self::Caught(_) => "caught",
            Self::Missed(_) => "MISSED",
            Self::Equivalent(_) => "equivalent",
            Self::Unviable => "unviable",
            Self::Absent => "not built",
        }
    }

    fn detail(&self) -> &str {
        match self {
            Self::Caught(by) => by,
            Self::Missed(why) | Self::Equivalent(why) => why,
            Self::Unviable => "does not compile",
            Self::Absent => "its code is not compiled here",
        }
    }
}

/// A row of the report.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) number: u32,
    pub(super) mutant: Mutant,
    pub(super) outcome: Outcome,
    /// Whether it had a build of its own.
    pub(super) alone: bool,
    pub(super) seconds: f64,
}

impl Row {
    /// Prints it.
    pub(super) fn print(&self) {
        let by = if matches!(self.outcome, Outcome::Caught(_)) { "by " } else { "" };
        println!(
            "{:<10} #{:<4} {}: {by}{} ({:.1} s)",
            self.outcome.word(),
            self.number,
            self.mutant.name,
            self.outcome.detail(),
            self.seconds
        );
    }
}

/// The list of mutants that change nothing that can be seen: `file: change => reason`.
#[derive(Debug)]
pub(super) struct Equivalents {
    rows: BTreeMap<String, String>,
}

impl Equivalents {
    pub(super) fn read(text: &str) -> Self {
        let rows =
            listed(text).map(|(key, reason)| (key.to_owned(), reason.trim().to_owned())).collect();
        Self { rows }
    }

    /// The result of a mutant with that outcome. What is proven equivalent cannot hang: where a suite took too long, the
    /// machine was busy.
    pub(super) fn outcome(&self, mutant: &Mutant, fate: Fate) -> Outcome {
        match (fate, self.rows.get(&mutant.key)) {
            (Fate::Missed(_) | Fate::TimedOut(_), Some(reason)) => {
                Outcome::Equivalent(reason.clone())
            }
            (Fate::Caught(by) | Fate::TimedOut(by), _) => Outcome::Caught(by),
            (Fate::Missed(why), None) => Outcome::Missed(why),
        }
    }

    /// Rows that are wrong: they name no mutant of the tree, or one that a test caught.
    pub(super) fn stale(&self, all: &[Mutant], rows: &[Row]) -> Vec<String> {
        let mut out = Vec::new();
        for key in self.rows.keys() {
            if !all.iter().any(|m| m.key == *key) {
                out.push(format!("`{key}` is listed as equivalent and is no mutant of the tree"));
            }
            for row in rows.iter().filter(|row| row.mutant.key == *key) {
                if let Outcome::Caught(by) = &row.outcome {
                    out.push(format!("`{key}` is listed as equivalent and was caught by {by}"));
                }
            }
        }
        out
    }
}

/// A report of all rows.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) seed: u64,
    pub(super) wanted: usize,
    pub(super) rows: Vec<Row>,
    pub(super) stale: Vec<String>,
    /// Packages that could not be tested here, with the reason.
    pub(super) skipped: Vec<String>,
}

impl Report {
    fn count(&self, is: fn(&Outcome) -> bool) -> usize {
        self.rows.iter().filter(|row| is(&row.outcome)).count()
    }

    fn caught(&self) -> usize {
        self.count(|o| matches!(o, Outcome::Caught(_)))
    }

    fn missed(&self) -> usize {
        self.count(|o| matches!(o, Outcome::Missed(_)))
    }

    /// The figures in one line.
    pub(super) fn figures(&self) -> String {
        let assessed = self.caught().saturating_add(self.missed());
        let tenths = self.caught().saturating_mul(1000).checked_div(assessed).unwrap_or(0);
        format!(
            "{} of {assessed} caught ({}.{} %), {} missed, {} equivalent; {} that do not compile and {} that are not built here were \
             replaced; {} needed a build of their own; seed {}",
            self.caught(),
            tenths.checked_div(10).unwrap_or(0),
            tenths.checked_rem(10).unwrap_or(0),
            self.missed(),
            self.count(|o| matches!(o, Outcome::Equivalent(_))),
            self.count(|o| *o == Outcome::Unviable),
            self.count(|o| *o == Outcome::Absent),
            self.rows.iter().filter(|row| row.alone).count(),
            self.seed,
        )
    }

    /// Prints what is missed once more, what is stale or skipped, and the figures.
    pub(super) fn print(&self) {
        println!();
        for row in self.rows.iter().filter(|r| matches!(r.outcome, Outcome::Missed(_))) {
            row.print();
        }
        for line in self.stale.iter().chain(&self.skipped) {
            println!("{line}");
        }
        println!("{}", self.figures());
    }

    /// Returns `true` if at least `percent` of those that were tested are caught, and the list is right.
    ///
    /// # Errors
    /// Why not.
    pub(super) fn assess(&self, percent: u8) -> Result<(), String> {
        let assessed = self.caught().saturating_add(self.missed());
        let equivalent = self.count(|o| matches!(o, Outcome::Equivalent(_)));
        if assessed == 0 {
            return Err("no mutant was tested".to_owned());
        }
        if assessed.saturating_add(equivalent) < self.wanted {
            println!("there are no more mutants than these: {} were asked for", self.wanted);
        }
        if let Some(first) = self.stale.first() {
            return Err(first.clone());
        }
        if self.caught().saturating_mul(100) < assessed.saturating_mul(usize::from(percent)) {
            return Err(format!("{}; {percent} % are wanted", self.figures()));
        }
        Ok(())
    }

    /// Writes it as JSON.
    ///
    /// # Errors
    /// Words.
    pub(super) fn write(&self, path: &Path) -> Result<(), String> {
        let rows: Vec<serde_json::Value> = self
            .rows
            .iter()
            .map(|row| {
                serde_json::json!({
                    "number": row.number, "name": row.mutant.name, "key": row.mutant.key, "package": row.mutant.package,
                    "outcome": row.outcome.word(), "detail": row.outcome.detail(), "own_build": row.alone,
                    "seconds": row.seconds,
                })
            })
            .collect();
        let json = serde_json::json!({
            "seed": self.seed, "sample": self.wanted, "caught": self.caught(), "missed": self.missed(),
            "figures": self.figures(), "stale": self.stale, "skipped": self.skipped, "mutants": rows,
        });
        std::fs::write(path, format!("{json:#}\n")).map_err(|e| format!("{}: {e}", path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::super::list::{Mutant, Place, Span};
    use super::super::run::Fate;
    use super::{Equivalents, Outcome, Report, Row};

    fn mutant(key: &str) -> Mutant {
        let place = Place { line: 1, column: 1 };
        Mutant {
            key: key.to_owned(),
            name: key.to_owned(),
            package: "a".to_owned(),
            file: "a.rs".to_owned(),
            function: None,
            span: Span { start: place, end: place },
            replacement: String::new(),
        }
    }

    fn row(key: &str, outcome: Outcome) -> Row {
        Row { number: 1, mutant: mutant(key), outcome, alone: false, seconds: 0.0 }
    }

    fn report(rows: Vec<Row>, stale: Vec<String>) -> Report {
        Report { seed: 1, wanted: rows.len(), rows, stale, skipped: Vec::new() }
    }

    #[test]
    fn a_listed_mutant_is_equivalent_unless_a_test_catches_it() {
        let list = Equivalents::read(
            "# head\na.rs: f => it is the same\na.rs: g => \na.rs: gone => why\n",
        );
        let missed = || Fate::Missed("nobody".to_owned());
        assert_eq!(
            list.outcome(&mutant("a.rs: f"), missed()),
            Outcome::Equivalent("it is the same".to_owned())
        );
        let without_reason = list.outcome(&mutant("a.rs: g"), missed());
        assert_eq!(without_reason, Outcome::Missed("nobody".to_owned()));
        let late = |key| list.outcome(&mutant(key), Fate::TimedOut("t".to_owned()));
        assert_eq!(late("a.rs: f"), Outcome::Equivalent("it is the same".to_owned()));
        assert_eq!(late("a.rs: other"), Outcome::Caught("t".to_owned()));
        let caught = list.outcome(&mutant("a.rs: f"), Fate::Caught("t".to_owned()));
        let all = [mutant("a.rs: f"), mutant("a.rs: g")];
        let stale = list.stale(&all, &[row("a.rs: f", caught)]);
        assert_eq!(stale.len(), 2, "{stale:?}");
        assert!(stale[0].contains("was caught by t") && stale[1].contains("a.rs: gone"));
        assert!(report(vec![row("x", Outcome::Caught(String::new()))], stale).assess(90).is_err());
    }

    #[test]
    fn the_figure_counts_what_was_tried_and_nothing_tried_is_no_pass() {
        let caught = |n: usize| vec![row("x", Outcome::Caught(String::new())); n];
        let of = |n: usize, more: &[Outcome]| {
            let mut rows = caught(n);
            rows.extend(more.iter().map(|o| row("y", o.clone())));
            report(rows, Vec::new())
        };
        let missed = Outcome::Missed(String::new());
        assert!(of(9, std::slice::from_ref(&missed)).assess(90).is_ok());
        assert!(of(8, std::slice::from_ref(&missed)).assess(90).is_err(), "88.8 %");
        let others = [Outcome::Unviable, Outcome::Absent, Outcome::Equivalent(String::new())];
        assert!(of(0, &others).assess(0).is_err());
        let figures = of(8, &[missed]).figures();
        assert!(figures.starts_with("8 of 9 caught (88.8 %), 1 missed, 0 equivalent"), "{figures}");
    }
}
