//! Finds paths such as `crate::a::{b, c::D}` in code and writes them out one by one.

use crate::source::{Source, Token};

/// A path below its root; of `crate::a::B` this is `["a", "B"]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Below {
    /// The segments after the root.
    pub(super) segments: Vec<String>,
    /// The line of the root word, from 1.
    pub(super) line: usize,
    /// Whether a `use` names it.
    pub(super) imported: bool,
}

/// All paths that start with the word `root`.
pub(super) fn below(source: &Source, root: &str) -> Vec<Below> {
    let tokens = source.tokens();
    let text = |i: usize| tokens.get(i).map_or("", |t| t.text.as_str());
    let mut out = Vec::new();
    for (i, token) in tokens.iter().enumerate() {
        // `x.root` is a field and `a::root` another path.
        let before = |k: usize| i.checked_sub(k).map_or("", text);
        let inner = before(1) == "." || (before(1) == ":" && before(2) == ":");
        let leads = token.text == root && !inner;
        let colons = [1, 2].iter().all(|k| text(i.saturating_add(*k)) == ":");
        if leads && colons {
            let imported = in_use(&tokens, i);
            let mut found = Vec::new();
            expand(&tokens, i.saturating_add(3), &mut Vec::new(), &mut found);
            out.extend(found.into_iter().map(|segments| Below {
                segments,
                line: token.line,
                imported,
            }));
        }
    }
    out
}

/// Whether the statement that holds token `at` begins with `use`, perhaps after `pub(..)`.
fn in_use(tokens: &[Token], at: usize) -> bool {
    tokens
        .iter()
        .take(at)
        .rev()
        .take_while(|t| !matches!(t.text.as_str(), ";" | "}" | "]" | "="))
        .any(|t| t.text == "use")
}

/// Writes out the path that begins at token `at`; answers where it ends.
fn expand(
    tokens: &[Token],
    mut at: usize,
    head: &mut Vec<String>,
    out: &mut Vec<Vec<String>>,
) -> usize {
    let text = |i: usize| tokens.get(i).map_or("", |t| t.text.as_str());
    let depth = head.len();
    loop {
        let word = text(at);
        if word == "{" {
            at = at.saturating_add(1);
            while !matches!(text(at), "}" | "") {
                let next = expand(tokens, at, head, out);
                // Something that is no path (a block, not a group): give up on it.
                if next == at {
                    head.truncate(depth);
                    return at;
                }
                at = next;
                if text(at) == "," {
                    at = at.saturating_add(1);
                }
            }
            at = at.saturating_add(1);
            break;
        }
        if !word.chars().all(|c| c.is_alphanumeric() || c == '_' || c == '*') || word.is_empty() {
            break;
        }
        head.push(word.to_owned());
        at = at.saturating_add(1);
        if text(at) == "as" {
            at = at.saturating_add(2);
        }
        let goes_on = text(at) == ":" && text(at.saturating_add(1)) == ":";
        if !goes_on {
            out.push(head.clone());
            break;
        }
        at = at.saturating_add(2);
    }
    head.truncate(depth);
    at
}

/// The file without its test module, which is last by a rule of the project.
pub(super) fn without_tests(mut source: Source) -> Source {
    let cut = source.lines.windows(2).position(|pair| {
        matches!(pair, [a, b] if a.code.contains("#[cfg(test)]") && b.code.trim_start().starts_with("mod "))
    });
    if let Some(cut) = cut {
        source.lines.truncate(cut);
    }
    source
}

#[cfg(test)]
mod tests {
    use super::below;
    use crate::source::Source;

    #[test]
    fn groups_are_written_out() {
        let s = Source::split("use crate::{a::{B, c::D as E}, f::*};\nlet x = crate::g::H::new();");
        let got: Vec<String> = below(&s, "crate")
            .iter()
            .map(|p| format!("{}{}", p.segments.join("/"), if p.imported { "" } else { " inline" }))
            .collect();
        assert_eq!(got, ["a/B", "a/c/D", "f/*", "g/H/new inline"]);
    }
}
