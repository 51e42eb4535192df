//! Documents: links lead somewhere, every dependency has its reason, and every Rust file says at its
//! head what it is for.

use super::finding::Finding;
use crate::tree::{File, Tree};

/// The page that gives a reason for each dependency.
const DEPENDENCIES: &str = "docs/DEPENDENCIES.md";

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut out = Vec::new();
    for file in tree.ending(".md") {
        links(tree, file, &mut out);
    }
    dependencies(tree, &mut out);
    for file in tree.rust() {
        let head = file.text.lines().find(|l| !l.trim().is_empty() && !l.starts_with("#!"));
        if !head.is_some_and(|l| l.starts_with("//!")) {
            out.push(Finding::new(
                &file.path,
                1,
                "begin with `//!`: what it is for, what it must never do",
            ));
        }
    }
    out
}

/// Every direct dependency has its row in the table that says why.
fn dependencies(tree: &Tree, out: &mut Vec<Finding>) {
    let Some(page) = tree.file(DEPENDENCIES) else {
        return;
    };
    let crates = tree.crates();
    for c in &crates {
        for d in c.manifest.dependencies() {
            let ours = crates.iter().any(|o| o.name == d.name);
            let row = format!("| {} |", d.name);
            if !ours && !page.text.lines().any(|l| l.starts_with(&row)) {
                let path = format!("{}/Cargo.toml", c.folder);
                out.push(Finding::new(
                    &path,
                    0,
                    format!("{} has no row in {DEPENDENCIES}", d.name),
                ));
            }
        }
    }
}

fn links(tree: &Tree, file: &File, out: &mut Vec<Finding>) {
    for (number, target) in targets(&file.text) {
        if target.contains("://") || target.starts_with("mailto:") {
            continue;
        }
        let (path, anchor) = target.split_once('#').unwrap_or((target.as_str(), ""));
        let folder = file.path.rsplit_once('/').map_or("", |(folder, _)| folder);
        let full = if path.is_empty() { Some(file.path.clone()) } else { join(folder, path) };
        let Some(full) = full.filter(|f| tree.exists(f)) else {
            out.push(Finding::new(&file.path, number, format!("`{target}` leads nowhere")));
            continue;
        };
        let page = tree.file(&full).filter(|f| f.path.ends_with(".md") && !anchor.is_empty());
        if page.is_some_and(|page| !anchors(&page.text).iter().any(|a| a == anchor)) {
            out.push(Finding::new(&file.path, number, format!("`{target}`: no such heading")));
        }
    }
}

/// The lines of Markdown that are no code, with their numbers.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    (1_usize..).zip(text.lines()).filter(move |(_, line)| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        !fenced && !fence
    })
}

/// The targets of `[text](target)` and `[text]: target`.
fn targets(text: &str) -> Vec<(usize, String)> {
    let mut out = Vec::new();
    for (number, line) in prose(text) {
        for (at, _) in line.match_indices("](") {
            let rest = line.get(at.saturating_add(2)..).unwrap_or("");
            if let Some((target, _)) = rest.split_once(')') {
                // A title may follow the target.
                out.push((number, target.split_whitespace().next().unwrap_or("").to_owned()));
            }
        }
        if let Some((_, target)) = line.strip_prefix('[').and_then(|l| l.split_once("]: ")) {
            out.push((number, target.trim().to_owned()));
        }
    }
    out
}

/// The anchors of a page's headings, as GitHub makes them: lower case, blanks to `-`, no signs.
fn anchors(text: &str) -> Vec<String> {
    prose(text)
        .filter(|(_, line)| line.starts_with('#'))
        .map(|(_, line)| {
            line.trim_start_matches('#')
                .trim()
                .to_lowercase()
                .chars()
                .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
                .map(|c| if c == ' ' { '-' } else { c })
                .collect()
        })
        .collect()
}

/// `path` seen from `folder`, without `.` and `..`; none if it leaves the project.
fn join(folder: &str, path: &str) -> Option<String> {
    let mut parts: Vec<&str> = folder.split('/').filter(|p| !p.is_empty()).collect();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::tree::Tree;

    fn findings(readme: &str) -> usize {
        check(&Tree::planted(&[
            ("docs/A.md", readme),
            ("docs/B.md", "# One thing & another\n"),
            ("src/lib.rs", "//! Head.\n"),
        ]))
        .len()
    }

    #[test]
    fn links_that_lead_somewhere_pass() {
        assert_eq!(findings("[b](B.md) [c](../src/lib.rs) [d](https://x.y/z) [e](../src/)"), 0);
        assert_eq!(findings("# Top\n[b](B.md#one-thing--another) [t](#top)\n```\n[x](y)\n```"), 0);
    }

    #[test]
    fn planted_violations_are_found() {
        assert_eq!(findings("[b](C.md)"), 1);
        assert_eq!(findings("[b](../../outside.md)"), 1);
        assert_eq!(findings("[b](B.md#two)"), 1);
        assert_eq!(findings("[b]: C.md"), 1);
        assert_eq!(check(&Tree::planted(&[("a.rs", "fn f() {}")])).len(), 1);
        let manifest = "[package]\nname = \"a\"\n[dependencies]\nlog = \"1\"\nclap = \"4\"\n";
        let table = "| crate |\n| clap | MIT |\n";
        let tree = Tree::planted(&[("a/Cargo.toml", manifest), ("docs/DEPENDENCIES.md", table)]);
        assert_eq!(check(&tree).len(), 1, "log");
    }
}
