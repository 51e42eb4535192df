//! Puts mutants into source text: many behind a switch, or some in place.
//!
//! Behind a switch, the body of the function becomes `if on(7) { the body, changed } else { the body }`. The body is copied
//! as a whole, so every genre is the same replacement of text: operands, moves and precedence need no look.

use super::list::{Mutant, Place, Span};
use crate::source::masked;
use std::ops::Range;

/// The module of the switch in each crate root.
pub(super) const MODULE: &str = "mutant_switch";
/// Before the number of a mutant in the name of a variable that nobody uses: the compiler's warning shows that it was compiled.
pub(super) const COMPILED: &str = "hmc_mutant_";

/// Lines of the new text, and the mutants that an error there comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Region {
    pub(super) lines: Range<usize>,
    pub(super) numbers: Vec<u32>,
}

/// A file with mutants in it.
#[derive(Clone, Debug, Default)]
pub(super) struct Spliced {
    pub(super) text: String,
    pub(super) regions: Vec<Region>,
    /// Mutants that are not in it: they have no body to copy, or lie in that of another.
    pub(super) left: Vec<u32>,
}

impl Spliced {
    /// The mutants that an error in that line comes from: those of the shortest region around it.
    pub(super) fn at(&self, line: usize) -> &[u32] {
        let around = self.regions.iter().filter(|r| r.lines.contains(&line));
        around.min_by_key(|r| r.lines.len()).map_or(&[], |r| r.numbers.as_slice())
    }
}

/// A text with its places.
struct Text {
    chars: Vec<char>,
    mask: Vec<char>,
    /// Where each line starts.
    starts: Vec<usize>,
}

impl Text {
    fn of(text: &str) -> Self {
        let chars: Vec<char> = text.chars().collect();
        let ends = chars.iter().zip(1_usize..).filter(|(c, _)| **c == '\n').map(|(_, next)| next);
        let starts = std::iter::once(0).chain(ends).collect();
        let mask = masked(&chars);
        Self { chars, mask, starts }
    }

    fn at(&self, place: Place) -> Option<usize> {
        let start = *self.starts.get(place.line.checked_sub(1)?)?;
        start.checked_add(place.column.checked_sub(1)?).filter(|at| *at <= self.chars.len())
    }

    fn range(&self, span: Span) -> Option<Range<usize>> {
        let range = self.at(span.start)?..self.at(span.end)?;
        (range.start <= range.end).then_some(range)
    }

    /// What is between the braces of a function's body: from its last brace back to the one that it closes.
    fn body(&self, function: Span) -> Option<Range<usize>> {
        let range = self.range(function)?;
        let mask = self.mask.get(range.clone())?;
        let mut depth = 0_usize;
        let mut close = None;
        for (at, c) in mask.iter().enumerate().rev() {
            match c {
                '}' => {
                    close.get_or_insert(at);
                    depth = depth.saturating_add(1);
                }
                '{' => {
                    depth = depth.checked_sub(1)?;
                    if depth == 0 {
                        let open = range.start.saturating_add(at).saturating_add(1);
                        return Some(open..range.start.saturating_add(close?));
                    }
                }
                c if close.is_none() && !c.is_whitespace() => return None,
                _ => {}
            }
        }
        None
    }

    fn get(&self, range: Range<usize>) -> String {
        self.chars.get(range).unwrap_or_default().iter().collect()
    }
}

/// A text that is written, and the line that it has come to.
struct Writer {
    text: String,
    line: usize,
}

impl Writer {
    const fn new() -> Self {
        Self { text: String::new(), line: 1 }
    }

    fn push(&mut self, text: &str) {
        self.line = self.line.saturating_add(text.matches('\n').count());
        self.text.push_str(text);
    }

    /// Writes whole lines and gives their numbers.
    fn lines(&mut self, text: &str) -> Range<usize> {
        let first = self.line;
        self.push(text);
        first..self.line
    }
}

/// A mutant, the body around it, and what it replaces.
struct Located<'m> {
    number: u32,
    mutant: &'m Mutant,
    body: Range<usize>,
    change: Range<usize>,
}

/// Those that lie in bodies, outer bodies first, and the numbers of the others.
fn located<'m>(text: &Text, mutants: &[(u32, &'m Mutant)]) -> (Vec<Located<'m>>, Vec<u32>) {
    let mut inside = Vec::new();
    let mut left = Vec::new();
    for (number, mutant) in mutants {
        let body = mutant.function.and_then(|function| text.body(function));
        match body.zip(text.range(mutant.span)) {
            Some((body, change)) if body.start <= change.start && change.end <= body.end => {
                inside.push(Located { number: *number, mutant, body, change });
            }
            _ => left.push(*number),
        }
    }
    inside.sort_by_key(|m| (m.body.start, std::cmp::Reverse(m.body.end), m.number));
    (inside, left)
}

/// The text with all these mutants in it, each behind the switch of its number.
pub(super) fn behind_switches(source: &str, mutants: &[(u32, &Mutant)]) -> Spliced {
    let text = Text::of(source);
    let (inside, left) = located(&text, mutants);
    let mut out = Writer::new();
    let mut regions = Vec::new();
    let mut done = 0_usize;
    let mut rest = inside.as_slice();
    while let Some(first) = rest.first() {
        let body = first.body.clone();
        // A function in a function: both are mutated in copies of the outer body.
        let count = rest.iter().take_while(|m| m.change.end <= body.end).count().max(1);
        let (group, later) = rest.split_at(count);
        rest = later;
        out.push(&text.get(done..body.start));
        let begun = out.line;
        out.push("\n");
        for m in group {
            let marker = format!("#[warn(unused_variables)] let {COMPILED}{} = ();\n", m.number);
            out.push(&marker);
        }
        for m in group {
            let before = text.get(body.start..m.change.start);
            let after = text.get(m.change.end..body.end);
            let switch = format!(
                "if crate::{MODULE}::on({}) {{\n{before}{}{after}\n",
                m.number, m.mutant.replacement
            );
            let lines = out.lines(&switch);
            regions.push(Region { lines, numbers: vec![m.number] });
            out.push("} else ");
        }
        out.push("{\n");
        out.push(&text.get(body.clone()));
        out.push("\n}\n");
        let lines = begun..out.line.saturating_add(1);
        regions.push(Region { lines, numbers: group.iter().map(|m| m.number).collect() });
        done = body.end;
    }
    out.push(&text.get(done..text.chars.len()));
    Spliced { text: out.text, regions, left }
}

/// The text with these mutants in place of what they replace: at most one in a body, the others are left.
pub(super) fn in_place(source: &str, mutants: &[(u32, &Mutant)]) -> Spliced {
    let text = Text::of(source);
    let (inside, outside) = located(&text, mutants);
    let mut candidates: Vec<(u32, &Mutant, Range<usize>, Range<usize>)> =
        inside.into_iter().map(|m| (m.number, m.mutant, m.body, m.change)).collect();
    let mut left = Vec::new();
    for (number, mutant) in mutants.iter().filter(|(number, _)| outside.contains(number)) {
        match text.range(mutant.span) {
            // What is in no function is the only one of its file: its errors may be anywhere.
            Some(change) => candidates.push((*number, *mutant, 0..text.chars.len(), change)),
            None => left.push(*number),
        }
    }
    let mut chosen: Vec<(u32, &Mutant, Range<usize>, Range<usize>)> = Vec::new();
    for one in candidates {
        match chosen.last() {
            Some(last) if one.2.start < last.2.end => left.push(one.0),
            _ => chosen.push(one),
        }
    }
    let mut out = Writer::new();
    let mut regions = Vec::new();
    let mut done = 0_usize;
    for (number, mutant, body, change) in chosen {
        out.push(&text.get(done..body.start));
        let begun = out.line;
        out.push(&text.get(body.start..change.start));
        out.push(&mutant.replacement);
        out.push(&text.get(change.end..body.end));
        let lines = begun..out.line.saturating_add(1);
        regions.push(Region { lines, numbers: vec![number] });
        done = body.end;
    }
    out.push(&text.get(done..text.chars.len()));
    Spliced { text: out.text, regions, left }
}

#[cfg(test)]
mod tests {
    use super::super::list::Place;
    use super::super::tests::planted as mutant;
    use super::{behind_switches, in_place};

    fn plain(text: &str) -> String {
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn every_genre_is_the_body_once_more_with_its_change() {
        let source = "/// Übung: {\nfn f(a: S) -> u8 {\n    let s = \"}\"; // }\n    match a {\n        S::A if s == x => -1,\n        \
                      S::B => 2,\n        _ => S { b: 1, ..d },\n    }\n}\n";
        let head = "/// Übung: { fn f(a: S) -> u8 {";
        let body = "let s = \"}\"; // } match a { S::A if s == x => -1, S::B => 2, _ => S { b: 1, ..d }, }";
        let value = "let s = \"}\"; // }\n    match a {\n        S::A if s == x => -1,\n        S::B => 2,\n        _ => S { b: 1, ..d },\n    }";
        let genres = [
            (value, "0", "0".to_owned()),
            ("==", "!=", body.replace("==", "!=")),
            ("-1", "1", body.replace("-1", "1")),
            ("S::B => 2,", "", body.replace("S::B => 2, ", "")),
            ("s == x", "true", body.replace("s == x", "true")),
            ("b: 1,", "", body.replace("b: 1, ", "")),
        ];
        for (what, with, changed) in genres {
            let m = mutant(source, "fn f(", what, with);
            let spliced = behind_switches(source, &[(7, &m)]);
            let switch =
                "#[warn(unused_variables)] let hmc_mutant_7 = (); if crate::mutant_switch::on(7)";
            // The change stands where it stood; only blanks differ.
            let want = format!("{head} {switch} {{ {changed} }} else {{ {body} }} }}");
            assert_eq!(plain(&spliced.text), plain(&want));
            let there = spliced.text.lines().position(|l| l.starts_with("if crate")).unwrap() + 1;
            assert_eq!(spliced.at(there), [7]);
            assert!(spliced.at(1).is_empty() && spliced.left.is_empty());
            assert_eq!(
                plain(&in_place(source, &[(7, &m)]).text),
                plain(&format!("{head} {changed} }}"))
            );
        }
    }

    #[test]
    fn mutants_of_one_body_share_it_and_an_error_finds_its_own() {
        let source = "fn f() -> u8 {\n    fn g() -> u8 {\n        1 + 2\n    }\n    g() * 3\n}\nfn h() -> u8 {\n    4 / 5\n}\n";
        let mut inner = mutant(source, "fn g", "+", "-");
        inner.function.as_mut().unwrap().end = Place { line: 4, column: 6 };
        let (outer, other) = (mutant(source, "fn f", "*", "/"), mutant(source, "fn h", "/", "%"));
        let spliced = behind_switches(source, &[(1, &inner), (2, &outer), (3, &other)]);
        assert!(spliced.left.is_empty());
        let line = |text: &str| spliced.text.lines().position(|l| l.contains(text)).unwrap() + 1;
        assert_eq!(spliced.at(line("1 -")), [1]);
        assert_eq!(spliced.at(line("g() /")), [2]);
        assert_eq!(spliced.at(line("} else {")), [2, 1], "the unchanged body is both's");
        assert_eq!(spliced.at(line("4 %")), [3]);
        assert_eq!(spliced.text.matches("1 + 2").count(), 2, "{}", spliced.text);
        let alone = in_place(source, &[(1, &inner), (2, &outer), (3, &other)]);
        assert_eq!(alone.left, [1]);
        assert!(alone.text.contains("g() / 3") && alone.text.contains("4 % 5"));
        assert_eq!(alone.at(5), [2]);
        assert_eq!(alone.at(8), [3]);
    }

    #[test]
    fn what_is_in_no_function_is_left_and_changed_in_place_by_itself() {
        let source = "const A: u8 = 1 + 2;\nfn f() -> u8 {\n    A * 3\n}\n";
        let mut constant = mutant(source, "const A", "+", "-");
        constant.function = None;
        let other = mutant(source, "fn f", "*", "/");
        let both = [(1, &constant), (2, &other)];
        assert_eq!(behind_switches(source, &both).left, [1]);
        let batch = in_place(source, &both);
        assert_eq!(batch.left, [1]);
        assert_eq!(in_place(source, &both[..1]).text, source.replace("1 + 2", "1 - 2"));
    }
}
