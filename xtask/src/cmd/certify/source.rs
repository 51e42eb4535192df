//! Claims that the text of hmc-core shows: no `unsafe`, no floating point, lints without exceptions.
//!
//! Test modules (from the first `#[cfg(test)]` of a file on) are no part of the core.

use super::claim_result::ClaimResult;
use crate::shell;
use crate::source::{Source, Token};
use crate::tree::{File, Tree};
use std::path::Path;
use std::time::Duration;

/// The modules of the core.
const CORE: &str = "hmc-core/src/";

/// Lints that guard arithmetic, conversions and panics; each must be on for the whole project.
const LINTS: [&str; 5] = [
    "arithmetic_side_effects",
    "indexing_slicing",
    "as_conversions",
    "unwrap_used",
    "allow_attributes_without_reason",
];

fn modules(tree: &Tree) -> impl Iterator<Item = &File> {
    tree.rust().filter(|f| f.path.starts_with(CORE))
}

/// The file without its test module.
pub(super) fn without_tests(text: &str) -> Source {
    let mut source = Source::split(text);
    // The attribute of the crate and of a single import end in the same line or before an item.
    let is_module = |i: usize| {
        source
            .lines
            .get(i.saturating_add(1))
            .is_some_and(|l| l.code.trim_start().starts_with("mod "))
    };
    let cut = (0..source.lines.len()).find(|i| {
        source.lines.get(*i).is_some_and(|l| l.code.contains("#[cfg(test)]")) && is_module(*i)
    });
    if let Some(cut) = cut {
        source.lines.truncate(cut);
    }
    source
}

/// `forbid(unsafe_code)` stands at the root, and the word is nowhere.
pub(super) fn no_unsafe(tree: &Tree) -> ClaimResult {
    let forbids = tree
        .file("hmc-core/src/lib.rs")
        .is_some_and(|f| Source::split(&f.text).code().contains("#![forbid(unsafe_code)]"));
    if !forbids {
        return ClaimResult::Failed("hmc-core/src/lib.rs does not forbid(unsafe_code)".to_owned());
    }
    let mut files = 0_usize;
    for file in modules(tree) {
        files = files.saturating_add(1);
        if let Some(t) = Source::split(&file.text).tokens().iter().find(|t| t.text == "unsafe") {
            return ClaimResult::Failed(format!("{}:{}: `unsafe`", file.path, t.line));
        }
    }
    ClaimResult::Proved(format!("forbid(unsafe_code); {files} files without the word"))
}

/// No type, literal or conversion of floating point. The instructions are looked at with the stack.
pub(super) fn no_float(tree: &Tree) -> ClaimResult {
    let mut files = 0_usize;
    for file in modules(tree) {
        files = files.saturating_add(1);
        if let Some(line) = float_in(&without_tests(&file.text).tokens()) {
            return ClaimResult::Failed(format!("{}:{line}: floating point", file.path));
        }
    }
    ClaimResult::Proved(format!("{files} files without a float type or literal"))
}

/// The line of the first type or literal of floating point.
fn float_in(tokens: &[Token]) -> Option<usize> {
    let word = |i: usize| tokens.get(i).map_or("", |t| t.text.as_str());
    let digits = |s: &str| s.starts_with(|c: char| c.is_ascii_digit());
    tokens.iter().enumerate().find_map(|(i, t)| {
        let text = t.text.as_str();
        let before = i.checked_sub(1).map_or("", word);
        let typed = ["f16", "f32", "f64", "f128"]
            .iter()
            .any(|f| text == *f || (digits(text) && !text.starts_with("0x") && text.ends_with(f)));
        // `1.5`, but not the `0.1` of `x.0.1` and not the range `0..1`.
        let pointed = digits(text)
            && before != "."
            && word(i.saturating_add(1)) == "."
            && !matches!(word(i.saturating_add(2)), "." | "=")
            && !word(i.saturating_add(2)).starts_with(|c: char| c.is_alphabetic() || c == '_');
        let scientific = digits(text)
            && !text.starts_with("0x")
            && !text.starts_with("0b")
            && text.contains(['e', 'E'])
            && !text.contains("size");
        (typed || pointed || scientific).then_some(t.line)
    })
}

/// The lints are on, clippy finds nothing, and each exception in the core has its reason.
pub(super) fn lints(root: &Path, tree: &Tree) -> ClaimResult {
    let table = tree.file("Cargo.toml").map_or("", |f| f.text.as_str());
    let is_on = |lint: &str| {
        table.lines().any(|l| {
            l.split_once('=').is_some_and(|(name, level)| {
                name.trim() == lint
                    && matches!(level.trim(), "\"warn\"" | "\"deny\"" | "\"forbid\"")
            })
        })
    };
    if let Some(lint) = LINTS.iter().find(|l| !is_on(l)) {
        return ClaimResult::Failed(format!("clippy::{lint} is not on in Cargo.toml"));
    }
    let inherits = tree
        .file("hmc-core/Cargo.toml")
        .is_some_and(|f| f.text.contains("[lints]\nworkspace = true"));
    if !inherits {
        return ClaimResult::Failed("hmc-core does not take the project's lints".to_owned());
    }
    let mut excused = 0_usize;
    for file in modules(tree) {
        let (count, bare) = exceptions(&without_tests(&file.text).tokens());
        excused = excused.saturating_add(count);
        if let Some(line) = bare {
            return ClaimResult::Failed(format!(
                "{}:{line}: an exception without a reason",
                file.path
            ));
        }
    }
    let mut clippy = shell::cargo();
    clippy.current_dir(root).args([
        "clippy",
        "--locked",
        "-p",
        "hmc-core",
        "--lib",
        "--",
        "-Dwarnings",
    ]);
    match shell::stream(&mut clippy, Duration::from_secs(600)) {
        Ok(out) if out.success => ClaimResult::Proved(format!(
            "{} lints on, clippy is silent, {excused} exceptions",
            LINTS.len()
        )),
        Ok(out) => ClaimResult::Failed(format!("clippy: {}", out.why())),
        Err(why) => ClaimResult::not_run(why, "`rustup component add clippy`"),
    }
}

/// How many `allow` and `expect` attributes there are (those under `cfg_attr(test, ..)` left out),
/// and the line of the first without a reason.
fn exceptions(tokens: &[Token]) -> (usize, Option<usize>) {
    let word = |i: usize| tokens.get(i).map_or("", |t| t.text.as_str());
    let mut count = 0_usize;
    let mut bare = None;
    let mut i = 0_usize;
    while i < tokens.len() {
        let inner = usize::from(word(i.saturating_add(1)) == "!");
        let open = i.saturating_add(inner).saturating_add(1);
        if word(i) != "#" || word(open) != "[" {
            i = i.saturating_add(1);
            continue;
        }
        let mut end = open.saturating_add(1);
        let mut depth = 1_usize;
        while end < tokens.len() && depth > 0 {
            match word(end) {
                "[" => depth = depth.saturating_add(1),
                "]" => depth = depth.saturating_sub(1),
                _ => {}
            }
            end = end.saturating_add(1);
        }
        let inside: Vec<&str> = (open..end).map(word).collect();
        let has = |text: &str| inside.contains(&text);
        let for_tests = has("cfg_attr") && inside.get(3) == Some(&"test");
        if (has("allow") || has("expect")) && !for_tests {
            count = count.saturating_add(1);
            if !has("reason") {
                bare = bare.or_else(|| tokens.get(i).map(|t| t.line));
            }
        }
        i = end;
    }
    (count, bare)
}

#[cfg(test)]
mod tests {
    use super::{ClaimResult, exceptions, float_in, no_float, no_unsafe, without_tests};
    use crate::source::Source;
    use crate::tree::Tree;

    #[test]
    fn floats_are_found_and_numbers_are_not() {
        let found = |text: &str| float_in(&Source::split(text).tokens()).is_some();
        for float in ["let x: f64 = y;", "a * 1.5", "a(2.)", "1e9", "1_f32", "[0.5; 3]"] {
            assert!(found(float), "{float}");
        }
        for whole in ["x.0.1", "0..1", "0..=1", "1.max(2)", "0x1e5", "7_u64", "0xEF32", "a[..4]"] {
            assert!(!found(whole), "{whole}");
        }
    }

    #[test]
    fn exceptions_are_counted_and_want_a_reason() {
        let assess = |text: &str| exceptions(&Source::split(text).tokens());
        assert_eq!(assess("#[allow(dead_code, reason = \"x\")]\nfn f() {}"), (1, None));
        assert_eq!(assess("fn f() {}\n#[expect(clippy::x)]\nfn g() {}"), (1, Some(2)));
        assert_eq!(
            assess("#![cfg_attr(test, allow(clippy::x))]\n#[must_use]\nfn f() {}"),
            (0, None)
        );
    }

    #[test]
    fn planted_words_fail_and_tests_do_not_count() {
        let of = |text: &str| {
            Tree::planted(&[
                ("hmc-core/src/lib.rs", "#![forbid(unsafe_code)]\n"),
                ("hmc-core/src/a.rs", text),
            ])
        };
        assert!(matches!(no_unsafe(&of("fn f() {}")), ClaimResult::Proved(_)));
        assert!(matches!(no_unsafe(&of("unsafe fn f() {}")), ClaimResult::Failed(_)));
        assert!(matches!(no_unsafe(&Tree::default()), ClaimResult::Failed(_)));
        assert!(matches!(no_float(&of("fn f() -> f32 {}")), ClaimResult::Failed(_)));
        let tested = "fn f() {}\n#[cfg(test)]\nmod tests { fn g() -> f32 {} }";
        assert!(matches!(no_float(&of(tested)), ClaimResult::Proved(_)));
        let imported = "#[cfg(test)]\nextern crate std;\nfn f() {}\n";
        assert!(without_tests(imported).code().contains("fn f"));
    }
}
