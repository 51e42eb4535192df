//! `cargo xtask wheel`: builds the Python package, installs it into a fresh virtual environment, and tests it there.
//!
//! The wheel serves CPython 3.11 and later (abi3). Free-threaded interpreters need one each: it is built for those that are
//! found. UCX and other libraries are found at run time; the wheel carries none.

use crate::answer::{Answer, pytest};
use crate::shell;
use crate::tree;
use crate::verdict::Verdict;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// What builds wheels; the version of `hmc-py/pyproject.toml`.
const MATURIN: &str = "maturin==1.16.0";
/// Time to install packages, to build a wheel, and for all tests.
const INSTALL: Duration = Duration::from_secs(600);
const BUILD: Duration = Duration::from_secs(900);
const TEST: Duration = Duration::from_secs(600);
/// The oldest interpreter of the wheel.
const OLDEST: (u32, u32) = (3, 11);
/// Names of free-threaded interpreters.
const FREE_THREADED: [&str; 3] = ["python3.13t", "python3.14t", "python3.15t"];

#[derive(clap::Args)]
pub(crate) struct Options {
    /// The interpreter to build and test with
    #[arg(long, default_value = "python3")]
    python: String,
    /// Install the wheel into a fresh virtual environment and run its tests
    #[arg(long)]
    test: bool,
    /// With UCX of the Python package index in that environment
    #[arg(long)]
    ucx: bool,
}

/// Builds, and tests if asked.
pub(crate) fn run(options: &Options) -> Verdict {
    let root = tree::root();
    match build(&root, &options.python) {
        Err(verdict) => verdict,
        Ok(wheel) => {
            println!("{}", wheel.display());
            if !options.test {
                return Verdict::Passed;
            }
            test(&root, &options.python, &wheel, options.ucx).verdict
        }
    }
}

/// The step of a test run.
pub(crate) fn step(root: &Path) -> Answer {
    match build(root, "python3") {
        Ok(wheel) => test(root, "python3", &wheel, false),
        Err(verdict) => verdict.into(),
    }
}

/// A Python that is new enough and can make environments.
fn check(python: &str) -> Result<(), Verdict> {
    let remedy = "`apt install python3 python3-venv` (3.11 or later), or `--python PATH`";
    let ask = "import sys, venv, ensurepip; print(*sys.version_info[:2])";
    let out = shell::capture(Command::new(python).args(["-c", ask]))
        .map_err(|why| Verdict::skipped(why, remedy))?;
    let mut numbers = out.stdout.split_whitespace().filter_map(|n| n.parse::<u32>().ok());
    match (out.success, numbers.next(), numbers.next()) {
        (true, Some(major), Some(minor)) if (major, minor) >= OLDEST => Ok(()),
        (true, Some(major), Some(minor)) => {
            Err(Verdict::skipped(format!("{python} is {major}.{minor}"), remedy))
        }
        _ => Err(Verdict::skipped(format!("{python} cannot make virtual environments"), remedy)),
    }
}

/// A virtual environment with packages; an old one of that name is replaced.
fn environment(python: &str, home: &Path, packages: &[String]) -> Result<(), Verdict> {
    let mut make = Command::new(python);
    make.args(["-m", "venv", "--clear"]).arg(home);
    let mut fill = Command::new(home.join("bin/python"));
    fill.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]).args(packages);
    for command in [&mut make, &mut fill] {
        let done = shell::stream(command, INSTALL).map_err(Verdict::Failed)?;
        if !done.success {
            let why = format!("`{}`: {}", shell::shown(command), done.why());
            return Err(Verdict::skipped(why, "a Python package index within reach"));
        }
    }
    Ok(())
}

/// Builds the wheel; where it is.
fn build(root: &Path, python: &str) -> Result<PathBuf, Verdict> {
    check(python)?;
    let tools = root.join("target/py/tools");
    let maturin = tools.join("bin/maturin");
    if !maturin.exists() {
        environment(python, &tools, &[MATURIN.to_owned()])?;
    }
    let out = root.join("target/py/wheels");
    // Of older builds there may be other versions.
    let _ = std::fs::remove_dir_all(&out);
    let free = FREE_THREADED.into_iter().filter(|p| check(p).is_ok());
    let mut interpreters = vec![python];
    interpreters.extend(free);
    for interpreter in &interpreters {
        let mut command = Command::new(&maturin);
        command
            .args(["build", "--release", "--locked", "--interpreter", interpreter, "--out"])
            .arg(&out);
        command.arg("--manifest-path").arg(root.join("hmc-py/Cargo.toml")).current_dir(root);
        let done = shell::stream(&mut command, BUILD).map_err(Verdict::Failed)?;
        if !done.success {
            return Err(Verdict::failed(format!("maturin: {}", done.why())));
        }
    }
    if interpreters.len() == 1 {
        println!(
            "no free-threaded interpreter is here ({}): no wheel for one",
            FREE_THREADED.join(", ")
        );
    }
    let wheels =
        std::fs::read_dir(&out).map_err(|e| Verdict::failed(format!("{}: {e}", out.display())))?;
    wheels
        .flatten()
        .map(|entry| entry.path())
        .find(|path| path.to_string_lossy().contains("abi3"))
        .ok_or_else(|| Verdict::failed("maturin made no abi3 wheel"))
}

/// The interpreter of a fresh environment with the package in it.
pub(crate) fn installed(root: &Path) -> Result<PathBuf, Verdict> {
    let wheel = build(root, "python3")?;
    let home = root.join("target/py/bench");
    environment("python3", &home, &[format!("{}[test]", wheel.display())])?;
    Ok(home.join("bin/python"))
}

/// Installs the wheel into a fresh environment and runs its tests there.
fn test(root: &Path, python: &str, wheel: &Path, ucx: bool) -> Answer {
    let home = root.join("target/py/test");
    let extras = if ucx { "[ucx,test]" } else { "[test]" };
    if let Err(verdict) = environment(python, &home, &[format!("{}{extras}", wheel.display())]) {
        return verdict.into();
    }
    let mut command = Command::new(home.join("bin/python"));
    command.args(["-m", "pytest", "-q", "-p", "no:cacheprovider"]).arg(root.join("hmc-py/tests"));
    // Not the folder of the sources: what is tested is what was installed.
    pytest(command.current_dir(&home), TEST)
}
