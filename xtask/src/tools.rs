//! What is installed on this machine: targets, components, toolchains, cargo's own extensions.
//!
//! Answers only; nothing is ever installed from here.

use crate::shell;
use std::process::Command;

/// Whether the standard library of `target` is there for the toolchain in use.
pub(crate) fn has_target(target: &str) -> bool {
    // Asked of rustc, not of rustup: a distribution's toolchain has targets without rustup.
    let Ok(out) = shell::capture(Command::new("rustc").args([
        "--print",
        "target-libdir",
        "--target",
        target,
    ])) else {
        return false;
    };
    out.success
        && std::fs::read_dir(out.stdout.trim()).is_ok_and(|dir| {
            dir.flatten().any(|e| e.file_name().to_string_lossy().starts_with("libcore-"))
        })
}

/// Whether a toolchain such as `nightly` or `1.88` can be started.
pub(crate) fn has_toolchain(name: &str) -> bool {
    shell::capture(shell::cargo_of(name).arg("--version")).is_ok_and(|out| out.success)
}

/// Whether `cargo +TOOLCHAIN NAME` exists.
pub(crate) fn has_extension(toolchain: &str, name: &str) -> bool {
    shell::capture(shell::cargo_of(toolchain).args([name, "--version"]))
        .is_ok_and(|out| out.success)
}
