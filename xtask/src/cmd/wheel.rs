//! `cargo xtask wheel`: builds the Python package, installs it into a fresh virtual environment, and tests it there.
//!
//! The wheel serves CPython 3.11 and later (abi3). Free-threaded interpreters need one each: it is built, and tested, for those
//! that are found. UCX and other libraries are found at run time; the wheel carries none.
//!
//! What is missing is a skip: the interpreter, maturin, an index of the packages that the tests need. A wheel that was built and
//! cannot be installed or imported is a failure.

mod install;

use crate::shell;
use crate::step_result::{StepResult, pytest};
use crate::tree;
use crate::verdict::Verdict;
use install::Wheel;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// What builds wheels; the version of `hmc-py/pyproject.toml`.
const MATURIN: &str = "maturin==1.16.0";
/// The linker of portable wheels, which brings the symbols of old versions of glibc.
const ZIG: &str = "ziglang==0.15.2";
/// The oldest glibc that they run with: the oldest of Rust.
const PORTABLE: &str = "manylinux_2_17";
/// Time to build a wheel, and for all tests.
const BUILD: Duration = Duration::from_secs(900);
const TEST: Duration = Duration::from_secs(600);
/// The oldest interpreter of the wheel.
const OLDEST: (u32, u32) = (3, 11);
/// Names of free-threaded interpreters.
const FREE_THREADED: [&str; 2] = ["python3.14t", "python3.15t"];

#[derive(clap::Args)]
pub(crate) struct Options {
    /// The interpreter to build and test with
    #[arg(long, default_value = "python3")]
    python: String,
    /// Build a wheel for every Linux with glibc 2.17 or later, not for those as new as this one
    #[arg(long)]
    portable: bool,
    /// Install the wheel into a fresh virtual environment and run its tests
    #[arg(long)]
    test: bool,
    /// With UCX of the Python package index in that environment
    #[arg(long)]
    ucx: bool,
    /// With --test: only the tests whose names match (pytest's -k)
    #[arg(long, value_name = "EXPRESSION", requires = "test")]
    only: Option<String>,
}

/// Builds, and tests if asked.
pub(crate) fn run(options: &Options) -> Verdict {
    let root = tree::root();
    match build(&root, &options.python, options.portable) {
        Err(verdict) => verdict,
        Ok(wheels) => {
            for wheel in &wheels {
                println!("{}", wheel.path.display());
            }
            if !options.test {
                return Verdict::Passed;
            }
            test_all(&root, &wheels, options.ucx, options.only.as_deref()).verdict
        }
    }
}

/// The step of a test run.
pub(crate) fn step(root: &Path) -> StepResult {
    match build(root, "python3", false) {
        Ok(wheels) => test_all(root, &wheels, false, None),
        Err(verdict) => verdict.into(),
    }
}

/// A Python that is new enough and can make environments.
fn check(python: &str) -> Result<(), Verdict> {
    let remedy =
        "`apt install python3 python3-venv` (3.11 or later), or `cargo xtask wheel --python PATH`";
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

/// What builds wheels, in an environment of its own.
fn maturin(root: &Path, python: &str) -> Result<PathBuf, Verdict> {
    check(python)?;
    let tools = root.join("target/py/tools");
    let maturin = tools.join("bin/maturin");
    if !maturin.exists() {
        install::maturin(python, &tools, MATURIN)?;
    }
    Ok(maturin)
}

/// Brings the linker of portable wheels into the environment of what builds them.
fn zig(root: &Path, python: &str) -> Result<(), Verdict> {
    maturin(root, python)?;
    install::package(&root.join("target/py/tools"), ZIG)
}

/// Whether wheels can be built here: there is a Python, and what builds them is installed or was now.
pub(crate) fn ready(root: &Path) -> Result<(), Verdict> {
    maturin(root, "python3").map(|_| ())
}

/// Builds the wheels: the one for all interpreters with a global lock first, then those of free-threaded ones.
fn build(root: &Path, python: &str, portable: bool) -> Result<Vec<Wheel>, Verdict> {
    let maturin = maturin(root, python)?;
    if portable {
        zig(root, python)?;
    }
    let out = root.join("target/py/wheels");
    empty(&out)?;
    let free = FREE_THREADED.into_iter().filter(|p| check(p).is_ok());
    let mut interpreters = vec![python];
    interpreters.extend(free);
    for interpreter in &interpreters {
        build_one(root, &maturin, (interpreter, "release", portable), &out)?;
    }
    if interpreters.len() == 1 {
        println!(
            "no free-threaded interpreter is here ({}): no wheel for one",
            FREE_THREADED.join(", ")
        );
    }
    interpreters.iter().map(|python| found(&out, python)).collect()
}

/// Builds the wheel of an interpreter, with a profile of cargo, portable or for this machine.
fn build_one(
    root: &Path,
    maturin: &Path,
    with: (&str, &str, bool),
    out: &Path,
) -> Result<(), Verdict> {
    let (interpreter, profile, portable) = with;
    let mut command = Command::new(maturin);
    command.args(["build", "--profile", profile, "--locked", "--interpreter", interpreter]);
    if portable {
        // `check`: a library or symbol that this tag does not have is a failure, and is not packed into the wheel.
        command.args(["--zig", "--compatibility", PORTABLE, "--auditwheel", "check"]);
        // maturin finds zig by the interpreter in the path.
        let tools = maturin.parent().unwrap_or(maturin);
        let path = std::env::var_os("PATH").unwrap_or_default();
        let all = [tools.to_path_buf()].into_iter().chain(std::env::split_paths(&path));
        let joined = std::env::join_paths(all).map_err(|e| Verdict::failed(e.to_string()))?;
        command.env("PATH", joined);
    }
    command.arg("--out").arg(out);
    command.arg("--manifest-path").arg(root.join("hmc-py/Cargo.toml")).current_dir(root);
    let done = shell::stream(&mut command, BUILD).map_err(Verdict::Failed)?;
    if done.success { Ok(()) } else { Err(Verdict::failed(format!("maturin: {}", done.why()))) }
}

/// Removes what older builds have left: a wheel of one of them must not be taken for that of this one.
fn empty(out: &Path) -> Result<(), Verdict> {
    match std::fs::remove_dir_all(out) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            Err(Verdict::failed(format!("{}: {e}", out.display())))
        }
        _ => Ok(()),
    }
}

/// The wheel that was built for an interpreter: by its tag, `abi3` or such as `cp314t`.
fn found(out: &Path, python: &str) -> Result<Wheel, Verdict> {
    let name = Path::new(python).file_name().and_then(|n| n.to_str()).unwrap_or_default();
    let free = name.strip_prefix("python").filter(|v| v.ends_with('t'));
    let tag = free.map_or_else(|| "abi3".to_owned(), |v| format!("cp{}", v.replace('.', "")));
    let wheels =
        std::fs::read_dir(out).map_err(|e| Verdict::failed(format!("{}: {e}", out.display())))?;
    let path = wheels
        .flatten()
        .map(|entry| entry.path())
        .find(|path| path.to_string_lossy().contains(&format!("-{tag}-")))
        .ok_or_else(|| Verdict::failed(format!("maturin made no wheel for {tag}")))?;
    Ok(Wheel { path, python: python.to_owned() })
}

/// A fresh environment with the package in it.
pub(crate) fn installed(root: &Path) -> Result<PathBuf, Verdict> {
    let wheels = build(root, "python3", false)?;
    let wheel = wheels.first().ok_or_else(|| Verdict::failed("maturin made no wheel"))?;
    let home = root.join("target/py/bench");
    install::wheel(wheel, &home, "[test]").map(|_| home)
}

/// An interpreter of a fresh environment with the package and what its tests need, as optimised as the other tests over devices.
pub(crate) fn for_devices(root: &Path) -> Result<PathBuf, Verdict> {
    let maturin = maturin(root, "python3")?;
    let out = root.join("target/py/wheels-devices");
    empty(&out)?;
    build_one(root, &maturin, ("python3", "proofs", false), &out)?;
    install::wheel(&found(&out, "python3")?, &root.join("target/py/devices"), "[test]")
}

fn test_all(root: &Path, wheels: &[Wheel], ucx: bool, only: Option<&str>) -> StepResult {
    let tested = wheels.iter().map(|wheel| test(root, wheel, ucx, only)).reduce(StepResult::and);
    tested.unwrap_or_else(|| Verdict::failed("maturin made no wheel").into())
}

/// Installs a wheel into a fresh environment of its interpreter and runs its tests there.
fn test(root: &Path, wheel: &Wheel, ucx: bool, only: Option<&str>) -> StepResult {
    println!("testing {} with {}", wheel.path.display(), wheel.python);
    let home = root.join("target/py/test");
    let extras = if ucx { "[ucx,test]" } else { "[test]" };
    let python = match install::wheel(wheel, &home, extras) {
        Ok(python) => python,
        Err(verdict) => return verdict.into(),
    };
    let mut command = Command::new(python);
    command.args(["-m", "pytest", "-q", "-p", "no:cacheprovider"]).arg(root.join("hmc-py/tests"));
    if let Some(only) = only {
        command.args(["-k", only]);
    }
    // Not the folder of the sources: what is tested is what was installed.
    pytest(command.current_dir(&home), TEST)
}

#[cfg(test)]
mod tests {
    use super::{empty, found};
    use crate::verdict::Verdict;

    #[test]
    fn a_wheel_that_was_not_built_is_a_failure() {
        let out = std::env::temp_dir().join(format!("hmc-wheels-{}", std::process::id()));
        std::fs::create_dir_all(&out).unwrap();
        let old = out.join("hmc-0.0.9-cp311-abi3-linux_x86_64.whl");
        std::fs::write(&old, "of an older build").unwrap();
        assert_eq!(found(&out, "python3").map(|w| w.path), Ok(old));
        let none = found(&out, "/usr/bin/python3.14t").map(|w| w.path);
        assert_eq!(none, Err(Verdict::failed("maturin made no wheel for cp314t")));
        empty(&out).unwrap();
        assert!(matches!(found(&out, "python3"), Err(Verdict::Failed(_))));
        assert_eq!(empty(&out), Ok(()), "what is not there is empty");
    }
}
