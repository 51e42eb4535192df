//! Planted bugs that no simulated world can show, since they are about memory that processes share: the test that shows each.
//!
//! `cargo xtask sim --mutants` runs these tests too: each has to pass without a bug and to fail with its own.

use std::path::Path;
use std::process::{Command, Output};

use hmc_core::mutant::Mutant;

use crate::planted::VARIABLE;

/// A test of the workspace, run with cargo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Test {
    /// Its name.
    pub name: &'static str,
    /// What it is, for the table.
    pub what: &'static str,
    arguments: &'static [&'static str],
    /// Flags for the compiler and the folder of their build, where they are not those of the copy.
    other: Option<(&'static str, &'static str)>,
}

/// Models of what threads share.
const REOPENED: Test = Test {
    name: "reopen::window_place_is_used_again_under_one_that_retries",
    what: "loom model",
    arguments: &["-p", "hmc-mem", "--no-default-features", "--profile", "proofs", "--test", "loom"],
    other: Some(("--cfg loom --cfg hmc_mutants", "target/loom")),
};

/// Processes.
const ENDS: Test = Test {
    name: "memory_under_operations_outlives_a_session_that_ends",
    what: "processes",
    arguments: &["-p", "hmc-tests", "--profile", "proofs", "--test", "ends"],
    other: None,
};

/// The test that shows this bug; `None`: a simulated world does.
#[must_use]
pub const fn test_of(mutant: Mutant) -> Option<Test> {
    match mutant {
        Mutant::EndForgetsUnfenced => Some(ENDS),
        Mutant::OpenSetsCount => Some(REOPENED),
        _ => None,
    }
}

impl Test {
    fn run(self, mutant: Option<Mutant>) -> Result<Output, String> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."));
        let mut command = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
        command.current_dir(root).arg("test").args(self.arguments);
        for name in ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "CARGO_TARGET_DIR"] {
            command.env_remove(name);
        }
        if let Some((flags, folder)) = self.other {
            command.arg("--target-dir").arg(root.join(folder)).env("RUSTFLAGS", flags);
        }
        command.args(["--", "--exact", self.name]);
        if let Some(mutant) = mutant {
            command.env(VARIABLE, format!("{mutant:?}"));
        }
        command.output().map_err(|e| format!("cargo does not run: {e}"))
    }

    /// Whether it passes without a bug and fails with `mutant`: what it said then.
    ///
    /// # Errors
    /// Why it does not tell them apart.
    pub fn shows(self, mutant: Mutant) -> Result<String, String> {
        let sound = self.run(None)?;
        if !sound.status.success() || !text(&sound).contains("test result: ok. 1 passed;") {
            return Err(format!("without a bug {} does not pass: {}", self.name, last(&sound)));
        }
        let broken = self.run(Some(mutant))?;
        if broken.status.success()
            || !text(&broken).contains("test result: FAILED. 0 passed; 1 failed;")
        {
            return Err(format!("{} does not fail: {}", self.name, last(&broken)));
        }
        let panic = text(&broken);
        let said = panic.lines().skip_while(|line| !line.contains("panicked at")).nth(1);
        Ok(said.unwrap_or("it failed").to_owned())
    }

    /// What to type to see it.
    #[must_use]
    pub fn command(self, mutant: Mutant) -> String {
        let (flags, folder) = match self.other {
            Some((flags, folder)) => {
                (format!("RUSTFLAGS=\"{flags}\" "), format!(" --target-dir {folder}"))
            }
            None => Default::default(),
        };
        let (arguments, name) = (self.arguments.join(" "), self.name);
        format!(
            "(cd target/planted/tree && {VARIABLE}={mutant:?} {flags}cargo test {arguments}{folder} -- --exact {name})"
        )
    }
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The last line of all that it said.
fn last(output: &Output) -> String {
    let all = [&output.stdout[..], &output.stderr[..]].concat();
    let all = String::from_utf8_lossy(&all).into_owned();
    all.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("nothing").to_owned()
}
