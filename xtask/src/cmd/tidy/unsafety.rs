//! Every `unsafe` comes with its proof; foreign functions are declared in `sys.rs` modules only.
//!
//! clippy checks the comments of blocks as well. This rule also covers functions, traits and
//! attributes, and counts, so that a change of the number is seen in a review.

use super::finding::Finding;
use crate::source::{Line, Source, Token};
use crate::tree::{File, Tree};
use std::collections::BTreeMap;

/// What the word `unsafe` introduces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A block: discharges obligations.
    Block,
    /// An implementation of an unsafe trait: discharges obligations.
    Implementation,
    /// A function or trait: states obligations.
    Declaration,
    /// An attribute such as `#[unsafe(no_mangle)]`: discharges obligations.
    Attribute,
    /// A block of foreign functions.
    Foreign,
    /// The type of a function pointer: says nothing by itself.
    Pointer,
    /// A function of a trait's implementation: the trait states its obligations.
    Inherited,
}

/// One use of the word.
#[derive(Clone, Copy, Debug)]
struct Use {
    kind: Kind,
    line: usize,
}

fn uses(source: &Source) -> Vec<Use> {
    let tokens = source.tokens();
    let mut out = Vec::new();
    for (i, t) in tokens.iter().enumerate() {
        if t.text != "unsafe" {
            continue;
        }
        let next = |k: usize| tokens.get(i.saturating_add(k)).map_or("", |t| t.text.as_str());
        let kind = match next(1) {
            "{" => Kind::Block,
            "impl" => Kind::Implementation,
            "trait" => Kind::Declaration,
            "(" => Kind::Attribute,
            // `unsafe fn name` or the pointer type `unsafe fn(..)`.
            "fn" => {
                if next(2) == "(" {
                    Kind::Pointer
                } else {
                    Kind::Declaration
                }
            }
            // The quotes of "C" stay as two tokens.
            "extern" => match (next(2), next(3), next(4), next(5)) {
                ("{", ..) | (_, _, "{", _) => Kind::Foreign,
                (_, _, "fn", "(") | ("fn", "(", ..) => Kind::Pointer,
                _ => Kind::Declaration,
            },
            // `allow(unsafe ..)` and the like do not exist; be strict with what is not known.
            _ => Kind::Block,
        };
        let function = (1..4).any(|k| next(k) == "fn");
        let inherited = kind == Kind::Declaration && function && implements(&tokens, i);
        out.push(Use { kind: if inherited { Kind::Inherited } else { kind }, line: t.line });
    }
    out
}

/// Whether token `at` stands directly in the block of an `impl Trait for Type`.
fn implements(tokens: &[Token], at: usize) -> bool {
    let mut depth = 0_usize;
    for (i, t) in tokens.iter().enumerate().take(at).rev() {
        match t.text.as_str() {
            "}" => depth = depth.saturating_add(1),
            "{" if depth > 0 => depth = depth.saturating_sub(1),
            "{" => {
                let head = tokens.iter().take(i).rev();
                let head: Vec<&str> = head
                    .map(|t| t.text.as_str())
                    .take_while(|t| !matches!(*t, ";" | "{" | "}"))
                    .collect();
                return head.contains(&"impl") && head.contains(&"for");
            }
            _ => {}
        }
    }
    false
}

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut out = Vec::new();
    for file in tree.rust() {
        let source = Source::split(&file.text);
        if file.path == "hmc-core/src/lib.rs" && !source.code().contains("#![forbid(unsafe_code)]")
        {
            out.push(Finding::new(&file.path, 1, "hmc-core must say `#![forbid(unsafe_code)]`"));
        }
        for u in uses(&source) {
            assess(file, &source, u, &mut out);
        }
        // Before the 2024 edition a foreign block needs no `unsafe`; it is found all the same.
        if !is_sys(&file.path)
            && source.tokens().windows(4).any(|w| {
                matches!(w, [a, b, c, d]
            if a.text == "extern" && b.text == "\"" && c.text == "\"" && d.text == "{")
            })
        {
            out.push(Finding::new(
                &file.path,
                0,
                "foreign functions are declared in a module called sys.rs only",
            ));
        }
    }
    out
}

fn is_sys(path: &str) -> bool {
    path.ends_with("/sys.rs")
}

fn assess(file: &File, source: &Source, u: Use, out: &mut Vec<Finding>) {
    let needs: &[&str] = match u.kind {
        Kind::Block | Kind::Implementation | Kind::Attribute | Kind::Foreign => &["SAFETY:"],
        Kind::Declaration => &["# Safety", "SAFETY:"],
        Kind::Pointer | Kind::Inherited => return,
    };
    if !above(source, u.line, needs) {
        let what = format!("this unsafe {:?} has no comment with {}", u.kind, needs.join(" or "));
        out.push(Finding::new(&file.path, u.line, what.to_lowercase().replace("safety", "SAFETY")));
    }
}

/// Whether the line, or the comments and attributes above it that belong to the same statement,
/// hold one of the words.
fn above(source: &Source, line: usize, words: &[&str]) -> bool {
    let has = |l: &Line| words.iter().any(|w| l.comment.contains(w));
    let upward = source.lines.iter().take(line).rev();
    for (l, first) in upward.zip(std::iter::once(true).chain(std::iter::repeat(false))) {
        if has(l) {
            return true;
        }
        let code = l.code.trim();
        let inside = code.is_empty() && !l.comment.is_empty();
        let attribute = code.starts_with("#[") || code.starts_with("#![");
        // A line that ends a statement or opens a block is not part of ours.
        let ended = matches!(code.chars().next_back(), Some(';' | '{' | '}') | None);
        if !first && !inside && !attribute && ended {
            return false;
        }
    }
    false
}

/// `crate: blocks and implementations` for each crate that has any.
pub(super) fn summary(tree: &Tree) -> String {
    let crates = tree.crates();
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for c in &crates {
        let n = c
            .rust(tree, &crates)
            .iter()
            .flat_map(|f| uses(&Source::split(&f.text)))
            .filter(|u| matches!(u.kind, Kind::Block | Kind::Implementation))
            .count();
        counts.insert(&c.name, n);
    }
    counts.iter().map(|(name, n)| format!("{name} {n}")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::{check, summary};
    use crate::tree::Tree;

    fn findings(path: &str, text: &str) -> usize {
        check(&Tree::planted(&[(path, text)])).len()
    }

    #[test]
    fn proofs_are_seen() {
        for good in [
            "// SAFETY: because.\nunsafe { f() };",
            "// SAFETY: because\n// of two lines.\n#[cfg(x)]\nlet a =\n    unsafe { f() };",
            "// SAFETY: because.\nunsafe impl Send for X {}",
            "/// Does it.\n///\n/// # Safety\n/// The caller knows.\n#[inline]\npub unsafe fn f() {}",
            "let f: unsafe extern \"C\" fn(i32) = g;",
            "let f: unsafe fn(i32) = g;",
            "// SAFETY: as System.\nunsafe impl GlobalAlloc for A {\n fn x() {}\n unsafe fn alloc(&self) {}\n}",
            "// \"unsafe {\" in a comment, and \nlet s = \"unsafe {\";",
        ] {
            assert_eq!(findings("hmc-mem/src/a.rs", good), 0, "{good}");
        }
        assert_eq!(
            findings(
                "x/src/sys.rs",
                "// SAFETY: as in the header.\nunsafe extern \"C\" { fn f(); }"
            ),
            0
        );
    }

    #[test]
    fn planted_violations_are_found() {
        for bad in [
            "unsafe { f() };",
            "// SAFETY: of another statement.\ng();\nunsafe { f() };",
            "// SAFETY: of another block.\nunsafe { f() };\nunsafe { f() };",
            "unsafe impl Send for X {}",
            "/// Does it.\npub unsafe fn f() {}",
            "#[unsafe(no_mangle)]\nfn f() {}",
            "/// Trust me.\nunsafe trait T {}",
            "impl A {\n unsafe fn alloc(&self) {}\n}",
        ] {
            assert_eq!(findings("hmc-mem/src/a.rs", bad), 1, "{bad}");
        }
        let foreign = "// SAFETY: as in the header.\nunsafe extern \"C\" { fn f(); }";
        assert_eq!(findings("hmc-mem/src/a.rs", foreign), 1, "outside sys.rs");
        assert_eq!(findings("hmc-core/src/lib.rs", "#![no_std]"), 1);
    }

    #[test]
    fn blocks_are_counted_per_crate() {
        let tree = Tree::planted(&[
            ("a/Cargo.toml", "[package]\nname = \"a\"\n"),
            ("a/src/lib.rs", "unsafe { f() };\nunsafe impl Send for X {}\nunsafe fn f() {}"),
        ]);
        assert_eq!(summary(&tree), "a 2");
    }
}
