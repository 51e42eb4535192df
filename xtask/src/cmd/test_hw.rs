//! `cargo xtask test-hw`: the suites over the real libraries and devices of this machine.
//!
//! What is missing is skipped with the reason and what to do about it, and the run then ends with status 77, never 0.
//! A test is counted as passed only if UCX (or RDMA verbs) moved bytes for it, and nothing else did in its place ([`single`]); tests
//! of the Python package count as pytest counts them ([`python`]).

mod counters;
mod devices;
mod fabric_failure;
mod namespaces;
mod pair;
mod python;
pub(crate) mod rdma;
mod single;
mod suites;
mod ucx_lanes;
mod vm;

pub(crate) use suites::runs;

use crate::debian;
use crate::shell;
use crate::step_result::{Line, StepResult, summary, verdict};
use crate::tree;
use crate::verdict::Verdict;
use single::{Run, Which};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use suites::{ELSEWHERE, OF_RDMA, PROCESS_TESTS, UCX_TESTS, WITHOUT_BYTES};

/// Time for one test, without that of a soak.
const LIMIT: Duration = Duration::from_secs(600);
/// Time to install something.
const INSTALL: Duration = Duration::from_secs(600);

/// Debian's package, and what kills a process in the middle of a call or lets the call fail; and the wheel from the Python
/// package index, with the version that is supported and tested.
const DEBIAN: [&str; 2] = ["libucx0", "strace"];
const WHEEL: &str = "libucx-cu12==1.22.0";

#[derive(clap::Args)]
pub(crate) struct Options {
    /// The suites over UCX, the default; with the library that `HMC_UCX_LIB` names, if it is set
    #[arg(long)]
    ucx: bool,
    /// The suites over RDMA verbs, with a device of this machine
    #[arg(long, group = "verbs")]
    rdma: bool,
    /// Only the suites over the OpenCL devices of this machine
    #[arg(long, conflicts_with_all = ["ucx", "rdma", "vm", "system", "soak", "no_kills"])]
    opencl: bool,
    /// Only the suites over RDMA verbs, with the soft-RoCE devices of a VM
    #[arg(long, group = "verbs", conflicts_with_all = ["ucx", "system", "install", "soak", "no_kills"])]
    vm: bool,
    /// Of the suites over RDMA verbs only the short form: conformance, a file, a killed peer, revoked windows
    #[arg(long, requires = "verbs")]
    short: bool,
    /// Only measure beside perftest in the VM: ratios, since its processor may be emulated
    #[arg(long, requires = "vm", conflicts_with = "short")]
    perf: bool,
    /// Time limit of the suites over RDMA verbs in seconds [default: 2400, build included; 360 after the build with --short]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(60..))]
    time: Option<u64>,
    /// Write the results over RDMA verbs as JSON
    #[arg(long, value_name = "FILE", requires = "verbs")]
    json: Option<PathBuf>,
    /// Only with the library that the loader finds, not with the wheel's
    #[arg(long)]
    system: bool,
    /// Install what is missing: UCX or PoCL as Debian packages it (as root), and UCX's wheel in a virtual environment under target
    #[arg(long)]
    install: bool,
    /// Only the soaks, each for so many seconds (20 in a run of everything)
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    soak: Option<u64>,
    /// The seed of the soaks
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Kill no process in the soaks
    #[arg(long)]
    no_kills: bool,
}

/// Seconds of the suites over RDMA verbs, build included.
const USUAL_SECS: u64 = 2400;
/// Seconds of their short form, from the end of the build on.
const SHORT_SECS: u64 = 360;

/// Seconds of each in a run of everything.
const SOAK_SECS: u64 = 20;

/// A UCX to test with.
struct Ucx {
    name: &'static str,
    /// Its library; `None` for the one that the loader finds by itself.
    library: Option<PathBuf>,
}

/// The soname of UCX's library.
const LIBRARY: &str = "libucp.so.0";

/// Finds a UCX, installing it when that was asked for.
type Find = fn(&Path, bool) -> Result<Ucx, Verdict>;

/// Runs the suites and prints the summary.
pub(crate) fn run(options: &Options) -> Verdict {
    let root = tree::root();
    if options.opencl {
        return devices::opencl(&root, options.install);
    }
    let usual = if options.short { SHORT_SECS } else { USUAL_SECS };
    let limit = Duration::from_secs(options.time.unwrap_or(usual));
    let (json, short) = (options.json.as_deref(), options.short);
    if options.vm && options.perf {
        return vm::measure(&root, limit, json);
    }
    if options.vm {
        return vm::run(&root, limit, json, short);
    }
    if options.rdma && !options.ucx {
        return rdma::native(&root, limit, json, short);
    }
    let mut table = Vec::new();
    let places: &[(&str, Find)] = match (named_by_user(), options.system) {
        (Some(_), _) => &[("HMC_UCX_LIB's", named)],
        (None, true) => &[("the system's", system)],
        (None, false) => &[("the system's", system), ("the wheel's", wheel)],
    };
    for (name, find) in places {
        table.push(Line::of(format!("UCX, {name}"), || match find(&root, options.install) {
            Ok(ucx) if options.soak.is_some() => soaks(&root, &ucx, options),
            Ok(ucx) => suites(&root, &ucx).and(soaks(&root, &ucx, options)),
            Err(verdict) => verdict.into(),
        }));
    }
    let over_ucx = verdict(
        summary(&table),
        table.iter().any(|l| matches!(l.result.verdict, Verdict::Skipped { .. })),
    );
    if !options.rdma {
        return over_ucx;
    }
    let over_rdma = rdma::native(&root, limit, json, short);
    StepResult::from(over_ucx).and(over_rdma.into()).verdict
}

/// The value of `HMC_UCX_LIB`, if any.
fn named_by_user() -> Option<OsString> {
    std::env::var_os("HMC_UCX_LIB").filter(|name| !name.is_empty())
}

/// The UCX that `HMC_UCX_LIB` names. One that is not there is a failure: it was asked for by name.
fn named(_: &Path, _: bool) -> Result<Ucx, Verdict> {
    let library = PathBuf::from(named_by_user().unwrap_or_default());
    match is_library(&library) {
        Ok(()) => Ok(Ucx { name: "HMC_UCX_LIB's", library: Some(library) }),
        Err(why) => Err(Verdict::Failed(why)),
    }
}

/// Whether a path is that of a library, or of a folder with UCX's. What it holds is for the tests to find.
fn is_library(path: &Path) -> Result<(), String> {
    let file = if path.is_dir() { path.join(LIBRARY) } else { path.to_path_buf() };
    match std::fs::metadata(&file) {
        Ok(meta) if meta.is_file() => Ok(()),
        Ok(_) => Err(format!("HMC_UCX_LIB={}: no library", path.display())),
        Err(e) => Err(format!("HMC_UCX_LIB={}: {}: {e}", path.display(), file.display())),
    }
}

/// The UCX that the loader finds.
fn system(_: &Path, install: bool) -> Result<Ucx, Verdict> {
    let is_there = || {
        let listed = shell::capture(Command::new("ldconfig").arg("-p"));
        listed.is_ok_and(|out| out.stdout.contains(LIBRARY))
    };
    let can_kill = || shell::capture(Command::new("strace").arg("-V")).is_ok();
    if install && !(is_there() && can_kill()) {
        let installed = debian::install(&DEBIAN);
        // Without strace two tests report that it is missing.
        if let (Err(why), false) = (installed, is_there()) {
            return Err(Verdict::skipped(why, "`apt install libucx0` as root"));
        }
    }
    if is_there() {
        return Ok(Ucx { name: "the system's", library: None });
    }
    let remedy = "`apt install libucx0`, or `cargo xtask test-hw --install` as root";
    Err(Verdict::skipped("no libucp.so.0 in the loader's folders", remedy))
}

/// The UCX of the Python package index, in an environment of its own.
fn wheel(root: &Path, install: bool) -> Result<Ucx, Verdict> {
    let home = root.join("target/test-hw/ucx");
    if library_in(&home).is_none() && install {
        let pip = home.join("bin/pip");
        let mut steps = [Command::new("python3"), Command::new(&pip)];
        let [make, fill] = &mut steps;
        make.args(["-m", "venv"]).arg(&home);
        fill.args(["install", "--quiet", "--disable-pip-version-check", "--no-deps", WHEEL]);
        for command in &mut steps {
            let done = shell::stream(command, INSTALL).map_err(|why| {
                Verdict::skipped(
                    why,
                    "`apt install python3-venv`, then `cargo xtask test-hw --install`",
                )
            })?;
            if !done.success {
                let why = format!("`{}`: {}", shell::shown(command), done.why());
                return Err(Verdict::skipped(why, format!("`pip install {WHEEL}`")));
            }
        }
    }
    match library_in(&home) {
        Some(library) => Ok(Ucx { name: "the wheel's", library: Some(library) }),
        None => Err(Verdict::skipped(
            format!("{WHEEL} is not installed under {}", home.display()),
            "`cargo xtask test-hw --install`",
        )),
    }
}

/// The folder of libucp in a virtual environment.
fn library_in(home: &Path) -> Option<PathBuf> {
    let versions = std::fs::read_dir(home.join("lib")).ok()?.flatten();
    let folders = versions.map(|v| v.path().join("site-packages/libucx/lib"));
    folders.into_iter().find(|folder| folder.join(LIBRARY).exists())
}

/// The conformance suite over single lanes, the partitions, the death in the middle of a message, ends under puts and sends that fail, then
/// the process tests over all lanes of this machine and over TCP alone.
fn suites(root: &Path, ucx: &Ucx) -> StepResult {
    println!("with {} library", ucx.name);
    let lanes = Run {
        over: single::UCX,
        root,
        programs: &UCX_TESTS,
        which: Which::Ignored,
        environment: environment(ucx, &[]),
        only: &[],
        elsewhere: Vec::new(),
        unfit: &[],
        without_bytes: &WITHOUT_BYTES,
        limit: LIMIT,
        until: None,
    };
    let processes = |lanes: Option<&str>| {
        let asked = [("HMC_UCX", Some("1")), ("HMC_TEST_VIA", Some("ucx")), ("UCX_TLS", lanes)];
        Run {
            over: single::UCX,
            root,
            programs: &PROCESS_TESTS,
            which: Which::All,
            environment: environment(ucx, &asked),
            only: &[],
            elsewhere: [&ELSEWHERE[..], &OF_RDMA].concat(),
            unfit: &[],
            without_bytes: &[],
            limit: LIMIT,
            until: None,
        }
    };
    let over = |name: &str, run: &Run<'_>| {
        println!("\n{name}:");
        run.tests()
    };
    over("UCX's own tests", &lanes)
        .and(over("process tests over all lanes", &processes(None)))
        .and(over("process tests over TCP lanes", &processes(Some("tcp"))))
}

/// The soak over each kind of lane.
fn soaks(root: &Path, ucx: &Ucx, options: &Options) -> StepResult {
    let seconds = options.soak.unwrap_or(SOAK_SECS);
    let (secs, seed) = (seconds.to_string(), options.seed.to_string());
    let mut said = vec![("HMC_SOAK_SECS", Some(&*secs)), ("HMC_TEST_SEED", Some(&*seed))];
    if options.no_kills {
        said.push(("HMC_SOAK_KILLS", Some("0")));
    }
    let run = Run {
        over: single::UCX,
        root,
        programs: &["soak"],
        which: Which::Ignored,
        environment: environment(ucx, &said),
        only: &[],
        elsewhere: Vec::new(),
        unfit: &[],
        without_bytes: &[],
        until: None,
        limit: LIMIT.saturating_add(Duration::from_secs(seconds)),
    };
    run.tests()
}

/// The variables of tests with that library, and those that are given.
fn environment(
    ucx: &Ucx,
    more: &[(&'static str, Option<&str>)],
) -> Vec<(&'static str, Option<OsString>)> {
    let library = ucx.library.as_ref().map(|library| library.clone().into_os_string());
    let more = more.iter().map(|(name, value)| (*name, value.map(OsString::from)));
    std::iter::once(("HMC_UCX_LIB", library)).chain(more).collect()
}

#[cfg(test)]
mod tests {
    use super::is_library;

    #[test]
    fn a_library_that_is_named_and_not_there_is_a_failure() {
        use std::path::Path;
        let why = is_library(Path::new("/nonexistent")).unwrap_err();
        assert!(why.contains("HMC_UCX_LIB=/nonexistent"), "{why}");
        let why = is_library(&crate::tree::root()).unwrap_err();
        assert!(why.contains("libucp.so.0"), "{why}");
        assert_eq!(is_library(&crate::tree::root().join("Cargo.toml")), Ok(()));
    }
}
