//! `cargo xtask nostd`: hmc-core needs neither an operating system nor an allocator.
//!
//! Four parts: its dependency tree holds only crates that are known to be `core`-only; the worked
//! embedding (`examples/embedded`) is linked into a static program without libc and without `std`
//! (`xtask/bare`), and runs; the embedding's tests and program run with the package that
//! `cargo package` makes of hmc-core ([`package`]); and the embedding with that package builds for a
//! bare-metal target. A program with its own panic handler cannot be linked with `std` (duplicate lang
//! item), so the first two show the claim on any machine ([`embedding`]). Without the target the last
//! part does not run, and the command reports that.

mod package;

use crate::shell;
use crate::tools;
use crate::tree;
use crate::verdict::Verdict;
use package::Package;
use std::path::Path;
use std::process::Command;

/// The bare-metal target: 32 bit, no 64-bit atomics, no operating system.
const TARGET: &str = "thumbv7em-none-eabihf";

/// All that hmc-core may bring along, directly or not. The last five run at build time only.
const KNOWN: [&str; 12] = [
    "hmc-core",
    "bitflags",
    "heapless",
    "hash32",
    "byteorder",
    "stable_deref_trait",
    "zerocopy",
    "zerocopy-derive",
    "proc-macro2",
    "quote",
    "syn",
    "unicode-ident",
];

/// Runs all parts.
pub(crate) fn run() -> Verdict {
    let root = tree::root();
    let embedding = embedding(&root);
    if embedding != Verdict::Passed {
        return embedding;
    }
    let package = match Package::make(&root) {
        Ok(package) => package,
        Err(verdict) => return verdict,
    };
    let runs = Verdict::from_result(package.runs());
    all(runs, tools::has_target(TARGET).then(|| package.builds_for(TARGET)))
}

/// The parts that need no other program: known dependencies only, and a program without `std` that runs.
pub(crate) fn embedding(root: &Path) -> Verdict {
    Verdict::from_result(dependencies(root).and_then(|()| host_program(root)))
}

/// The verdict for all parts; `bare_metal` is `None` where the target is not installed.
fn all(others: Verdict, bare_metal: Option<Result<(), String>>) -> Verdict {
    match (others, bare_metal) {
        (Verdict::Passed, Some(built)) => Verdict::from_result(built),
        (Verdict::Passed, None) => Verdict::skipped(
            format!(
                "the build for {TARGET} did not run, the target is not installed (the other parts passed)"
            ),
            format!("`rustup target add {TARGET}`"),
        ),
        (other, _) => other,
    }
}

fn dependencies(root: &Path) -> Result<(), String> {
    let out = shell::capture(shell::cargo().current_dir(root).args([
        "tree",
        "--package",
        "hmc-core",
        "--edges",
        "normal",
        "--prefix",
        "none",
        "--format",
        "{p}",
    ]))?;
    if !out.success {
        return Err(out.stderr);
    }
    let unknown = unknown(&out.stdout);
    if unknown.is_empty() {
        println!("hmc-core depends on known crates only");
        return Ok(());
    }
    Err(format!("hmc-core must not depend on: {}", unknown.join(", ")))
}

/// The crates of cargo's list that are not known.
fn unknown(list: &str) -> Vec<String> {
    let mut names: Vec<String> = list
        .lines()
        .filter_map(|l| l.split_whitespace().next())
        .filter(|name| !KNOWN.contains(name))
        .map(str::to_owned)
        .collect();
    names.sort();
    names.dedup();
    names
}

fn host_program(root: &Path) -> Result<(), String> {
    let target_dir = root.join("target/bare");
    let out = shell::capture(
        shell::cargo()
            .current_dir(root)
            .args([
                "rustc",
                "--quiet",
                "--release",
                "--locked",
                "--manifest-path",
                "xtask/bare/Cargo.toml",
            ])
            .arg("--target-dir")
            .arg(&target_dir)
            .args(["--", "-Crelocation-model=static"])
            .args(["-nostartfiles", "-nostdlib", "-static"].map(|a| format!("-Clink-arg={a}")))
            .env_remove("RUSTFLAGS"),
    )?;
    if !out.success {
        eprintln!("{}", out.stderr);
        return Err("the program without std does not link".to_owned());
    }
    let program = target_dir.join("release/hmc-bare");
    let bytes =
        std::fs::metadata(&program).map_err(|e| format!("{}: {e}", program.display()))?.len();
    let ran = shell::capture(&mut Command::new(&program))?;
    if ran.success {
        println!("a static program of {bytes} bytes without libc ran the embedding");
        return Ok(());
    }
    Err(format!("the embedding without std failed: {}", ran.why()))
}

#[cfg(test)]
mod tests {
    use super::{all, unknown};
    use crate::verdict::Verdict;

    #[test]
    fn without_the_target_it_is_no_pass() {
        assert_eq!(all(Verdict::Passed, Some(Ok(()))), Verdict::Passed);
        assert!(matches!(all(Verdict::Passed, None), Verdict::Skipped { .. }));
        let broken = |built| all(Verdict::failed("x"), built);
        assert!(matches!(broken(None), Verdict::Failed(_)));
        assert!(matches!(broken(Some(Ok(()))), Verdict::Failed(_)));
        assert!(matches!(all(Verdict::Passed, Some(Err("y".into()))), Verdict::Failed(_)));
    }

    #[test]
    fn an_unknown_crate_is_found() {
        assert!(
            unknown("hmc-core v0.1.0 (/x)\nbitflags v2.13.2\nzerocopy v0.8.1 (*)\n").is_empty()
        );
        assert_eq!(unknown("hmc-core v0.1.0\nlog v0.4.0\nlog v0.4.0 (*)\n"), ["log"]);
    }
}
