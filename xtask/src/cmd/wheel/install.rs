//! Fresh virtual environments, and what is installed into them.
//!
//! The wheel is installed and imported alone first, which needs no index: whatever fails there is the wheel's. The packages that
//! its tests need come after that.

use crate::shell;
use crate::verdict::Verdict;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Time to install packages.
const INSTALL: Duration = Duration::from_secs(600);
/// Time to ask the index for one package.
const ASK: Duration = Duration::from_secs(120);
/// What to do where packages cannot be had.
const REMEDY: &str = "a Python package index within reach";

/// A wheel, and an interpreter that takes it.
pub(super) struct Wheel {
    pub(super) path: PathBuf,
    pub(super) python: String,
}

/// Runs a command that has to succeed.
fn run(command: &mut Command, limit: Duration) -> Result<(), String> {
    let done = shell::stream(command, limit)?;
    if done.success { Ok(()) } else { Err(format!("`{}`: {}", shell::shown(command), done.why())) }
}

/// Makes an environment and returns its interpreter; an old one of that name is replaced.
fn environment(python: &str, home: &Path) -> Result<PathBuf, Verdict> {
    let mut make = Command::new(python);
    make.args(["-m", "venv", "--clear"]).arg(home);
    run(&mut make, INSTALL).map_err(Verdict::Failed)?;
    Ok(home.join("bin/python"))
}

/// pip of an environment.
fn pip(python: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(python);
    command.args(["-m", "pip", "--disable-pip-version-check"]).args(arguments);
    command
}

/// Whether the index can be reached: it has pip itself.
fn has_index(python: &Path, home: &Path) -> bool {
    let mut ask = pip(python, &["download", "--quiet", "--no-cache-dir", "--no-deps"]);
    ask.args(["--retries", "1", "--timeout", "15", "--dest"]).arg(home.join("asked")).arg("pip");
    run(&mut ask, ASK).is_ok()
}

/// Installs maturin into an environment of its own; a skip where it cannot be had.
pub(super) fn maturin(python: &str, home: &Path, what: &str) -> Result<(), Verdict> {
    let python = environment(python, home)?;
    run(&mut pip(&python, &["install", "--quiet", what]), INSTALL)
        .map_err(|why| Verdict::skipped(why, REMEDY))
}

/// Installs a package beside what an environment has; a skip where it cannot be had.
pub(super) fn package(home: &Path, what: &str) -> Result<(), Verdict> {
    run(&mut pip(&home.join("bin/python"), &["install", "--quiet", what]), INSTALL)
        .map_err(|why| Verdict::skipped(why, REMEDY))
}

/// Installs a wheel into a fresh environment, with the packages that `extras` name, and returns the interpreter. A skip only
/// where those cannot be had because the index is out of reach.
pub(super) fn wheel(wheel: &Wheel, home: &Path, extras: &str) -> Result<PathBuf, Verdict> {
    let python = environment(&wheel.python, home)?;
    let file = wheel.path.display().to_string();
    let failed = |why: String| Verdict::failed(format!("the wheel was built, but: {why}"));
    run(&mut pip(&python, &["install", "--quiet", "--no-index", "--no-deps", &file]), INSTALL)
        .map_err(failed)?;
    // Isolated: no variable and no folder brings another module of that name.
    run(Command::new(&python).args(["-I", "-c", "import hmc"]), INSTALL).map_err(failed)?;
    let package = format!("{file}{extras}");
    match run(&mut pip(&python, &["install", "--quiet", &package]), INSTALL) {
        Ok(()) => Ok(python),
        Err(why) if has_index(&python, home) => Err(failed(why)),
        Err(why) => Err(Verdict::skipped(why, REMEDY)),
    }
}

#[cfg(test)]
mod tests {
    use super::{Wheel, maturin, wheel};
    use crate::verdict::Verdict;
    use std::path::PathBuf;
    use std::process::Command;

    /// An interpreter that makes environments with itself in them, and fails in the steps whose arguments hold one of `broken`.
    /// It writes down what it was asked.
    struct Fake {
        folder: PathBuf,
    }

    impl Fake {
        fn new(name: &str, broken: &[&str]) -> Self {
            let folder = std::env::temp_dir().join(format!("hmc-{name}-{}", std::process::id()));
            let _ = std::fs::remove_dir_all(&folder);
            std::fs::create_dir_all(&folder).unwrap();
            let cases: String =
                broken.iter().map(|words| format!("*'{words}'*) exit 1;;\n")).collect();
            let (log, home) = (folder.join("log").display().to_string(), folder.join("home"));
            let text = format!(
                "#!/bin/sh\necho \"$*\" >> {log}\ncase \"$*\" in\n{cases}\
                 *'-m venv'*) mkdir -p {home}/bin && cp \"$0\" {home}/bin/python;;\nesac\n",
                home = home.display(),
            );
            // Written by another process: no child that a thread of this one starts meanwhile has it open.
            let write = r#"printf %s "$1" > "$0" && chmod 700 "$0""#;
            let mut command = Command::new("sh");
            command.args(["-c", write]).arg(folder.join("python")).arg(text);
            assert!(command.status().is_ok_and(|status| status.success()));
            Self { folder }
        }

        fn python(&self) -> String {
            self.folder.join("python").display().to_string()
        }

        fn home(&self) -> PathBuf {
            self.folder.join("home")
        }

        fn install(&self) -> Result<PathBuf, Verdict> {
            let built = Wheel { path: "/built/hmc.whl".into(), python: self.python() };
            wheel(&built, &self.home(), "[test]")
        }

        fn asked(&self) -> String {
            std::fs::read_to_string(self.folder.join("log")).unwrap_or_default()
        }
    }

    impl Drop for Fake {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.folder);
        }
    }

    #[test]
    fn the_wheel_is_installed_and_imported_before_an_index_is_queried() {
        let fake = Fake::new("whole", &[]);
        assert_eq!(fake.install(), Ok(fake.home().join("bin/python")));
        let asked = fake.asked();
        let steps: Vec<&str> = asked.lines().collect();
        let want = [
            "-m venv",
            "--no-index --no-deps /built/hmc.whl",
            "import hmc",
            "/built/hmc.whl[test]",
        ];
        assert_eq!(steps.len(), want.len(), "{asked}");
        assert!(steps.iter().zip(want).all(|(step, words)| step.contains(words)), "{asked}");
    }

    #[test]
    fn a_wheel_that_was_built_and_cannot_be_used_is_a_failure() {
        for (name, step) in [("corrupt", "--no-deps"), ("unloadable", "import hmc")] {
            // Whether there is an index is no matter then.
            for broken in [vec![step], vec![step, "download", "[test]"]] {
                let fake = Fake::new(name, &broken);
                let verdict = fake.install().expect_err("a broken wheel");
                assert!(
                    matches!(&verdict, Verdict::Failed(why) if why.contains(step)),
                    "{verdict:?}"
                );
            }
        }
    }

    #[test]
    fn packages_that_cannot_be_had_are_a_skip_only_where_the_index_is_out_of_reach() {
        let alone = Fake::new("alone", &["[test]", "download"]);
        assert!(matches!(alone.install(), Err(Verdict::Skipped { .. })));
        // It is there: the wheel names packages that do not exist.
        let wrong = Fake::new("wrong", &["[test]"]);
        assert!(matches!(wrong.install(), Err(Verdict::Failed(_))));
        assert!(wrong.asked().contains("download"));
    }

    #[test]
    fn an_environment_that_cannot_be_made_is_a_failure_and_a_missing_maturin_a_skip() {
        let full = Fake::new("full", &["-m venv"]);
        assert!(matches!(full.install(), Err(Verdict::Failed(_))));
        assert!(matches!(
            maturin(&full.python(), &full.home(), "maturin"),
            Err(Verdict::Failed(_))
        ));
        let none = Fake::new("none", &["install"]);
        let made = maturin(&none.python(), &none.home(), "maturin");
        assert!(matches!(made, Err(Verdict::Skipped { .. })));
        let some = Fake::new("some", &[]);
        assert_eq!(maturin(&some.python(), &some.home(), "maturin"), Ok(()));
    }
}
