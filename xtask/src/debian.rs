//! Debian's packages, installed with apt-get when a command is told to.

use crate::shell;
use std::process::Command;
use std::time::Duration;

/// Time for one step.
const LIMIT: Duration = Duration::from_secs(600);

/// Installs `packages` without questions. Needs root.
///
/// # Errors
/// Words, if apt-get is missing or fails.
pub(crate) fn install(packages: &[&str]) -> Result<(), String> {
    for mut command in steps(packages) {
        let done = shell::stream(&mut command, LIMIT)?;
        if !done.success {
            return Err(format!("`{}`: {}", shell::shown(&command), done.why()));
        }
    }
    Ok(())
}

/// The lists of packages are fetched first: those of a fresh image are empty.
fn steps(packages: &[&str]) -> [Command; 2] {
    let mut all = [Command::new("apt-get"), Command::new("apt-get")];
    let [update, install] = &mut all;
    update.args(["update", "-qq"]);
    install.args(["install", "-y", "-qq"]).args(packages);
    install.env("DEBIAN_FRONTEND", "noninteractive");
    all
}

#[cfg(test)]
mod tests {
    use super::steps;
    use crate::shell::shown;

    #[test]
    fn lists_are_fetched_before_packages() {
        let [update, install] = steps(&["libucx0", "strace"]);
        assert_eq!(shown(&update), "apt-get update -qq");
        assert_eq!(shown(&install), "apt-get install -y -qq libucx0 strace");
    }
}
