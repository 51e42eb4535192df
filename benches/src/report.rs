//! The report of a run: the lines of all rows, as a table and as JSON.

use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

use crate::context::Context;
use crate::error::{Res, text};
use crate::line::Line;
use crate::row::Row;

/// The lines of a row. One that failed, or has none, is a line that says why.
fn lines_of(row: &dyn Row, measured: Res<Vec<Line>>) -> Vec<Line> {
    let why = match measured {
        Ok(lines) if !lines.is_empty() => return lines,
        Ok(_) => "it gave no line".to_owned(),
        Err(why) => why,
    };
    vec![Line::missing(row.name(), row.unit(), why)]
}

/// All lines of a run.
#[derive(Debug)]
pub(crate) struct Report {
    lines: Vec<(&'static str, Line)>,
}

impl Report {
    pub(crate) fn new() -> Self {
        println!("{}", Line::heading());
        Self { lines: Vec::new() }
    }

    /// Runs a row and prints its lines.
    pub(crate) fn row(&mut self, row: &dyn Row, context: &Context) {
        for line in lines_of(row, row.run(context)) {
            println!("{}", line.table());
            self.lines.push((row.name(), line));
        }
    }

    /// Writes one JSON object a line, or adds them to the lines that are there.
    pub(crate) fn write_json(&self, path: &Path, add: bool) -> Res<()> {
        let mut file = std::fs::File::options()
            .create(true)
            .write(true)
            .append(add)
            .truncate(!add)
            .open(path)
            .map_err(|e| format!("{}: {e}", path.display()))?;
        for (row, line) in &self.lines {
            writeln!(file, "{}", line.json(row)).map_err(text)?;
        }
        Ok(())
    }

    /// Says how many targets were met. A strict run fails by a miss, by a line without its number, and where nothing had a
    /// target.
    pub(crate) fn conclude(&self, strict: bool) -> ExitCode {
        let results: Vec<bool> = self.lines.iter().filter_map(|(_, l)| l.met()).collect();
        let met = results.iter().filter(|m| **m).count();
        let missing = self.lines.iter().filter(|(_, l)| !l.was_measured()).count();
        println!("{met} of {} targets met, {missing} rows not measured", results.len());
        if strict && (met < results.len() || missing > 0 || results.is_empty()) {
            return ExitCode::FAILURE;
        }
        ExitCode::SUCCESS
    }
}

#[cfg(test)]
mod tests {
    use super::{Line, Report, lines_of};
    use crate::line::Target;
    use std::process::ExitCode;

    #[test]
    fn strict_fails_on_a_miss_and_on_a_gap() {
        let code = |lines: Vec<Line>| {
            let report = Report { lines: lines.into_iter().map(|l| ("row", l)).collect() };
            (report.conclude(true), report.conclude(false))
        };
        let good = Line::value("x", 1.0, "ns", Some(2.0));
        let (strict, lax) = code(vec![good.clone()]);
        assert_eq!((strict, lax), (ExitCode::SUCCESS, ExitCode::SUCCESS));
        let (strict, lax) = code(vec![good.clone(), Line::value("y", 3.0, "ns", Some(2.0))]);
        assert_eq!((strict, lax), (ExitCode::FAILURE, ExitCode::SUCCESS));
        let (strict, _) = code(vec![good, Line::missing("z", "ns", "why")]);
        assert_eq!(strict, ExitCode::FAILURE);
    }

    #[test]
    fn strict_fails_without_a_number_to_compare() {
        let code = |lines: Vec<Line>| {
            Report { lines: lines.into_iter().map(|l| ("row", l)).collect() }.conclude(true)
        };
        let good = Line::value("x", 1.0, "ns", Some(2.0));
        assert_eq!(code(vec![good.clone()]), ExitCode::SUCCESS);
        let at_least = Some(Target::RatioAtLeast(0.9));
        for bad in [
            Line::not_compared("y", 422.0, "", 0.02, "instructions.txt: no such file"),
            Line::value("y", f64::NAN, "ns", None),
            Line::value("y", f64::NEG_INFINITY, "ns", Some(2.0)),
            // A reference of nothing: the ratio is beyond every bound.
            Line::ratio("y", 1.0, 0.0, "us", at_least),
        ] {
            assert_eq!(code(vec![good.clone(), bad.clone()]), ExitCode::FAILURE, "{bad:?}");
        }
        let untold = Line::value("x", 1.0, "ns", None);
        assert_eq!(code(vec![untold]), ExitCode::FAILURE, "nothing had a target");
        assert_eq!(code(Vec::new()), ExitCode::FAILURE, "no row");
    }

    #[test]
    fn a_row_without_lines_is_not_measured() {
        let rows = crate::rows::all();
        let lines = lines_of(rows[0].as_ref(), Ok(Vec::new()));
        assert_eq!(lines.len(), 1);
        assert!(!lines[0].was_measured());
    }
}
