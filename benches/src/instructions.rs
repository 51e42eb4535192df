//! The instructions of one put + progress + wait over the simulated NIC: a count that does not depend on the load of the machine, compared with the stored one in `benches/instructions.txt`.
//!
//! Counted by callgrind as the difference of two runs of this program, divided by the difference of
//! their operations, so that start and end cancel out.

mod objects;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::error::{Res, text};
use objects::Split;

const FEW: u32 = 2_000;
const MANY: u32 = 22_000;

/// The transport of the operations of the hidden mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Over {
    /// A work queue over the simulated NIC.
    Sim,
    /// Two sessions over shared memory: puts of one range.
    SessionPut,
    /// The same of a range that is made for each put.
    SessionRoute,
    /// As the first, started and then waited for.
    SessionNamed,
    /// UCX's transport over the fake libucp, put by put.
    UcxTransport,
    /// The same, with a library that completes each flush at once, as lanes of shared memory do.
    UcxAtOnce,
    /// The same, with memory that is mapped, as sessions' buffers are over lanes of shared memory.
    UcxMapped,
    /// The same as the first, sixteen puts before a flush.
    UcxMany,
    /// A work queue over that.
    UcxLane,
    /// A data plane over the fake libibverbs, put by put, each visible.
    VerbsTransport,
    /// The same, each complete when the memory here may be used again.
    VerbsLocal,
    /// As the first, sixteen puts before a poll.
    VerbsMany,
}

impl Over {
    const fn name(self) -> &'static str {
        match self {
            Self::Sim => "sim",
            Self::SessionPut => "session-put",
            Self::SessionRoute => "session-route",
            Self::SessionNamed => "session-named",
            Self::UcxTransport => "ucx-transport",
            Self::UcxAtOnce => "ucx-at-once",
            Self::UcxMapped => "ucx-mapped",
            Self::UcxMany => "ucx-many",
            Self::UcxLane => "ucx-lane",
            Self::VerbsTransport => "verbs-transport",
            Self::VerbsLocal => "verbs-local",
            Self::VerbsMany => "verbs-many",
        }
    }
}

impl Over {
    /// The library whose instructions are counted apart.
    const fn library(self) -> &'static str {
        match self {
            Self::VerbsTransport | Self::VerbsLocal | Self::VerbsMany => "libhmc_vendor_ibverbs.so",
            _ => "libhmc_vendor_ucp.so",
        }
    }
}

fn callgrind(over: Over, ops: u32, profile: &Path) -> Res<u64> {
    let exe = std::env::current_exe().map_err(text)?;
    let out = Command::new("valgrind")
        .arg("--tool=callgrind")
        .arg(format!("--callgrind-out-file={}", profile.display()))
        .arg(exe)
        .args(["--ops", &ops.to_string(), "--over", over.name()])
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

/// Instructions of one operation over the simulated NIC.
pub(crate) fn measure() -> Res<f64> {
    count(Over::Sim)
}

/// Instructions of one operation, of all threads of this program.
pub(crate) fn count(over: Over) -> Res<f64> {
    let nowhere = Path::new("/dev/null");
    let (few, many) = (callgrind(over, FEW, nowhere)?, callgrind(over, MANY, nowhere)?);
    Ok(many.saturating_sub(few) as f64 / f64::from(MANY - FEW))
}

/// Instructions of one operation: ours, and those of the fake library.
pub(crate) fn ours(over: Over) -> Res<(f64, f64)> {
    let (few, many) = (profiled(over, FEW)?, profiled(over, MANY)?);
    let each = |few: u64, many: u64| many.saturating_sub(few) as f64 / f64::from(MANY - FEW);
    Ok((each(few.ours, many.ours), each(few.library, many.library)))
}

fn profiled(over: Over, ops: u32) -> Res<Split> {
    let file = std::env::temp_dir().join(format!("hmc-callgrind-{}", std::process::id()));
    let counted = callgrind(over, ops, &file);
    let profile = std::fs::read_to_string(&file).map_err(|e| format!("{}: {e}", file.display()));
    // An error of the removal is ignored.
    let _ = std::fs::remove_file(&file);
    counted?;
    let exe = std::env::current_exe().map_err(text)?;
    let program = format!("/{}", exe.file_name().unwrap_or_default().to_string_lossy());
    Ok(objects::split(&profile?, &program, over.library()))
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
