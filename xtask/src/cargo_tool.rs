//! Programs that `cargo install` brings, each in the one version that the project works with.

use crate::shell;
use crate::verdict::Verdict;
use std::time::Duration;

/// Time to build one of them.
const BUILD: Duration = Duration::from_secs(600);

/// A subcommand of cargo.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CargoTool {
    /// What stands behind `cargo`.
    pub(crate) name: &'static str,
    /// The package that has it.
    pub(crate) package: &'static str,
    /// Its version.
    pub(crate) version: &'static str,
}

impl CargoTool {
    /// Whether this version is here; if not, and `install` is set, builds it.
    ///
    /// # Errors
    /// The verdict: skipped. It is not here and was not to be installed, or could not be.
    pub(crate) fn ready(&self, install: bool) -> Result<(), Verdict> {
        if self.is_here() {
            return Ok(());
        }
        // Optimised it takes three times as long to build, and saves a second here.
        let arguments = ["install", "--debug", "--locked", self.package, "--version", self.version];
        let remedy = format!("`cargo {}`", arguments.join(" "));
        let wanted = format!("{} {}", self.package, self.version);
        if !install {
            return Err(Verdict::skipped(format!("{wanted} is not installed"), remedy));
        }
        let why = match shell::stream(shell::cargo().args(arguments), BUILD) {
            Ok(out) if out.success && self.is_here() => return Ok(()),
            Ok(out) => out.why(),
            Err(why) => why,
        };
        Err(Verdict::skipped(format!("{wanted} could not be installed: {why}"), remedy))
    }

    fn is_here(&self) -> bool {
        let asked = shell::capture(shell::cargo().args([self.name, "--version"]));
        asked.is_ok_and(|out| out.success && out.stdout.trim_end().ends_with(&self.ending()))
    }

    /// What the answer to `--version` ends with.
    fn ending(&self) -> String {
        format!(" {}", self.version)
    }
}

#[cfg(test)]
mod tests {
    use super::CargoTool;
    use crate::verdict::Verdict;

    #[test]
    fn what_is_not_here_is_skipped_with_a_remedy() {
        let missing = CargoTool { name: "hmc-none", package: "cargo-hmc-none", version: "1.2.3" };
        let Err(Verdict::Skipped { reason, remedy }) = missing.ready(false) else {
            panic!("it is not here");
        };
        assert_eq!(reason, "cargo-hmc-none 1.2.3 is not installed");
        assert!(remedy.contains("--locked cargo-hmc-none --version 1.2.3"));
    }

    #[test]
    fn another_version_is_not_this_one() {
        let tool = CargoTool { name: "a", package: "cargo-a", version: "1.2.3" };
        assert!("cargo-a 1.2.3".ends_with(&tool.ending()));
        assert!(!"cargo-a 11.2.3".ends_with(&tool.ending()));
    }
}
