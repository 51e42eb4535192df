//! Invariant 2 of ARCHITECTURE.md: only `hmc-core/src/range.rs` adds offsets, to each other, to lengths or to addresses.
//!
//! It looks for sums of values whose name means an offset or a pointer. A name can be wrong; the rule is for
//! those who forget, not for those who hide.

use super::finding::Finding;
use crate::source::Source;
use crate::tree::Tree;

/// Crates whose code handles memory of applications.
const CRATES: [&str; 6] =
    ["hmc-core/src/", "hmc-mem/src/", "hmc-hw/src/", "hmc-std/src/", "hmc-py/src/", "hmc-cli/src/"];

/// Where sums may be, and of what.
const KNOWN: [(&str, &str); 13] = [
    ("hmc-core/src/range.rs", "the one that adds offsets"),
    ("hmc-core/src/wire/hello.rs", "places in a text that is wrong"),
    ("hmc-core/src/wire/advert.rs", "the same"),
    ("hmc-mem/src/copy", "kernels that walk over a range that was proven"),
    ("hmc-mem/src/crc.rs", "the same"),
    ("hmc-mem/src/os/pages", "pages, before they are anybody's memory"),
    ("hmc-mem/src/os/mapped.rs", "the same"),
    ("hmc-mem/src/os/descriptor.rs", "what the kernel put beside a message"),
    ("hmc-mem/src/os/life.rs", "the kernel's list of robust mutexes"),
    ("hmc-py/src/array.rs", "strides of arrays, which only Python knows"),
    ("hmc-py/src/dlpack/import.rs", "the same"),
    ("hmc-std/src/transport/stream/requests.rs", "numbers in a sequence"),
    ("hmc-hw/src/ucx/sys", "generated"),
];

/// Methods that add. `.add(`, `.sub(` and `.offset(` are those of pointers where one stands before them.
const SUMS: [&str; 5] =
    [".checked_add(", ".wrapping_add(", ".saturating_add(", ".overflowing_add(", ".strict_add("];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut out = Vec::new();
    let is_ours = |path: &str| {
        let is_known = KNOWN.iter().any(|(known, _)| path.starts_with(known));
        CRATES.iter().any(|c| path.starts_with(c)) && !path.ends_with("tests.rs") && !is_known
    };
    for file in tree.rust().filter(|f| is_ours(&f.path)) {
        for (line, number) in Source::split(&file.text).lines.iter().zip(1_usize..) {
            // Tests stand at the end of a file.
            if line.code.trim_start().starts_with("mod tests {") {
                break;
            }
            if let Some(sum) = added(&line.code) {
                let what = format!(
                    "`{sum}` adds to an offset or an address: `ByteRange` and `Extent` do that, checked (`span`, `sub`, `split_at_most`, `address`, \
                     `pointer`)"
                );
                out.push(Finding::new(&file.path, number, what));
            }
        }
    }
    out
}

/// The sum of an offset or a pointer in a line.
fn added(code: &str) -> Option<&str> {
    for sum in SUMS {
        for (at, _) in code.match_indices(sum) {
            let (before, rest) = code.split_at(at);
            let argument = rest.get(sum.len()..).unwrap_or_default();
            if is_offset(last_word(before)) || is_pointer(before) || names_offset(argument) {
                return Some(sum.trim_matches(['.', '(']));
            }
        }
    }
    let steps = [".add(", ".byte_add(", ".offset(", ".byte_offset(", ".wrapping_offset("];
    let step = |s: &&&str| {
        code.match_indices(**s).any(|(at, _)| is_pointer(code.get(..at).unwrap_or_default()))
    };
    if let Some(step) = steps.iter().find(step) {
        return Some(step.trim_matches(['.', '(']));
    }
    // `a.offset + b`, `offset() + b`, `+ offset`.
    for (at, _) in code.match_indices(" + ") {
        let (before, after) = code.split_at(at);
        let after = after.get(3..).unwrap_or_default();
        if is_offset(last_word(before)) || first_words(after).any(is_offset) {
            return Some("+");
        }
    }
    let (before, _) = code.split_once(" += ")?;
    is_offset(last_word(before)).then_some("+=")
}

/// The last name of an expression, without a call's brackets.
fn last_word(code: &str) -> &str {
    let code = code.trim_end().strip_suffix("()").unwrap_or(code.trim_end());
    let start = code.rfind(|c: char| !is_word(c)).map_or(0, |i| i.saturating_add(1));
    code.get(start..).unwrap_or_default()
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The names of the first operand: `a.b.offset()`.
fn first_words(code: &str) -> impl Iterator<Item = &str> {
    let end = code.find(|c: char| !is_word(c) && c != '.' && c != ':').unwrap_or(code.len());
    code.get(..end).unwrap_or_default().split(['.', ':'])
}

fn is_offset(word: &str) -> bool {
    word == "offset" || word.ends_with("_offset")
}

/// Whether the arguments of a call name an offset.
fn names_offset(arguments: &str) -> bool {
    let mut open = 1_i32;
    let end = arguments.find(|c| {
        open = open.saturating_add(match c {
            '(' => 1,
            ')' => -1,
            _ => 0,
        });
        open == 0
    });
    let inside = arguments.get(..end.unwrap_or(arguments.len())).unwrap_or_default();
    inside.split(|c: char| !is_word(c)).any(is_offset)
}

/// Whether an expression ends as those do that give pointers.
fn is_pointer(code: &str) -> bool {
    ["as_ptr()", "as_mut_ptr()", ".addr()", "expose_provenance()", ".cast()", "cast::<u8>()"]
        .iter()
        .any(|end| code.trim_end().ends_with(end))
        || ["ptr", "base", "address", "addr"].contains(&last_word(code))
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::tree::Tree;

    fn findings(path: &str, text: &str) -> usize {
        check(&Tree::planted(&[(path, text)])).len()
    }

    #[test]
    fn planted_sums_are_found() {
        for line in [
            "frame.offset = frame.offset.saturating_add(r.moved);",
            "let at = work.remote.span.offset().saturating_add(from);",
            "let at = base.wrapping_add(span.offset());",
            "let at = from.checked_add(usize::try_from(span.offset()).ok()?)?;",
            "let start = region.bytes().as_ptr().wrapping_add(at);",
            "let start = unsafe { bytes.as_mut_ptr().add(at) };",
            "let end = note.offset.checked_add(note.len);",
            "let end = note.offset + note.len;",
            "let end = len + note.offset;",
            "self.local_offset += n;",
            "let there = remote.base.wrapping_add(at);",
        ] {
            assert_eq!(findings("hmc-std/src/a.rs", line), 1, "{line}");
        }
    }

    #[test]
    fn other_sums_pass_and_so_do_those_who_may() {
        for line in [
            "let n = self.count.saturating_add(1);",
            "let part = span.sub(Side::Local, offset, len)?;",
            "let left = total.saturating_sub(span.offset());",
            "let at = span.address(base);",
            "let x = map.offset(3);",
            "set.add(offset);",
            "// base.wrapping_add(offset)",
            "mod tests {\n    let x = a.offset + 1;",
        ] {
            assert_eq!(findings("hmc-hw/src/a.rs", line), 0, "{line}");
        }
        let line = "base.wrapping_add(self.offset)";
        assert_eq!(findings("hmc-core/src/range.rs", line), 0);
        assert_eq!(findings("hmc-sim/src/a.rs", line), 0);
    }
}
