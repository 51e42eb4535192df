//! Walkthroughs of ARCHITECTURE.md: each step that names a function, as `path/to/file.rs::function`, names one that is there, and no
//! walkthrough has more steps than a reader follows.

use super::finding::Finding;
use super::items::Items;
use crate::tree::{File, Tree};

/// The page with walkthroughs.
const PAGE: &str = "ARCHITECTURE.md";

/// How headings of walkthroughs begin.
const HEADING: &str = "## Walkthrough";

/// Steps of one walkthrough, at most.
const MAX_STEPS: usize = 12;

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let Some(page) = tree.file(PAGE) else { return Vec::new() };
    let mut out = Vec::new();
    let mut steps = None;
    for (number, line) in (1_usize..).zip(page.text.lines()) {
        if line.starts_with("## ") {
            steps = line.starts_with(HEADING).then_some(0_usize);
        }
        if let Some(count) = &mut steps
            && line.split_once(". ").is_some_and(|(n, _)| n.parse::<u32>().is_ok())
        {
            *count = count.saturating_add(1);
            if *count > MAX_STEPS {
                let what = format!("a walkthrough of more than {MAX_STEPS} steps");
                out.push(Finding::new(PAGE, number, what));
            }
        }
        for span in line.split('`').skip(1).step_by(2) {
            if let Some((path, name)) = span.split_once(".rs::")
                && !is_there(tree.file(&format!("{path}.rs")), name)
            {
                out.push(Finding::new(PAGE, number, format!("no function `{span}`")));
            }
        }
    }
    out
}

/// Whether a file has a function of that name that a release has.
fn is_there(file: Option<&File>, name: &str) -> bool {
    let Some(file) = file else { return false };
    let items = Items::of(&file.text, false);
    items.functions.iter().any(|f| f.name == name && !f.is_test)
}

#[cfg(test)]
mod tests {
    use super::{MAX_STEPS, check};
    use crate::tree::Tree;

    fn findings(page: &str) -> usize {
        let code = "//! Head.\nimpl A {\n    fn put(&self) {}\n}\n#[test]\nfn tested() {}\n";
        check(&Tree::planted(&[("ARCHITECTURE.md", page), ("a/src/b.rs", code)])).len()
    }

    #[test]
    fn functions_that_are_not_there_are_found() {
        assert_eq!(findings("`a/src/b.rs::put`, `put`, `a/src/b.rs` and `b::put`\n"), 0);
        for span in ["a/src/b.rs::get", "a/src/c.rs::put", "b.rs::put", "a/src/b.rs::tested"] {
            assert_eq!(findings(&format!("1. `{span}`\n")), 1, "{span}");
        }
    }

    #[test]
    fn walkthroughs_have_few_steps() {
        let steps = |n: usize| (1..=n).map(|n| format!("{n}. a\n")).collect::<String>();
        let long = steps(MAX_STEPS + 1);
        assert_eq!(findings(&format!("## Walkthrough: a put\n{}", steps(MAX_STEPS))), 0);
        assert_eq!(findings(&format!("## Walkthrough: a put\n{long}")), 1);
        assert_eq!(findings(&format!("## Invariants\n{long}")), 0);
        let two = steps(MAX_STEPS);
        assert_eq!(findings(&format!("## Walkthrough: a\n{two}## Walkthrough: b\n{two}")), 0);
    }
}
