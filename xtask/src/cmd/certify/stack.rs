//! How much stack the public functions of hmc-core need, from the machine code of a release build.
//!
//! A copy of the core in which every function stands alone (`#[inline(never)]` before each) is linked
//! with the driver of `nopanic`, which calls all of them, and with a `core` built with the same flags. The compiler notes the frame of every function (`-Z emit-stack-sizes`),
//! and the disassembly shows the calls, so the program is a closed graph: see [`graph`]. Indirect calls
//! cannot be followed; only texts (`Display`) make any, and they are left out of the claim.

mod graph;

use super::claim_result::{ClaimResult, NIGHTLY, without_nightly};
use crate::shell;
use graph::Program;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The longest chain of frames below one public function.
const DEEPEST_BYTES: u64 = 8 << 10;

/// The largest frame of a public function.
const FRAME_BYTES: u64 = 2 << 10;

/// A symbol that the driver's panic handler wants and that panics end in; here it may be zero.
const PANIC: &str = "hmc_core_contains_a_panic_path";

/// Looks at the frames and the calls.
pub(super) fn check(root: &Path) -> ClaimResult {
    if cfg!(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))) {
        return ClaimResult::not_run(
            "the driver links for Linux on x86-64 or aarch64 only",
            "run it there",
        );
    }
    if let Some(result) = without_nightly(None) {
        return result;
    }
    if !has_sources() {
        return ClaimResult::not_run("the nightly toolchain has no sources of core", NIGHTLY);
    }
    for tool in ["objdump", "objcopy"] {
        if !shell::capture(Command::new(tool).arg("--version")).is_ok_and(|out| out.success) {
            return ClaimResult::not_run(format!("no {tool}"), "install binutils");
        }
    }
    ClaimResult::of(measure(root))
}

fn measure(root: &Path) -> Result<String, String> {
    let place = root.join("target/certify/stack");
    lay_out(root, &place)?;
    let program = link(root, &place)?;
    let sizes = section(&program)?;
    let out = shell::capture(
        Command::new("objdump").args(["-d", "-C", "--no-show-raw-insn"]).arg(&program),
    )?;
    if !out.success {
        return Err(format!("objdump: {}", out.stderr));
    }
    let program = Program::read(&out.stdout, &sizes)?;
    assess(&program)
}

/// Compares the graph with the bounds.
fn assess(program: &Program) -> Result<String, String> {
    if let Some(line) = program.float() {
        return Err(format!("an instruction of floating point: {line}"));
    }
    let mut functions = 0_usize;
    let mut texts = 0_usize;
    let mut frame = (0_u64, "");
    let mut chain = (0_u64, "");
    for entry in program.entries() {
        let name = program.name(entry);
        let reach = program.reach(entry);
        if reach.indirect {
            if !graph::is_text(name) {
                return Err(format!("{name} calls what cannot be known"));
            }
            texts = texts.saturating_add(1);
            continue;
        }
        if let Some(cycle) = &reach.cycle {
            return Err(format!("recursion below {name}: {cycle}"));
        }
        if let Some(unknown) = &reach.unknown {
            return Err(format!("below {name} the frame of {unknown} is not known"));
        }
        functions = functions.saturating_add(1);
        let own = program.frame(entry).unwrap_or(0);
        frame = frame.max((own, name));
        chain = chain.max((reach.deepest, name));
    }
    if functions == 0 {
        return Err("the program has no function of hmc-core".to_owned());
    }
    println!("largest frame: {} bytes, {}", frame.0, frame.1);
    println!("deepest chain: {} bytes below {}", chain.0, chain.1);
    let figure = format!(
        "{functions} functions: largest frame {} bytes, deepest chain {} bytes, no recursion, no float instruction ({texts} texts left out)",
        frame.0, chain.0
    );
    if frame.0 > FRAME_BYTES || chain.0 > DEEPEST_BYTES {
        return Err(format!("{figure}; allowed are {FRAME_BYTES} and {DEEPEST_BYTES}"));
    }
    Ok(figure)
}

/// Copies the core and the driver so that they lie to each other as here, every function of the core
/// standing alone.
fn lay_out(root: &Path, place: &Path) -> Result<(), String> {
    let manifest = read(&root.join("Cargo.toml"))?;
    let alone: String = manifest
        .lines()
        .map(|l| match l {
            l if l.starts_with("members = ") => "members = [\"hmc-core\"]\n".to_owned(),
            l if l.starts_with("exclude = ") => "exclude = [\"xtask/nopanic\"]\n".to_owned(),
            l => format!("{l}\n"),
        })
        .collect();
    write(&place.join("Cargo.toml"), &alone)?;
    copy(&root.join("xtask/nopanic"), &place.join("xtask/nopanic"), &str::to_owned)?;
    copy(&root.join("hmc-core"), &place.join("hmc-core"), &stand_alone)
}

/// Puts `#[inline(never)]` before each function and takes other advice on inlining away.
fn stand_alone(text: &str) -> String {
    let mut out = String::new();
    let mut tests = false;
    for line in text.lines() {
        let code = line.trim_start();
        tests |= code.starts_with("#[cfg(test)]");
        if !tests && code.starts_with("#[inline") {
            continue;
        }
        if !tests && is_function(code) {
            out.push_str("#[inline(never)]\n");
        }
        out.push_str(line);
        out.push('\n');
    }
    out
}

/// Whether a line begins a public function with a body, or a text.
fn is_function(code: &str) -> bool {
    let rest = ["const ", "unsafe "]
        .iter()
        .fold(code.strip_prefix("pub ").unwrap_or_default(), |rest, word| {
            rest.strip_prefix(word).unwrap_or(rest)
        });
    rest.starts_with("fn ") || code.starts_with("fn fmt(")
}

fn copy(from: &Path, to: &Path, change: &dyn Fn(&str) -> String) -> Result<(), String> {
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        let here = from.join(&folder);
        let entries = std::fs::read_dir(&here).map_err(|e| format!("{}: {e}", here.display()))?;
        for entry in entries.flatten() {
            let name = folder.join(entry.file_name());
            if entry.path().is_dir() {
                if !matches!(entry.file_name().to_str(), Some("target" | "tests")) {
                    folders.push(name);
                }
                continue;
            }
            let text = read(&entry.path())?;
            let is_code = name.extension().is_some_and(|e| e == "rs");
            write(&to.join(&name), &if is_code { change(&text) } else { text })?;
        }
    }
    Ok(())
}

fn read(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))
}

/// Writes a file unless it holds that text already, so that cargo builds only what changed.
fn write(path: &Path, text: &str) -> Result<(), String> {
    if std::fs::read_to_string(path).is_ok_and(|old| old == text) {
        return Ok(());
    }
    let folder = path.parent().unwrap_or(path);
    std::fs::create_dir_all(folder)
        .and_then(|()| std::fs::write(path, text))
        .map_err(|e| format!("{}: {e}", path.display()))
}

/// The target of this machine, by name: with it the flags below go to no build script.
const TARGET: &str = if cfg!(target_arch = "aarch64") {
    "aarch64-unknown-linux-gnu"
} else {
    "x86_64-unknown-linux-gnu"
};

/// For all crates. Jump tables, and calls of memcpy through the table of addresses, would look like
/// calls of what cannot be known.
const FLAGS: [&str; 4] =
    ["-Zemit-stack-sizes", "-Cjump-tables=no", "-Zplt=yes", "-Crelocation-model=static"];

/// Builds and links the copy, and `core` with the same flags; the program is never run.
fn link(root: &Path, place: &Path) -> Result<PathBuf, String> {
    let target_dir = root.join("target/certify/build");
    let mut command = shell::cargo_of("nightly");
    command
        .current_dir(place)
        .args(["rustc", "--release", "--locked", "--manifest-path", "xtask/nopanic/Cargo.toml"])
        .args(["-Zbuild-std=core", "--target", TARGET, "--target-dir"])
        .arg(&target_dir)
        .arg("--")
        .args(["-nostartfiles", "-nostdlib", "-static"].map(|a| format!("-Clink-arg={a}")))
        // Functions that stand alone cannot use what their callers know: panics are the other
        // check's business.
        .arg(format!("-Clink-arg=-Wl,--defsym={PANIC}=0"))
        .env_remove("RUSTFLAGS")
        .env("CARGO_ENCODED_RUSTFLAGS", FLAGS.join("\u{1f}"));
    let out = shell::capture(&mut command)?;
    if out.success {
        return Ok(target_dir.join(TARGET).join("release/hmc-nopanic"));
    }
    eprintln!("{}", out.stderr);
    Err("the driver does not build".to_owned())
}

/// Whether the nightly toolchain has the sources of `core`.
fn has_sources() -> bool {
    let mut rustc = Command::new("rustc");
    rustc.args(["+nightly", "--print", "sysroot"]).env_remove("RUSTUP_TOOLCHAIN");
    shell::capture(&mut rustc).is_ok_and(|out| {
        Path::new(out.stdout.trim()).join("lib/rustlib/src/rust/library/Cargo.lock").is_file()
    })
}

/// The frames that the compiler noted: the address of each function, and its size in bytes.
fn section(program: &Path) -> Result<Vec<(u64, u64)>, String> {
    let file = program.with_extension("stack_sizes");
    let mut dump = std::ffi::OsString::from("--dump-section=.stack_sizes=");
    dump.push(&file);
    // The copy of the program that objcopy wants to write goes nowhere.
    let out = shell::capture(Command::new("objcopy").arg(dump).arg(program).arg("/dev/null"))?;
    if !out.success {
        return Err(format!("the program has no .stack_sizes: {}", out.stderr));
    }
    let bytes = std::fs::read(&file).map_err(|e| format!("{}: {e}", file.display()))?;
    graph::frames(&bytes).ok_or_else(|| "the section .stack_sizes cannot be read".to_owned())
}

#[cfg(test)]
mod tests {
    use super::{assess, stand_alone};
    use crate::cmd::certify::stack::graph::Program;

    #[test]
    fn every_public_function_stands_alone() {
        let text = "#[inline]\npub const fn a() {}\n    pub fn b(\npub(crate) fn c() {}\nfn fmt(&self) {}\n#[cfg(test)]\nmod t {\n#[inline]\npub fn d() {}\n}\n";
        let want = "#[inline(never)]\npub const fn a() {}\n#[inline(never)]\n    pub fn b(\npub(crate) fn c() {}\n#[inline(never)]\nfn fmt(&self) {}\n#[cfg(test)]\nmod t {\n#[inline]\npub fn d() {}\n}\n";
        assert_eq!(stand_alone(text), want);
    }

    fn verdict(body: &str, frames: &[(u64, u64)]) -> Result<String, String> {
        let text = format!(
            "0000000000000010 <hmc_core::a::f>:\n  10:\t{body}\n  15:\tret\n\
             0000000000000020 <helper>:\n  20:\tret\n\
             0000000000000030 <<hmc_core::a::E as core::fmt::Display>::fmt>:\n  30:\tcall   *%rax\n"
        );
        assess(&Program::read(&text, frames).unwrap())
    }

    #[test]
    fn bounds_are_kept_or_broken() {
        let small = [(0x10, 100), (0x20, 50), (0x30, 8)];
        let fine = verdict("call   20 <helper>", &small).unwrap();
        assert!(fine.contains("1 functions: largest frame 100 bytes, deepest chain 166"), "{fine}");
        let broken = |body, frames: &[(u64, u64)], want: &str| {
            let why = verdict(body, frames).unwrap_err();
            assert!(why.contains(want), "{why}");
        };
        broken("call   10 <hmc_core::a::f>", &small, "recursion");
        broken("jmp    *%rax", &small, "cannot be known");
        broken("call   20 <helper>", &[(0x10, 100)], "not known");
        broken("call   20 <helper>", &[(0x10, 100), (0x20, 9000)], "allowed are");
        broken("nop", &[(0x10, 3000), (0x20, 0)], "allowed are");
        broken("mulsd  %xmm0,%xmm1", &small, "floating point");
    }
}
