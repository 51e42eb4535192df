//! `cargo xtask deny`: what the project depends on, by the rules of `deny.toml`.
//!
//! Licenses, duplicate versions and sources need nothing but Cargo.lock. Advisories need their database, which is fetched: where it cannot
//! be reached that part is skipped, and says so.

use crate::cargo_tool::CargoTool;
use crate::shell;
use crate::tree;
use crate::verdict::Verdict;
use std::time::Duration;

const DENY: CargoTool = CargoTool { name: "deny", package: "cargo-deny", version: "0.20.2" };

/// Time for one part.
const LIMIT: Duration = Duration::from_secs(300);

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Fetch the database of advisories, and check for these instead of the rest
    #[arg(long)]
    advisories: bool,
    /// Install cargo-deny if it is missing
    #[arg(long)]
    install: bool,
}

/// Checks the dependencies.
pub(crate) fn run(options: &Options) -> Verdict {
    if let Err(skipped) = DENY.ready(options.install) {
        return skipped;
    }
    if !options.advisories {
        return part(&["--offline", "check", "licenses", "bans", "sources"]);
    }
    let mut fetch = shell::cargo();
    fetch.current_dir(tree::root()).args([DENY.name, "--locked", "fetch", "db"]);
    match shell::capture(&mut fetch) {
        Ok(out) if out.success => part(&["check", "--disable-fetch", "advisories"]),
        Ok(out) => Verdict::skipped(
            format!("advisories: {}", first_line(&out.stderr)),
            "a connection to the database of advisories",
        ),
        Err(why) => Verdict::Failed(why),
    }
}

fn part(arguments: &[&str]) -> Verdict {
    let mut command = shell::cargo();
    command.current_dir(tree::root()).args([DENY.name, "--locked"]).args(arguments);
    match shell::stream(&mut command, LIMIT) {
        Ok(out) if out.success => Verdict::Passed,
        Ok(out) => Verdict::failed(format!("deny.toml does not allow what is used: {}", out.why())),
        Err(why) => Verdict::Failed(why),
    }
}

/// The first line that says something.
fn first_line(text: &str) -> &str {
    text.lines().find(|line| !line.trim().is_empty()).unwrap_or("no answer")
}
