//! One mutant: a unified diff with a few lines of text before it, of which the name of its file is the name.
//!
//! ```text
//! What is wrong with it, in words.
//!
//! Class: the class of fault that it stands for
//! Shown by: simulation
//!
//! --- a/hmc-core/src/x.rs
//! +++ b/hmc-core/src/x.rs
//! @@ -7,6 +7,7 @@
//! ```
//!
//! What it adds stands behind `mutant!(Name)`, so that one build has all of them and each is on or off at run time.

use diffy::Line;
use diffy::patch_set::{FileOperation, ParseOptions, PatchSet};

/// What shows a mutant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shown {
    /// `cargo xtask sim --mutants`, by a seed.
    Simulation,
    /// `cargo xtask sim --mutants`, by a test that it runs.
    Test,
    /// `cargo xtask attack`.
    Attack,
}

/// A line of a hunk, without its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// Is there, and stays.
    Keep(String),
    /// Is there, and goes.
    Remove(String),
    /// Comes.
    Add(String),
}

/// A place that is changed in a file.
pub(super) type Hunk = Vec<Change>;

/// A mutant.
#[derive(Clone, Debug)]
pub(crate) struct Patch {
    /// Its name.
    pub(crate) name: String,
    /// What is wrong with it: a line or more.
    pub(super) words: Vec<String>,
    /// The class of fault that it stands for.
    pub(super) class: String,
    /// What shows it.
    pub(crate) shown: Shown,
    /// What it changes: the path from the root, and the places there.
    pub(super) changes: Vec<(String, Vec<Hunk>)>,
}

impl Patch {
    /// Reads the file of a mutant.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn parse(name: &str, text: &str) -> Result<Self, String> {
        let (head, diff) = match text.find("\n--- ") {
            Some(at) => text.split_at(at),
            None => return Err("no `--- ` line: no file is changed".to_owned()),
        };
        let value = |key: &str| {
            let line = head.lines().find_map(|line| line.strip_prefix(key));
            line.map(str::to_owned).ok_or_else(|| format!("no line `{key}..` before the diff"))
        };
        let shown = match value("Shown by: ")?.as_str() {
            "simulation" => Shown::Simulation,
            "test" => Shown::Test,
            "attack" => Shown::Attack,
            other => return Err(format!("shown by `{other}`: simulation, test or attack")),
        };
        let words: Vec<String> =
            head.lines().take_while(|line| !line.is_empty()).map(str::to_owned).collect();
        if words.is_empty() {
            return Err("the first line does not say what is wrong".to_owned());
        }
        let class = value("Class: ")?;
        let changes = changes(diff)?;
        let patch = Self { name: name.to_owned(), words, class, shown, changes };
        patch.check_switch()?;
        Ok(patch)
    }

    /// The files that it changes.
    pub(super) fn files(&self) -> impl Iterator<Item = &str> {
        self.changes.iter().map(|(path, _)| path.as_str())
    }

    /// Its row in the list of the switch.
    pub(super) fn row(&self, number: usize) -> String {
        let mut row = String::new();
        for line in &self.words {
            row.push_str(&format!("        /// {line}\n"));
        }
        row.push_str(&format!("        {} = {number}, {:?};\n", self.name, self.class));
        row
    }

    /// Whether what it adds asks for its own switch, and for no other.
    fn check_switch(&self) -> Result<(), String> {
        let mut asks = false;
        for change in self.changes.iter().flat_map(|(_, hunks)| hunks.iter().flatten()) {
            let Change::Add(line) = change else { continue };
            for rest in line.split("mutant!(").skip(1) {
                match rest.split_once(')') {
                    Some((name, _)) if name == self.name => asks = true,
                    _ => return Err(format!("asks for the switch of another: `{}`", line.trim())),
                }
            }
        }
        if asks { Ok(()) } else { Err(format!("adds no `mutant!({})`", self.name)) }
    }
}

fn changes(diff: &str) -> Result<Vec<(String, Vec<Hunk>)>, String> {
    let mut out = Vec::new();
    let mut hunks = 0_usize;
    for file in PatchSet::parse(diff, ParseOptions::unidiff()) {
        let file = file.map_err(|e| e.to_string())?;
        let FileOperation::Modify { original, modified } = file.operation() else {
            return Err("only files that are there can be changed".to_owned());
        };
        let path =
            original.strip_prefix("a/").filter(|path| modified.strip_prefix("b/") == Some(path));
        let path = path
            .ok_or_else(|| format!("`a/PATH` and `b/PATH`, not `{original}` and `{modified}`"))?;
        let text = file.patch().as_text().ok_or("binary")?;
        let all: Vec<Hunk> =
            text.hunks().iter().map(|h| h.lines().iter().map(change).collect()).collect();
        hunks = hunks.saturating_add(all.len());
        out.push((path.to_owned(), all));
    }
    // What does not read as a hunk is passed over as words after the diff.
    let there = diff.lines().filter(|line| line.starts_with("@@ ")).count();
    if hunks == there { Ok(out) } else { Err(format!("{hunks} of {there} hunks can be read")) }
}

fn change(line: &Line<'_, str>) -> Change {
    let text = |line: &str| line.strip_suffix('\n').unwrap_or(line).to_owned();
    match line {
        Line::Context(line) => Change::Keep(text(line)),
        Line::Delete(line) => Change::Remove(text(line)),
        Line::Insert(line) => Change::Add(text(line)),
    }
}

#[cfg(test)]
mod tests {
    use super::{Change, Patch, Shown};

    const GOOD: &str = "A byte\nis lost.\n\nClass: loss\nShown by: attack\n\n--- a/x/src/y.rs\n+++ b/x/src/y.rs\n\
                        @@ -1,2 +1,3 @@\n a();\n+if mutant!(Lost) { return; }\n b();\n";

    #[test]
    fn a_mutant_has_words_a_class_and_changes() {
        let patch = Patch::parse("Lost", GOOD).unwrap();
        assert_eq!(patch.words, ["A byte", "is lost."]);
        assert_eq!((patch.class.as_str(), patch.shown), ("loss", Shown::Attack));
        let (path, hunks) = &patch.changes[0];
        assert_eq!((path.as_str(), hunks.len()), ("x/src/y.rs", 1));
        let keep = |line: &str| Change::Keep(line.to_owned());
        let added = Change::Add("if mutant!(Lost) { return; }".to_owned());
        assert_eq!(hunks[0], [keep("a();"), added, keep("b();")]);
    }

    #[test]
    fn a_file_that_is_not_a_mutant_is_refused() {
        let why = |from: &str, to: &str| Patch::parse("Lost", &GOOD.replace(from, to)).unwrap_err();
        assert!(why("mutant!(Lost)", "mutant!(Other)").contains("switch of another"));
        assert!(why("mutant!(Lost)", "true").contains("adds no `mutant!(Lost)`"));
        assert!(why("--- a/x", "a/x").contains("no file is changed"));
        assert!(why("b/x/src", "b/z/src").contains("`a/PATH` and `b/PATH`"));
        assert!(why("Class: ", "Kind: ").contains("`Class: "));
        assert!(why("attack", "nobody").contains("shown by `nobody`"));
        assert!(why("A byte\nis lost.\n", "").contains("first line"));
        // A hunk that is shorter than it says, and one whose heading is wrong.
        assert!(Patch::parse("Lost", &GOOD.replace("+1,3", "+1,4")).is_err());
        assert!(Patch::parse("Lost", &format!("{GOOD}@@ 3 @@\n c();\n+d();\n")).is_err());
    }
}
