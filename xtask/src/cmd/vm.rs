//! `cargo xtask vm -- COMMAND`: runs a program of this machine in a small VM with two RDMA devices, or in two VMs with one each.
//!
//! The VM consists of Debian packages that are downloaded and extracted below `target/vm`, not installed ([`image`]). Its root
//! file system is that of the host, read-only, with a tmpfs above it: the command has the same files at the same paths. Only
//! files in the output folder are kept. No privilege is needed.

mod accelerator;
mod apt;
mod apt_state;
mod cable;
mod compression;
mod devices;
mod ending;
pub(crate) mod guest;
mod guest_id;
mod guests;
mod image;
mod initramfs;
mod kernel;
mod machine;
mod merged_usr;
mod modules;
mod packages;
mod prefixed;
pub(crate) mod qemu;
mod qemu_option;
mod run_folder;
mod stream;
mod task;

use crate::tree;
use crate::verdict::Verdict;
use accelerator::Accelerator;
use ending::{Ending, VM_FAILED};
use guests::Guests;
use image::Image;
use machine::{Machine, RunResult};
use serde_json::json;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Time limit of the run in seconds, boot included
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..))]
    timeout: u64,
    /// VMs that run the command: with 2, one RDMA device in each, HMC_VM_GUEST=0 and 1, and a network between them
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=2))]
    guests: u8,
    /// Memory of the VM in MiB
    #[arg(long, value_name = "MIB", default_value_t = 2048, value_parser = clap::value_parser!(u32).range(256..))]
    memory: u32,
    /// Processors of the VM
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=64))]
    cpus: u8,
    /// Output folder: files that the command writes there are kept; HMC_VM_OUT has its path [default: target/vm/out]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Folder of packages, images and runs [default: target/vm]
    #[arg(long, value_name = "DIR")]
    cache: Option<PathBuf>,
    /// Write exit codes, seconds, accelerator, kernel and timed_out as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Keep the run folder, which has the console log
    #[arg(long)]
    keep: bool,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

/// Runs the command. Returns its exit status.
pub(crate) fn run(options: &Options) -> ExitCode {
    let machine = match machine(options) {
        Ok(machine) => machine,
        Err(verdict @ Verdict::Skipped { .. }) => return verdict.report(),
        Err(verdict) => return failed(&verdict.detail()),
    };
    let results = start(options, &machine);
    if let Some(file) = &options.json
        && let Err(e) = std::fs::write(file, report(&machine, results.as_deref().ok()))
    {
        return failed(&format!("{}: {e}", file.display()));
    }
    let results = match results {
        Ok(results) => results,
        Err(why) => return failed(&why),
    };
    for (number, result) in results.iter().enumerate() {
        let remark = match &result.ending {
            Some(ending) => ending.remark(),
            None => Some(format!("killed after {} s; --timeout sets the limit", options.timeout)),
        };
        let name = if options.guests > 1 { format!("guest {number}: ") } else { String::new() };
        if let Some(remark) = remark {
            eprintln!("vm: {name}{remark}");
        }
    }
    ExitCode::from(status(&results))
}

/// Returns the exit status of a run: of the first guest whose status is not 0, if any.
fn status(results: &[RunResult]) -> u8 {
    results.iter().map(RunResult::status).find(|status| *status != 0).unwrap_or(0)
}

/// The end of a command in a guest.
pub(super) struct Ended {
    /// Its exit status, or [`ending::TIMED_OUT`].
    pub(super) status: u8,
    /// The time from the start of the VM.
    pub(super) time: Duration,
}

/// Runs a command of another command of xtask in `guests` VMs, with its outputs copied to this process's; `command` is told
/// whether the processor is emulated. Returns the ends of the command in all of them.
///
/// # Errors
/// A verdict with a remedy, or of a VM that failed.
pub(super) fn ends_of(
    guests: u8,
    out: &Path,
    limit: Duration,
    command: impl FnOnce(bool) -> Vec<OsString>,
) -> Result<Vec<Ended>, Verdict> {
    let mut options = Options {
        timeout: limit.as_secs(),
        guests,
        memory: 2048,
        cpus: 2,
        out: Some(out.to_path_buf()),
        cache: None,
        json: None,
        keep: false,
        command: Vec::new(),
    };
    let machine = machine(&options)?;
    options.command = command(machine.accelerator == Accelerator::Tcg);
    let results = start(&options, &machine).map_err(Verdict::Failed)?;
    let ended = |result: RunResult| match result.ending {
        Some(Ending::Failed(why)) => Err(Verdict::Failed(why)),
        _ => Ok(Ended { status: result.status(), time: result.time }),
    };
    results.into_iter().map(ended).collect()
}

/// Reports that the VM failed.
fn failed(why: &str) -> ExitCode {
    eprintln!("vm: {why}");
    ExitCode::from(VM_FAILED)
}

/// Prepares the VM of the options.
fn machine(options: &Options) -> Result<Machine, Verdict> {
    let image = Image::prepare(&cache(options))?;
    let accelerator = image.qemu.accelerator();
    Ok(Machine {
        image,
        accelerator,
        memory: options.memory,
        processors: options.cpus,
        limit: Duration::from_secs(options.timeout),
    })
}

fn cache(options: &Options) -> PathBuf {
    options.cache.clone().unwrap_or_else(|| tree::root().join("target/vm"))
}

/// Runs the command in the VMs.
fn start(options: &Options, machine: &Machine) -> Result<Vec<RunResult>, String> {
    let cache = cache(options);
    let out = options.out.clone().unwrap_or_else(|| cache.join("out"));
    let named = |path: &Path, e| format!("{}: {e}", path.display());
    std::fs::create_dir_all(&out).map_err(|e| named(&out, e))?;
    let out = std::fs::canonicalize(&out).map_err(|e| named(&out, e))?;
    let guests = Guests { machine, runs: &cache.join("runs"), out: &out, keep: options.keep };
    guests.run(&options.command, options.guests)
}

/// Returns the content of the JSON file; `results` is `None` if a VM failed.
fn report(machine: &Machine, results: Option<&[RunResult]>) -> String {
    let timed_out = results.is_some_and(|all| all.iter().any(|one| one.ending.is_none()));
    let code = |one: &RunResult| one.ending.as_ref().map(Ending::status);
    let value = json!({
        "exit_code": results.filter(|_| !timed_out).map(status),
        "exit_codes": results.map(|all| all.iter().map(code).collect::<Vec<_>>()),
        "seconds": results.and_then(|all| all.iter().map(|one| one.time).max()).map(|t| t.as_secs_f64()),
        "accelerator": machine.accelerator.name(),
        "kernel": machine.image.release,
        "timed_out": timed_out,
    });
    format!("{value:#}\n")
}
