//! Variables of the environment: each that the code names has its row in the page that says what it may be, and each row is
//! of one that the code names.

use super::finding::Finding;
use crate::tree::Tree;
use std::collections::BTreeMap;

/// The page with a row for each variable.
const PAGE: &str = "docs/ENVIRONMENT.md";

/// What the names of our variables begin with.
const OURS: &str = "HMC_";

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let Some(page) = tree.file(PAGE) else {
        return vec![Finding::new(PAGE, 0, "the page is missing")];
    };
    let mut used = BTreeMap::new();
    for file in tree.rust().chain(tree.ending(".py")) {
        for (number, line) in (1_usize..).zip(file.text.lines()) {
            for name in names(line) {
                used.entry(name).or_insert((file.path.as_str(), number));
            }
        }
    }
    let rows: BTreeMap<&str, usize> = (1_usize..)
        .zip(page.text.lines())
        .filter_map(|(number, line)| {
            let (name, _) = line.strip_prefix("| `")?.split_once('`')?;
            name.starts_with(OURS).then_some((name, number))
        })
        .collect();
    let mut out = Vec::new();
    for (name, (path, line)) in &used {
        if !rows.contains_key(name) {
            let what = format!("`{name}` has no row in {PAGE}: what may it be, and who reads it?");
            out.push(Finding::new(path, *line, what));
        }
    }
    for (name, line) in rows {
        if !used.contains_key(name) {
            out.push(Finding::new(PAGE, line, format!("`{name}`: nothing reads it")));
        }
    }
    out
}

/// The names of our variables in a line. What ends with `_` is the beginning of several.
fn names(line: &str) -> impl Iterator<Item = &str> {
    let is_part = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
    line.split(move |c: char| !is_part(c) && !c.is_alphanumeric()).filter(move |word| {
        word.len() > OURS.len()
            && word.starts_with(OURS)
            && word.chars().all(is_part)
            && !word.ends_with('_')
    })
}

#[cfg(test)]
mod tests {
    use super::{PAGE, check};
    use crate::tree::Tree;

    fn findings(page: &str, code: &str) -> usize {
        check(&Tree::planted(&[(PAGE, page), ("hmc-std/src/a.rs", code)])).len()
    }

    #[test]
    fn planted_violations_are_found() {
        let (name, row) = (concat!("HMC", "_A"), concat!("| `HMC", "_A` | 1 |\n"));
        let read = format!("get(\"{name}\");");
        assert_eq!(findings("", &read), 1);
        assert_eq!(findings(row, ""), 1);
        assert_eq!(findings(row, &format!("get(\"{name}B\");")), 2);
        assert_eq!(check(&Tree::planted(&[("a.rs", &read)])).len(), 1);
    }

    #[test]
    fn what_has_its_row_passes() {
        let (name, row) = (concat!("HMC", "_A"), concat!("| `HMC", "_A` | 1 |\n"));
        assert_eq!(
            findings(row, &format!("// `{name}=1`, X{name}, {name}_*\nget(\"{name}\");")),
            0
        );
    }
}
