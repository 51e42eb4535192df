//! `cargo xtask vm -- COMMAND`: runs a program of this machine in a small VM with two RDMA devices.
//!
//! The VM consists of Debian packages that are downloaded and extracted below `target/vm`, not installed ([`image`]). Its root
//! file system is that of the host, read-only, with a tmpfs above it: the command has the same files at the same paths. Only
//! files in the output folder are kept. No privilege is needed.

mod accelerator;
mod apt;
mod apt_state;
#[cfg_attr(not(test), expect(dead_code, reason = "a run has one guest yet"))]
mod cable;
mod compression;
mod devices;
mod ending;
pub(crate) mod guest;
mod guest_id;
mod image;
mod initramfs;
mod kernel;
mod machine;
mod merged_usr;
mod modules;
mod packages;
#[cfg_attr(not(test), expect(dead_code, reason = "a run has one guest yet"))]
mod prefixed;
pub(crate) mod qemu;
mod qemu_option;
mod run_folder;
mod stream;
mod task;

use crate::tree;
use crate::verdict::Verdict;
use accelerator::Accelerator;
use ending::{Ending, TIMED_OUT, VM_FAILED};
use guest_id::GuestId;
use image::Image;
use machine::{Machine, RunResult};
use run_folder::RunFolder;
use serde_json::json;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use task::Task;

/// Variable with the path of the output folder.
const OUT: &str = "HMC_VM_OUT";

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Time limit of the run in seconds, boot included
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..))]
    timeout: u64,
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
    /// Write exit code, seconds, accelerator, kernel and timed_out as JSON
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
    let result = start(options, &machine);
    if let Some(file) = &options.json
        && let Err(e) = std::fs::write(file, report(&machine, result.as_ref().ok()))
    {
        return failed(&format!("{}: {e}", file.display()));
    }
    match result {
        Ok(RunResult { ending: Some(ending), .. }) => {
            if let Some(remark) = ending.remark() {
                eprintln!("vm: {remark}");
            }
            ExitCode::from(ending.status())
        }
        Ok(RunResult { ending: None, .. }) => {
            eprintln!("vm: killed after {} s; --timeout sets the limit", options.timeout);
            ExitCode::from(TIMED_OUT)
        }
        Err(why) => failed(&why),
    }
}

/// Runs a command of another command of xtask, with its outputs copied to this process's; `command` is told whether the VM's
/// processor is emulated. Returns the exit status of the command, or [`TIMED_OUT`].
///
/// # Errors
/// A verdict with a remedy, or of a VM that failed.
pub(super) fn status_of(
    out: &Path,
    limit: Duration,
    command: impl FnOnce(bool) -> Vec<OsString>,
) -> Result<u8, Verdict> {
    let mut options = Options {
        timeout: limit.as_secs(),
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
    let result = start(&options, &machine).map_err(Verdict::Failed)?;
    match result.ending {
        None => Ok(TIMED_OUT),
        Some(Ending::Failed(why)) => Err(Verdict::Failed(why)),
        Some(ending) => Ok(ending.status()),
    }
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

/// Runs the command in the VM.
fn start(options: &Options, machine: &Machine) -> Result<RunResult, String> {
    let cache = cache(options);
    let out = options.out.clone().unwrap_or_else(|| cache.join("out"));
    let named = |path: &Path, e| format!("{}: {e}", path.display());
    std::fs::create_dir_all(&out).map_err(|e| named(&out, e))?;
    let out = std::fs::canonicalize(&out).map_err(|e| named(&out, e))?;
    let runs = cache.join("runs");
    let folder = RunFolder::create(&runs, options.keep)
        .map_err(|e| format!("{}; --cache selects another folder", named(&runs, e)))?;
    if options.keep {
        eprintln!("vm: the run folder is {}", folder.path().display());
    }
    let mut task = Task::here(&options.command, GuestId { number: 0, count: 1 })?;
    task.extend_path();
    task.set(OUT, &out);
    machine.run(&folder, &task, &out, (std::io::stdout(), std::io::stderr()))
}

/// Returns the content of the JSON file; `result` is `None` if the VM failed.
fn report(machine: &Machine, result: Option<&RunResult>) -> String {
    let ending = result.and_then(|result| result.ending.as_ref());
    let value = json!({
        "exit_code": ending.map(Ending::status),
        "seconds": result.map(|result| result.time.as_secs_f64()),
        "accelerator": machine.accelerator.name(),
        "kernel": machine.image.release,
        "timed_out": result.is_some_and(|result| result.ending.is_none()),
    });
    format!("{value:#}\n")
}
