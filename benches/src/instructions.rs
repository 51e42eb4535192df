//! The instructions of one put + progress + wait over the simulated NIC: a count that does not move
//! with the load of the machine, compared with the stored one in `benches/instructions.txt`.
//!
//! Counted by callgrind as the difference of two runs of this program, divided by the difference of
//! their operations, so that start and end cancel out.

use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};

use crate::rows::sim_ops;
use crate::{Res, text};

const FEW: u32 = 2_000;
const MANY: u32 = 22_000;

/// The hidden mode `--ops COUNT`: does just that many operations.
pub(crate) fn run_ops(count: u32) -> ExitCode {
    match sim_ops::Rig::new(hmc_sim::nic::Bytes::Move).and_then(|mut rig| rig.rounds(count)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("hmc-bench: {why}");
            ExitCode::FAILURE
        }
    }
}

fn callgrind(ops: u32) -> Res<u64> {
    let exe = std::env::current_exe().map_err(text)?;
    let out = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(exe)
        .args(["--ops", &ops.to_string()])
        .stdin(Stdio::null())
        .output()
        .map_err(|e| format!("no valgrind ({e}); install valgrind"))?;
    let words = String::from_utf8_lossy(&out.stderr);
    if !out.status.success() {
        let last = words.lines().last().unwrap_or_default().to_owned();
        return Err(format!("valgrind failed: {last}"));
    }
    // "==123== Collected : 456" (Valgrind User Manual, 6.2).
    words
        .lines()
        .find_map(|l| l.split_once("Collected :")?.1.trim().parse().ok())
        .ok_or_else(|| "valgrind gave no count".to_owned())
}

/// Instructions of one operation.
pub(crate) fn measure() -> Res<f64> {
    let (few, many) = (callgrind(FEW)?, callgrind(MANY)?);
    Ok(many.saturating_sub(few) as f64 / f64::from(MANY - FEW))
}

fn path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("instructions.txt")
}

fn parse(stored: &str) -> Option<f64> {
    stored.lines().find(|l| !l.trim().is_empty() && !l.starts_with('#'))?.trim().parse().ok()
}

/// The stored count for this architecture.
pub(crate) fn stored() -> Res<f64> {
    if cfg!(not(target_arch = "x86_64")) {
        return Err("the stored count is for x86-64".to_owned());
    }
    let path = path();
    let all = std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    parse(&all).ok_or_else(|| format!("{} holds no number", path.display()))
}

/// Measures and stores. Says what it did.
pub(crate) fn store() -> Res<String> {
    let count = measure()?;
    let path = path();
    let words = format!(
        "# Instructions of one put + progress + wait over the simulated NIC (8 bytes), release build,\n\
         # x86-64, by callgrind. Written by `cargo xtask bench --store-instructions`; a change of more\n\
         # than 2 % is to be explained in the commit that stores it.\n{count:.1}\n"
    );
    std::fs::write(&path, words).map_err(|e| format!("{}: {e}", path.display()))?;
    Ok(format!("{count:.1} instructions, stored in {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn comments_are_skipped() {
        assert_eq!(parse("# words\n\n123.5\n"), Some(123.5));
        assert_eq!(parse("# words\n"), None);
        assert_eq!(parse("none\n"), None);
    }
}
