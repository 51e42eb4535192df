//! The test programs that mutants run against, what each reaches, and which comes first.

use super::copy::Copy;
use super::list::Mutant;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// How test programs are built.
#[derive(Clone, Copy, Debug)]
pub(super) struct Build {
    /// The word before the names of its suites; the package's name where it is empty.
    pub(super) word: &'static str,
    pub(super) packages: &'static [&'static str],
    /// More arguments of `cargo test`.
    pub(super) arguments: &'static [&'static str],
}

/// How a suite reports a failed test, and how one test of it is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A program of cargo's test harness.
    Harness,
    /// pytest.
    Pytest,
    /// A program that reports its exit status only.
    Status,
}

/// A program with tests.
#[derive(Clone, Debug)]
pub(super) struct Suite {
    pub(super) name: String,
    /// The package whose tests these are.
    pub(super) package: String,
    pub(super) kind: Kind,
    pub(super) program: PathBuf,
    pub(super) arguments: Vec<String>,
    /// Where it runs: the folder of its package.
    pub(super) folder: PathBuf,
}

impl Suite {
    /// The program as a command; with `only`, that one test of it.
    pub(super) fn command(&self, only: Option<&str>) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).current_dir(&self.folder).stderr(Stdio::null());
        match (self.kind, only) {
            (Kind::Harness, Some(test)) => {
                command.args(["--exact", test]);
            }
            (Kind::Pytest, Some(test)) => {
                command.args(["-k", test]);
            }
            (Kind::Harness | Kind::Pytest, None) | (Kind::Status, _) => {}
        }
        // As cargo has it; a failing property test must not leave its case to the next mutant.
        command.env("CARGO_MANIFEST_DIR", &self.folder);
        command.env("PROPTEST_DISABLE_FAILURE_PERSISTENCE", "true");
        command
    }

    /// The test that failed, by a line of the output; empty when the line does not name it.
    pub(super) fn failed<'l>(&self, line: &'l str) -> Option<&'l str> {
        let line = line.trim();
        match self.kind {
            Kind::Harness => {
                if !line.ends_with("FAILED") || line.starts_with("test result") {
                    return None;
                }
                let name = line.strip_prefix("test ").and_then(|rest| rest.split_once(" ..."));
                Some(name.map_or("", |(name, _)| name.trim_end_matches(" - should panic")))
            }
            Kind::Pytest => {
                let (_, name) = line.strip_prefix("FAILED ")?.split_once("::")?;
                name.split([' ', '[']).next().map(|n| n.rsplit("::").next().unwrap_or(n))
            }
            Kind::Status => None,
        }
    }
}

/// Builds the test programs and names them, in the order in which cargo has them.
///
/// # Errors
/// Words.
pub(super) fn build(copy: &Copy, build: &Build) -> Result<Vec<Suite>, String> {
    let mut command = copy.cargo();
    command.args(["test", "--no-run", "--message-format=json", "--lib", "--bins", "--tests"]);
    for package in build.packages {
        command.args(["--package", package]);
    }
    command.args(build.arguments);
    println!("$ {}", crate::shell::shown(&command));
    let out = crate::shell::capture(&mut command)?;
    if !out.success {
        return Err(format!(
            "the tests do not build: {}\n{}\n{}",
            out.why(),
            errors(&out.stdout),
            out.stderr
        ));
    }
    let suites: Vec<Suite> =
        out.stdout.lines().filter_map(|line| suite(line, build.word)).collect();
    if suites.is_empty() { Err("cargo built no test program".to_owned()) } else { Ok(suites) }
}

/// The compiler's texts in its messages.
fn errors(messages: &str) -> String {
    let messages = messages.lines().filter_map(|l| serde_json::from_str::<Value>(l).ok());
    let errors = messages.filter_map(|json| {
        let message = json.get("message")?;
        (message.get("level")?.as_str()? == "error")
            .then(|| message.get("rendered")?.as_str().map(str::to_owned))?
    });
    errors.collect()
}

/// The suite of a message of cargo's, if it is about a test program.
fn suite(line: &str, word: &str) -> Option<Suite> {
    let json: Value = serde_json::from_str(line).ok()?;
    if !json.get("profile")?.get("test")?.as_bool()? {
        return None;
    }
    let target = json.get("target")?;
    let (name, kind) = (target.get("name")?.as_str()?, target.get("kind")?.get(0)?.as_str()?);
    let folder = Path::new(json.get("manifest_path")?.as_str()?).parent()?;
    let package = folder.file_name()?.to_str()?;
    let word = if word.is_empty() { package } else { word };
    let name = if kind == "test" {
        format!("{word}: {name}")
    } else {
        format!("{word}: unit tests ({kind})")
    };
    Some(Suite {
        name,
        package: package.to_owned(),
        kind: Kind::Harness,
        program: PathBuf::from(json.get("executable")?.as_str()?),
        arguments: Vec::new(),
        folder: folder.to_path_buf(),
    })
}

/// The result of a suite without a mutant.
#[derive(Clone, Debug)]
pub(super) struct Baseline {
    pub(super) suite: Suite,
    pub(super) seconds: f64,
    /// The mutants whose switches it asked; `None` where that is not known.
    pub(super) reached: Option<BTreeSet<u32>>,
}

/// The suites that reach a mutant, the most relevant ones first: those of its package, then those that the table names for its
/// file, in the order there, then the others; among equals the quick ones first.
pub(super) fn relevant<'b>(
    baselines: &'b [Baseline],
    number: u32,
    mutant: &Mutant,
    table: &[(&str, &[&str])],
) -> Vec<&'b Baseline> {
    let row = table
        .iter()
        .filter(|(path, _)| mutant.file.starts_with(path))
        .max_by_key(|(path, _)| path.len());
    let named: &[&str] = row.map_or(&[], |(_, names)| names);
    let rank = |b: &Baseline| {
        let name = b.suite.name.rsplit_once(": ").map_or("", |(_, name)| name);
        if b.suite.package == mutant.package {
            0
        } else {
            named.iter().position(|n| *n == name).map_or(usize::MAX, |at| at.saturating_add(1))
        }
    };
    let mut out: Vec<&Baseline> = baselines
        .iter()
        .filter(|b| b.reached.as_ref().is_none_or(|r| r.contains(&number)))
        .collect();
    out.sort_by(|a, b| {
        (rank(a), a.seconds).partial_cmp(&(rank(b), b.seconds)).unwrap_or(std::cmp::Ordering::Equal)
    });
    out
}

#[cfg(test)]
mod tests {
    use super::super::list::{Mutant, Place, Span};
    use super::{Baseline, Kind, Suite, relevant, suite};
    use std::collections::BTreeSet;

    fn of(name: &str, package: &str, kind: Kind) -> Suite {
        Suite {
            name: name.to_owned(),
            package: package.to_owned(),
            kind,
            program: "p".into(),
            arguments: Vec::new(),
            folder: ".".into(),
        }
    }

    #[test]
    fn a_failed_test_is_named_by_its_line() {
        let harness = of("a", "a", Kind::Harness);
        assert_eq!(harness.failed("test state::a_test ... FAILED\n"), Some("state::a_test"));
        assert_eq!(harness.failed("test a_test - should panic ... FAILED\n"), Some("a_test"));
        assert_eq!(harness.failed("some output FAILED\n"), Some(""));
        assert_eq!(harness.failed("test a_test ... ok\n"), None);
        assert_eq!(harness.failed("test result: FAILED. 1 passed\n"), None);
        let pytest = of("a", "a", Kind::Pytest);
        let line = "FAILED ../tests/test_data.py::TestA::test_rows[int8] - assert 1 == 2\n";
        assert_eq!(pytest.failed(line), Some("test_rows"));
        assert_eq!(pytest.failed("1 failed, 3 passed in 0.1s\n"), None);
    }

    #[test]
    fn test_programs_are_found_among_messages() {
        let message = |kind: &str, test: bool| {
            format!(
                r#"{{"reason": "compiler-artifact", "manifest_path": "/w/hmc-std/Cargo.toml", "profile": {{"test": {test}}},
                "target": {{"name": "death", "kind": ["{kind}"]}}, "executable": "/w/target/debug/deps/death-1"}}"#
            )
            .replace('\n', " ")
        };
        let named = |kind: &str, word: &str| suite(&message(kind, true), word).unwrap().name;
        assert_eq!(named("test", ""), "hmc-std: death");
        assert_eq!(named("test", "process"), "process: death");
        assert_eq!(named("lib", ""), "hmc-std: unit tests (lib)");
        assert!(suite(&message("bin", false), "").is_none());
        assert!(suite("{\"reason\": \"build-finished\"}", "").is_none());
    }

    #[test]
    fn the_suites_of_the_package_come_first_then_the_named_then_the_quick() {
        let place = Place { line: 1, column: 1 };
        let mutant = Mutant {
            key: String::new(),
            name: String::new(),
            package: "a".to_owned(),
            file: "a/src/link/close.rs".to_owned(),
            function: None,
            span: Span { start: place, end: place },
            replacement: String::new(),
        };
        let baseline =
            |name: &str, package: &str, seconds: f64, reached: Option<&[u32]>| Baseline {
                suite: of(name, package, Kind::Harness),
                seconds,
                reached: reached.map(|r| r.iter().copied().collect::<BTreeSet<u32>>()),
            };
        let all = [
            baseline("process: quick", "tests", 0.1, Some(&[3])),
            baseline("process: slow", "tests", 9.0, None),
            baseline("process: second", "tests", 2.0, Some(&[3])),
            baseline("process: first", "tests", 3.0, Some(&[3])),
            baseline("process: elsewhere", "tests", 0.1, Some(&[4])),
            baseline("a: unit tests (lib)", "a", 5.0, Some(&[3, 4])),
        ];
        let table: [(&str, &[&str]); 2] =
            [("a/src/", &["quick"]), ("a/src/link/", &["first", "second"])];
        let order: Vec<&str> =
            relevant(&all, 3, &mutant, &table).iter().map(|b| b.suite.name.as_str()).collect();
        assert_eq!(
            order,
            [
                "a: unit tests (lib)",
                "process: first",
                "process: second",
                "process: quick",
                "process: slow"
            ]
        );
    }
}
