//! Words of docs/GLOSSARY.md that this project does not use, in code, comments and names of files.

use super::finding::Finding;
use crate::tree::Tree;

/// Each word and what stands for it.
const WORDS: [(&str, &str); 30] = [
    ("aftermath", "deferred"),
    ("attend", "claim, release"),
    ("baton", "leader"),
    ("bell", "waker"),
    ("card", "connection info"),
    ("crank", "progress lock"),
    ("desk", "state of a rendezvous, scripted transport"),
    ("door", "listener, AM target"),
    ("face", "public API, front end"),
    ("graveyard", "unfenced links"),
    ("hall", "AM dispatcher"),
    ("house", "project"),
    ("journey", "walkthrough"),
    ("judge", "validate, check, oracle"),
    ("judged", "validated, checked"),
    ("nap", "park"),
    ("news", "event, event count"),
    ("parcel", "AM message"),
    ("porch", "wireup page"),
    ("room", "module, space, capacity"),
    ("seat", "worker"),
    ("stillness", "idle waits"),
    ("stranger", "pending connection"),
    ("tale", "outcome"),
    ("ticket", "handle, number of a request"),
    ("trip", "AM operation"),
    ("vigil", "wait timer"),
    ("wall", "interface"),
    ("weather", "network conditions"),
    ("wing", "plane"),
];

/// Phrases, and what stands for each.
const PHRASES: [(&str, &str); 8] = [
    ("be it", "even if"),
    ("for good", "permanently"),
    ("hear of", "is notified of, receives"),
    ("heard of", "was notified of, received"),
    ("hears of", "is notified of, receives"),
    ("now and then", "periodically, sometimes"),
    ("stops to", "stops, with a gerund"),
    ("where there is one", "if any"),
];

/// Names of functions that a reader has to decode, and what stands for each. In prose these words are plain English.
const CALLS: [(&str, &str); 15] = [
    ("ask", "request, query"),
    ("bring_down", "close"),
    ("die", "close"),
    ("greet", "handshake, accept"),
    ("hear", "receive"),
    ("introduce", "announce"),
    ("judge", "validate, check, assess"),
    ("learn", "add, record"),
    ("lend", "borrow"),
    ("owe", "queue"),
    ("pump", "progress"),
    ("say", "send, report"),
    ("tend", "reap"),
    ("turn", "poll"),
    ("untell", "revoke"),
];

/// Terms that hold such a word.
const TERMS: [&str; 5] = ["round trip", "round-trip", "round_trip", "roundtrip", "wall clock"];

/// Public names of hmc-std and of Python that hold such a word.
const PUBLIC: [&str; 1] = ["strangers_refused"];

/// The list itself.
const LIST: &str = "xtask/src/cmd/tidy/retired.rs";

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let files = tree.ending(".rs").chain(tree.ending(".py"));
    let mut out = Vec::new();
    for file in files.filter(|f| f.path != LIST) {
        let lines = file.text.lines().zip(1_usize..);
        for (line, number) in [(file.path.as_str(), 0)].into_iter().chain(lines) {
            for (word, instead) in retired(line).into_iter().chain(phrases(line)).chain(call(line))
            {
                let what = format!("`{word}` is no term of docs/GLOSSARY.md: {instead}");
                out.push(Finding::new(&file.path, number, what));
            }
        }
    }
    out
}

/// The retired words of a line, with what stands for them.
fn retired(line: &str) -> Vec<(&'static str, &'static str)> {
    let mut lower = line.to_lowercase();
    for term in TERMS.iter().chain(&PUBLIC) {
        lower = lower.replace(term, &" ".repeat(term.len()));
    }
    if !WORDS.iter().any(|(word, _)| lower.contains(word)) {
        return Vec::new();
    }
    let parts = parts(line);
    let is_part = |word: &str| {
        parts.iter().any(|p| p == word || p.strip_suffix('s') == Some(word)) && lower.contains(word)
    };
    WORDS.into_iter().filter(|(word, _)| is_part(word)).collect()
}

/// The phrases of a line that are retired, with what stands for them.
fn phrases(line: &str) -> Vec<(&'static str, &'static str)> {
    let lower = line.to_lowercase().replace("for good in ", "");
    if !PHRASES.iter().any(|(phrase, _)| lower.contains(phrase)) {
        return Vec::new();
    }
    let words = format!(" {} ", parts(&lower).join(" "));
    PHRASES.into_iter().filter(|(phrase, _)| words.contains(&format!(" {phrase} "))).collect()
}

/// The retired name of the function that a line declares, with what stands for it.
fn call(line: &str) -> Option<(&'static str, &'static str)> {
    let (_, declared) = line.split_once("fn ")?;
    let name = declared.split(|c: char| !c.is_alphanumeric() && c != '_').next()?;
    let is_declaration = declared.get(name.len()..)?.starts_with(['(', '<']);
    CALLS.into_iter().find(|(call, _)| is_declaration && *call == name)
}

/// The words of a line, those within names too: `tryCrank`, `try_crank` and `CRANK_NS` hold `crank`.
fn parts(line: &str) -> Vec<String> {
    let mut out = Vec::new();
    let mut word = String::new();
    let mut was_lower = false;
    for c in line.chars() {
        if !c.is_alphabetic() || (c.is_uppercase() && was_lower) {
            out.push(std::mem::take(&mut word));
        }
        if c.is_alphabetic() {
            word.extend(c.to_lowercase());
        }
        was_lower = c.is_lowercase();
    }
    out.push(word);
    out.retain(|w| !w.is_empty());
    out
}

#[cfg(test)]
mod tests {
    use super::{call, check, phrases, retired};
    use crate::tree::Tree;

    fn words(line: &str) -> Vec<&'static str> {
        retired(line).into_iter().map(|(word, _)| word).collect()
    }

    #[test]
    fn planted_words_are_found_in_names_and_comments() {
        assert_eq!(words("let crank = worker.try_crank();"), ["crank"]);
        assert_eq!(words("struct WaitBell;"), ["bell"]);
        assert_eq!(words("const NAPS_NS: u64 = 1;"), ["nap"]);
        assert_eq!(words("// Who knocks at the doors of this house?"), ["door", "house"]);
        let text = "fn f() {}\n// the porch\n";
        let found =
            check(&Tree::planted(&[("hmc-a/src/card.rs", text), ("hmc-b/a.rs", "fn f() {}")]));
        let lines: Vec<usize> = found.iter().map(|f| f.line).collect();
        assert_eq!(lines, [0, 2]);
    }

    #[test]
    fn planted_names_of_functions_are_found() {
        let found = |line: &str| call(line).map(|(name, _)| name);
        assert_eq!(found("    pub(crate) fn die(&self) {"), Some("die"));
        assert_eq!(found("fn say<T>(peer: &T) {"), Some("say"));
        for line in [
            "fn die_hard() {",
            "fn dies() {",
            "self.die();",
            "// the fn die of old",
            "fn saying(x) {",
        ] {
            assert_eq!(found(line), None, "{line}");
        }
        let text = "//! A link.\nfn turn() {}\n";
        let found = check(&Tree::planted(&[("hmc-a/src/a.rs", text)]));
        assert_eq!(found.iter().map(|f| f.line).collect::<Vec<_>>(), [2]);
    }

    #[test]
    fn planted_phrases_are_found() {
        let found = |line| phrases(line).into_iter().map(|(p, _)| p).collect::<Vec<_>>();
        assert_eq!(
            found("/// Who hears of it? Now and then, nobody."),
            ["hears of", "now and then"]
        );
        assert_eq!(found("// gone for good"), ["for good"]);
        for line in ["for good in [1, 2] {", "maybe it stops", "be its peer", "stops together"] {
            assert_eq!(found(line), [""; 0], "{line}");
        }
        let found = check(&Tree::planted(&[("hmc-a/src/a.rs", "//! A link.\n// be it so\n")]));
        assert_eq!(found.iter().map(|f| f.line).collect::<Vec<_>>(), [2]);
    }

    #[test]
    fn other_words_pass() {
        let none: [&str; 0] = [];
        for line in [
            "interface",
            "doorbell",
            "a round trip",
            "the wall clock",
            "snapshot",
            "s.strangers_refused",
        ] {
            assert_eq!(words(line), none, "{line}");
        }
    }
}
