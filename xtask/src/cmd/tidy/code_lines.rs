//! How many lines of code the libraries below the applications have: lines with a token that is compiled into a release.
//!
//! Not counted: comments, blank lines, tests, code for models, accessors for tests, and files that are generated from
//! UCX's headers.

use std::collections::BTreeSet;
use std::str::FromStr as _;

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use crate::tree::{File, Tree};

/// The crates, and how many lines they had on 2026-11-25, before the inside of hmc-std was rebuilt (commit 8f5ff80).
const CRATES: [(&str, usize); 4] =
    [("hmc-core", 6127), ("hmc-mem", 3455), ("hmc-hw", 4360), ("hmc-std", 17_868)];

/// Parts of paths whose files are not counted.
const LEFT_OUT: [&str; 7] = [
    "/tests/",
    "/tests.rs",
    "/internals.rs",
    "/internals/",
    "/ucx/testing.rs",
    "/ucx/functions.rs",
    "/ucx/sys",
];

/// Conditions under which an item is not compiled into a release.
const CONDITIONS: [&str; 3] = ["test", "testing", "loom"];

/// A line for people: the counts of each crate, and all of them against what they were.
pub(super) fn summary(tree: &Tree) -> String {
    let mut words = Vec::new();
    let (mut now, mut before) = (0_usize, 0_usize);
    for (name, was) in CRATES {
        let folder = format!("{name}/src/");
        let is_counted = |f: &&File| {
            f.path.starts_with(&folder) && !LEFT_OUT.iter().any(|part| f.path.contains(part))
        };
        let lines = tree.rust().filter(is_counted).map(|f| count(&f.text)).sum::<usize>();
        words.push(format!("{name} {lines} (was {was})"));
        (now, before) = (now.saturating_add(lines), before.saturating_add(was));
    }
    let percent = now.saturating_mul(1000).checked_div(before).unwrap_or(0);
    let share = format!("{}.{} %", percent.checked_div(10).unwrap_or(0), percent % 10);
    format!("lines of code: {}; all {now}, {share} of {before}", words.join(", "))
}

/// The lines of a file that count; all of them if it cannot be read as Rust.
fn count(text: &str) -> usize {
    let Ok(tokens) = TokenStream::from_str(text) else { return text.lines().count() };
    let mut lines = BTreeSet::new();
    walk(tokens, &mut lines);
    lines.len()
}

/// Adds the lines of all tokens that count.
fn walk(tokens: TokenStream, lines: &mut BTreeSet<usize>) {
    let all: Vec<TokenTree> = tokens.into_iter().collect();
    let mut at = 0_usize;
    while let Some(token) = all.get(at) {
        if let Some((words, after)) = attribute(&all, at) {
            if words.first().is_some_and(|w| w == "doc") {
                at = after;
                continue;
            }
            if is_left_out(&words) {
                at = end_of_item(&all, after);
                continue;
            }
        }
        match token {
            TokenTree::Group(group) => {
                lines.insert(group.span_open().start().line);
                lines.insert(group.span_close().end().line);
                walk(group.stream(), lines);
            }
            other => lines.extend(other.span().start().line..=other.span().end().line),
        }
        at = at.saturating_add(1);
    }
}

/// The words of the attribute that begins at `at`, and where it ends.
fn attribute(all: &[TokenTree], at: usize) -> Option<(Vec<String>, usize)> {
    let is_hash = |t: &TokenTree| matches!(t, TokenTree::Punct(p) if p.as_char() == '#');
    all.get(at).filter(|t| is_hash(t))?;
    let mut next = at.saturating_add(1);
    if matches!(all.get(next), Some(TokenTree::Punct(p)) if p.as_char() == '!') {
        next = next.saturating_add(1);
    }
    match all.get(next) {
        Some(TokenTree::Group(g)) if g.delimiter() == Delimiter::Bracket => {
            let text = g.stream().to_string();
            let words = text.split(|c: char| !(c.is_alphanumeric() || c == '_'));
            let words = words.filter(|w| !w.is_empty()).map(str::to_owned).collect();
            Some((words, next.saturating_add(1)))
        }
        _ => None,
    }
}

/// Whether an attribute says that what follows is not compiled into a release.
fn is_left_out(words: &[String]) -> bool {
    let mut words = words.iter().map(String::as_str);
    let named = match words.next() {
        Some("test") => return true,
        Some("cfg") => words.clone().any(|w| CONDITIONS.contains(&w)),
        _ => false,
    };
    named && !words.any(|w| w == "not")
}

/// Where the item, statement, field or arm ends that begins at `at`.
fn end_of_item(all: &[TokenTree], at: usize) -> usize {
    let mut at = at;
    while let Some((_, after)) = attribute(all, at) {
        at = after;
    }
    let word = |t: Option<&TokenTree>| match t {
        Some(TokenTree::Ident(i)) => i.to_string(),
        _ => String::new(),
    };
    let first = word(all.get(at));
    let needs_semicolon = ["let", "use", "const", "static", "type"].contains(&first.as_str())
        && word(all.get(at.saturating_add(1))) != "fn";
    while let Some(token) = all.get(at) {
        at = at.saturating_add(1);
        let ends = match token {
            TokenTree::Punct(p) => p.as_char() == ';' || p.as_char() == ',' && !needs_semicolon,
            TokenTree::Group(g) if g.delimiter() == Delimiter::Brace && !needs_semicolon => {
                let is_pattern =
                    matches!(all.get(at), Some(TokenTree::Punct(p)) if p.as_char() == '=');
                word(all.get(at)) != "else" && !is_pattern
            }
            _ => false,
        };
        if ends {
            return at;
        }
    }
    at
}

#[cfg(test)]
mod tests {
    use super::count;

    #[test]
    fn only_what_a_release_has_is_counted() {
        for (text, lines) in [
            ("", 0),
            ("// a\n\n/// b\n//! c\n", 0),
            ("/// a\nfn f() {}\n", 1),
            ("fn f() {\n    // a\n    g();\n\n}\n", 3),
            ("const A: &str = \"a\n\n b\";\n", 3),
            ("#[cfg(test)]\nmod tests {\n    fn f() {}\n}\nfn g() {}\n", 1),
            ("#[cfg(not(test))]\nfn g() {}\n", 2),
            ("fn f() {\n    #[cfg(loom)]\n    let a = if b { c } else { d };\n    g();\n}\n", 3),
            (
                "fn f() {\n    #[cfg(loom)]\n    if a {\n        b();\n    } else {\n        c();\n    }\n}\n",
                2,
            ),
            (
                "struct S {\n    a: u8,\n    #[cfg(feature = \"testing\")]\n    b: Vec<u8>,\n    c: u8,\n}\n",
                4,
            ),
            (
                "fn f() {\n    match a {\n        #[cfg(test)]\n        B { c } => d,\n        E => f,\n    }\n}\n",
                5,
            ),
            ("#[cfg(loom)]\nuse a::{b, c};\n#[inline]\nfn f() {}\n", 2),
        ] {
            assert_eq!(count(text), lines, "{text}");
        }
    }
}
