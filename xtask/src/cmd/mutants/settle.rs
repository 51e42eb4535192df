//! Finds out which mutants compile: together behind switches, only alone, or not at all.
//!
//! All are inserted at once; those that the compiler's errors point at are taken out, until the rest compiles. What was taken
//! out is tried in place, without a switch: a `const fn` can ask no switch, and two bodies cannot share one opaque type.

use super::copy::Copy;
use super::list::Mutant;
use super::splice::{COMPILED, Spliced, behind_switches, in_place};
use crate::shell;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A batch that does not settle after so many checks is a flaw of this program.
const CHECKS: usize = 60;
/// What the compiler calls a constant whose evaluation may never end. It would warn, and go on.
const ENDLESS: &str = "long_running_const_eval";
/// Time for one check.
const PATIENCE: Duration = Duration::from_secs(1200);

/// The results of mutants, by number.
#[derive(Debug, Default)]
pub(super) struct Settled {
    /// They compile together.
    pub(super) joint: BTreeSet<u32>,
    /// They compile, but need a build each.
    pub(super) alone: BTreeSet<u32>,
    /// They do not compile.
    pub(super) unviable: BTreeSet<u32>,
    /// Their code is not compiled here: it is for another processor, or for tests.
    pub(super) absent: BTreeSet<u32>,
}

impl Settled {
    /// Whether that mutant can be run.
    pub(super) fn is_viable(&self, number: u32) -> bool {
        self.joint.contains(&number) || self.alone.contains(&number)
    }
}

/// How mutants are put into a text.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// Behind switches.
    Together,
    /// In place of what they replace.
    Alone,
}

/// Sorts the mutants out; `all` has every mutant by its number less one.
///
/// # Errors
/// Words, when the copy does not compile for another reason.
pub(super) fn settle(
    copy: &Copy,
    packages: &[&str],
    all: &[Mutant],
    numbers: &[u32],
) -> Result<Settled, String> {
    let mut settled = Settled::default();
    let wanted: BTreeSet<u32> = numbers.iter().copied().collect();
    let (kept, markers) = compiling(copy, packages, all, wanted, Way::Together)?;
    for number in kept.taken {
        let fate = if markers.contains(&number) { &mut settled.joint } else { &mut settled.absent };
        fate.insert(number);
    }
    let mut rest: BTreeSet<u32> = kept.refused.union(&kept.left).copied().collect();
    while !rest.is_empty() {
        let (batch, _) = compiling(copy, packages, all, rest.clone(), Way::Alone)?;
        if batch.left == rest {
            return Err(format!("mutants {rest:?} cannot be put into their files"));
        }
        settled.alone.extend(batch.taken);
        settled.unviable.extend(batch.refused);
        rest = batch.left;
    }
    Ok(settled)
}

/// The result of a batch.
#[derive(Debug, Default)]
struct Batch {
    taken: BTreeSet<u32>,
    refused: BTreeSet<u32>,
    left: BTreeSet<u32>,
}

/// Inserts the mutants and takes out those that errors point at, until the copy compiles; also the numbers that the compiler
/// has seen.
fn compiling(
    copy: &Copy,
    packages: &[&str],
    all: &[Mutant],
    mut wanted: BTreeSet<u32>,
    way: Way,
) -> Result<(Batch, BTreeSet<u32>), String> {
    let mut batch = Batch::default();
    for _ in 0..CHECKS {
        let (texts, files) = spliced(copy, all, &wanted, way)?;
        for number in files.values().flat_map(|s| &s.left) {
            wanted.remove(number);
            batch.left.insert(*number);
        }
        copy.change(&texts)?;
        let said = check(copy, packages)?;
        if said.success {
            batch.taken = wanted;
            return Ok((batch, said.compiled));
        }
        let mut guilty = guilty(&said.errors, &files);
        if guilty.is_empty() {
            guilty = in_files_of(&said.errors, &files);
            // One of them is wrong by itself: each is tried without the others.
            let first = guilty.first().copied();
            if way == Way::Alone && guilty.len() > 1 {
                guilty.retain(|number| Some(*number) != first);
                wanted.retain(|number| !guilty.contains(number));
                batch.left.append(&mut guilty);
                continue;
            }
        }
        if guilty.is_empty() && way == Way::Alone {
            // A changed constant may be wrong where it is used.
            guilty = in_crates_of(&said.errors, all, &wanted);
            let half = guilty.len().div_ceil(2);
            if guilty.len() > 1 {
                let mut others: BTreeSet<u32> = guilty.into_iter().skip(half).collect();
                wanted.retain(|number| !others.contains(number));
                batch.left.append(&mut others);
                continue;
            }
        }
        if guilty.is_empty() {
            return Err(format!(
                "the copy does not compile:\n{}",
                said.errors.iter().map(|e| e.text.as_str()).collect::<String>()
            ));
        }
        println!("    {} do not compile so", guilty.len());
        wanted.retain(|number| !guilty.contains(number));
        batch.refused.extend(guilty);
    }
    Err(format!("still errors after {CHECKS} checks"))
}

type Texts = BTreeMap<String, String>;

/// The texts of all files with these mutants.
pub(super) fn spliced(
    copy: &Copy,
    all: &[Mutant],
    numbers: &BTreeSet<u32>,
    way: Way,
) -> Result<(Texts, BTreeMap<String, Spliced>), String> {
    let mut of_file: BTreeMap<&str, Vec<(u32, &Mutant)>> = BTreeMap::new();
    for number in numbers {
        let mutant =
            by_number(all, *number).ok_or_else(|| format!("there is no mutant {number}"))?;
        of_file.entry(&mutant.file).or_default().push((*number, mutant));
    }
    let mut texts = Texts::new();
    let mut files = BTreeMap::new();
    for (file, mutants) in of_file {
        let insert = match way {
            Way::Together => behind_switches,
            Way::Alone => in_place,
        };
        let spliced = insert(copy.original(file)?, &mutants);
        texts.insert(file.to_owned(), spliced.text.clone());
        files.insert(file.to_owned(), spliced);
    }
    Ok((texts, files))
}

/// The mutant of that number.
pub(super) fn by_number(all: &[Mutant], number: u32) -> Option<&Mutant> {
    all.get(usize::try_from(number).ok()?.checked_sub(1)?)
}

/// An error of the compiler: its positions, and its text.
#[derive(Debug)]
struct Error {
    places: Vec<(String, usize)>,
    text: String,
}

/// The output of a check.
#[derive(Debug, Default)]
struct Said {
    success: bool,
    errors: Vec<Error>,
    /// Mutants in code that was compiled.
    compiled: BTreeSet<u32>,
}

fn check(copy: &Copy, packages: &[&str]) -> Result<Said, String> {
    let mut command = copy.cargo();
    command.args(["check", "--message-format=json", "--keep-going", "--quiet"]);
    for package in packages {
        command.args(["--package", package]);
    }
    println!("$ {}", shell::shown(&command));
    let out = shell::watch(&mut command, PATIENCE, |line| !line.contains(ENDLESS))?;
    let mut said = read(&out.stdout);
    said.success = out.success;
    if !out.success && said.errors.is_empty() {
        return Err(format!("`{}`: {}\n{}", shell::shown(&command), out.why(), out.stderr));
    }
    Ok(said)
}

/// Reads the compiler's messages, one JSON object a line.
fn read(messages: &str) -> Said {
    let mut said = Said::default();
    for line in messages.lines() {
        let Ok(json) = serde_json::from_str::<Value>(line) else { continue };
        let Some(message) = json.get("message").filter(|m| m.is_object()) else { continue };
        let text = |key: &str| message.get(key).and_then(Value::as_str).unwrap_or_default();
        let code = message.get("code").and_then(|code| code.get("code")).and_then(Value::as_str);
        if text("level") == "error" || code == Some(ENDLESS) {
            let mut places = Vec::new();
            for span in message.get("spans").and_then(Value::as_array).into_iter().flatten() {
                if span.get("is_primary").and_then(Value::as_bool) == Some(true) {
                    add_places(span, &mut places);
                }
            }
            said.errors.push(Error { places, text: text("rendered").to_owned() });
        }
        let marker: Option<u32> =
            text("message").split('`').find_map(|word| word.strip_prefix(COMPILED)?.parse().ok());
        said.compiled.extend(marker);
    }
    // "could not compile" and the like stand nowhere; where there are others, they say nothing new.
    if said.errors.iter().any(|e| !e.places.is_empty()) {
        said.errors.retain(|e| !e.places.is_empty());
    }
    said
}

/// Where a span is, and where the macros were called that it is in.
fn add_places(span: &Value, places: &mut Vec<(String, usize)>) {
    let file = span.get("file_name").and_then(Value::as_str);
    let line = span.get("line_start").and_then(Value::as_u64).and_then(|n| usize::try_from(n).ok());
    if let (Some(file), Some(line)) = (file, line) {
        places.push((file.to_owned(), line));
    }
    if let Some(call) = span.get("expansion").and_then(|e| e.get("span")) {
        add_places(call, places);
    }
}

/// The mutants at the places of errors.
fn guilty(errors: &[Error], files: &BTreeMap<String, Spliced>) -> BTreeSet<u32> {
    let places = errors.iter().flat_map(|e| &e.places);
    places.filter_map(|(file, line)| Some(files.get(file)?.at(*line))).flatten().copied().collect()
}

/// All mutants of the files that errors are in, or of all files when the errors are elsewhere.
fn in_files_of(errors: &[Error], files: &BTreeMap<String, Spliced>) -> BTreeSet<u32> {
    let named: BTreeSet<&str> =
        errors.iter().flat_map(|e| &e.places).map(|(f, _)| f.as_str()).collect();
    let of = |file: &str| named.is_empty() || named.contains(file);
    let mutants = files.iter().filter(|(file, _)| of(file)).flat_map(|(_, s)| &s.regions);
    mutants.flat_map(|region| &region.numbers).copied().collect()
}

/// All of those mutants that stand in the folders of crates that errors are in.
fn in_crates_of(errors: &[Error], all: &[Mutant], wanted: &BTreeSet<u32>) -> BTreeSet<u32> {
    let folder = |file: &str| file.split_once('/').map(|(folder, _)| folder.to_owned());
    let named: BTreeSet<_> =
        errors.iter().flat_map(|e| &e.places).map(|(file, _)| folder(file)).collect();
    let is_there = |m: &Mutant| named.contains(&folder(&m.file));
    let mut out = wanted.clone();
    out.retain(|number| by_number(all, *number).is_some_and(is_there));
    out
}

#[cfg(test)]
mod tests {
    use super::super::splice::{Region, Spliced};
    use super::{guilty, in_files_of, read};
    use std::collections::{BTreeMap, BTreeSet};

    #[test]
    fn errors_name_mutants_by_their_lines_through_macros_too() {
        let inner = r#"{"file_name": "/rust/core/macros.rs", "line_start": 9, "is_primary": true,
            "expansion": {"span": {"file_name": "a.rs", "line_start": 4, "is_primary": false, "expansion": null}}}"#;
        let message = |level: &str, text: &str, spans: &str| {
            format!(r#"{{"reason": "compiler-message", "message": {{"level": "{level}", "message": "{text}", "rendered": "{text}", "spans": [{spans}]}}}}"#)
                .replace('\n', " ")
        };
        let lines = [
            message("error", "no Default", inner),
            message("error", "could not compile", ""),
            message("warning", "unused variable: `hmc_mutant_12`", ""),
            message("warning", "unused variable: `other`", ""),
            "text".to_owned(),
        ];
        let said = read(&lines.join("\n"));
        assert_eq!(said.compiled, BTreeSet::from([12]));
        assert_eq!(said.errors.len(), 1);
        let regions = vec![
            Region { lines: 1..20, numbers: vec![1, 2] },
            Region { lines: 3..5, numbers: vec![2] },
        ];
        let file = Spliced { regions, ..Spliced::default() };
        let files = BTreeMap::from([("a.rs".to_owned(), file)]);
        assert_eq!(guilty(&said.errors, &files), BTreeSet::from([2]));
        let elsewhere = read(&message(
            "error",
            "x",
            r#"{"file_name": "b.rs", "line_start": 1, "is_primary": true}"#,
        ));
        assert!(guilty(&elsewhere.errors, &files).is_empty());
        assert!(in_files_of(&elsewhere.errors, &files).is_empty(), "the tree itself is broken");
        assert_eq!(in_files_of(&said.errors, &files), BTreeSet::from([1, 2]));
    }
}
