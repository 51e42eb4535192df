//! The two scores that take long: which lines of hmc-core its tests run, and how many planted
//! mutations they catch.
//!
//! Both need a tool of cargo's that takes minutes to build; a machine without it gets "not run".

use super::claim_result::ClaimResult;
use super::source::without_tests;
use crate::shell::{self, Outcome};
use crate::step_result::count;
use crate::tools;
use crate::tree::Tree;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// Share of the mutants that must be caught, in percent.
const WANTED_PERCENT: usize = 95;

/// Modules in which no mutant may survive.
const STRICT: [&str; 3] = ["range.rs", "slots", "window.rs"];

/// Some modules, and the tests that check them: all tests for each of hundreds of mutants would take hours.
struct Part {
    name: &'static str,
    files: &'static [&'static str],
    tests: &'static [&'static str],
}

/// Tests of the whole core, for every part. The unit tests always run.
const EVERYWHERE: [&str; 4] = ["assumptions", "corners", "texts", "fuzz_corpus"];

const PARTS: [Part; 5] = [
    Part {
        name: "memory",
        files: &["range.rs", "slots.rs", "slots/*.rs", "window.rs"],
        tests: &["data_slots", "data_chunks", "data_queue", "explore_windows"],
    },
    Part {
        name: "work",
        files: &[
            "chunks.rs",
            "region.rs",
            "queue.rs",
            "pipeline.rs",
            "work.rs",
            "transport.rs",
            "device.rs",
            "device/*.rs",
            "place.rs",
            "types.rs",
            "time.rs",
        ],
        tests: &["data_queue", "data_pipeline", "data_chunks"],
    },
    Part {
        name: "wire",
        files: &["wire/*.rs"],
        tests: &["wire_golden", "wire_malformed", "wire_streams"],
    },
    Part { name: "rndv", files: &["rndv.rs", "rndv/*.rs"], tests: &["rndv", "rndv_questions"] },
    Part {
        name: "ctrl",
        files: &["ctrl/*.rs"],
        tests: &["ctrl_machine", "ctrl_handshake", "wire_streams", "explore_handshake"],
    },
];

/// Mutants that change nothing that can be seen, as cargo-mutants names them, with the reason.
const EQUIVALENT: &str = include_str!("equivalent_mutants.txt");

/// Lines that no test can reach, by their text and that of the line before, not by number.
const UNREACHABLE: &str = include_str!("uncovered_lines.txt");

/// Line coverage: every line of the core is run by a test, or is listed with its reason.
pub(super) fn coverage(root: &Path, tree: &Tree) -> ClaimResult {
    if !tools::has_extension("stable", "llvm-cov") {
        return ClaimResult::not_run(
            "cargo-llvm-cov is not installed",
            "`rustup component add llvm-tools`, `cargo install --locked cargo-llvm-cov --version 0.9.1`",
        );
    }
    let report = root.join("target/certify/coverage.lcov");
    let mut command = shell::cargo();
    command
        .current_dir(root)
        .args(["llvm-cov", "--package", "hmc-core", "--lib", "--tests", "--lcov", "--output-path"])
        .arg(&report);
    let made = without_earlier(&report)
        .and_then(|()| {
            let folder = root.join("target/certify");
            std::fs::create_dir_all(folder).map_err(|e| format!("target/certify: {e}"))
        })
        .and_then(|()| shell::stream(&mut command, Duration::from_secs(1800)));
    match made {
        Ok(out) if out.success && count(&out.stdout).passed > 0 => {}
        Ok(out) if out.success => return ClaimResult::Failed("no test was run".to_owned()),
        Ok(out) => return ClaimResult::Failed(format!("cargo llvm-cov: {}", out.why())),
        Err(why) => return ClaimResult::Failed(why),
    }
    match std::fs::read_to_string(&report) {
        Ok(text) => assess_lines(&text, tree, UNREACHABLE),
        Err(e) => ClaimResult::Failed(format!("{}: {e}", report.display())),
    }
}

/// Takes away what an earlier run left, file or folder: what is there afterwards is of this run.
fn without_earlier(path: &Path) -> Result<(), String> {
    let gone = match std::fs::symlink_metadata(path) {
        Ok(meta) if meta.is_dir() => std::fs::remove_dir_all(path),
        Ok(_) => std::fs::remove_file(path),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(e) => Err(e),
    };
    gone.map_err(|e| format!("{}: {e}", path.display()))
}

fn assess_lines(lcov: &str, tree: &Tree, excused: &str) -> ClaimResult {
    let excused: Vec<&str> = listed(excused).map(|(what, _)| what).collect();
    let mut all = 0_usize;
    let mut used = 0_usize;
    let mut missed = 0_usize;
    for (path, lines) in hits(lcov) {
        let Some(short) = path.split_once("hmc-core/src/").map(|(_, s)| s) else {
            continue;
        };
        let Some(file) = tree.file(&format!("hmc-core/src/{short}")) else {
            continue;
        };
        let end = without_tests(&file.text).lines.len();
        for (line, count) in lines.into_iter().filter(|(line, _)| *line <= end) {
            all = all.saturating_add(1);
            if count > 0 {
                continue;
            }
            let at = |n: usize| file.text.lines().nth(n).unwrap_or("").trim();
            let text = at(line.saturating_sub(1));
            // With the line before it: many lines say just `return;`.
            let key = format!("{short}: {} / {text}", at(line.saturating_sub(2)));
            if excused.contains(&key.as_str()) {
                used = used.saturating_add(1);
            } else {
                println!("not covered: hmc-core/src/{short}:{line}: {text}");
                missed = missed.saturating_add(1);
            }
        }
    }
    if all == 0 {
        return ClaimResult::Failed("the report knows no line of hmc-core".to_owned());
    }
    if missed > 0 {
        return ClaimResult::Failed(format!("{missed} of {all} lines are not covered"));
    }
    let covered = all.saturating_sub(used);
    ClaimResult::Proved(format!("{covered} of {all} lines; {used} listed as unreachable"))
}

/// The lines of each file with the times they were run; generic code is counted once a line, with
/// the most of its copies.
fn hits(lcov: &str) -> BTreeMap<String, BTreeMap<usize, u64>> {
    let mut out: BTreeMap<String, BTreeMap<usize, u64>> = BTreeMap::new();
    let mut file = String::new();
    for row in lcov.lines() {
        if let Some(path) = row.strip_prefix("SF:") {
            path.clone_into(&mut file);
        } else if let Some((line, count)) = row.strip_prefix("DA:").and_then(|r| r.split_once(','))
        {
            let count = count.split(',').next().unwrap_or("0");
            if let (Ok(line), Ok(count)) = (line.parse(), count.parse::<u64>()) {
                let known = out.entry(file.clone()).or_default().entry(line).or_default();
                *known = count.max(*known);
            }
        }
    }
    out
}

/// Mutation score: cargo-mutants changes the core in every way it knows, and the tests must fail.
pub(super) fn mutants(root: &Path) -> ClaimResult {
    if !tools::has_extension("stable", "mutants") {
        return ClaimResult::not_run(
            "cargo-mutants is not installed",
            "`cargo install --locked cargo-mutants --version 27.1.0`",
        );
    }
    let out = root.join("target/certify");
    let (mut caught, mut missed) = (0usize, String::new());
    for part in &PARTS {
        let place = out.join(part.name);
        let mut command = shell::cargo();
        command.current_dir(root).args(["mutants", "--package", "hmc-core", "--no-shuffle"]);
        command.args(["--colors=never", "--timeout=60"]).arg("--output").arg(&place);
        for file in part.files {
            command.arg("--file").arg(format!("hmc-core/src/{file}"));
        }
        command.args(["--", "--lib"]);
        for test in EVERYWHERE.iter().chain(part.tests) {
            command.args(["--test", test]);
        }
        // Debug information only takes time to link.
        command.env("CARGO_PROFILE_TEST_DEBUG", "0").env("CARGO_PROFILE_DEV_DEBUG", "0");
        let lists = place.join("mutants.out");
        let tried = without_earlier(&lists)
            .and_then(|()| shell::stream(&mut command, Duration::from_secs(3 * 3600)))
            .and_then(|out| Lists::read(&lists, &out));
        match tried {
            Ok(lists) => {
                caught = caught.saturating_add(lists.caught);
                missed.push_str(&lists.missed);
            }
            Err(why) => return ClaimResult::Failed(format!("{}: {why}", part.name)),
        }
    }
    assess_mutants(caught, &missed, EQUIVALENT)
}

/// What cargo-mutants found of a part.
#[derive(Debug, PartialEq, Eq)]
struct Lists {
    /// How many mutants the tests noticed, including those that timed out.
    caught: usize,
    /// Those that they did not notice.
    missed: String,
}

impl Lists {
    /// Reads what a run left in its folder.
    fn read(folder: &Path, out: &Outcome) -> Result<Self, String> {
        let text = |name: &str| {
            let path = folder.join(name);
            std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))
        };
        ended(out)?;
        let all: Vec<serde_json::Value> = serde_json::from_str(&text("mutants.json")?)
            .map_err(|e| format!("mutants.json: {e}"))?;
        let lists = [text("caught.txt")?, text("timeout.txt")?, text("unviable.txt")?];
        Self::assess(all.len(), &lists, text("missed.txt")?)
    }

    /// Checks the lists of caught, late and unviable mutants beside the number of all: each was tried.
    fn assess(all: usize, lists: &[String; 3], missed: String) -> Result<Self, String> {
        let [caught, late, unviable] = lists.each_ref().map(|list| list.lines().count());
        let caught = caught.saturating_add(late);
        let assessed = caught.saturating_add(missed.lines().count());
        let tried = assessed.saturating_add(unviable);
        if tried != all {
            return Err(format!("{tried} of {all} mutants were tried"));
        }
        if assessed == 0 {
            return Err("no mutant was tried that compiles".to_owned());
        }
        Ok(Self { caught, missed })
    }
}

/// Whether cargo-mutants came to its end: 0 for all caught, 2 for some missed, 3 for some that took too long.
fn ended(out: &Outcome) -> Result<(), String> {
    match (out.timed_out, out.code) {
        (false, Some(0 | 2 | 3)) => Ok(()),
        (false, Some(4)) => Err("the tests fail without any mutant".to_owned()),
        _ => Err(format!("cargo mutants: {}", out.why())),
    }
}

/// The lines, from 1, of the statements and items that stand behind that attribute.
pub(crate) fn lines_under(code: &str, attribute: &str) -> Vec<usize> {
    let mut lines = Vec::new();
    let mut depth: Option<isize> = None;
    for (at, line) in code.lines().enumerate() {
        let text = line.trim();
        let Some(open) = &mut depth else {
            if text == attribute {
                depth = Some(0);
            }
            continue;
        };
        lines.push(at.saturating_add(1));
        for c in text.chars() {
            match c {
                '(' | '[' | '{' => *open = open.saturating_add(1),
                ')' | ']' | '}' => *open = open.saturating_sub(1),
                _ => {}
            }
        }
        if *open == 0 && !text.starts_with("#[") && text.ends_with([';', '}', ',']) {
            depth = None;
        }
    }
    lines
}

fn assess_mutants(caught: usize, missed: &str, equivalent: &str) -> ClaimResult {
    let known: Vec<&str> = listed(equivalent).map(|(what, _)| what).collect();
    // `path:line:column: change`; lines move, what is changed stays.
    let (same, survived): (Vec<&str>, Vec<&str>) = missed.lines().partition(|row| {
        row.split_once(": ").is_some_and(|(place, change)| {
            let path = place.split(':').next().unwrap_or(place);
            known.contains(&format!("{path}: {change}").as_str())
        })
    });
    for row in &survived {
        println!("survived: {row}");
    }
    let strict = survived.iter().filter(|row| {
        row.strip_prefix("hmc-core/src/").is_some_and(|r| STRICT.iter().any(|s| r.starts_with(s)))
    });
    let strict = strict.count();
    let all = caught.saturating_add(survived.len());
    let percent = caught.saturating_mul(100).checked_div(all).unwrap_or(0);
    let figure = format!(
        "{caught} of {all} caught ({percent} %), {} equivalent; {strict} survive in span, slots, window",
        same.len()
    );
    if all > 0 && strict == 0 && percent >= WANTED_PERCENT {
        ClaimResult::Proved(figure)
    } else {
        ClaimResult::Failed(figure)
    }
}

/// The rows `what => reason` of a list; rows without a reason excuse nothing.
pub(crate) fn listed(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.lines()
        .filter(|l| !l.starts_with('#'))
        // The code before it may have such a sign too.
        .filter_map(|l| l.rsplit_once(" => "))
        .filter(|(_, reason)| !reason.trim().is_empty())
}

#[cfg(test)]
mod tests {
    use super::{Lists, assess_lines, assess_mutants, ended, lines_under, without_earlier};
    use crate::cmd::certify::claim_result::ClaimResult;
    use crate::shell::Outcome;
    use crate::tree::Tree;
    use std::path::Path;

    #[test]
    fn a_line_that_no_test_runs_fails_unless_it_is_listed() {
        let code = "fn a() {\n    b();\n}\n#[cfg(test)]\nmod tests {\n    c();\n}\n";
        let tree = Tree::planted(&[("hmc-core/src/x.rs", code)]);
        let lcov = "SF:/p/hmc-core/src/x.rs\nDA:1,1\nDA:2,0\nDA:6,0\nend_of_record\n";
        let assess = |lcov: &str, excused: &str| assess_lines(lcov, &tree, excused);
        assert_eq!(assess(lcov, ""), ClaimResult::Failed("1 of 2 lines are not covered".into()));
        assert_eq!(
            assess(lcov, "x.rs: fn a() { / b(); => "),
            assess(lcov, ""),
            "a reason is wanted"
        );
        assert!(matches!(assess(lcov, "x.rs: fn a() { / b(); => why"), ClaimResult::Proved(_)));
        let again = format!("{lcov}SF:/p/hmc-core/src/x.rs\nDA:2,5\n");
        assert!(matches!(assess(&again, ""), ClaimResult::Proved(_)), "another copy ran it");
        assert!(matches!(assess("", ""), ClaimResult::Failed(_)));
    }

    #[test]
    fn survivors_count_and_none_may_be_in_the_strict_modules() {
        let row = "hmc-core/src/queue.rs:7:9: replace + with - in f";
        let assess = assess_mutants;
        assert!(matches!(assess(99, row, ""), ClaimResult::Proved(_)));
        assert!(matches!(assess(9, row, ""), ClaimResult::Failed(_)), "90 %");
        let excuse = "hmc-core/src/queue.rs: replace + with - in f => nobody sees it";
        assert!(matches!(assess(9, row, excuse), ClaimResult::Proved(_)));
        let strict = row.replace("queue.rs", "slots/list.rs");
        assert!(matches!(assess(99, &strict, ""), ClaimResult::Failed(_)));
        assert!(matches!(assess(0, "", ""), ClaimResult::Failed(_)), "nothing was tried");
    }

    fn outcome(code: Option<i32>, timed_out: bool) -> Outcome {
        let (stdout, stderr) = (String::new(), String::new());
        Outcome { success: code == Some(0), code, timed_out, stdout, stderr }
    }

    #[test]
    fn a_run_whose_baseline_fails_proves_nothing() {
        for code in [0, 2, 3] {
            assert_eq!(ended(&outcome(Some(code), false)), Ok(()));
        }
        let why = |code, late| ended(&outcome(code, late)).unwrap_err();
        assert_eq!(why(Some(4), false), "the tests fail without any mutant");
        assert_eq!(why(Some(1), false), "cargo mutants: exit status 1");
        assert!(why(None, false).contains("signal"));
        assert!(why(Some(0), true).contains("deadline"));
        // Lists that lie there are not looked at.
        let lists = Path::new("/no/such/folder");
        let why = Lists::read(lists, &outcome(Some(4), false)).unwrap_err();
        assert_eq!(why, "the tests fail without any mutant");
        assert!(Lists::read(lists, &outcome(Some(0), false)).unwrap_err().contains("mutants.json"));
    }

    #[test]
    fn every_mutant_of_a_part_is_tried() {
        let assess = |all, caught: &str, late: &str, unviable: &str, missed: &str| {
            let lists = [caught, late, unviable].map(str::to_owned);
            Lists::assess(all, &lists, missed.to_owned())
        };
        let lists = Lists { caught: 3, missed: "d\n".to_owned() };
        assert_eq!(assess(5, "a\nb\n", "c\n", "e\n", "d\n"), Ok(lists));
        assert_eq!(
            assess(6, "a\nb\n", "c\n", "e\n", "d\n"),
            Err("5 of 6 mutants were tried".into())
        );
        let none = Err("no mutant was tried that compiles".into());
        assert_eq!(assess(0, "", "", "", ""), none);
        assert_eq!(assess(1, "", "", "e\n", ""), none);
    }

    #[test]
    fn what_an_earlier_run_left_goes() {
        let name = format!("hmc-xtask-{}-lists", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(folder.join("deep")).unwrap();
        std::fs::write(folder.join("deep/caught.txt"), "a\n").unwrap();
        without_earlier(&folder.join("deep/caught.txt")).unwrap();
        assert!(!folder.join("deep/caught.txt").exists());
        without_earlier(&folder).unwrap();
        assert!(!folder.exists());
        assert_eq!(without_earlier(&folder), Ok(()));
    }

    #[test]
    fn lines_under_an_attribute_end_with_what_it_stands_before() {
        let code = "fn f() {\n    #[cfg(loom)]\n    let a = match b {\n        _ => c(),\n    };\n    \
                    a || b;\n}\n#[cfg(loom)]\n#[inline]\nfn g() {\n    h()\n}\nfn i() {}\n";
        assert_eq!(lines_under(code, "#[cfg(loom)]"), [3, 4, 5, 9, 10, 11, 12]);
    }
}
