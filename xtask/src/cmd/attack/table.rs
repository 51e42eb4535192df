//! What the rows of `cargo xtask attack` came to: read of their processes, assessed, printed.

use crate::shell;
use crate::step_result::Counts;
use crate::verdict::Verdict;
use serde_json::{Value, json};
use std::time::Duration;

/// A row, as the program lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) name: String,
    pub(super) document: String,
    pub(super) mutant: String,
    pub(super) promise: String,
}

/// How a row ended in one build.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum End {
    Held,
    Broken,
    Skipped,
    /// The attack could not be made.
    Unmade,
}

/// One run of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) end: End,
    pub(super) attempts: u64,
    pub(super) seen: String,
    pub(super) time: Duration,
}

/// A row with its runs: without and with its bug. Without the latter if it was skipped.
pub(super) struct Tried {
    pub(super) row: Row,
    pub(super) plain: Run,
    pub(super) planted: Option<Run>,
}

/// Reads a line of the list.
pub(super) fn row(line: &str) -> Option<Row> {
    let mut words = line.split('\t').map(str::to_owned);
    let mut next = || words.next().filter(|word| !word.is_empty());
    Some(Row { name: next()?, document: next()?, mutant: next()?, promise: next()? })
}

/// The result of a process.
pub(super) fn read(out: &shell::Outcome) -> (End, u64, String) {
    if let Some((end, attempts, seen)) = out.stdout.lines().rev().find_map(outcome)
        && out.success
    {
        return (end, attempts, seen);
    }
    // Where it panicked, and with which words; else its last words.
    let lines: Vec<&str> = out.stderr.lines().filter(|l| !l.trim().is_empty()).collect();
    let at = lines.iter().rposition(|l| l.contains(" panicked at "));
    let at = at.unwrap_or(lines.len().saturating_sub(1));
    let said: Vec<&str> = lines.iter().skip(at).take(2).copied().collect();
    let said = said.join(" ");
    match (out.timed_out, out.code) {
        (true, _) | (false, None) => (End::Broken, 0, format!("{} {said}", out.why())),
        (false, Some(_)) => (End::Unmade, 0, format!("{} {said}", out.why())),
    }
}

/// Reads the line in which a process reports the result of its row.
fn outcome(line: &str) -> Option<(End, u64, String)> {
    let mut words = line.strip_prefix("outcome\t")?.splitn(3, '\t');
    let (word, attempts) = (words.next()?, words.next()?.parse().ok()?);
    let end = match word {
        // Nothing that was not tried has held.
        "held" if attempts == 0 => End::Unmade,
        "held" => End::Held,
        "broken" => End::Broken,
        "skipped" => End::Skipped,
        _ => return None,
    };
    Some((end, attempts, words.next()?.to_owned()))
}

/// What both runs of a row come to.
fn assess(tried: &Tried) -> Verdict {
    let Tried { row, plain, planted } = tried;
    let Some(planted) = planted else {
        return Verdict::skipped(plain.seen.clone(), "a machine that has it");
    };
    let bug = &row.mutant;
    match (&plain.end, &planted.end) {
        (End::Held, End::Broken) => Verdict::Passed,
        (End::Held, End::Held) => {
            Verdict::failed(format!("it cannot fail: it held although {bug} was planted"))
        }
        (End::Held, _) => Verdict::failed(format!("not made beside {bug}: {}", planted.seen)),
        (End::Broken, _) => Verdict::failed(format!("BROKEN: {}", plain.seen)),
        (End::Skipped | End::Unmade, _) => Verdict::failed(format!("not made: {}", plain.seen)),
    }
}

const fn word(end: &End) -> &'static str {
    match end {
        End::Held => "held",
        End::Broken => "broken",
        End::Skipped => "skipped",
        End::Unmade => "not made",
    }
}

/// Prints the table, and counts.
pub(super) fn print(table: &[Tried]) -> Counts {
    let mut counts = Counts::default();
    println!(
        "{:<24} {:>9} {:<9} {:<20} {:<9} {:>6}",
        "row", "attempts", "", "planted bug", "beside it", "s"
    );
    for tried in table {
        let Tried { row, plain, planted } = tried;
        let beside = planted.as_ref().map_or("", |run| word(&run.end));
        let time = planted.as_ref().map_or(plain.time, |p| p.time.saturating_add(plain.time));
        println!(
            "{:<24} {:>9} {:<9} {:<20} {:<9} {:>6.1}",
            row.name,
            plain.attempts,
            word(&plain.end),
            row.mutant,
            beside,
            time.as_secs_f64()
        );
        println!("    {}: \"{}\"", row.document, row.promise);
        println!("    {}", plain.seen);
        if let Some(planted) = planted {
            println!("    beside {}: {}", row.mutant, planted.seen);
        }
        let (place, verdict) = match assess(tried) {
            Verdict::Passed => (&mut counts.passed, None),
            verdict @ Verdict::Skipped { .. } => (&mut counts.skipped, Some(verdict)),
            verdict @ Verdict::Failed(_) => (&mut counts.failed, Some(verdict)),
        };
        *place = place.saturating_add(1);
        if let Some(verdict) = verdict {
            println!("    {}: {}", verdict.word(), verdict.detail());
        }
    }
    counts
}

fn of_run(run: &Run) -> Value {
    json!({
        "outcome": word(&run.end), "attempts": run.attempts, "seen": run.seen,
        "seconds": run.time.as_secs_f64(),
    })
}

/// The table as JSON.
pub(super) fn table(tried: &[Tried], seed: u64) -> Value {
    let rows: Vec<Value> = tried
        .iter()
        .map(|t| {
            json!({
                "row": t.row.name, "promise": t.row.promise, "document": t.row.document,
                "verdict": assess(t).word(), "detail": assess(t).detail(),
                "run": of_run(&t.plain), "planted_bug": t.row.mutant,
                "run_beside_it": t.planted.as_ref().map(of_run),
            })
        })
        .collect();
    json!({ "seed": seed, "rows": rows })
}

#[cfg(test)]
mod tests {
    use super::{End, Row, Run, Tried, assess, outcome, read, row, table};
    use crate::shell::Outcome;
    use crate::verdict::Verdict;
    use std::time::Duration;

    fn a_row() -> Row {
        row("name\tdoc.md\tBug\tit is so").unwrap()
    }

    fn run(end: End) -> Run {
        Run { end, attempts: 3, seen: "seen".to_owned(), time: Duration::ZERO }
    }

    fn tried(plain: End, planted: Option<End>) -> Tried {
        Tried { row: a_row(), plain: run(plain), planted: planted.map(run) }
    }

    #[test]
    fn only_a_row_that_can_fail_passes() {
        let passes = |plain, planted| assess(&tried(plain, planted)) == Verdict::Passed;
        assert!(passes(End::Held, Some(End::Broken)));
        for (plain, planted) in [
            (End::Held, Some(End::Held)),
            (End::Held, Some(End::Unmade)),
            (End::Held, Some(End::Skipped)),
            (End::Broken, Some(End::Broken)),
            (End::Unmade, Some(End::Broken)),
        ] {
            assert!(matches!(assess(&tried(plain, planted)), Verdict::Failed(_)));
        }
        let skipped = assess(&tried(End::Skipped, None));
        assert!(matches!(skipped, Verdict::Skipped { .. }), "{skipped:?}");
    }

    fn ended(code: Option<i32>, timed_out: bool, stdout: &str) -> End {
        let success = code == Some(0) && !timed_out;
        let stdout = stdout.to_owned();
        read(&Outcome { success, code, timed_out, stdout, stderr: String::new() }).0
    }

    #[test]
    fn a_process_that_crashes_or_hangs_has_broken_its_promise_and_a_panic_has_not() {
        assert_eq!(ended(None, false, ""), End::Broken);
        assert_eq!(ended(None, true, ""), End::Broken);
        assert_eq!(ended(Some(101), false, ""), End::Unmade);
        assert_eq!(ended(Some(0), false, ""), End::Unmade, "it said nothing");
        assert_eq!(ended(Some(0), false, "outcome\theld\t0\tnothing\n"), End::Unmade);
        assert_eq!(ended(Some(0), false, "x\noutcome\theld\t2\ta b\n"), End::Held);
        // Its output before a crash does not count.
        assert_eq!(ended(None, false, "outcome\theld\t2\ta b\n"), End::Broken);
        assert_eq!(outcome("outcome\tfine\t2\ta"), None);
    }

    #[test]
    fn the_words_of_a_panic_are_shown() {
        let stderr =
            "thread 'main' (1) panicked at a.rs:1:1:\nno space\nnote: run with\n".to_owned();
        let stdout = String::new();
        let out = Outcome { success: false, code: Some(101), timed_out: false, stdout, stderr };
        let said = read(&out).2;
        assert!(said.contains("a.rs:1:1") && said.ends_with("no space"), "{said}");
    }

    #[test]
    fn the_table_has_both_runs_of_each_row() {
        let text = table(&[tried(End::Held, Some(End::Held))], 7).to_string();
        for part in ["\"seed\":7", "\"verdict\":\"FAILED\"", "cannot fail", "\"attempts\":3"] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
    }
}
