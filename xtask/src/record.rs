//! The results of the steps of an earlier run, in a file: a later run executes only the steps that could not run then.

use crate::step_result::{Counts, Line, StepResult};
use crate::verdict::Verdict;
use std::path::Path;
use std::time::Duration;

/// Writes a table, one JSON object a line.
///
/// # Errors
/// Words, when the file cannot be written.
pub(crate) fn write(path: &Path, table: &[Line]) -> Result<(), String> {
    let text: String = table.iter().map(|line| format!("{}\n", json(line))).collect();
    std::fs::write(path, text).map_err(|e| format!("{}: {e}", path.display()))
}

/// The lines of a table that was written.
///
/// # Errors
/// Words, when it is no such table.
pub(crate) fn read(path: &Path) -> Result<Vec<Line>, String> {
    let text = std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
    let odd = |line: &str| format!("{}: `{line}` is no step of a test run", path.display());
    text.lines().map(|line| parse(line).ok_or_else(|| odd(line))).collect()
}

fn json(line: &Line) -> serde_json::Value {
    let (reason, remedy) = match &line.result.verdict {
        Verdict::Passed => ("", ""),
        Verdict::Failed(why) => (why.as_str(), ""),
        Verdict::Skipped { reason, remedy } => (reason.as_str(), remedy.as_str()),
    };
    let counts = line.result.counts;
    serde_json::json!({
        "step": line.name, "verdict": line.result.verdict.word(), "reason": reason, "remedy": remedy,
        "passed": counts.passed, "failed": counts.failed, "skipped": counts.skipped, "seconds": line.time.as_secs_f64(),
    })
}

fn parse(line: &str) -> Option<Line> {
    let json: serde_json::Value = serde_json::from_str(line).ok()?;
    let text = |key: &str| Some(json.get(key)?.as_str()?.to_owned());
    let number = |key: &str| json.get(key)?.as_u64();
    let verdict = match text("verdict")?.as_str() {
        "passed" => Verdict::Passed,
        "FAILED" => Verdict::Failed(text("reason")?),
        "skipped" => Verdict::skipped(text("reason")?, text("remedy")?),
        _ => return None,
    };
    let counts = Counts {
        passed: number("passed")?,
        failed: number("failed")?,
        skipped: number("skipped")?,
    };
    let time = Duration::try_from_secs_f64(json.get("seconds")?.as_f64()?).ok()?;
    Some(Line { name: text("step")?, result: StepResult { verdict, counts }, time })
}

#[cfg(test)]
mod tests {
    use super::{json, parse};
    use crate::step_result::{Counts, Line, StepResult};
    use crate::verdict::Verdict;
    use std::time::Duration;

    #[test]
    fn a_step_is_read_as_it_was_written() {
        let counts = Counts { passed: 3, failed: 1, skipped: 2 };
        for verdict in
            [Verdict::Passed, Verdict::failed("why"), Verdict::skipped("no x", "install x")]
        {
            let result = StepResult { verdict: verdict.clone(), counts };
            let line =
                Line { name: "a step".to_owned(), result, time: Duration::from_millis(1500) };
            let read = parse(&json(&line).to_string()).unwrap();
            assert_eq!((read.result.verdict, read.result.counts), (verdict, counts));
            assert_eq!((read.name, read.time), (line.name, line.time));
        }
        assert!(parse("{}").is_none() && parse("nothing").is_none());
    }
}
