//! Promises and their tests: what README.md, SECURITY.md and docs/FAULTS.md say in the parts that [`PARTS`] names has a
//! row in docs/PROMISES.md, each row quotes what stands there, and its tests run and can fail.
//!
//! What a sentence promises, and whether a test shows it, is for a reader to decide.

use super::finding::Finding;
use super::trace::{Tests, cells};
use crate::tree::{File, Tree};
use std::collections::BTreeSet;

/// The page of the promises.
const PROMISES: &str = "docs/PROMISES.md";

/// The mark of a row whose quotation promises nothing.
const LIMIT: &str = "a limit";

/// The page whose every unit is a promise.
const FRONT: &str = "README.md";

/// What is quoted in part has at least so many characters.
const QUOTE: usize = 13;

/// What of a section of a page is promised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// The sentences of that paragraph, counted from 1.
    Paragraph(usize),
    /// The sentences of all paragraphs.
    Paragraphs,
    /// The sentences of the list.
    List,
    /// The first cells of the table, but of rows whose last cell is `not yet`.
    Rows,
}

/// Page, heading, and the promises under it.
const PARTS: [(&str, &str, Part); 9] = [
    (FRONT, "HMC in Rust", Part::Paragraph(2)),
    (FRONT, "What works today", Part::Rows),
    (FRONT, "What works today", Part::Paragraphs),
    ("SECURITY.md", "Threat model", Part::Rows),
    ("SECURITY.md", "Threat model", Part::List),
    ("SECURITY.md", "Unauthenticated processes", Part::Paragraphs),
    ("SECURITY.md", "Not defended", Part::List),
    ("docs/FAULTS.md", "Fault handling", Part::Paragraph(2)),
    ("docs/FAULTS.md", "Memory after the end of a session", Part::Rows),
];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    assess(tree, &PARTS)
}

/// Something that is promised: a sentence, or the first cell of a row.
struct Unit<'a> {
    page: &'a str,
    line: usize,
    text: String,
    has_row: bool,
}

fn assess(tree: &Tree, parts: &[(&str, &str, Part)]) -> Vec<Finding> {
    let Some(page) = tree.file(PROMISES) else {
        return vec![Finding::new(PROMISES, 0, "the page is missing")];
    };
    let mut out = Vec::new();
    let mut units: Vec<Unit<'_>> = Vec::new();
    for (path, heading, part) in parts {
        let text = tree.file(path).map_or("", |f| f.text.as_str());
        let found = statements(text, heading, *part);
        if found.is_empty() {
            let what = format!("nothing is promised under `{heading}`: is it called otherwise?");
            out.push(Finding::new(path, 0, what));
        }
        let unit = |(line, text)| Unit { page: path, line, text, has_row: false };
        units.extend(found.into_iter().map(unit));
    }
    rows(page, &Tests::of(tree), &mut units, &mut out);
    for unit in units.iter().filter(|unit| !unit.has_row) {
        let shown: String = unit.text.chars().take(60).collect();
        out.push(Finding::new(unit.page, unit.line, format!("no row in {PROMISES}: {shown}")));
    }
    out
}

/// Checks the rows of the page, and notes which units have one.
fn rows(page: &File, tests: &Tests, units: &mut [Unit<'_>], out: &mut Vec<Finding>) {
    let mut named = BTreeSet::new();
    let mut of = String::new();
    for (line, row) in (1_usize..).zip(page.text.lines()) {
        if let Some(heading) = row.strip_prefix("## ") {
            heading.trim().clone_into(&mut of);
        }
        let cells = cells(row);
        let (Some(quote), Some(evidence)) = (cells.first(), cells.get(1)) else { continue };
        if quote.starts_with("---") || *quote == "promise" {
            continue;
        }
        let quote = plain(quote);
        let shown: String = quote.chars().take(60).collect();
        match quoted(units, &of, &quote).as_mut_slice() {
            [unit] => unit.has_row = true,
            [] => out.push(Finding::new(&page.path, line, format!("{of} does not say: {shown}"))),
            _ => out.push(Finding::new(&page.path, line, format!("{of} says it twice: {shown}"))),
        }
        let cited = tests.cited(page, line, evidence, &mut named, out);
        if *evidence == LIMIT && of == FRONT {
            out.push(Finding::new(&page.path, line, format!("{FRONT} promises: {shown}")));
        } else if cited == 0 && *evidence != LIMIT {
            out.push(Finding::new(&page.path, line, format!("no test shows: {shown}")));
        }
    }
}

/// The units of a page that a row's left cell quotes: all of one, or else a part that is long enough.
fn quoted<'u, 'a>(units: &'u mut [Unit<'a>], of: &str, quote: &str) -> Vec<&'u mut Unit<'a>> {
    let whole = units.iter().any(|unit| unit.page == of && unit.text == quote);
    let part = quote.chars().count() >= QUOTE;
    let is_quoted = |text: &str| if whole { text == quote } else { part && text.contains(quote) };
    units.iter_mut().filter(|unit| unit.page == of && is_quoted(&unit.text)).collect()
}

/// Without emphasis, code marks and the targets of links; each gap is one blank.
fn plain(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, link)) = rest.split_once('[') {
        out.push_str(before);
        match link.split_once("](").and_then(|(name, after)| Some((name, after.split_once(')')?.1)))
        {
            Some((name, after)) => {
                out.push_str(name);
                rest = after;
            }
            None => {
                out.push('[');
                rest = link;
            }
        }
    }
    out.push_str(rest);
    let bare: String = out.chars().filter(|c| !matches!(c, '*' | '`')).collect();
    bare.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A piece of a section: lines that belong together, with their numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece<'a> {
    Row(usize, &'a str),
    Item(Vec<(usize, &'a str)>),
    Paragraph(Vec<(usize, &'a str)>),
}

/// The promises in a part of a page, with the lines.
fn statements(text: &str, heading: &str, part: Part) -> Vec<(usize, String)> {
    let pieces = pieces(text, heading);
    let mut out = Vec::new();
    let mut paragraph = 0_usize;
    let mut head = true;
    for piece in &pieces {
        match (piece, part) {
            (Piece::Row(line, row), Part::Rows) => {
                let cells = cells(row);
                let first = plain(cells.first().copied().unwrap_or_default());
                if first.starts_with("---") {
                    head = false;
                } else if !head && cells.last() != Some(&"not yet") {
                    out.push((*line, first));
                }
            }
            (Piece::Item(lines), Part::List) | (Piece::Paragraph(lines), Part::Paragraphs) => {
                out.extend(sentences(lines));
            }
            (Piece::Paragraph(lines), Part::Paragraph(wanted)) => {
                paragraph = paragraph.saturating_add(1);
                if paragraph == wanted {
                    out.extend(sentences(lines));
                }
            }
            _ => {}
        }
        // A table ends with what is none of its rows.
        head |= !matches!(piece, Piece::Row(..));
    }
    // What only leads over to a list or a table says nothing itself.
    out.retain(|(_, sentence)| !sentence.ends_with(':'));
    out
}

/// The pieces of the section under a heading, up to the next heading.
fn pieces<'a>(text: &'a str, heading: &str) -> Vec<Piece<'a>> {
    let mut out: Vec<Piece<'a>> = Vec::new();
    let mut inside = false;
    let mut open = false;
    let mut fenced = false;
    for (number, line) in (1_usize..).zip(text.lines()) {
        let line = line.trim();
        if line.starts_with("```") {
            fenced = !fenced;
            open = false;
        } else if fenced {
        } else if line.starts_with('#') {
            inside = line.trim_start_matches('#').trim() == heading;
            open = false;
        } else if !inside || line.is_empty() {
            open = false;
        } else if line.starts_with('|') {
            out.push(Piece::Row(number, line));
            open = false;
        } else if let Some(item) = line.strip_prefix("- ") {
            out.push(Piece::Item(vec![(number, item)]));
            open = true;
        } else if let Some(Piece::Item(lines) | Piece::Paragraph(lines)) =
            out.last_mut().filter(|_| open)
        {
            lines.push((number, line));
        } else {
            out.push(Piece::Paragraph(vec![(number, line)]));
            open = true;
        }
    }
    out
}

/// The sentences of lines, each with the line on which it begins.
fn sentences(lines: &[(usize, &str)]) -> Vec<(usize, String)> {
    let mut out = Vec::new();
    let mut open: Option<(usize, String)> = None;
    for (number, line) in lines {
        for word in line.split_whitespace() {
            let (_, sentence) = open.get_or_insert_with(|| (*number, String::new()));
            sentence.push_str(word);
            sentence.push(' ');
            if word.trim_end_matches(['*', ')']).ends_with('.') {
                out.extend(open.take());
            }
        }
    }
    out.extend(open);
    out.into_iter().map(|(line, sentence)| (line, plain(&sentence))).collect()
}

#[cfg(test)]
mod tests {
    use super::{FRONT, Part, assess, plain, statements};
    use crate::tree::Tree;

    const PAGE: &str = "# Top\n\nFirst one. It is.\n\nIt never **hangs**. It [never](x.md) lies,\nnor `does` it wait.\n\n\
        ## Works\n\n| a | state |\n|---|---|\n| shm here | works |\n| rdma | not yet |\n\nHow:\n\n- One item. Two of\n  them.\n- Three.\n";

    #[test]
    fn the_parts_of_a_page_are_found() {
        let texts = |heading, part| -> Vec<String> {
            statements(PAGE, heading, part).into_iter().map(|(_, text)| text).collect()
        };
        assert_eq!(
            texts("Top", Part::Paragraph(2)),
            ["It never hangs.", "It never lies, nor does it wait."]
        );
        assert_eq!(texts("Works", Part::Rows), ["shm here"]);
        assert_eq!(texts("Works", Part::List), ["One item.", "Two of them.", "Three."]);
        assert_eq!(texts("Works", Part::Paragraphs), Vec::<String>::new());
        assert_eq!(statements(PAGE, "Top", Part::Paragraph(2))[1].0, 5);
        assert_eq!(plain("a  **b** `c` [d e](f#g) [h]"), "a b c d e [h]");
    }

    const PARTS: [(&str, &str, Part); 3] = [
        (FRONT, "Top", Part::Paragraph(2)),
        (FRONT, "Works", Part::Rows),
        ("SECURITY.md", "Works", Part::List),
    ];

    const ROWS: &str = "## README.md\n\n| promise | shown by |\n|---|---|\n| It never hangs. | `one::seen` |\n\
        | never lies, nor does it | `one::seen` |\n| shm here | `one::seen` |\n\n## SECURITY.md\n\n| One item. | a limit |\n\
        | Two of them. | `one::seen` |\n| Three. | a limit |\n";

    fn findings(promises: &str, page: &str) -> Vec<String> {
        let code = "#[test]\nfn seen() { assert!(a()); }\n#[test]\nfn hollow() {}\n";
        let tree = Tree::planted(&[
            ("docs/PROMISES.md", promises),
            (FRONT, page),
            ("SECURITY.md", PAGE),
            ("Cargo.toml", "members = [\"a\"]\n"),
            ("a/Cargo.toml", "[package]\nname = \"a\"\n"),
            ("a/tests/one.rs", code),
        ]);
        assess(&tree, &PARTS).into_iter().map(|f| f.to_string()).collect()
    }

    #[test]
    fn a_page_whose_promises_have_rows_passes() {
        assert_eq!(findings(ROWS, PAGE), Vec::<String>::new());
    }

    #[test]
    fn planted_gaps_are_found() {
        let one = |promises: &str, page: &str, want: &str| {
            let all = findings(promises, page);
            assert!(all.iter().any(|f| f.contains(want)), "{want}: {all:?}");
        };
        // A sentence, a row and an item that nobody took into the page.
        one(
            ROWS,
            &PAGE.replace("It never **hangs**.", "It never **hangs**. It is fast."),
            "no row in docs/PROMISES.md: It is fast.",
        );
        one(
            ROWS,
            &PAGE.replace("| rdma | not yet |", "| rdma | works |"),
            "no row in docs/PROMISES.md: rdma",
        );
        one(
            &ROWS.replace("| Three. | a limit |\n", ""),
            PAGE,
            "SECURITY.md:19: no row in docs/PROMISES.md: Three.",
        );
        // A row for what is not said, or is said twice, or too short to tell.
        one(ROWS, &PAGE.replace("hangs", "sleeps"), "README.md does not say: It never hangs.");
        one(&ROWS.replace("Two of them.", "Two of"), PAGE, "SECURITY.md does not say: Two of");
        one(ROWS, &PAGE.replace("First one. It is.\n\n", ""), "README.md does not say");
        one(ROWS, &PAGE.replace("wait.\n", "wait. It never hangs.\n"), "README.md says it twice");
        // Rows without tests that run, or that call a promise of the front page a limit.
        one(
            &ROWS.replace("shm here | `one::seen`", "shm here | somebody"),
            PAGE,
            "no test shows: shm here",
        );
        one(
            &ROWS.replace("shm here | `one::seen`", "shm here | a limit"),
            PAGE,
            "README.md promises: shm here",
        );
        one(
            &ROWS.replace("of them. | `one::seen`", "of them. | `one::gone`"),
            PAGE,
            "no test `one::gone`",
        );
        one(
            &ROWS.replace("of them. | `one::seen`", "of them. | `one::hollow`"),
            PAGE,
            "asserts nothing",
        );
        // A heading that is called otherwise now, or no page at all.
        one(ROWS, &PAGE.replace("## Works", "## Goes"), "nothing is promised under `Works`");
        assert_eq!(super::check(&Tree::default()).len(), 1);
    }
}
