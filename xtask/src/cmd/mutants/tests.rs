//! The whole command over a workspace of one small crate, with mutants that are planted there.
#![allow(clippy::arithmetic_side_effects, reason = "tests may panic")]

use super::engine::{Plan, run};
use super::list::{Mutant, Place, Span, drawn};
use super::report::{Outcome, Report};
use super::suites::Build;
use super::{BUILDS, TABLE};
use crate::tree::{self, Tree};
use crate::verdict::Verdict;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// The mutant that replaces the first `what` in the function whose text starts with `function` and ends with a brace at the start
/// of a line.
pub(super) fn planted(source: &str, function: &str, what: &str, with: &str) -> Mutant {
    let place = |at: usize| {
        let before = &source[..at];
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap().chars().count() + 1;
        Place { line, column }
    };
    let start = source.find(function).unwrap();
    let end = start + source[start..].find("\n}\n").unwrap() + 2;
    let change = start + source[start..].find(what).unwrap();
    let key = format!("a/src/lib.rs: replace {what} with {with} in {function}");
    Mutant {
        name: key.clone(),
        key,
        package: "a".to_owned(),
        file: "a/src/lib.rs".to_owned(),
        function: Some(Span { start: place(start), end: place(end) }),
        span: Span { start: place(change), end: place(change + what.len()) },
        replacement: with.to_owned(),
    }
}

const CODE: &str = r#"//! A crate to mutate.
#![deny(unused_variables, unsafe_code)]

pub mod more;

pub fn sum(a: u32, b: u32) -> u32 {
    a + b
}

pub fn unnoticed(a: u32) -> u32 {
    a + 1
}

pub fn never(a: u32) -> u32 {
    a + 1
}

pub const fn fixed() -> u32 {
    4
}

pub fn ended() -> bool {
    true
}

pub const HIGH: u32 = {
    3 * 3
};

pub const COUNTED: u32 = {
    let mut left = 9;
    while left > 0 {
        left -= 1;
    }
    left
};

pub fn flaky() -> u32 {
    5
}

pub fn slow() -> u32 {
    8
}

pub struct Odd(pub u32);

pub fn odd() -> Odd {
    Odd(3)
}

#[cfg(windows)]
pub fn elsewhere() -> u32 {
    7
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adds() {
        assert_eq!(sum(1, 2), 3);
        assert_eq!(fixed(), 4);
        assert_eq!(odd().0, 3);
        let _ = unnoticed(1);
    }

    #[test]
    fn ends() {
        while !ended() {}
    }
}
"#;

/// Another file of it.
const MORE: &str = "//! More.

pub fn more() -> u32 {
    6
}

pub fn is_low(n: u32) -> bool {
    matches!(n, 2..=super::HIGH)
}
";

/// Tests that fail with a mutant the first time only: at once, and by taking too long.
const FLAKY: &str = r#"#[test]
fn fails_once() {
    let noted = std::env::temp_dir().join("noted");
    if a::flaky() != 5 && !noted.exists() {
        std::fs::write(noted, "").unwrap();
        panic!("the first time");
    }
}

#[test]
fn hangs_once() {
    let noted = std::env::temp_dir().join("noted too");
    if a::slow() != 8 && !noted.exists() {
        std::fs::write(noted, "").unwrap();
        loop {
            std::thread::park();
        }
    }
}
"#;

/// A workspace in a temporary folder.
struct Fixture {
    root: PathBuf,
}

impl Fixture {
    fn new(name: &str, code: &str) -> Self {
        let folder = format!("hmc-xtask-{name}-{}", std::process::id());
        let root = std::fs::canonicalize(std::env::temp_dir()).unwrap().join(folder);
        let _ = std::fs::remove_dir_all(&root);
        let package = "[package]\nname = \"a\"\nversion = \"0.1.0\"\nedition = \"2024\"\n";
        for (path, text) in [
            ("Cargo.toml", "[workspace]\nresolver = \"3\"\nmembers = [\"a\"]\n"),
            ("a/Cargo.toml", package),
            ("a/src/lib.rs", code),
            ("a/src/more.rs", MORE),
            ("a/tests/flaky.rs", FLAKY),
        ] {
            let path = root.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        Self { root }
    }

    /// Assesses so many of them; the seed draws the first one first and the last one last.
    fn run(&self, mutants: &[Mutant], sample: usize, equivalent: &str) -> Result<Report, Verdict> {
        let ends = |all: &[Mutant]| [all.first(), all.last()].map(|m| m.map(|m| m.key.clone()));
        let seed = (1..).find(|seed| ends(&drawn(mutants.to_vec(), *seed)) == ends(mutants));
        let plan = Plan {
            root: &self.root,
            work: self.root.join("target/mutants"),
            packages: vec!["a"],
            builds: vec![Build { word: "", packages: &["a"], arguments: &["--offline"] }],
            more: &|_, _| Ok(Vec::new()),
            table: &[],
            sample,
            jobs: 2,
            seed: seed.unwrap(),
            slack: Duration::from_secs(2),
            patience: Duration::MAX,
            equivalent,
        };
        run(&plan, mutants, mutants.to_vec())
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.root);
    }
}

#[test]
fn each_mutant_of_a_workspace_comes_to_what_it_is() {
    let fixture = Fixture::new("fates", CODE);
    let of = |function: &str, what: &str, with: &str| planted(CODE, function, what, with);
    let caught = of("pub fn sum", "+", "-");
    let both = of("pub fn sum", "a + b", "0");
    let unnoticed = of("pub fn unnoticed", "+", "-");
    let never = of("pub fn never", "+", "-");
    let alone = of("pub const fn fixed", "4", "5");
    let hangs = of("pub fn ended", "true", "false");
    let flaky = of("pub fn flaky", "5", "6");
    let slow = of("pub fn slow", "8", "9");
    let unviable = of("pub fn odd", "Odd(3)", "Default::default()");
    let absent = of("pub fn elsewhere", "7", "8");
    let endless = Mutant { function: None, ..of("pub const COUNTED", "-=", "*=") };
    let afar = Mutant { function: None, ..of("pub const HIGH", "*", "-") };
    let mutants = [
        &caught, &both, &unnoticed, &never, &alone, &hangs, &unviable, &endless, &afar, &absent,
        &flaky, &slow,
    ]
    .map(Clone::clone);
    let report = fixture.run(&mutants, mutants.len(), "").unwrap();
    let fates: BTreeMap<&str, (&Outcome, bool)> = report
        .rows
        .iter()
        .map(|row| (row.mutant.key.as_str(), (&row.outcome, row.alone)))
        .collect();
    assert_eq!(fates.len(), mutants.len(), "{fates:?}");
    let fate = |mutant: &Mutant| fates[mutant.key.as_str()];
    let by_adds = Outcome::Caught("a: unit tests (lib)::tests::adds".to_owned());
    assert_eq!(fate(&caught), (&by_adds, false));
    assert_eq!(fate(&both), (&by_adds, false));
    assert_eq!(fate(&alone), (&by_adds, true), "no switch stands in a const fn");
    assert_eq!(fate(&unviable), (&Outcome::Unviable, false));
    assert_eq!(fate(&endless), (&Outcome::Unviable, false), "the compiler would not end");
    assert_eq!(fate(&afar), (&Outcome::Unviable, false), "wrong in another file");
    assert_eq!(fate(&absent), (&Outcome::Absent, false));
    let missed = |mutant: &Mutant| match fate(mutant).0 {
        Outcome::Missed(why) => why.clone(),
        other => panic!("{}: {other:?}", mutant.key),
    };
    assert_eq!(missed(&unnoticed), "1 suites execute it and pass");
    assert_eq!(missed(&never), "never executed by any suite");
    assert!(missed(&flaky).contains("passed when it was run again: a: flaky::fails_once"));
    assert!(missed(&slow).contains("passed when it was run again: a: flaky (time: more than"));
    let Outcome::Caught(how) = fate(&hangs).0 else { panic!("{:?}", fate(&hangs)) };
    assert!(how.contains("time: more than"), "{how}");
    // 4 of 8 that compile.
    assert!(report.assess(50).is_ok() && report.assess(51).is_err());
    let there = std::fs::read_to_string(fixture.root.join("a/src/lib.rs")).unwrap();
    assert_eq!(there, CODE, "the tree itself is never changed");

    // The same again, of which two are listed as equivalent: one rightly, one that a test catches.
    let list = format!("{} => nobody looks\n{} => wrong\n", unnoticed.key, caught.key);
    let again = fixture.run(&mutants[..3], 3, &list).unwrap();
    let outcome =
        |mutant: &Mutant| &again.rows.iter().find(|r| r.mutant.key == mutant.key).unwrap().outcome;
    assert_eq!(outcome(&unnoticed), &Outcome::Equivalent("nobody looks".to_owned()));
    assert_eq!(outcome(&caught), &by_adds);
    let why = again.assess(0).unwrap_err();
    assert!(why.contains("is listed as equivalent and was caught"), "{why}");
}

#[test]
fn against_tests_that_fail_without_a_mutant_there_is_no_figure() {
    let broken = CODE.replace("sum(1, 2), 3", "sum(1, 2), 4");
    let fixture = Fixture::new("broken", &broken);
    // The file of the one that is not drawn is in the copy all the same.
    let mut more = planted(MORE, "pub fn more", "6", "7");
    more.file = "a/src/more.rs".to_owned();
    let of = |with: &str| planted(&broken, "pub fn sum", "+", with);
    let mutants = [of("-"), of("*"), of("/"), more];
    let Err(Verdict::Failed(why)) = fixture.run(&mutants, 1, "") else {
        panic!("a broken baseline passed")
    };
    assert!(
        why.contains("a: unit tests (lib) fails without a mutant") && why.contains("tests::adds"),
        "{why}"
    );
}

#[test]
fn the_table_names_files_and_suites_that_are_there() {
    let root = tree::root();
    let tree = Tree::read(&root).unwrap();
    for (path, suites) in TABLE {
        assert!(tree.rust().any(|f| f.path.starts_with(path)), "{path}");
        for suite in suites {
            let is_there = *suite == "clusters" || tree.exists(&format!("tests/tests/{suite}.rs"));
            assert!(is_there, "{suite} of {path}");
        }
    }
    for build in BUILDS {
        for package in build.packages {
            assert!(tree.crates().iter().any(|c| c.name == *package), "{package}");
        }
    }
}
