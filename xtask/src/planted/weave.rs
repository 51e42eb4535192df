//! Applies all mutants to the same texts.
//!
//! Each fits the text as the tree has it, whatever the others change: its lines are looked for there, and must stand at exactly one
//! place. What several add at one place comes in the order of the mutants.

use super::patch::{Change, Hunk, Patch};
use std::collections::BTreeMap;

/// What becomes of a file.
#[derive(Default)]
struct Woven {
    /// What comes before the line of that index.
    added: BTreeMap<usize, Vec<String>>,
    /// Lines that go, and for which mutant.
    removed: BTreeMap<usize, String>,
}

/// The texts of all files that mutants change, with all of them applied.
///
/// # Errors
/// A line for each place where one does not apply.
pub(crate) fn weave<'t>(
    patches: &[Patch],
    text: impl Fn(&str) -> Option<&'t str>,
) -> Result<BTreeMap<String, String>, Vec<String>> {
    let mut files: BTreeMap<&str, Woven> = BTreeMap::new();
    let mut wrong = Vec::new();
    for patch in patches {
        for (path, hunks) in &patch.changes {
            let Some(text) = text(path) else {
                wrong.push(format!("{}: {path} is not there", patch.name));
                continue;
            };
            let lines: Vec<&str> = text.lines().collect();
            let woven = files.entry(path).or_default();
            for (hunk, number) in hunks.iter().zip(1_usize..) {
                if let Err(why) = add(woven, &lines, hunk, &patch.name) {
                    wrong.push(format!("{}: hunk {number} of {path} {why}", patch.name));
                }
            }
        }
    }
    if !wrong.is_empty() {
        return Err(wrong);
    }
    let whole = |(path, woven): (&str, Woven)| {
        (path.to_owned(), woven.text(text(path).unwrap_or_default()))
    };
    Ok(files.into_iter().map(whole).collect())
}

/// Takes in what a hunk changes.
fn add(woven: &mut Woven, lines: &[&str], hunk: &Hunk, name: &str) -> Result<(), String> {
    let mut at = place(lines, hunk)?;
    for change in hunk {
        match change {
            Change::Keep(_) => {}
            Change::Remove(_) => {
                if let Some(other) = woven.removed.insert(at, name.to_owned()) {
                    return Err(format!("removes a line that {other} removes"));
                }
            }
            Change::Add(line) => {
                woven.added.entry(at).or_default().push(line.clone());
                continue;
            }
        }
        at = at.saturating_add(1);
    }
    Ok(())
}

/// The index of the first of the lines that a hunk wants to be there.
fn place(lines: &[&str], hunk: &Hunk) -> Result<usize, String> {
    let there = |change: &Change| match change {
        Change::Keep(line) | Change::Remove(line) => Some(line.clone()),
        Change::Add(_) => None,
    };
    let wanted: Vec<String> = hunk.iter().filter_map(there).collect();
    if wanted.is_empty() {
        return Err("has no line around it".to_owned());
    }
    let windows = lines.windows(wanted.len()).enumerate();
    let mut found = windows.filter(|(_, window)| wanted == *window).map(|(at, _)| at);
    match (found.next(), found.next()) {
        (Some(at), None) => Ok(at),
        (Some(_), Some(_)) => {
            Err("fits at several places: it needs more lines around it".to_owned())
        }
        (None, _) => Err("does not apply: its lines are not there".to_owned()),
    }
}

impl Woven {
    /// The text with all changes.
    fn text(mut self, original: &str) -> String {
        let mut out: Vec<String> = Vec::new();
        for (line, at) in original.lines().zip(0_usize..) {
            out.extend(self.added.remove(&at).unwrap_or_default());
            if !self.removed.contains_key(&at) {
                out.push(line.to_owned());
            }
        }
        out.extend(self.added.into_values().flatten());
        out.push(String::new());
        out.join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::weave;
    use crate::planted::patch::Patch;

    const TEXT: &str = "fn f() {\n    a();\n    b();\n    c();\n}\n";

    fn patch(name: &str, hunk: &str) -> Patch {
        let count = |signs: [char; 2]| hunk.lines().filter(|l| l.starts_with(signs)).count();
        let (old, new) = (count([' ', '-']), count([' ', '+']));
        let text = format!(
            "Wrong.\n\nClass: x\nShown by: test\n\n--- a/x.rs\n+++ b/x.rs\n@@ -9,{old} +9,{new} @@{hunk}\n"
        );
        Patch::parse(name, &text).unwrap()
    }

    fn woven(patches: &[Patch]) -> Result<String, String> {
        let text = |path: &str| (path == "x.rs").then_some(TEXT);
        let texts = weave(patches, text).map_err(|wrong| wrong.join("\n"))?;
        Ok(texts["x.rs"].clone())
    }

    #[test]
    fn each_fits_the_tree_whatever_the_others_change() {
        let first = patch("A", "\n     a();\n+    mutant!(A);\n     b();");
        let same_place = patch("B", "\n     a();\n+    mutant!(B);\n     b();");
        let beside = patch("C", "\n     b();\n-    c();\n+    c(mutant!(C));");
        let text = woven(&[first, same_place, beside]).unwrap();
        let wanted = "fn f() {\n    a();\n    mutant!(A);\n    mutant!(B);\n    b();\n    c(mutant!(C));\n}\n";
        assert_eq!(text, wanted);
        let last = patch("D", "\n }\n+mutant!(D);");
        assert_eq!(woven(&[last]).unwrap(), format!("{TEXT}mutant!(D);\n"));
    }

    #[test]
    fn one_that_does_not_apply_is_named() {
        let stale = patch("Stale", "\n     a();\n+    mutant!(Stale);\n     d();");
        let why = woven(&[stale]).unwrap_err();
        assert_eq!(why, "Stale: hunk 1 of x.rs does not apply: its lines are not there");
        let hangs = patch("Loose", "\n+mutant!(Loose);");
        assert!(woven(&[hangs]).unwrap_err().contains("no line around it"));
        let one = patch("One", "\n-    a();\n+    mutant!(One);");
        let two = patch("Two", "\n-    a();\n+    mutant!(Two);");
        assert!(woven(&[one.clone(), two]).unwrap_err().contains("a line that One removes"));
        assert!(weave(&[one], |_| None).unwrap_err()[0].contains("x.rs is not there"));
    }

    #[test]
    fn a_place_that_is_not_the_only_one_is_refused() {
        let twice = patch("Twice", "\n     a();\n+    mutant!(Twice);");
        let text = |_: &str| Some("a {\n    a();\n}\nb {\n    a();\n}\n");
        assert!(weave(&[twice], text).unwrap_err()[0].contains("fits at several places"));
    }
}
