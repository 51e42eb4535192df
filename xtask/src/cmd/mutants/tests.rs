//! The whole command over a workspace of one small crate, with mutants that are planted there.
#![allow(clippy::arithmetic_side_effects, reason = "tests may panic")]

use super::list::{Mutant, Place, Span};

/// The mutant that replaces the first `what` in the function whose text starts with `function` and ends with a brace at the start
/// of a line.
pub(super) fn planted(source: &str, function: &str, what: &str, with: &str) -> Mutant {
    let place = |at: usize| {
        let before = &source[..at];
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap().chars().count() + 1;
        Place { line, column }
    };
    let start = source.find(function).unwrap();
    let end = start + source[start..].find("\n}\n").unwrap() + 2;
    let change = start + source[start..].find(what).unwrap();
    let key = format!("a/src/lib.rs: replace {what} with {with} in {function}");
    Mutant {
        name: key.clone(),
        key,
        package: "a".to_owned(),
        file: "a/src/lib.rs".to_owned(),
        function: Some(Span { start: place(start), end: place(end) }),
        span: Span { start: place(change), end: place(change + what.len()) },
        replacement: with.to_owned(),
    }
}
