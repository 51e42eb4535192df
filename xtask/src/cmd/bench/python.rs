//! The rows of the Python package, and the check that they were measured: each row has its numbers, and the module is that of
//! the wheel that was built for them.

use super::options::PATIENCE;
use crate::cmd::wheel;
use crate::shell;
use crate::tree;
use crate::verdict::Verdict;
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// The rows of `benches/python/bench.py`, and whether each has a reference in the same run.
const ROWS: [(&str, bool); 12] = [
    ("put_remote of 8 B over shm, beyond the Rust call", true),
    ("buf.put(numpy 64 MiB), numpy.copyto into warm memory", true),
    ("put of a registered 64 MiB array over shm, the Rust put", true),
    ("put of an 8 B array over shm, beyond the Rust call", true),
    ("put of a 1 MiB array over shm, the Rust put", true),
    ("put of a 16 MiB array over shm, the Rust put", true),
    ("import hmc, beyond a bare interpreter", true),
    ("create_session() with its 128 MiB, and close", false),
    ("NumPy in (write of 8 B, beyond an empty one)", false),
    ("DLPack in (the same, by DLPack alone)", false),
    ("NumPy out (numpy.frombuffer)", false),
    ("DLPack out (the capsule)", false),
];

/// Builds the wheel and measures what Python adds.
pub(super) fn run(quick: bool) -> Verdict {
    let root = tree::root();
    let home = match wheel::installed(&root) {
        Ok(home) => home,
        Err(verdict) => return verdict,
    };
    let rows = home.join("rows.json");
    let mut command = Command::new(home.join("bin/python"));
    // Isolated: no variable and no folder brings another module than the one that was just installed.
    command.arg("-I").arg(root.join("benches/python/bench.py")).arg("--json").arg(&rows);
    if quick {
        command.arg("--quick");
    }
    match shell::stream(&mut command, PATIENCE) {
        Ok(out) if out.success => Verdict::from_result(read(&rows, &home)),
        Ok(out) => Verdict::failed(format!("`{}`: {}", shell::shown(&command), out.why())),
        Err(why) => Verdict::Failed(why),
    }
}

fn read(rows: &Path, home: &Path) -> Result<(), String> {
    let text = std::fs::read_to_string(rows).map_err(|e| format!("{}: {e}", rows.display()))?;
    let home = home.canonicalize().map_err(|e| format!("{}: {e}", home.display()))?;
    check(&text, &home)
}

/// Checks what was written, one JSON object a line: the modules lie in `home`, and every row is there once, with its numbers.
fn check(text: &str, home: &Path) -> Result<(), String> {
    let mut missing: Vec<(&str, bool)> = ROWS.to_vec();
    let mut modules = 0_usize;
    for line in text.lines() {
        // Python writes what is no number as a word that is no JSON.
        let json: Value =
            serde_json::from_str(line).map_err(|e| format!("`{line}` is no row: {e}"))?;
        let word = |key: &str| json.get(key).and_then(Value::as_str);
        if let Some(module) = word("module") {
            if !Path::new(module).starts_with(home) {
                return Err(format!("{module} was measured: it is not in {}", home.display()));
            }
            modules = modules.saturating_add(1);
            continue;
        }
        let name = word("name").ok_or_else(|| format!("`{line}` has no name"))?;
        let place = missing.iter().position(|(row, _)| *row == name);
        let place = place.ok_or_else(|| format!("the row `{name}` is unknown, or there twice"))?;
        let (_, has_reference) = missing.swap_remove(place);
        let number = |key: &str| json.get(key).and_then(Value::as_f64).filter(|n| n.is_finite());
        if number("value").is_none() || (has_reference && number("reference").is_none()) {
            return Err(format!("the row `{name}` has no number: `{line}`"));
        }
    }
    if modules != 2 {
        return Err(format!("{modules} modules were named instead of both halves of the package"));
    }
    match missing.first() {
        Some((name, _)) => Err(format!("the row `{name}` was not measured")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::{ROWS, check};
    use std::path::Path;

    const HOME: &str = "/built/home";

    /// What a whole run writes.
    fn lines() -> Vec<String> {
        let modules = ["__init__.py", "_hmc.abi3.so"].map(|file| {
            format!(r#"{{"module": "{HOME}/lib/python3.11/site-packages/hmc/{file}"}}"#)
        });
        let rows = ROWS.map(|(name, has_reference)| {
            let reference = if has_reference { "18.2" } else { "null" };
            format!(
                r#"{{"name": "{name}", "value": -1.5, "reference": {reference}, "met": false}}"#
            )
        });
        modules.into_iter().chain(rows).collect()
    }

    fn why(lines: &[String]) -> String {
        check(&lines.join("\n"), Path::new(HOME)).expect_err("a run that proves nothing")
    }

    #[test]
    fn a_whole_run_is_believed() {
        assert_eq!(check(&lines().join("\n"), Path::new(HOME)), Ok(()));
    }

    #[test]
    fn the_rows_are_those_of_the_program() {
        let program = include_str!("../../../../benches/python/bench.py");
        for (name, _) in ROWS {
            assert_eq!(program.matches(&format!("\"{name}\"")).count(), 1, "{name}");
        }
    }

    #[test]
    fn a_row_that_is_missing_or_there_twice_is_a_failure() {
        let whole = lines();
        for i in 0..whole.len() {
            let mut some = whole.clone();
            let line = some.remove(i);
            assert!(
                why(&some).contains(if i < 2 { "1 modules" } else { "not measured" }),
                "{line}"
            );
            let mut twice = whole.clone();
            twice.push(line);
            assert!(why(&twice).contains(if i < 2 { "3 modules" } else { "there twice" }));
        }
        assert!(why(&[]).contains("0 modules"));
        let other = r#"{"name": "another", "value": 1.0}"#.to_owned();
        assert!(why(&[whole, vec![other]].concat()).contains("`another` is unknown"));
    }

    #[test]
    fn a_row_without_a_number_is_a_failure() {
        for (i, (name, has_reference)) in (2..).zip(ROWS) {
            for wrong in ["null", "\"-\"", "true", "NaN", "Infinity", "1e999"] {
                let mut broken = lines();
                broken[i] = broken[i].replace("-1.5", wrong);
                assert!(!why(&broken).is_empty(), "{name}: {wrong}");
                let mut broken = lines();
                broken[i] = broken[i].replace("18.2", wrong);
                let told = check(&broken.join("\n"), Path::new(HOME));
                assert_eq!(told.is_err(), has_reference, "{name}: {wrong}: {told:?}");
            }
            let mut broken = lines();
            broken[i] = broken[i].replace("\"value\"", "\"val\"");
            assert!(why(&broken).contains("has no number"));
        }
    }

    #[test]
    fn a_module_of_another_build_is_a_failure() {
        for i in 0..2 {
            let mut broken = lines();
            broken[i] = broken[i].replace(HOME, "/built/homely");
            assert!(why(&broken).contains("/built/homely"), "{}", broken[i]);
        }
    }
}
