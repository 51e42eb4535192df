//! How many public functions the types have that an application uses most.

use std::collections::BTreeSet;

/// These types of hmc-std.
const TYPES: [&str; 6] = ["Session", "Memory", "Peer", "Remote", "Request", "Op"];

/// The most that all of them are meant to have.
const GOAL: usize = 55;

/// A line for people: the functions of each type, and of all.
pub(super) fn summary(items: &[String]) -> String {
    let counts = TYPES.map(|name| count(items, name));
    let all = counts.iter().fold(0, |sum: usize, count| sum.saturating_add(*count));
    let each: Vec<String> =
        TYPES.iter().zip(counts).map(|(name, count)| format!("{name} {count}")).collect();
    format!("functions of {}; all {all} (goal: at most {GOAL})", each.join(", "))
}

/// The functions of a type, those of traits that it implements left out, each name once.
fn count(items: &[String], name: &str) -> usize {
    let mut of_trait = false;
    let mut names = BTreeSet::new();
    for item in items {
        if item.starts_with("impl") {
            of_trait = without_arguments(item).contains(" for ");
        } else if !of_trait && let Some(function) = function(item, name) {
            names.insert(function);
        }
    }
    names.len()
}

/// The name of the function that a line declares, if it is one of that type.
fn function(item: &str, name: &str) -> Option<String> {
    let (before, path) = item.split_once("fn ")?;
    before.starts_with("pub ").then_some(())?;
    let plain = without_arguments(path);
    let mut parts = plain.split('(').next()?.rsplit("::");
    let function = parts.next()?;
    (parts.next()? == name).then(|| function.to_owned())
}

/// A text without what stands between `<` and `>`. The `>` of `->` ends nothing.
fn without_arguments(text: &str) -> String {
    let (mut depth, mut before) = (0_usize, ' ');
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '<' => depth = depth.saturating_add(1),
            '>' if before != '-' => depth = depth.saturating_sub(1),
            _ if depth == 0 => out.push(c),
            _ => {}
        }
        before = c;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::{count, summary};

    const ITEMS: [&str; 9] = [
        "pub struct a::Op<M: a::Held>",
        "impl<M: a::Held<for<'a> B>> a::Op<M>",
        "pub fn a::Op<M>::wait(self) -> core::result::Result<(), a::Error>",
        "pub unsafe fn a::Op<M>::forget(self, fn() -> bool)",
        "impl a::Op<()>",
        "pub fn a::Op<()>::wait(self)",
        "impl<M> core::ops::drop::Drop for a::Op<M>",
        "pub fn a::Op<M>::drop(&mut self)",
        "pub fn a::OpName::get(&self) -> a::Op<u8>",
    ];

    #[test]
    fn functions_of_a_type_count_once_and_those_of_traits_do_not() {
        let items = ITEMS.map(str::to_owned);
        assert_eq!(count(&items, "Op"), 2);
        assert_eq!(
            count(&items, "OpName"),
            0,
            "its line stands below an implementation of a trait"
        );
        assert_eq!(count(&items, "Peer"), 0);
        assert!(summary(&items).contains("Op 2; all 2 "));
    }
}
