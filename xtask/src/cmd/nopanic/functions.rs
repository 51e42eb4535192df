//! Which public functions the core has, and which of them the driver calls.
//!
//! A function is `Type::name`, or `name` where it belongs to no type; a `Display` is a function too,
//! since it runs code of ours. The driver has one file for each module and writes every call as a path.

use crate::source::{Source, Token};
use crate::tree::Tree;

const CORE: &str = "hmc-core/src/";

/// The modules of the core that have functions to call.
pub(super) fn modules(tree: &Tree) -> Vec<String> {
    core_files(tree)
        .filter(|(_, text)| !public(text).is_empty())
        .map(|(module, _)| module)
        .collect()
}

/// How many functions the driver calls, and those that it does not.
pub(super) fn compare(tree: &Tree, driver: &str) -> (usize, Vec<String>) {
    let mut called = 0_usize;
    let mut missing = Vec::new();
    for (module, text) in core_files(tree) {
        let path = format!("{driver}/src/modules/{}.rs", module.replace('/', "_"));
        let driver_text = tree.file(&path).map_or("", |f| f.text.as_str());
        let calls = calls(driver_text);
        for name in public(text) {
            if calls.contains(&name) {
                called = called.saturating_add(1);
            } else {
                missing.push(format!("{module}: {name}"));
            }
        }
    }
    (called, missing)
}

fn core_files(tree: &Tree) -> impl Iterator<Item = (String, &str)> {
    tree.rust().filter_map(|f| {
        let module = f.path.strip_prefix(CORE)?.strip_suffix(".rs")?;
        Some((module.to_owned(), f.text.as_str()))
    })
}

/// The tokens of a file without its test modules.
fn tokens_of(text: &str) -> Vec<Token> {
    let mut source = Source::split(text);
    let cut = source.lines.iter().position(|l| l.code.contains("#[cfg(test)]"));
    if let Some(cut) = cut {
        source.lines.truncate(cut);
    }
    source.tokens()
}

/// The public functions and the texts of a file of the core.
fn public(text: &str) -> Vec<String> {
    let tokens = tokens_of(text);
    let word = |i: usize| tokens.get(i).map_or("", |t| t.text.as_str());
    let mut out = Vec::new();
    let mut depth = 0_usize;
    // The type whose `impl` block is open, and the depth at which it closes.
    let mut open: Option<(String, usize)> = None;
    let mut i = 0_usize;
    while i < tokens.len() {
        match word(i) {
            "{" => depth = depth.saturating_add(1),
            "}" => {
                depth = depth.saturating_sub(1);
                if open.as_ref().is_some_and(|(_, at)| *at == depth) {
                    open = None;
                }
            }
            // `impl` in the place of a type stands inside a signature: depth tells.
            "impl" if open.is_none() && starts_item(i.checked_sub(1).map_or("", word)) => {
                let (subject, display, end) = header(&tokens, i);
                if display {
                    out.push(format!("{subject} as Display"));
                }
                open = Some((subject, depth));
                i = end;
                continue;
            }
            "pub" if word(i.saturating_add(1)) != "(" => {
                let name = (i..i.saturating_add(5))
                    .find(|k| word(*k) == "fn")
                    .map(|k| word(k.saturating_add(1)));
                let plain = (i.saturating_add(1)..i.saturating_add(4))
                    .take_while(|k| word(*k) != "fn")
                    .all(|k| matches!(word(k), "const" | "unsafe" | "async"));
                if let Some(name) = name.filter(|_| plain) {
                    out.push(match &open {
                        Some((subject, _)) => format!("{subject}::{name}"),
                        None => name.to_owned(),
                    });
                }
            }
            _ => {}
        }
        i = i.saturating_add(1);
    }
    out
}

/// Whether an item may begin after this token.
fn starts_item(before: &str) -> bool {
    matches!(before, "" | "}" | ";" | "]" | "{")
}

/// Of `impl<..> A<..> for B<..> where .. {`: the name of `B` (or of `A` without `for`), whether `A`
/// is `Display`, and the index of the `{`.
fn header(tokens: &[Token], at: usize) -> (String, bool, usize) {
    let mut names: Vec<String> = vec![String::new()];
    let mut angle = 0_usize;
    let mut end = at.saturating_add(1);
    let mut bounds = false;
    while let Some(t) = tokens.get(end) {
        let arrow = tokens.get(end.saturating_sub(1)).is_some_and(|p| p.text == "-");
        match t.text.as_str() {
            "{" if angle == 0 => break,
            "<" => angle = angle.saturating_add(1),
            ">" if !arrow => angle = angle.saturating_sub(1),
            "where" if angle == 0 => bounds = true,
            "for" if angle == 0 && !bounds => names.push(String::new()),
            text if angle == 0
                && !bounds
                && text.chars().all(|c| c.is_alphanumeric() || c == '_') =>
            {
                // The last segment of a path stays.
                if let Some(last) = names.last_mut() {
                    text.clone_into(last);
                }
            }
            _ => {}
        }
        end = end.saturating_add(1);
    }
    let display = names.len() == 2 && names.first().is_some_and(|n| n == "Display");
    (names.pop().unwrap_or_default(), display, end)
}

/// What a file of the driver calls: `Type::name(`, `name(` and `show::<Type>(`.
fn calls(text: &str) -> Vec<String> {
    let tokens = tokens_of(text);
    let word = |i: usize| tokens.get(i).map_or("", |t| t.text.as_str());
    let mut out = Vec::new();
    for (i, t) in tokens.iter().enumerate() {
        if word(i.saturating_add(1)) != "("
            && !(word(i.saturating_add(1)) == ":" && word(i.saturating_add(3)) == "<")
        {
            continue;
        }
        out.push(t.text.clone());
        // Back over `::` and over the `<..>` of a turbofish to the type.
        let mut back = i;
        if [1, 2].iter().all(|k| back.checked_sub(*k).is_some_and(|b| word(b) == ":")) {
            back = back.saturating_sub(3);
            if word(back) == ">" {
                let mut angle = 0_usize;
                while back > 0 {
                    match word(back) {
                        ">" => angle = angle.saturating_add(1),
                        "<" => angle = angle.saturating_sub(1),
                        _ => {}
                    }
                    back = back.saturating_sub(1);
                    if angle == 0 {
                        break;
                    }
                }
                back = back.saturating_sub(2);
            }
            out.push(format!("{}::{}", word(back), t.text));
        }
        if t.text == "show" && word(i.saturating_add(3)) == "<" {
            out.push(format!("{} as Display", word(i.saturating_add(4))));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::{calls, compare, public};
    use crate::tree::Tree;

    const MODULE: &str = "
        pub fn free(x: impl Fn()) -> impl Iterator<Item = u8> { x }
        pub(crate) fn hidden() {}
        impl<S: AsRef<[Slot]>> Table<S> where S: Clone {
            pub const fn new() -> Self { if true { Self } else { Self } }
            fn private(&self) {}
            pub fn last(&self) {}
        }
        impl core::fmt::Display for Bad { fn fmt(&self) {} }
        impl<T: Border + ?Sized> Border for &mut T { fn post(&self) {} }
        pub struct Point { pub x: fn(u8) }
        #[cfg(test)]
        mod tests { pub fn helper() {} }
    ";

    #[test]
    fn public_functions_are_found_under_their_types() {
        assert_eq!(public(MODULE), ["free", "Table::new", "Table::last", "Bad as Display"]);
    }

    #[test]
    fn calls_are_found_with_and_without_a_turbofish() {
        let got = calls("free(1); Table::new(); Table::<[Slot; 4]>::last(&t); show::<Bad>(&b);");
        for want in ["free", "Table::new", "Table::last", "Bad as Display"] {
            assert!(got.iter().any(|c| c == want), "{want} in {got:?}");
        }
    }

    #[test]
    fn a_new_public_function_is_missing_until_it_is_called() {
        let driver = "fn go() { free(1); Table::new(); show::<Bad>(&b); }";
        let tree =
            Tree::planted(&[("hmc-core/src/a/b.rs", MODULE), ("d/src/modules/a_b.rs", driver)]);
        assert_eq!(compare(&tree, "d"), (3, vec!["a/b: Table::last".to_owned()]));
    }
}
