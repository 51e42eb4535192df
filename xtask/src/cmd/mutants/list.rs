//! The mutants that cargo-mutants knows of some packages, as it lists them, and the order in which a seed draws them.

use crate::shell;
use crate::verdict::Verdict;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

/// The version whose names and order the stored list and a printed seed are of.
pub(super) const VERSION: &str = "27.1.0";

/// A place in a file: line and column from 1, the column in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) line: usize,
    pub(super) column: usize,
}

/// From one place to before another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Span {
    pub(super) start: Place,
    pub(super) end: Place,
}

/// One change to the code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mutant {
    /// `file: change`, with ` #2` behind the second such change in the file: it stays when lines move.
    pub(super) key: String,
    /// `file:line:column: change`.
    pub(super) name: String,
    pub(super) package: String,
    /// Its file from the root of the workspace.
    pub(super) file: String,
    /// The whole function that it is in, if it is in one.
    pub(super) function: Option<Span>,
    /// What it replaces.
    pub(super) span: Span,
    pub(super) replacement: String,
}

/// Whether cargo-mutants is here in that version.
///
/// # Errors
/// A visible skip.
pub(super) fn tool() -> Result<(), Verdict> {
    let remedy = format!("`cargo install --locked cargo-mutants --version {VERSION}`");
    let out = shell::capture(shell::cargo().args(["mutants", "--version"]));
    match out {
        Ok(out) if out.success && out.stdout.trim().ends_with(VERSION) => Ok(()),
        Ok(out) if out.success => {
            Err(Verdict::skipped(format!("this is {}", out.stdout.trim()), remedy))
        }
        Ok(_) | Err(_) => Err(Verdict::skipped("cargo-mutants is not installed", remedy)),
    }
}

/// All mutants of the packages, in the order of their files and places.
///
/// # Errors
/// Words, when there is no list.
pub(super) fn all(root: &Path, packages: &[&str]) -> Result<Vec<Mutant>, String> {
    let mut command = shell::cargo();
    command.current_dir(root).args(["mutants", "--list", "--json", "--colors=never"]);
    for package in packages {
        command.args(["--package", package]);
    }
    let out = shell::capture(&mut command)?;
    if !out.success {
        return Err(format!("`{}`: {}\n{}", shell::shown(&command), out.why(), out.stderr));
    }
    read(&out.stdout)
}

/// Reads the list.
pub(super) fn read(json: &str) -> Result<Vec<Mutant>, String> {
    let json: Value = serde_json::from_str(json).map_err(|e| format!("no list of mutants: {e}"))?;
    let rows = json.as_array().ok_or("the list of mutants is no array")?;
    let mut mutants = rows
        .iter()
        .map(|row| mutant(row).ok_or_else(|| format!("this is no mutant: {row}")))
        .collect::<Result<Vec<_>, _>>()?;
    mutants.sort_by(|a, b| (&a.file, a.span, &a.name).cmp(&(&b.file, b.span, &b.name)));
    let mut known: BTreeMap<String, usize> = BTreeMap::new();
    for mutant in &mut mutants {
        let count = known.entry(mutant.key.clone()).or_default();
        *count = count.saturating_add(1);
        if *count > 1 {
            mutant.key = format!("{} #{count}", mutant.key);
        }
    }
    Ok(mutants)
}

fn mutant(row: &Value) -> Option<Mutant> {
    let text = |key: &str| Some(row.get(key)?.as_str()?.to_owned());
    let name = text("name")?.split_whitespace().collect::<Vec<_>>().join(" ");
    let file = text("file")?;
    let (_, change) = name.split_once(": ")?;
    Some(Mutant {
        key: format!("{file}: {change}"),
        package: text("package")?,
        function: row.get("function").and_then(|f| f.get("span")).and_then(span),
        span: span(row.get("span")?)?,
        replacement: text("replacement")?,
        name,
        file,
    })
}

fn span(row: &Value) -> Option<Span> {
    let place = |key: &str| {
        let place = row.get(key)?;
        let number = |key: &str| usize::try_from(place.get(key)?.as_u64()?).ok();
        Some(Place { line: number("line")?, column: number("column")? })
    };
    Some(Span { start: place("start")?, end: place("end")? })
}

/// The mutants as that seed draws them: by a hash of seed and key, so that a change elsewhere in the tree leaves the order of the
/// others as it is.
pub(super) fn drawn(mut mutants: Vec<Mutant>, seed: u64) -> Vec<Mutant> {
    let place = |m: &Mutant| *blake3::hash(format!("{seed}\n{}", m.key).as_bytes()).as_bytes();
    mutants.sort_by_cached_key(|m| (place(m), m.key.clone()));
    mutants
}

#[cfg(test)]
mod tests {
    use super::{drawn, read};

    fn row(file: &str, line: u32, change: &str) -> String {
        format!(
            r#"{{"name": "{file}:{line}:3: {change}", "package": "p", "file": "{file}", "function": null, "genre": "BinaryOperator",
            "replacement": "-", "span": {{"start": {{"line": {line}, "column": 3}}, "end": {{"line": {line}, "column": 4}}}}}}"#
        )
    }

    #[test]
    fn the_same_change_twice_has_two_keys_that_do_not_move_with_lines() {
        let list = |lines: [u32; 3]| {
            let [a, b, c] = lines.map(|line| row("a.rs", line, "replace + with - in f"));
            let other = row("b.rs", 1, "replace + with - in f");
            let keys = read(&format!("[{c}, {other}, {a}, {b}]")).unwrap();
            keys.into_iter().map(|m| m.key).collect::<Vec<_>>()
        };
        let name = "a.rs: replace + with - in f";
        let keys = [
            name.to_owned(),
            format!("{name} #2"),
            format!("{name} #3"),
            "b.rs: replace + with - in f".to_owned(),
        ];
        assert_eq!(list([4, 5, 6]), keys);
        assert_eq!(list([14, 25, 36]), keys);
        assert!(read("{}").is_err() && read("[{}]").is_err() && read("text").is_err());
    }

    #[test]
    fn a_seed_draws_the_same_order_again_and_another_seed_another() {
        let rows: Vec<String> = (1..40).map(|n| row("a.rs", n, &format!("change {n}"))).collect();
        let all = read(&format!("[{}]", rows.join(","))).unwrap();
        let order = |seed: u64, all: &[super::Mutant]| {
            drawn(all.to_vec(), seed).into_iter().map(|m| m.key).collect::<Vec<_>>()
        };
        assert_eq!(order(7, &all), order(7, &all));
        assert_ne!(order(7, &all), order(8, &all));
        let mut turned = all.clone();
        turned.reverse();
        assert_eq!(order(7, &all), order(7, &turned), "the order of the list is not the seed's");
        let fewer: Vec<String> = order(7, &all[1..]);
        let rest: Vec<String> = order(7, &all).into_iter().filter(|k| *k != all[0].key).collect();
        assert_eq!(fewer, rest, "the others keep their order when one goes");
    }
}
