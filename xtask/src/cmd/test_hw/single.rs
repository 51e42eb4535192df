//! Tests one by one, each in a process of its own, and what each moved over the transport under test.
//!
//! A test writes the transport and the bytes of each of its links to a file (`hmc_tests::links`). It counts as passed only
//! if that transport moved bytes for it and no link used another transport in its place. What has no such bytes is a failure,
//! unless it is listed as one that needs none; that one is counted apart, not as a pass.

use crate::shell::{self, Outcome};
use crate::step_result::{Counts, StepResult, count};
use crate::verdict::Verdict;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Names the file that a test records its links in.
const LINKS: &str = "HMC_TEST_LINKS";

/// Which tests of a program run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Which {
    /// Those that `cargo test` shows as ignored.
    Ignored,
    /// All of them.
    All,
}

/// A transport under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Over {
    /// Its name in the records of links.
    pub(super) conn: &'static str,
    /// Its name in messages.
    pub(super) name: &'static str,
}

/// UCX.
pub(super) const UCX: Over = Over { conn: "ucx", name: "UCX" };
/// RDMA verbs.
pub(super) const RDMA: Over = Over { conn: "rdma", name: "RDMA" };

/// Programs of tests that run with one environment.
pub(super) struct Run<'a> {
    /// The transport under test.
    pub(super) over: Over,
    /// The root of the project.
    pub(super) root: &'a Path,
    /// Names of the programs.
    pub(super) programs: &'a [&'a str],
    /// Which of their tests.
    pub(super) which: Which,
    /// Variables that are set, or unset, for them.
    pub(super) environment: Vec<(&'static str, Option<std::ffi::OsString>)>,
    /// The only tests `program::name` that run; if empty, all that the other lists leave.
    pub(super) only: &'a [&'a str],
    /// Tests `program::name` that are about other transports: they do not run here.
    pub(super) elsewhere: Vec<&'a str>,
    /// Tests that cannot run here, each with the reason: they count as skipped.
    pub(super) unfit: &'a [(&'a str, &'a str)],
    /// Tests that need the transport and move nothing over it: they run, and are no pass.
    pub(super) without_bytes: &'a [&'a str],
    /// Time for one test.
    pub(super) limit: Duration,
    /// The end of the time for all: what has not begun by then fails.
    pub(super) until: Option<Instant>,
}

/// A test that was run.
pub(super) struct Tested {
    /// `program::name`.
    pub(super) name: String,
    /// Its result.
    pub(super) seen: Seen,
    /// The time that it took.
    pub(super) time: Duration,
}

/// The result of a test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// The transport moved so many bytes, and so many cases of it were skipped.
    Moved { bytes: u64, cases: u64 },
    /// As its listing says, none.
    WithoutBytes,
    /// It reported that it could not run.
    Skipped,
    /// Why it is no pass.
    Failed(String),
}

impl Run<'_> {
    /// Builds the programs and runs their tests.
    pub(super) fn tests(&self) -> StepResult {
        let built = build(self.root, self.programs);
        match built.and_then(|built| self.run_all(&built)) {
            Ok(tested) => self.summed(&tested),
            Err(why) => Verdict::Failed(why).into(),
        }
    }

    /// Runs the tests of programs that are built.
    pub(super) fn run_all(&self, built: &[(String, PathBuf)]) -> Result<Vec<Tested>, String> {
        let mut names = Vec::new();
        for (program, path) in built {
            for name in self.listed(path)? {
                names.push((format!("{program}::{name}"), path, name));
            }
        }
        let known: Vec<&str> = names.iter().map(|(full, ..)| full.as_str()).collect();
        stale(&known, self.only)?;
        stale(&known, &self.elsewhere)?;
        stale(&known, self.without_bytes)?;
        let unfit: Vec<&str> = self.unfit.iter().map(|(name, _)| *name).collect();
        stale(&known, &unfit)?;
        let mut tested = Vec::new();
        for (full, path, name) in &names {
            if let Some((_, why)) = self.unfit.iter().find(|(unfit, _)| unfit == full) {
                println!("--- {full}: skipped: {why}");
                let (name, seen) = (full.clone(), Seen::Skipped);
                tested.push(Tested { name, seen, time: Duration::ZERO });
            } else if self.is_wanted(full) {
                let begun = Instant::now();
                let seen = self.one(path, name, self.without_bytes.contains(&full.as_str()))?;
                let one = Tested { name: full.clone(), seen, time: begun.elapsed() };
                println!("--- {full}: {} ({:.1} s)", self.words(&one.seen), one.time.as_secs_f64());
                tested.push(one);
            }
        }
        tested.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(tested)
    }

    /// Whether a test is about this transport and among those that run.
    fn is_wanted(&self, test: &str) -> bool {
        let is_listed = self.only.is_empty() || self.only.contains(&test);
        is_listed && !self.elsewhere.contains(&test)
    }

    /// The tests of a program.
    fn listed(&self, program: &Path) -> Result<Vec<String>, String> {
        let mut command = Command::new(program);
        command.args(["--list", "--format", "terse"]);
        if self.which == Which::Ignored {
            command.arg("--ignored");
        }
        let out = shell::capture(&mut command)?;
        if !out.success {
            return Err(format!("`{}`: {}", shell::shown(&command), out.why()));
        }
        Ok(out.stdout.lines().filter_map(|l| l.strip_suffix(": test")).map(str::to_owned).collect())
    }

    fn one(&self, program: &Path, name: &str, without_bytes: bool) -> Result<Seen, String> {
        let left = self.until.map(|until| until.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            return Ok(Seen::Failed("not run: the time of the run was over".to_owned()));
        }
        let limit = left.map_or(self.limit, |left| left.min(self.limit));
        let links = self.root.join("target/test-hw").join(format!("links-{}", std::process::id()));
        let text = |e: std::io::Error| format!("{}: {e}", links.display());
        std::fs::create_dir_all(links.parent().unwrap_or(self.root)).map_err(text)?;
        // There, and empty: a test without links is one whose file is empty.
        std::fs::write(&links, "").map_err(text)?;
        let mut command = Command::new(program);
        command.args([name, "--exact", "--include-ignored", "--nocapture", "--test-threads=1"]);
        command.current_dir(self.root.join("tests")).env(LINKS, &links);
        for (variable, value) in &self.environment {
            match value {
                Some(value) => command.env(variable, value),
                None => command.env_remove(variable),
            };
        }
        let out = shell::stream(&mut command, limit)?;
        let record = std::fs::read_to_string(&links).map_err(text)?;
        std::fs::remove_file(&links).map_err(text)?;
        Ok(assess(self.over, &out, &record, without_bytes))
    }

    fn words(&self, seen: &Seen) -> String {
        let name = self.over.name;
        match seen {
            Seen::Moved { bytes, .. } => format!("passed, {bytes} bytes over {name}"),
            Seen::WithoutBytes => {
                format!("as it should, without bytes over {name}; not counted")
            }
            Seen::Skipped => "skipped, see above".to_owned(),
            Seen::Failed(why) => format!("FAILED: {why}"),
        }
    }

    /// The sum of all.
    pub(super) fn summed(&self, tested: &[Tested]) -> StepResult {
        summed(self.over, tested, self.elsewhere.len())
    }
}

/// Whether a list names tests that there are.
fn stale(known: &[&str], list: &[&str]) -> Result<(), String> {
    let gone: Vec<&str> = list.iter().copied().filter(|name| !known.contains(name)).collect();
    if gone.is_empty() { Ok(()) } else { Err(format!("no such test: {}", gone.join(", "))) }
}

/// Classifies one test by its end, and by the lines `CONN BYTES` of its links.
fn assess(over: Over, out: &Outcome, record: &str, without_bytes: bool) -> Seen {
    let ran = count(&out.stdout);
    if !out.success {
        return Seen::Failed(out.why());
    }
    // Cases that it skipped leave it a test that passed.
    if ran.passed == 0 && ran.skipped > 0 {
        return Seen::Skipped;
    }
    if ran.passed != 1 {
        return Seen::Failed("it was not run".to_owned());
    }
    let mut bytes = 0_u64;
    let mut others = Vec::new();
    for (conn, moved) in record.lines().filter_map(|line| line.split_once(' ')) {
        match conn {
            conn if conn == over.conn => bytes = bytes.saturating_add(moved.parse().unwrap_or(0)),
            // A link of a session with itself, and one that ended before it had a transport.
            "loopback" | "none" => {}
            other if others.contains(&other) => {}
            other => others.push(other),
        }
    }
    let name = over.name;
    match (without_bytes, bytes) {
        (true, 0) => Seen::WithoutBytes,
        (true, _) => Seen::Failed(format!(
            "it is listed as one without bytes over {name}, and {bytes} were moved"
        )),
        (false, _) if !others.is_empty() => {
            let others = others.join(", ");
            Seen::Failed(format!("a session that was asked for {name} used {others}"))
        }
        (false, 0) => Seen::Failed(format!("{name} moved no byte for it")),
        (false, _) => Seen::Moved { bytes, cases: ran.skipped },
    }
}

/// The sum of all; `elsewhere` did not run.
fn summed(over: Over, tested: &[Tested], elsewhere: usize) -> StepResult {
    let over = over.name;
    let mut counts = Counts::default();
    let (mut bytes, mut without) = (0_u64, 0_u64);
    let mut broken = Vec::new();
    for Tested { name, seen, .. } in tested {
        let number = match seen {
            Seen::Moved { bytes: moved, cases } => {
                bytes = bytes.saturating_add(*moved);
                counts.skipped = counts.skipped.saturating_add(*cases);
                &mut counts.passed
            }
            Seen::WithoutBytes => &mut without,
            Seen::Skipped => &mut counts.skipped,
            Seen::Failed(why) => {
                broken.push(format!("{name}: {why}"));
                &mut counts.failed
            }
        };
        *number = number.saturating_add(1);
    }
    println!(
        "{} tests moved {bytes} bytes over {over}; not counted: {without} that need {over} and move nothing, {elsewhere} about \
         other transports",
        counts.passed
    );
    let verdict = if broken.is_empty() && counts.passed == 0 {
        Verdict::failed(format!("no test moved a byte over {over}"))
    } else if broken.is_empty() {
        Verdict::Passed
    } else {
        Verdict::failed(broken.join("; "))
    };
    StepResult { verdict, counts }
}

/// Builds programs of tests. Their names, and where they are.
pub(super) fn build(root: &Path, programs: &[&str]) -> Result<Vec<(String, PathBuf)>, String> {
    let mut command = shell::cargo();
    command.current_dir(root);
    command.args(["test", "--profile", "proofs", "--package", "hmc-tests", "--no-run"]);
    command.arg("--message-format=json-render-diagnostics");
    command.args(programs.iter().flat_map(|name| ["--test", name]));
    println!("$ {}", shell::shown(&command));
    let out = shell::capture(&mut command)?;
    if !out.success {
        return Err(format!("the tests do not build:\n{}", out.stderr));
    }
    let built = executables(&out.stdout);
    match programs.iter().find(|name| !built.iter().any(|(built, _)| built == *name)) {
        Some(name) => Err(format!("cargo built no program of tests {name}")),
        None => Ok(built),
    }
}

/// The programs of tests in cargo's messages of a build.
fn executables(messages: &str) -> Vec<(String, PathBuf)> {
    let of = |line: &str| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        let target = message.get("target")?;
        let is_test = target.get("kind")?.as_array()?.iter().any(|kind| kind == "test");
        let path = message.get("executable")?.as_str()?;
        is_test.then(|| Some((target.get("name")?.as_str()?.to_owned(), path.into())))?
    };
    messages.lines().filter_map(of).collect()
}

#[cfg(test)]
mod tests_of_the_count {
    use super::{Over, RDMA, Seen, Tested, UCX, executables, stale};
    use crate::shell::Outcome;
    use crate::step_result::Counts;
    use crate::step_result::StepResult;
    use crate::verdict::Verdict;
    use std::time::Duration;

    fn assess(out: &Outcome, record: &str, without_bytes: bool) -> Seen {
        super::assess(UCX, out, record, without_bytes)
    }

    fn summed(seen: Vec<(&str, Seen)>, elsewhere: usize) -> StepResult {
        let tested = |(name, seen): (&str, Seen)| Tested {
            name: name.to_owned(),
            seen,
            time: Duration::ZERO,
        };
        let all: Vec<Tested> = seen.into_iter().map(tested).collect();
        super::summed(UCX, &all, elsewhere)
    }

    fn ended(code: i32, stdout: &str) -> Outcome {
        let (stdout, stderr) = (stdout.to_owned(), String::new());
        Outcome { success: code == 0, code: Some(code), timed_out: false, stdout, stderr }
    }

    const PASSED: &str = "test a ... ok\ntest result: ok. 1 passed; 0 failed; 0 ignored\n";

    fn seen(record: &str, without_bytes: bool) -> Seen {
        assess(&ended(0, PASSED), record, without_bytes)
    }

    #[test]
    fn only_bytes_that_ucx_moved_are_a_pass() {
        assert_eq!(
            seen("ucx 5\nloopback 9\nucx 0\nnone 0\n", false),
            Seen::Moved { bytes: 5, cases: 0 }
        );
        for (record, why) in [
            ("", "no byte"),
            ("ucx 0\n", "no byte"),
            ("loopback 9\n", "no byte"),
            ("tcp 9\n", "used tcp"),
            ("ucx 5\nshm 9\nshm 1\n", "used shm"),
            ("ucx 5\ntcp 0\n", "used tcp"),
            ("ucx many\n", "no byte"),
        ] {
            match seen(record, false) {
                Seen::Failed(said) => assert!(said.contains(why), "{record}: {said}"),
                other => panic!("{record}: {other:?}"),
            }
        }
    }

    #[test]
    fn a_test_without_bytes_is_listed_and_no_pass() {
        assert_eq!(seen("", true), Seen::WithoutBytes);
        assert!(matches!(seen("ucx 1\n", true), Seen::Failed(_)), "the list is wrong");
        let result = summed(vec![("a::a", Seen::WithoutBytes)], 3);
        assert!(matches!(result.verdict, Verdict::Failed(_)), "nothing was moved");
        assert_eq!(result.counts, Counts::default());
    }

    #[test]
    fn a_test_that_failed_or_did_not_run_is_no_pass() {
        let of = |code, text: &str| assess(&ended(code, text), "ucx 5\n", false);
        assert_eq!(of(101, PASSED), Seen::Failed("exit status 101".into()));
        let none = "test result: ok. 0 passed; 0 failed; 0 ignored\n";
        assert_eq!(of(0, none), Seen::Failed("it was not run".into()));
        assert_eq!(of(0, ""), Seen::Failed("it was not run".into()));
        assert_eq!(of(0, &format!("SKIPPED: no strace\n{PASSED}")), Seen::Skipped);
        let cases = of(0, &format!("SKIPPED CASES: 2 of tcp: a (x), b (y)\n{PASSED}"));
        assert_eq!(cases, Seen::Moved { bytes: 5, cases: 2 });
    }

    #[test]
    fn the_sum_counts_each_kind_apart() {
        let fine = vec![
            ("a", Seen::Moved { bytes: 5, cases: 2 }),
            ("b", Seen::WithoutBytes),
            ("c", Seen::Skipped),
        ];
        let result = summed(fine.clone(), 0);
        assert_eq!(result.verdict, Verdict::Passed);
        assert_eq!(result.counts, Counts { passed: 1, failed: 0, skipped: 3 });
        let mut all = fine;
        all.push(("d", Seen::Failed("why".into())));
        assert_eq!(summed(all, 0).verdict, Verdict::failed("d: why"));
    }

    #[test]
    fn bytes_of_another_transport_are_no_pass() {
        let of = |over: Over, record| super::assess(over, &ended(0, PASSED), record, false);
        assert_eq!(of(RDMA, "rdma 5\n"), Seen::Moved { bytes: 5, cases: 0 });
        assert!(matches!(of(RDMA, "ucx 5\n"), Seen::Failed(_)));
        assert!(matches!(of(UCX, "rdma 5\n"), Seen::Failed(_)));
    }

    #[test]
    fn a_listed_test_that_is_gone_is_reported() {
        assert_eq!(stale(&["a::b", "a::c"], &["a::c"]), Ok(()));
        assert!(stale(&["a::b"], &["a::c"]).unwrap_err().contains("a::c"));
    }

    #[test]
    fn programs_are_found_in_what_cargo_says() {
        let line = |kind: &str, path: &str| {
            format!(
                "{{\"target\":{{\"kind\":[\"{kind}\"],\"name\":\"x\"}},\"executable\":{path}}}\n"
            )
        };
        let text =
            line("test", "\"/t/x\"") + &line("bin", "\"/t/y\"") + &line("test", "null") + "word";
        assert_eq!(executables(&text), [("x".to_owned(), "/t/x".into())]);
    }
}
