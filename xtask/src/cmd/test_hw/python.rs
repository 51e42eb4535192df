//! The tests of the Python package that run over RDMA verbs: those with the mark `rdma`, as one run of pytest.
//!
//! The package is built and installed before, since a VM has no use for a compiler and reaches no package index.

use crate::cmd::wheel;
use crate::shell::{self, Outcome};
use crate::step_result::{StepResult, pytest_result};
use crate::verdict::Verdict;
use serde_json::{Value, json};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// The tests that run: those of them, in `hmc-py/tests`, that have the mark. A test with two processes takes ten seconds in a VM whose
/// processor is emulated, so these are few.
const TESTS: [&str; 8] = [
    "test_rdma.py",
    "test_guides.py::test_bytes_and_a_tag",
    "test_guides.py::test_the_older_guide_client_to_server",
    "test_deaths.py::test_a_peer_killed_in_the_middle_raises_soon",
    "test_messages.py::test_messages_of_any_size",
    "test_messages.py::test_tensors_by_rank",
    "test_peers.py",
    "test_stats.py",
];

/// Those of them that may be skipped where there is an RDMA device, each with the reason: none so far.
const MAY_SKIP: &[(&str, &str)] = &[];

/// Time for all, if the run has no limit.
const TIME: Duration = Duration::from_secs(600);

/// An interpreter that has the package, or the reason why there is none; neither if its tests do not run.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args)]
pub(super) struct Python {
    /// An interpreter that has the Python package
    #[arg(long, value_name = "PATH")]
    python: Option<PathBuf>,
    /// Why there is none, and what to do about it
    #[arg(long, num_args = 2, value_names = ["REASON", "REMEDY"], conflicts_with = "python")]
    no_python: Option<Vec<String>>,
}

impl Python {
    /// Builds the package and installs it into an environment.
    ///
    /// # Errors
    /// Words, if what is there does not work; what is missing is in the value.
    pub(super) fn built(root: &Path) -> Result<Self, String> {
        match wheel::for_devices(root) {
            Ok(python) => Ok(Self { python: Some(python), no_python: None }),
            Err(Verdict::Skipped { reason, remedy }) => {
                Ok(Self { python: None, no_python: Some(vec![reason, remedy]) })
            }
            Err(verdict) => Err(format!("the Python package: {}", verdict.detail())),
        }
    }

    /// The arguments that give this value.
    pub(super) fn arguments(&self) -> Vec<OsString> {
        let mut all = Vec::new();
        if let Some(python) = &self.python {
            all.extend(["--python".into(), python.into()]);
        }
        if let Some(words) = &self.no_python {
            all.push("--no-python".into());
            all.extend(words.iter().map(OsString::from));
        }
        all
    }

    /// Runs the tests, and adds them to the list.
    pub(super) fn tests(
        &self,
        root: &Path,
        until: Option<Instant>,
        tested: &mut Vec<Value>,
    ) -> StepResult {
        let Some(python) = &self.python else {
            let mut words = self.no_python.iter().flatten().cloned();
            let mut next = || words.next().unwrap_or_default();
            return Verdict::skipped(next(), next()).into();
        };
        let mut command = Command::new(python);
        command.args(["-m", "pytest", "-v", "-m", "rdma", "-p", "no:cacheprovider"]);
        command.args(["-o", "console_output_style=classic"]);
        command.args(TESTS.map(|test| root.join("hmc-py/tests").join(test)));
        // For lines without the share of tests that have run, and with the whole reason of a skip.
        command.env("COLUMNS", "400");
        // Not the folder of the sources: the installed package is tested.
        command.current_dir(python.parent().unwrap_or(root));
        let left = until.map_or(TIME, |end| end.saturating_duration_since(Instant::now()));
        match shell::stream(&mut command, left) {
            Ok(out) => assessed(&out, MAY_SKIP, tested),
            Err(why) => Verdict::Failed(why).into(),
        }
    }
}

/// The result of a run: a skip that is not listed is a failure, and so is a list that names no test.
fn assessed(out: &Outcome, may_skip: &[(&str, &str)], tested: &mut Vec<Value>) -> StepResult {
    let all: Vec<_> = out.stdout.lines().filter_map(test).collect();
    tested.extend(all.iter().map(
        |(name, word, why)| json!({ "name": name, "result": word.to_lowercase(), "why": why }),
    ));
    let is_skip =
        |(name, word, _): &&_| *word == "SKIPPED" && !may_skip.iter().any(|(one, _)| one == name);
    let skips = all.iter().filter(is_skip);
    let mut wrong: Vec<String> =
        skips.map(|(name, _, why)| format!("{name} was skipped: {why}")).collect();
    let gone = may_skip.iter().filter(|(one, _)| !all.iter().any(|(name, ..)| name == one));
    wrong.extend(gone.map(|(name, _)| format!("no such test: {name}")));
    let mut result = pytest_result(out);
    let counted = result.counts.passed.saturating_add(result.counts.skipped);
    if u64::try_from(all.len()) != Ok(counted) {
        wrong.push(format!("{} tests are named, and {counted} counted", all.len()));
    }
    if result.verdict == Verdict::Passed && !wrong.is_empty() {
        result.verdict = Verdict::failed(wrong.join("; "));
    }
    result
}

/// A line such as `../tests/test_a.py::test_b[rdma] SKIPPED (why)`: the name, without folders, the word, and the reason.
fn test(line: &str) -> Option<(&str, &str, &str)> {
    let (file, _) = line.split_once(".py::")?;
    let name = line.get(file.rfind('/').map_or(0, |slash| slash.saturating_add(1))..)?;
    let of = |word: &'static str| {
        let (name, rest) = name.split_once(&format!(" {word}"))?;
        let why = rest.trim().strip_prefix('(').and_then(|why| why.strip_suffix(')'));
        Some((name, word, why.unwrap_or_default()))
    };
    ["PASSED", "FAILED", "ERROR", "SKIPPED"].into_iter().find_map(of)
}

#[cfg(test)]
mod tests {
    use super::{Python, assessed, test};
    use crate::shell::Outcome;
    use crate::step_result::StepResult;
    use crate::tree;
    use crate::verdict::Verdict;
    use serde_json::Value;

    const PASSED: &str = "../../hmc-py/tests/test_a.py::test_b[rdma] PASSED";
    const SKIPPED: &str = "tests/test_a.py::test_c[rdma] SKIPPED (no RDMA device)";

    /// The result of a run that printed these lines, and the tests of it.
    fn ran(lines: &[&str], sum: &str, may_skip: &[(&str, &str)]) -> (StepResult, Vec<Value>) {
        let stdout = format!("{}\n==== {sum} in 1.00s ====\n", lines.join("\n"));
        let success = !sum.contains("failed");
        let (stderr, code) = (String::new(), Some(i32::from(!success)));
        let mut tested = Vec::new();
        let out = Outcome { success, code, timed_out: false, stdout, stderr };
        (assessed(&out, may_skip, &mut tested), tested)
    }

    #[test]
    fn a_line_of_pytest_is_a_test() {
        assert_eq!(test(PASSED), Some(("test_a.py::test_b[rdma]", "PASSED", "")));
        let skipped = "test_a.py::test_b[[x] y/z] SKIPPED (no device: (why))";
        assert_eq!(
            test(skipped),
            Some(("test_a.py::test_b[[x] y/z]", "SKIPPED", "no device: (why)"))
        );
        for none in ["", "FAILED a.py - why", "collected 3 items", "E   a.py::b"] {
            assert_eq!(test(none), None, "{none}");
        }
    }

    #[test]
    fn only_a_listed_test_may_be_skipped() {
        let (result, tested) = ran(&[PASSED], "1 passed", &[]);
        assert_eq!((result.verdict, result.counts.passed), (Verdict::Passed, 1));
        let words: Vec<_> = tested.iter().filter_map(|one| one.get("result")?.as_str()).collect();
        assert_eq!(words, ["passed"]);
        let both = [PASSED, SKIPPED];
        let (result, _) = ran(&both, "1 passed, 1 skipped", &[]);
        let why = "test_a.py::test_c[rdma] was skipped: no RDMA device";
        assert_eq!((result.verdict, result.counts.skipped), (Verdict::failed(why), 1));
        let listed = [("test_a.py::test_c[rdma]", "why")];
        let (result, tested) = ran(&both, "1 passed, 1 skipped", &listed);
        assert_eq!((result.verdict, result.counts.skipped), (Verdict::Passed, 1));
        assert_eq!(tested.len(), 2);
        let gone = Verdict::failed("no such test: test_a.py::test_c[rdma]");
        assert_eq!(ran(&[PASSED], "1 passed", &listed).0.verdict, gone);
        let unnamed = Verdict::failed("1 tests are named, and 2 counted");
        assert_eq!(ran(&[PASSED], "1 passed, 1 skipped", &[]).0.verdict, unnamed);
        let failed = PASSED.replace("PASSED", "FAILED");
        let (result, _) = ran(&[&failed], "1 failed, 1 passed", &[]);
        assert_eq!((result.counts.failed, result.counts.passed), (1, 1));
        assert!(matches!(result.verdict, Verdict::Failed(_)));
        assert!(matches!(ran(&[], "2 deselected", &[]).0.verdict, Verdict::Failed(_)));
    }

    #[test]
    fn what_is_missing_is_a_skip_with_its_reason() {
        let words = vec!["no python3".to_owned(), "apt".to_owned()];
        let none = Python { python: None, no_python: Some(words) };
        let result = none.tests(&tree::root(), None, &mut Vec::new());
        assert_eq!(result.verdict, Verdict::skipped("no python3", "apt"));
    }
}
