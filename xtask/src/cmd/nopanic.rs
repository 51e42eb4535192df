//! `cargo xtask nopanic`: proves by linking that no public function of hmc-core can panic.
//!
//! The driver (`xtask/nopanic`) is a `no_std` program whose panic handler calls an undefined
//! symbol, built with fat LTO. If the optimiser can show that no panic is reachable, the
//! handler is dropped and the program links; otherwise the linker names the symbol. Three parts:
//! every public function of the core is called by the driver ([`functions`]); the driver links; and
//! a driver with one planted `bytes[i]` does not.

mod functions;

use crate::shell::{self, Outcome};
use crate::tree::{self, Tree};
use crate::verdict::Verdict;
use std::path::Path;

/// The undefined symbol.
const SYMBOL: &str = "hmc_core_contains_a_panic_path";

/// The driver's folder.
const DRIVER: &str = "xtask/nopanic";

#[derive(clap::Args, Default)]
pub(crate) struct Options {
    /// Check one module only, such as `queue` or `wire/header`; leaves out the positive control
    #[arg(long)]
    module: Option<String>,
}

/// Runs the three parts.
pub(crate) fn run(options: &Options) -> Verdict {
    if cfg!(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))) {
        return Verdict::skipped(
            "the driver links for Linux on x86-64 or aarch64 only",
            "run it there",
        );
    }
    Verdict::from_result(prove(&tree::root(), options))
}

/// How many public functions and texts the driver calls.
pub(crate) fn called(tree: &Tree) -> usize {
    functions::compare(tree, DRIVER).0
}

fn prove(root: &Path, options: &Options) -> Result<(), String> {
    let tree = Tree::read(root)?;
    let modules = functions::modules(&tree);
    let (called, missing) = functions::compare(&tree, DRIVER);
    for what in &missing {
        println!("not called by the driver: {what}");
    }
    println!("{called} public functions and texts in {} modules are called", modules.len());
    if let Some(module) = &options.module {
        if !modules.contains(module) {
            return Err(format!("no module {module}; there are: {}", modules.join(", ")));
        }
        return verdict_of(module, &link(root, Some(module), false)?);
    }
    let whole = link(root, None, false)?;
    if !whole.success {
        // Each module is linked alone, to find those with a panic.
        let mut guilty = Vec::new();
        for module in &modules {
            if verdict_of(module, &link(root, Some(module), false)?).is_err() {
                println!("a panic is reachable in {module}");
                guilty.push(module.as_str());
            }
        }
        verdict_of(&guilty.join(", "), &whole)?;
    }
    println!("links: no panic is reachable");
    let planted = link(root, None, true)?;
    if planted.success || !planted.stderr.contains(SYMBOL) {
        return Err("the positive control failed: a planted panic was not noticed".to_owned());
    }
    println!("positive control: a planted panic breaks the link");
    if missing.is_empty() {
        Ok(())
    } else {
        Err(format!(
            "{} public functions are not called by {DRIVER}: add them to src/modules",
            missing.len()
        ))
    }
}

fn verdict_of(modules: &str, outcome: &Outcome) -> Result<(), String> {
    if outcome.success {
        return Ok(());
    }
    if outcome.stderr.contains(SYMBOL) {
        return Err(format!("a panic is reachable from: {modules}"));
    }
    eprintln!("{}", outcome.stderr);
    Err("the driver does not build".to_owned())
}

/// Builds and links the driver, for one module or for all.
fn link(root: &Path, module: Option<&str>, planted: bool) -> Result<Outcome, String> {
    let mut command = shell::cargo();
    command
        .current_dir(root)
        .args(["rustc", "--quiet", "--release", "--locked", "--manifest-path"])
        .arg(format!("{DRIVER}/Cargo.toml"))
        .arg("--target-dir")
        .arg(root.join("target/nopanic"))
        .args(["--", "-Crelocation-model=static"])
        .args(["-nostartfiles", "-nostdlib", "-static"].map(|a| format!("-Clink-arg={a}")));
    if let Some(module) = module {
        command.args(["--cfg", "one_module", "--cfg", &format!("module=\"{module}\"")]);
    }
    if planted {
        command.args(["--cfg", "planted_panic"]);
    }
    // Flags of the caller's (a sanitizer, coverage) would bring code that is not the core's.
    command.env_remove("RUSTFLAGS").env_remove("CARGO_ENCODED_RUSTFLAGS");
    shell::capture(&mut command)
}
