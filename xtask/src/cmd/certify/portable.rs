//! Claims about other machines: hmc-core builds for bare metal, and its tests pass where a word has
//! 32 bits and where the other end of a number comes first.
//!
//! Miri interprets the tests on any machine; it is slow, so property tests try few cases and the
//! files that try everything (all short scripts, all cuts of a stream) are left to this machine.

use super::claim_result::{ClaimResult, NIGHTLY, without_nightly};
use crate::shell;
use crate::tools;
use std::path::Path;
use std::time::Duration;

/// A target of 32 bits without an operating system, and without atomics of 64 bits.
const BARE: &str = "thumbv7em-none-eabihf";

/// A target of 32 bits that Miri interprets.
const NARROW: &str = "i686-unknown-linux-gnu";

/// A target of the other byte order that Miri interprets.
const BIG_ENDIAN: &str = "s390x-unknown-linux-gnu";

/// Time that one of them may take, its build included.
const PATIENCE: Duration = Duration::from_secs(1200);

/// The files of tests that an interpreter gets through in minutes. The others try everything, or
/// many random streams.
const FILES: [&str; 7] = [
    "wire_golden",
    "wire_malformed",
    "ctrl_machine",
    "ctrl_handshake",
    "data_slots",
    "texts",
    "corners",
];

/// Unit tests that try every combination of many numbers.
const TOO_LONG: [&str; 3] = ["boundary_grid", "sub_spans_agree", "every_type_and_flag_word"];

/// Builds hmc-core for bare metal: with the target where it is installed, else with a `core` built
/// for it on the spot.
pub(super) fn bare_metal(root: &Path) -> ClaimResult {
    let mut command;
    let how = if tools::has_target(BARE) {
        command = shell::cargo();
        command.args(["build"]);
        "with its own core library"
    } else if without_nightly(None).is_none() {
        command = shell::cargo_of("nightly");
        command.args(["build", "-Zbuild-std=core"]);
        "with a core library built for it"
    } else {
        return ClaimResult::not_run(
            format!("{BARE} is not installed"),
            format!("`rustup target add {BARE}`"),
        );
    };
    command
        .args(["--release", "--locked", "--package", "hmc-core", "--lib", "--target", BARE])
        .arg("--target-dir")
        .arg(root.join("target/certify/bare"))
        .env_remove("RUSTFLAGS")
        .current_dir(root);
    match shell::stream(&mut command, PATIENCE) {
        Ok(out) if out.success => ClaimResult::Proved(format!("builds for {BARE} {how}")),
        Ok(out) => ClaimResult::Failed(format!("does not build for {BARE}: {}", out.why())),
        Err(why) => ClaimResult::Failed(why),
    }
}

/// The tests of the core where `usize` has 32 bits.
pub(super) fn narrow(root: &Path) -> ClaimResult {
    interpreted(root, NARROW)
}

/// The tests of the core where the high byte comes first.
pub(super) fn big_endian(root: &Path) -> ClaimResult {
    interpreted(root, BIG_ENDIAN)
}

fn interpreted(root: &Path, target: &str) -> ClaimResult {
    if let Some(result) = without_nightly(Some("miri")) {
        return result;
    }
    let mut command = shell::cargo_of("nightly");
    command
        .args(["miri", "test", "--locked", "--package", "hmc-core", "--lib"])
        .args(FILES.iter().flat_map(|name| ["--test", name]))
        .args(["--target", target, "--target-dir"])
        .arg(root.join("target/miri"))
        .arg("--")
        .args(TOO_LONG.iter().flat_map(|name| ["--skip", name]))
        .env("PROPTEST_CASES", "2")
        .env("PROPTEST_DISABLE_FAILURE_PERSISTENCE", "true")
        .env("MIRIFLAGS", "-Zmiri-strict-provenance -Zmiri-disable-isolation")
        .current_dir(root);
    match shell::stream(&mut command, PATIENCE) {
        Ok(out) => {
            let passed = passed(&out.stdout);
            if out.success && passed > 0 {
                ClaimResult::Proved(format!("{passed} tests pass under Miri as {target}"))
            } else if out.success {
                ClaimResult::Failed("no test was run".to_owned())
            } else {
                ClaimResult::Failed(format!("Miri as {target}: {}", out.why()))
            }
        }
        Err(why) => ClaimResult::not_run(why, NIGHTLY),
    }
}

/// The sum of `N passed` of cargo's `test result` lines.
fn passed(text: &str) -> u64 {
    text.lines()
        .filter(|l| l.starts_with("test result: "))
        .filter_map(|l| l.split_once(" passed")?.0.rsplit(' ').next()?.parse::<u64>().ok())
        .fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::passed;

    #[test]
    fn passes_are_added_up() {
        let text = "test result: ok. 12 passed; 0 failed; 1 ignored\ntest x ... ok\ntest result: ok. 3 passed; 0 failed\n";
        assert_eq!(passed(text), 15);
        assert_eq!(passed("nothing"), 0);
    }
}
