//! `cargo xtask bench`: builds the release programs and measures against references in one run.
//!
//! A missed target is a figure, not a failure: the command ends with status 0 unless `--strict` is
//! given. The self-test of the measurement comes first (not with `--only`), and its failure is one.
//! With `--ucx` it measures UCX instead, once for lanes of shared memory and once for TCP, each in processes of its own:
//! UCX reads its lanes from the environment. Where there is no UCX the command ends with status 77.
//! With `--mpi` it measures collectives beside those of an MPI library. `--install` installs Open MPI; without an MPI library the
//! command exits with 77, too.
//! With `--python` it measures the Python package (`bench/python`), and a row without a number is a failure.
//! With `--against COMMIT` it compares this tree with a commit (`bench/against`), and a lost line is a failure.

mod against;
mod options;
mod profile;
mod python;
mod ratios;
mod taker;

pub(crate) use options::Options;

use crate::debian;
use crate::shell;
use crate::tree;
use crate::verdict::Verdict;
use options::PATIENCE;
use std::process::Command;

/// The exit status of the measuring program if something is missing.
const MISSING: i32 = 77;
/// Debian's packages of the MPI library: what starts programs, and what compiles them.
const MPI: [&str; 2] = ["openmpi-bin", "libopenmpi-dev"];
/// UCX_TLS for the two runs over UCX: what is there, which on one host is shared memory, and TCP alone.
const LANES: [Option<&str>; 2] = [None, Some("tcp")];

/// Builds and measures.
pub(crate) fn run(options: &Options) -> Verdict {
    if let Some(commit) = &options.against {
        return against::run(commit, options);
    }
    if options.ucx {
        return over_ucx(options);
    }
    if options.mpi {
        return beside_mpi(options);
    }
    if options.python {
        return python::run(options.quick);
    }
    let steps = [
        (true, cargo(&["build", "--release", "-p", "hmc-cli", "-p", "hmc-benches"])),
        (!options.store_instructions && options.only.is_none(), bench(&["--quick", "--self-test"])),
        (true, measured(options)),
        (options.micro, cargo(&["bench", "-p", "hmc-benches", "--benches"])),
    ];
    for (_, mut command) in steps.into_iter().filter(|(wanted, _)| *wanted) {
        match shell::stream(&mut command, PATIENCE) {
            Ok(out) if out.success => {}
            Ok(out) => {
                return Verdict::failed(format!("`{}`: {}", shell::shown(&command), out.why()));
            }
            Err(why) => return Verdict::Failed(why),
        }
    }
    Verdict::Passed
}

/// Builds and measures over UCX.
fn over_ucx(options: &Options) -> Verdict {
    let mut steps = vec![cargo(&["build", "--release", "-p", "hmc-benches"])];
    for (number, tls) in (0..).zip(LANES) {
        let mut command = measured(options);
        command.arg("--ucx");
        match tls {
            Some(tls) => command.env("UCX_TLS", tls),
            None => command.env_remove("UCX_TLS"),
        };
        if number > 0 && options.json.is_some() {
            command.arg("--append");
        }
        steps.push(command);
    }
    in_order(
        steps,
        "there is no UCX that can be used, as said above",
        "`apt install libucx0 ucx-utils`, or `pip install libucx-cu12` and HMC_UCX_LIB=FOLDER with the folder that holds \
         its libucp.so.0",
    )
}

/// Builds and measures beside an MPI library, which is installed if that was asked for.
fn beside_mpi(options: &Options) -> Verdict {
    let is_there = |program| shell::capture(Command::new(program).arg("--version")).is_ok();
    if options.install
        && !(is_there("mpicc") && is_there("mpirun"))
        && let Err(why) = debian::install(&MPI)
    {
        return Verdict::skipped(why, "`apt install openmpi-bin libopenmpi-dev` as root");
    }
    let mut command = measured(options);
    command.arg("--mpi");
    in_order(
        vec![cargo(&["build", "--release", "-p", "hmc-benches"]), command],
        "there is no MPI library that can be used, as said above",
        "`cargo xtask bench --mpi --install` as root",
    )
}

/// Runs the steps. If one exits with [`MISSING`], the rest is left out: `missing` is the reason, `remedy` what to do about it.
fn in_order(steps: Vec<Command>, missing: &str, remedy: &str) -> Verdict {
    let mut verdict = Verdict::Passed;
    for mut command in steps {
        match shell::stream(&mut command, PATIENCE) {
            Ok(out) if out.success => {}
            Ok(out) if out.code == Some(MISSING) => return Verdict::skipped(missing, remedy),
            // A missed target of one step is no reason to leave out the others.
            Ok(out) => {
                verdict = Verdict::failed(format!("`{}`: {}", shell::shown(&command), out.why()));
            }
            Err(why) => return Verdict::Failed(why),
        }
    }
    verdict
}

fn cargo(arguments: &[&str]) -> Command {
    let mut command = shell::cargo();
    command.current_dir(tree::root()).args(arguments);
    command
}

/// The measuring program, through cargo, which knows where it built it.
fn bench(arguments: &[&str]) -> Command {
    let mut command =
        cargo(&["run", "--release", "--quiet", "-p", "hmc-benches", "--bin", "hmc-bench", "--"]);
    command.args(arguments);
    command
}

fn measured(options: &Options) -> Command {
    let mut command = bench(&[]);
    for (wanted, flag) in [
        (options.quick, "--quick"),
        (options.strict, "--strict"),
        (options.store_instructions, "--store-instructions"),
    ] {
        if wanted {
            command.arg(flag);
        }
    }
    if let Some(only) = &options.only {
        command.arg("--only").arg(only);
    }
    if let Some(json) = &options.json {
        // The program runs in the root; the path is meant from where the user stands.
        let path = std::path::absolute(json).unwrap_or_else(|_| json.clone());
        command.arg("--json").arg(path);
    }
    command
}

#[cfg(test)]
mod tests {
    use super::{Options, in_order, measured};
    use crate::shell::shown;
    use crate::verdict::Verdict;
    use std::process::Command;

    #[test]
    fn a_step_without_what_it_needs_skips_the_rest() {
        let end = |status: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", &format!("exit {status}")]);
            command
        };
        let all = |ends: &[&str]| in_order(ends.iter().map(|s| end(s)).collect(), "none", "get it");
        assert_eq!(all(&["0", "0"]), Verdict::Passed);
        assert_eq!(all(&["0", "77"]), Verdict::skipped("none", "get it"));
        assert_eq!(all(&["0", "77", "1"]), Verdict::skipped("none", "get it"));
        assert!(matches!(all(&["1", "0"]), Verdict::Failed(_)));
    }

    #[test]
    fn options_are_passed_on() {
        let command = measured(&Options {
            quick: true,
            only: Some("ctrl".to_owned()),
            json: Some("/tmp/x.json".into()),
            strict: true,
            ucx: false,
            mpi: false,
            install: false,
            python: false,
            micro: false,
            store_instructions: false,
            against: None,
            programs: None,
            pairs: 21,
            profile: "release".to_owned(),
        });
        let line = shown(&command);
        assert!(line.ends_with("-- --quick --strict --only ctrl --json /tmp/x.json"), "{line}");
    }
}
