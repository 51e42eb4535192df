//! The stored text of a library's public items, and the difference of two such lists.

use super::listing::Listing;
use std::collections::BTreeMap;

/// The libraries with a text each.
pub(super) const LIBRARIES: [&str; 4] = ["hmc-core", "hmc-mem", "hmc-hw", "hmc-std"];

/// The folder of the texts.
pub(super) const FOLDER: &str = "xtask/api";

/// What stands before the format in the first line.
const FORMAT: &str = "rustdoc JSON format ";

/// A stored list.
#[derive(Debug)]
pub(super) struct Snapshot {
    /// The format of the rustdoc JSON that it was made from.
    pub(super) format: Option<u64>,
    /// The items.
    pub(super) items: Vec<String>,
}

impl Snapshot {
    /// The path of a library's text, from the root.
    pub(super) fn path(library: &str) -> String {
        format!("{FOLDER}/{library}.txt")
    }

    /// The text of a list.
    pub(super) fn text(library: &str, listing: &Listing) -> String {
        let mut text = format!(
            "// The public items of {library}, by `cargo xtask api --bless`; {FORMAT}{}\n",
            listing.format
        );
        for item in &listing.items {
            text.push_str(item);
            text.push('\n');
        }
        text
    }

    /// Reads a text.
    pub(super) fn parse(text: &str) -> Self {
        let mut lines = text.lines();
        let format = lines.next().and_then(|line| line.rsplit_once(FORMAT)?.1.parse().ok());
        Self { format, items: lines.map(str::to_owned).collect() }
    }
}

/// What differs between two lists.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Difference {
    /// Items that only the older list has.
    pub(super) removed: Vec<String>,
    /// Items that only the newer list has.
    pub(super) added: Vec<String>,
}

impl Difference {
    /// Whether both lists have the same items.
    pub(super) fn is_empty(&self) -> bool {
        self.removed.is_empty() && self.added.is_empty()
    }
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.removed.iter().try_for_each(|item| writeln!(f, "  - {item}"))?;
        self.added.iter().try_for_each(|item| writeln!(f, "  + {item}"))
    }
}

/// Compares two lists, whatever their order.
pub(super) fn difference(old: &[String], new: &[String]) -> Difference {
    let mut counts: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for item in old {
        let count = &mut counts.entry(item).or_default().0;
        *count = count.saturating_add(1);
    }
    for item in new {
        let count = &mut counts.entry(item).or_default().1;
        *count = count.saturating_add(1);
    }
    let those = |is_one: fn(usize, usize) -> bool| {
        let all = counts.iter().filter(|(_, (o, n))| is_one(*o, *n));
        all.map(|(item, _)| (*item).to_owned()).collect()
    };
    Difference { removed: those(|o, n| o > n), added: those(|o, n| n > o) }
}

#[cfg(test)]
mod tests {
    use super::{Snapshot, difference};
    use crate::cmd::api::listing::Listing;

    fn items(text: &[&str]) -> Vec<String> {
        text.iter().map(|item| (*item).to_owned()).collect()
    }

    #[test]
    fn a_text_is_read_as_it_was_written() {
        let listing = Listing { format: 57, items: items(&["pub mod a", "pub fn a::b()"]) };
        let read = Snapshot::parse(&Snapshot::text("a", &listing));
        assert_eq!((read.format, read.items), (Some(57), listing.items));
        assert_eq!(Snapshot::parse("pub mod a\n").format, None);
    }

    #[test]
    fn a_changed_signature_is_removed_and_added() {
        let (old, new) = (items(&["fn a()", "fn b()"]), items(&["fn b()", "fn a(u8)", "fn b()"]));
        let found = difference(&old, &new);
        assert_eq!(found.removed, ["fn a()"]);
        assert_eq!(found.added, ["fn a(u8)", "fn b()"]);
        assert!(difference(&new, &new).is_empty());
    }
}
