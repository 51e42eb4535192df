//! A file holds one noun: no Rust file has more than 500 lines, but for those listed with a reason.

use super::finding::Finding;
use crate::tree::Tree;

/// Lines that a file may have.
const LIMIT_LINES: usize = 500;

/// `path: reason` for each file that may be longer; empty lines and `#` are skipped.
const EXCUSED: &str = include_str!("long_files.txt");

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    with_excuses(tree, EXCUSED)
}

fn with_excuses(tree: &Tree, excused: &str) -> Vec<Finding> {
    let table: Vec<(&str, &str)> = excused
        .lines()
        .filter(|l| !l.trim().is_empty() && !l.starts_with('#'))
        .map(|l| l.split_once(": ").unwrap_or((l, "")))
        .collect();
    let mut out = Vec::new();
    for file in tree.rust() {
        let lines = file.text.lines().count();
        match table.iter().find(|(path, _)| *path == file.path) {
            None if lines > LIMIT_LINES => {
                out.push(Finding::new(&file.path, lines, format!("{lines} lines; at most {LIMIT_LINES}: split it, or list it in long_files.txt with a reason")));
            }
            Some((_, reason)) if reason.trim().is_empty() => {
                out.push(Finding::new(&file.path, 0, "listed in long_files.txt without a reason"));
            }
            Some(_) if lines <= LIMIT_LINES => {
                out.push(Finding::new(
                    &file.path,
                    0,
                    "listed in long_files.txt but short enough now",
                ));
            }
            None | Some(_) => {}
        }
    }
    for (path, _) in table {
        if tree.file(path).is_none() {
            out.push(Finding::new(path, 0, "listed in long_files.txt but not there"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::{LIMIT_LINES, with_excuses};
    use crate::tree::Tree;

    #[test]
    fn planted_violations_are_found() {
        let fits = "\n".repeat(LIMIT_LINES);
        let long = "\n".repeat(LIMIT_LINES + 1);
        let tree = Tree::planted(&[("a.rs", &fits), ("b.rs", &long)]);
        assert_eq!(with_excuses(&tree, "").len(), 1);
        assert_eq!(with_excuses(&tree, "# why\nb.rs: one table\n").len(), 0);
        assert_eq!(with_excuses(&tree, "b.rs\n").len(), 1, "no reason");
        assert_eq!(with_excuses(&tree, "b.rs: x\na.rs: x\n").len(), 1, "no need");
        assert_eq!(with_excuses(&tree, "b.rs: x\nc.rs: x\n").len(), 1, "no file");
    }
}
