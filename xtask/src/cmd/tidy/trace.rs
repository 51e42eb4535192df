//! Requirements and their tests: each MUST of docs/WIRE.md, each row of docs/FAULTS.md, each process that SECURITY.md
//! says is kept out, and each assumption of use of docs/SAFETY.md names the tests that show it, and each named test exists,
//! runs, and is where it is said to be. An assumption may name a command that proves it instead.
//!
//! A test is written `file::name`, where `file` is the end of its path without `.rs`. What a test
//! shows is for a reader to decide; that it is compiled, is run by a command, and can fail is checked here ([`programs`]).

use super::finding::Finding;
use super::programs;
use crate::tree::{File, Tree};
use std::collections::{BTreeMap, BTreeSet};

/// The page whose MUSTs are traced.
const WIRE: &str = "docs/WIRE.md";

/// The page with the table of faults.
const FAULTS: &str = "docs/FAULTS.md";

/// The page with the table of unauthenticated processes.
const SECURITY: &str = "SECURITY.md";

/// The page with the assumptions of use of hmc-core.
const SAFETY: &str = "docs/SAFETY.md";

/// How the number of an assumption begins.
const ASSUMPTION: &str = "AoU-";

/// How a proof is named.
const PROOF: &str = "`cargo xtask ";

/// The head of that table's last column.
const SHOWN: &str = "shown by";

/// Rows of the table of faults.
const FAULT_ROWS: usize = 49;

/// The mark of a row whose subject does not exist yet.
const LATER: &str = "comes with ";

/// The numbers of traced items.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Traced {
    /// Rules of the wire with at least one test.
    pub(crate) rules: usize,
    /// Faults with at least one test.
    pub(crate) faults: usize,
    /// Faults of transports that do not exist yet.
    pub(crate) later: usize,
    /// Kinds of unauthenticated processes.
    pub(crate) processes: usize,
    /// Assumptions of use of hmc-core.
    pub(crate) assumptions: usize,
    /// Different tests that are named.
    pub(crate) tests: usize,
}

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    trace(tree).1
}

/// The traced items, and their findings.
pub(crate) fn trace(tree: &Tree) -> (Traced, Vec<Finding>) {
    let tests = Tests::of(tree);
    let mut traced = Traced::default();
    let mut named = BTreeSet::new();
    let mut out = Vec::new();
    let pages: [(&str, Reader); 4] =
        [(WIRE, wire), (FAULTS, faults), (SECURITY, processes), (SAFETY, assumptions)];
    for (path, reader) in pages {
        match tree.file(path) {
            Some(page) => reader(page, &tests, &mut traced, &mut named, &mut out),
            None => out.push(Finding::new(path, 0, "the page is missing")),
        }
    }
    traced.tests = named.len();
    (traced, out)
}

type Reader = fn(&File, &Tests, &mut Traced, &mut BTreeSet<String>, &mut Vec<Finding>);

/// Every sentence with a MUST carries the mark of a rule (`[W7]`), and every rule has its row.
fn wire(
    page: &File,
    tests: &Tests,
    traced: &mut Traced,
    named: &mut BTreeSet<String>,
    out: &mut Vec<Finding>,
) {
    let mut marked = BTreeSet::new();
    let mut rows: BTreeMap<String, usize> = BTreeMap::new();
    for (line, sentence) in sentences(&page.text) {
        let cells = cells(&sentence);
        if let Some(mark) = cells.first().filter(|c| is_mark(c)) {
            if rows.insert((*mark).to_owned(), line).is_some() {
                out.push(Finding::new(&page.path, line, format!("{mark} has two rows")));
            }
            let evidence = cells.last().copied().unwrap_or_default();
            if tests.cited(page, line, evidence, named, out) > 0 {
                traced.rules = traced.rules.saturating_add(1);
            } else {
                out.push(Finding::new(&page.path, line, format!("{mark} names no test")));
            }
            continue;
        }
        let found = marks(&sentence);
        if without_code(&sentence).contains("MUST") && found.is_empty() {
            let shown: String = sentence.chars().take(60).collect();
            out.push(Finding::new(&page.path, line, format!("a MUST without a mark: {shown}...")));
        }
        marked.extend(found);
    }
    for mark in marked.iter().filter(|m| !rows.contains_key(*m)) {
        out.push(Finding::new(&page.path, 0, format!("{mark} has no row that names its tests")));
    }
    for (mark, line) in rows.iter().filter(|(m, _)| !marked.contains(*m)) {
        out.push(Finding::new(&page.path, *line, format!("no rule is marked {mark}")));
    }
}

/// All rows are there, in order; each names tests, or says with what it comes.
fn faults(
    page: &File,
    tests: &Tests,
    traced: &mut Traced,
    named: &mut BTreeSet<String>,
    out: &mut Vec<Finding>,
) {
    let mut want = 1_usize;
    for (line, row) in (1_usize..).zip(page.text.lines()) {
        let cells = cells(row);
        let Some(number) = cells.first().and_then(|c| c.parse::<usize>().ok()) else {
            continue;
        };
        if number != want {
            out.push(Finding::new(&page.path, line, format!("row {number} where {want} belongs")));
        }
        want = number.saturating_add(1);
        let evidence = cells.last().copied().unwrap_or_default();
        let cited = tests.cited(page, line, evidence, named, out);
        if cited > 0 {
            traced.faults = traced.faults.saturating_add(1);
        } else if evidence.contains(LATER) {
            traced.later = traced.later.saturating_add(1);
        } else {
            let what = format!("row {number} names no test and does not say what it {LATER}");
            out.push(Finding::new(&page.path, line, what));
        }
    }
    if want.saturating_sub(1) != FAULT_ROWS {
        out.push(Finding::new(&page.path, 0, format!("the table has not {FAULT_ROWS} rows")));
    }
}

/// Each process of the table names the tests that show what stops it, or the page with the known limits; tests that the
/// text names exist.
fn processes(
    page: &File,
    tests: &Tests,
    traced: &mut Traced,
    named: &mut BTreeSet<String>,
    out: &mut Vec<Finding>,
) {
    let mut inside = false;
    for (line, row) in (1_usize..).zip(page.text.lines()) {
        let cited = tests.cited(page, line, row, named, out);
        let last = cells(row).last().copied();
        if !inside || last.is_none() {
            inside = last == Some(SHOWN);
            continue;
        }
        if last.is_some_and(|cell| cell.starts_with("---")) {
            continue;
        }
        traced.processes = traced.processes.saturating_add(1);
        if cited == 0 {
            out.push(Finding::new(&page.path, line, "a process without a test of what stops it"));
        }
    }
    if traced.processes == 0 {
        out.push(Finding::new(&page.path, 0, "the table of processes is missing"));
    }
}

/// The assumptions are numbered without a gap, and each names the tests or the proof of the core's part.
fn assumptions(
    page: &File,
    tests: &Tests,
    traced: &mut Traced,
    named: &mut BTreeSet<String>,
    out: &mut Vec<Finding>,
) {
    for (line, row) in (1_usize..).zip(page.text.lines()) {
        let cells = cells(row);
        let Some(number) = cells.first().and_then(|c| c.strip_prefix(ASSUMPTION)) else {
            continue;
        };
        traced.assumptions = traced.assumptions.saturating_add(1);
        if number != traced.assumptions.to_string() {
            let what = format!("{ASSUMPTION}{number} where {} belongs", traced.assumptions);
            out.push(Finding::new(&page.path, line, what));
        }
        let evidence = cells.last().copied().unwrap_or_default();
        if tests.cited(page, line, evidence, named, out) == 0 && !evidence.contains(PROOF) {
            let what = format!("{ASSUMPTION}{number} names neither a test nor a proof");
            out.push(Finding::new(&page.path, line, what));
        }
    }
    if traced.assumptions == 0 {
        out.push(Finding::new(&page.path, 0, "the assumptions of use are missing"));
    }
}

/// All tests of the project that are compiled, and what keeps one from showing anything.
pub(super) struct Tests(programs::Tests);

impl Tests {
    pub(super) fn of(tree: &Tree) -> Self {
        Self(programs::tests(tree))
    }

    /// How many of the tests in `text` exist; the others are findings.
    pub(super) fn cited(
        &self,
        page: &File,
        line: usize,
        text: &str,
        named: &mut BTreeSet<String>,
        out: &mut Vec<Finding>,
    ) -> usize {
        let mut found = 0_usize;
        // Every second piece stands between backticks.
        for citation in text.split('`').skip(1).step_by(2) {
            let Some((file, name)) = citation.rsplit_once("::") else {
                continue;
            };
            let end = format!("/{file}");
            let mut homes = self.0.iter().filter_map(|(path, names)| {
                let is_home = path == file || path.ends_with(&end);
                names.get(name).filter(|_| is_home)
            });
            match (homes.next(), homes.next()) {
                (Some(None), None) => {
                    named.insert(citation.to_owned());
                    found = found.saturating_add(1);
                }
                (Some(Some(flaw)), None) => {
                    let what = format!("`{citation}` {}", flaw.words());
                    out.push(Finding::new(&page.path, line, what));
                }
                (None, _) => {
                    let what = format!("no test `{citation}` in any program of tests");
                    out.push(Finding::new(&page.path, line, what));
                }
                (Some(_), Some(_)) => {
                    let what = format!("`{citation}` is in several files: write more of the path");
                    out.push(Finding::new(&page.path, line, what));
                }
            }
        }
        found
    }
}

/// The sentences of a page, with the line on which each begins. A row of a table is one sentence.
fn sentences(text: &str) -> Vec<(usize, String)> {
    let mut out: Vec<(usize, String)> = Vec::new();
    let mut open: Option<(usize, String)> = None;
    let mut fenced = false;
    for (line, row) in (1_usize..).zip(text.lines()) {
        let row = row.trim();
        fenced ^= row.starts_with("```");
        let alone = row.starts_with('|') || row.starts_with('#');
        if fenced || row.is_empty() || alone || row.starts_with("- ") {
            out.extend(open.take());
        }
        if fenced || row.is_empty() {
            continue;
        }
        if alone {
            out.push((line, row.to_owned()));
            continue;
        }
        for word in row.split_whitespace() {
            let (_, sentence) = open.get_or_insert_with(|| (line, String::new()));
            sentence.push_str(word);
            sentence.push(' ');
            if word.ends_with('.') {
                out.extend(open.take());
            }
        }
    }
    out.extend(open);
    out
}

/// `W` and digits.
fn is_mark(text: &str) -> bool {
    text.strip_prefix('W').is_some_and(|n| !n.is_empty() && n.chars().all(|c| c.is_ascii_digit()))
}

/// The marks `[W7]` of a sentence.
fn marks(sentence: &str) -> Vec<String> {
    sentence
        .split('[')
        .skip(1)
        .filter_map(|rest| rest.split_once(']'))
        .map(|(mark, _)| mark.to_owned())
        .filter(|mark| is_mark(mark))
        .collect()
}

/// A sentence without what stands between backticks.
fn without_code(sentence: &str) -> String {
    sentence.split('`').step_by(2).collect()
}

/// The cells of a row of a table; none of another line.
pub(super) fn cells(row: &str) -> Vec<&str> {
    let row = row.trim();
    match row.strip_prefix('|').and_then(|r| r.strip_suffix('|')) {
        Some(inner) => inner.split('|').map(str::trim).collect(),
        None => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::{FAULT_ROWS, Traced, trace};
    use crate::tree::Tree;

    const CODE: &str = "//! x\n#[test]\nfn seen() { assert!(a()); }\n#[test]\n#[ignore = \"by hand\"]\nfn kept() { assert!(a()); }\n#[test]\nfn hollow() {}\nfn helper() {}\nproptest! { #[test]\n #[cfg(unix)] fn random(a: u8) { assert!(a()); } }\n";
    const ROOT: (&str, &str) = ("Cargo.toml", "[workspace]\nmembers = [\"a\", \"b\"]\n");
    const A: (&str, &str) = ("a/Cargo.toml", "[package]\nname = \"a\"\n");
    const B: (&str, &str) = ("b/Cargo.toml", "[package]\nname = \"b\"\n");

    fn assess(wire: &str, faults: &str) -> (Traced, Vec<String>) {
        let tree = Tree::planted(&[
            ("docs/WIRE.md", wire),
            ("docs/FAULTS.md", faults),
            ("SECURITY.md", SECURITY),
            ("docs/SAFETY.md", SAFETY),
            ("hmc-py/tests/test_two.py", "def test_seen(pair):\n    assert pair\n"),
            ROOT,
            A,
            B,
            ("a/tests/one.rs", CODE),
            ("a/tests/deep/lost.rs", CODE),
            ("b/tests/one.rs", "//! x\n#[test]\nfn seen() { assert!(a()); }\n"),
        ]);
        let (traced, findings) = trace(&tree);
        (traced, findings.into_iter().map(|f| f.what).collect())
    }

    fn rows(evidence: &str) -> String {
        (1..=FAULT_ROWS).map(|n| format!("| {n} | fault | {evidence} |\n")).collect()
    }

    const WIRE: &str = "`MUST` is a word. It MUST\nhold [W1]. That MUST too [W2].\n\n| W1 | `a/tests/one::seen` |\n| W2 | `one::random` |\n";

    const SECURITY: &str = "By `one::random`.\n\n| who | shown by |\n| --- | --- |\n| any | `test_two::test_seen` |\n\n| a | b |\n";

    const SAFETY: &str =
        "| AoU-1 | a | b | `one::random` |\n| AoU-2 | `x::y` | b | `cargo xtask nopanic` |\n";

    #[test]
    fn an_assumption_needs_a_test_or_a_proof() {
        let assess = |page: &str| {
            let code = [ROOT, A, B, ("a/tests/one.rs", CODE), ("docs/SAFETY.md", page)];
            let found = trace(&Tree::planted(&code)).1.into_iter().map(|f| f.to_string());
            found.filter(|f| f.starts_with("docs/SAFETY.md")).collect::<Vec<_>>()
        };
        assert_eq!(assess(SAFETY), Vec::<String>::new());
        let one = |page: &str, want: &str| {
            let found = assess(page);
            assert!(found.len() == 1 && found[0].contains(want), "{want}: {found:?}");
        };
        one(&SAFETY.replace("`cargo xtask nopanic`", "somebody"), ":2: AoU-2 names neither");
        one(&SAFETY.replace("AoU-2", "AoU-3"), "AoU-3 where 2 belongs");
        one(&SAFETY.replace("AoU-", "A"), "the assumptions of use are missing");
        let gone = assess(&SAFETY.replace("one::random", "one::gone"));
        assert_eq!(gone.len(), 2, "the test, and that there is none: {gone:?}");
    }

    #[test]
    fn a_process_needs_a_test() {
        let assess = |page: &str| {
            let pages = [("docs/WIRE.md", WIRE), ("docs/FAULTS.md", &rows("comes with UCX"))];
            let code = [
                ROOT,
                A,
                B,
                ("a/tests/one.rs", CODE),
                ("b/tests/one.rs", CODE),
                ("SECURITY.md", page),
            ];
            trace(&Tree::planted(&[&pages[..], &code].concat())).1.len()
        };
        let whole = "| who | shown by |\n| --- | --- |\n| any | `a/tests/one::seen` |\n";
        // The pages of the rules name tests that are in several of these files.
        let other = assess(whole);
        assert_eq!(assess(&whole.replace("one::seen", "one::none")), other + 2);
        assert_eq!(assess(&whole.replace("`a/tests/one::seen`", "somebody")), other + 1);
        assert_eq!(assess("nothing"), other + 1);
    }

    #[test]
    fn a_page_whose_rules_name_tests_passes() {
        let (traced, findings) = assess(WIRE, &rows("`one::random`"));
        assert_eq!(findings, Vec::<String>::new());
        assert_eq!(
            traced,
            Traced {
                rules: 2,
                faults: FAULT_ROWS,
                later: 0,
                processes: 1,
                assumptions: 2,
                tests: 3
            }
        );
        let (traced, findings) = assess(WIRE, &rows("comes with UCX"));
        assert_eq!((findings.len(), traced.later), (0, FAULT_ROWS));
    }

    #[test]
    fn planted_gaps_are_found() {
        let whole = rows("`one::random`");
        let one = |wire: &str, want: &str| {
            let (_, findings) = assess(wire, &whole);
            assert!(findings.iter().any(|f| f.contains(want)), "{want}: {findings:?}");
        };
        one(&WIRE.replace("hold [W1]", "hold"), "no rule is marked W1");
        one(&WIRE.replace("too [W2]", "too. [W2] More"), "without a mark");
        one(&WIRE.replace("one::random", "one::kept"), "`one::kept` is ignored, and no command");
        one(&WIRE.replace("one::random", "one::hollow"), "`one::hollow` asserts nothing");
        one(&WIRE.replace("one::random", "lost::random"), "no test `lost::random` in any program");
        one(&WIRE.replace("one::random", "one::helper"), "no test `one::helper`");
        one(&WIRE.replace("a/tests/one::seen", "one::seen"), "several files");
        one(&WIRE.replace("`a/tests/one::seen`", "later"), "names no test");
        one(&WIRE.replace("| W2 | `one::random` |", ""), "W2 has no row");
        assert_eq!(assess(WIRE, &rows("nobody knows")).1.len(), FAULT_ROWS);
        assert_eq!(assess(WIRE, &whole.replace("| 9 |", "| 10 |")).1.len(), 2);
    }
}
