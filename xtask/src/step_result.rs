//! The result of a step of a test run: a verdict, and the numbers of passed, failed and skipped tests.

use crate::failures;
use crate::shell::{self, Outcome};
use crate::verdict::Verdict;
use std::process::Command;
use std::time::{Duration, Instant};

/// Numbers of `test result` lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    pub(crate) skipped: u64,
}

/// The result of a step.
pub(crate) struct StepResult {
    pub(crate) verdict: Verdict,
    pub(crate) counts: Counts,
}

impl From<Verdict> for StepResult {
    fn from(verdict: Verdict) -> Self {
        Self { verdict, counts: Counts::default() }
    }
}

impl StepResult {
    /// The answer for both; it failed if either did, and was skipped if either was.
    pub(crate) fn and(self, other: Self) -> Self {
        let sum = |a: u64, b: u64| a.saturating_add(b);
        let (a, b) = (self.counts, other.counts);
        let verdict = match (self.verdict, other.verdict) {
            (Verdict::Passed, other) => other,
            (Verdict::Skipped { .. }, failed @ Verdict::Failed(_)) => failed,
            (first, _) => first,
        };
        Self {
            verdict,
            counts: Counts {
                passed: sum(a.passed, b.passed),
                failed: sum(a.failed, b.failed),
                skipped: sum(a.skipped, b.skipped),
            },
        }
    }
}

/// A line of the summary.
pub(crate) struct Line {
    pub(crate) name: String,
    pub(crate) result: StepResult,
    pub(crate) time: Duration,
}

impl Line {
    /// Runs a step, with a heading, and prints its result.
    pub(crate) fn of(name: String, run: impl FnOnce() -> StepResult) -> Self {
        println!("\n=== {name} ===");
        let begun = Instant::now();
        let result = run();
        println!("--- {name}: {} {}", result.verdict.word(), result.verdict.detail());
        Self { name, result, time: begun.elapsed() }
    }
}

/// Prints the table of all steps, what did not pass with its reason, and the sum, which it gives.
pub(crate) fn summary(table: &[Line]) -> Counts {
    println!(
        "\n{:<26} {:<8} {:>7}  {:>6} {:>6} {:>7}",
        "step", "verdict", "seconds", "passed", "failed", "skipped"
    );
    for Line { name, result, time } in table {
        let c = result.counts;
        println!(
            "{name:<26} {:<8} {:>7.1}  {:>6} {:>6} {:>7}",
            result.verdict.word(),
            time.as_secs_f64(),
            c.passed,
            c.failed,
            c.skipped
        );
    }
    for Line { name, result, .. } in table {
        if result.verdict != Verdict::Passed {
            println!("{name}: {} {}", result.verdict.word(), result.verdict.detail());
        }
    }
    let total = sum(table.iter().map(|line| &line.result));
    println!("{} passed, {} failed, {} skipped", total.passed, total.failed, total.skipped);
    total
}

/// The verdict of all steps; `missing` if one of them was skipped.
pub(crate) fn verdict(total: Counts, missing: bool) -> Verdict {
    if total.failed != 0 {
        return Verdict::failed("some suites failed");
    }
    if missing {
        return Verdict::skipped("not every suite could run", "each reason above names its remedy");
    }
    if total.passed == 0 {
        return Verdict::failed("no test was run");
    }
    Verdict::Passed
}

/// The numbers of all steps. A step that failed or was skipped as a whole counts as one.
fn sum<'a>(results: impl Iterator<Item = &'a StepResult>) -> Counts {
    results.fold(Counts::default(), |mut total, result| {
        let mut c = result.counts;
        match result.verdict {
            Verdict::Failed(_) if c.failed == 0 => c.failed = 1,
            Verdict::Skipped { .. } => c.skipped = c.skipped.saturating_add(1),
            _ => {}
        }
        total.passed = total.passed.saturating_add(c.passed);
        total.failed = total.failed.saturating_add(c.failed);
        total.skipped = total.skipped.saturating_add(c.skipped);
        total
    })
}

/// Runs a `cargo test` and adds up its results.
pub(crate) fn tests(command: &mut Command, limit: Duration) -> StepResult {
    match shell::stream(command, limit) {
        Ok(out) => {
            let counts = count(&out.stdout);
            let verdict = if out.success { ran(&out.stdout) } else { failed(&out) };
            StepResult { verdict, counts }
        }
        Err(why) => Verdict::Failed(why).into(),
    }
}

/// A run of tests that failed: its exit, and the failed tests with their output.
fn failed(out: &Outcome) -> Verdict {
    Verdict::Failed(out.why() + &failures::of(&out.stdout))
}

/// What the output of a `cargo test` shows that ended with status 0: a run in which no test passed is no pass.
fn ran(text: &str) -> Verdict {
    let counts = count(text);
    match counts.passed {
        0 if text.contains(SKIPPED) => {
            Verdict::skipped("no test could run here", "see the lines `SKIPPED: ..` above")
        }
        0 => Verdict::failed(format!("no test was run; {} are ignored", counts.skipped)),
        _ => Verdict::Passed,
    }
}

/// As [`tests`], of a command that runs several programs of tests: in each of the `programs` a test passed.
pub(crate) fn tests_of_each(command: &mut Command, programs: usize, limit: Duration) -> Verdict {
    match shell::stream(command, limit) {
        Ok(out) if out.success => each_ran(&out.stdout, programs),
        Ok(out) => failed(&out),
        Err(why) => Verdict::Failed(why),
    }
}

fn each_ran(text: &str, programs: usize) -> Verdict {
    let results: Vec<Counts> =
        text.lines().filter(|line| line.contains(RESULT)).map(count).collect();
    let empty = results.iter().filter(|counts| counts.passed == 0).count();
    match ran(text) {
        Verdict::Passed if results.len() != programs => {
            Verdict::failed(format!("{} programs of tests were run, not {programs}", results.len()))
        }
        Verdict::Passed if empty > 0 => {
            Verdict::failed(format!("no test was run in {empty} of {programs} programs of tests"))
        }
        other => other,
    }
}

/// Runs pytest and reads its summary.
pub(crate) fn pytest(command: &mut Command, limit: Duration) -> StepResult {
    match shell::stream(command, limit) {
        Ok(out) => pytest_result(&out),
        Err(why) => Verdict::Failed(why).into(),
    }
}

/// The result of a pytest that ended.
pub(crate) fn pytest_result(out: &Outcome) -> StepResult {
    let counts = count_pytest(&out.stdout);
    let verdict = match (out.success, counts.passed) {
        (false, _) => failed(out),
        (true, 0) => Verdict::failed("no test was run"),
        (true, _) => Verdict::Passed,
    };
    StepResult { verdict, counts }
}

/// Reads a line such as `3 failed, 90 passed, 2 skipped, 1 error in 12.34s`.
fn count_pytest(text: &str) -> Counts {
    let is_summary = |line: &&str| line.contains(" in ") && line.contains(" passed");
    let line = text.lines().rev().find(is_summary).unwrap_or_default();
    let number = |word: &str| {
        let (before, _) = line.split_once(word)?;
        before.split(|c: char| !c.is_ascii_digit()).rfind(|n| !n.is_empty())?.parse::<u64>().ok()
    };
    let failed = number(" failed").unwrap_or(0).saturating_add(number(" error").unwrap_or(0));
    Counts {
        passed: number(" passed").unwrap_or(0),
        failed,
        skipped: number(" skipped").unwrap_or(0),
    }
}

/// The mark by which a test reports that it did not run here, with the reason. Its harness counts it as passed.
const SKIPPED: &str = "SKIPPED: ";

/// The mark by which a test reports how many of its cases it skipped, `SKIPPED CASES: 3 of ..`.
const CASES: &str = "SKIPPED CASES: ";

/// How a program of tests begins its last line.
const RESULT: &str = "test result: ";

/// Adds up lines such as `test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; ..`.
pub(crate) fn count(text: &str) -> Counts {
    let mut total = Counts::default();
    let mut unrun: u64 = 0;
    for line in text.lines() {
        if line.contains(SKIPPED) {
            unrun = unrun.saturating_add(1);
        }
        if let Some((_, cases)) = line.split_once(CASES) {
            // The test is a pass, and each of its cases that was skipped is a skip.
            let n = cases.split(' ').next().and_then(|n| n.parse().ok()).unwrap_or(1);
            total.skipped = total.skipped.saturating_add(n);
        }
        // A test that prints without a line end may stand before it.
        let Some((_, result)) = line.split_once(RESULT) else {
            continue;
        };
        let number = |word: &str| {
            let (before, _) = result.split_once(word)?;
            before.split_whitespace().next_back()?.parse::<u64>().ok()
        };
        total.passed = total.passed.saturating_add(number(" passed").unwrap_or(0));
        total.failed = total.failed.saturating_add(number(" failed").unwrap_or(0));
        total.skipped = total.skipped.saturating_add(number(" ignored").unwrap_or(0));
    }
    total.passed = total.passed.saturating_sub(unrun);
    total.skipped = total.skipped.saturating_add(unrun);
    total
}

#[cfg(test)]
mod tests {
    use super::{Counts, StepResult, count, count_pytest, each_ran, ran, sum, verdict};
    use crate::verdict::Verdict;

    #[test]
    fn results_are_added_up() {
        let text = "running 3 tests\ntest result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 2 filtered out; finished in 0.00s\n\
            test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out\n";
        assert_eq!(count(text), Counts { passed: 13, failed: 2, skipped: 1 });
        assert_eq!(count("nothing"), Counts::default());
    }

    #[test]
    fn a_run_in_which_no_test_passed_is_no_pass() {
        let result = |passed, ignored| {
            format!("test result: ok. {passed} passed; 0 failed; {ignored} ignored; 0 measured\n")
        };
        assert_eq!(ran(&result(1, 3)), Verdict::Passed);
        assert!(matches!(ran("Finished\n"), Verdict::Failed(_)));
        assert!(matches!(ran(&result(0, 0)), Verdict::Failed(_)));
        assert!(matches!(ran(&result(0, 3)), Verdict::Failed(_)), "all are ignored");
        let skipped = format!("SKIPPED: no right to\n{}", result(1, 0));
        assert!(matches!(ran(&skipped), Verdict::Skipped { .. }));
    }

    #[test]
    fn every_program_of_tests_has_to_run_one() {
        let result = |passed| format!("test result: ok. {passed} passed; 0 failed; 0 ignored\n");
        assert_eq!(each_ran(&(result(1) + &result(2)), 2), Verdict::Passed);
        for text in [result(1), result(1) + &result(0), result(0) + &result(0), String::new()] {
            assert!(matches!(each_ran(&text, 2), Verdict::Failed(_)), "{text}");
        }
    }

    #[test]
    fn the_summary_of_pytest_is_read() {
        let text = "....\n==== 3 failed, 90 passed, 2 skipped, 1 error in 12.34s ====\n";
        assert_eq!(count_pytest(text), Counts { passed: 90, failed: 4, skipped: 2 });
        assert_eq!(count_pytest("7 passed in 0.1s\n"), Counts { passed: 7, failed: 0, skipped: 0 });
        assert_eq!(count_pytest("no tests ran in 0.1s"), Counts::default());
    }

    #[test]
    fn a_test_that_says_it_was_not_run_is_no_pass() {
        let text = "test a ... \nSKIPPED: no right to\nok\ntest b ... ok\n\
            test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out\n";
        assert_eq!(count(text), Counts { passed: 1, failed: 0, skipped: 1 });
    }

    #[test]
    fn a_failure_beside_a_skip_is_a_failure() {
        let (broken, missing) = (Verdict::failed("broken"), Verdict::skipped("a", "b"));
        let of = |one: &Verdict, other: &Verdict| {
            StepResult::from(one.clone()).and(StepResult::from(other.clone())).verdict
        };
        assert_eq!(of(&missing, &broken), broken);
        assert_eq!(of(&broken, &missing), broken);
        assert_eq!(of(&missing, &Verdict::Passed), missing);
        assert_eq!(of(&Verdict::Passed, &missing), missing);
        assert_eq!(of(&Verdict::Passed, &Verdict::Passed), Verdict::Passed);
    }

    #[test]
    fn cases_that_a_test_skipped_are_added_and_the_test_is_a_pass() {
        let text = "SKIPPED CASES: 2 of Loopback: a (x), b (y)\ntest a ... ok\n\
            SKIPPED CASES: 1 of tcp: c (z)\n\
            test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out\n";
        assert_eq!(count(text), Counts { passed: 2, failed: 0, skipped: 4 });
    }

    #[test]
    fn a_skipped_suite_is_never_a_pass() {
        let counts = |failed| Counts { passed: 3, failed, skipped: 0 };
        assert_eq!(verdict(counts(0), false), Verdict::Passed);
        assert!(matches!(verdict(counts(0), true), Verdict::Skipped { .. }));
        assert!(matches!(verdict(counts(1), true), Verdict::Failed(_)));
    }

    #[test]
    fn a_run_without_a_pass_is_none() {
        assert!(matches!(verdict(Counts::default(), false), Verdict::Failed(_)));
    }

    #[test]
    fn a_step_that_failed_without_a_failed_test_is_not_lost() {
        let broken = StepResult::from(Verdict::failed("does not build"));
        let missing = StepResult::from(Verdict::skipped("a", "b"));
        let red = StepResult {
            verdict: Verdict::failed("x"),
            counts: Counts { passed: 5, failed: 2, skipped: 0 },
        };
        let total = sum([&broken, &missing, &red].into_iter());
        assert_eq!(total, Counts { passed: 5, failed: 3, skipped: 1 });
    }
}
