//! `cargo xtask NAME`: the commands by which this project checks itself.
//!
//! One file of [`cmd`] for each command; the modules beside it are shared by commands. Nothing here is
//! part of a release, and no crate may depend on it. Start with `cmd/test_sim.rs`, which runs the
//! others in order.
#![cfg_attr(test, allow(clippy::indexing_slicing, clippy::unwrap_used, reason = "tests may panic"))]

mod cargo_tool;
mod cmd;
mod copy;
mod debian;
mod failures;
mod manifest;
mod planted;
mod record;
mod shell;
mod source;
mod step_result;
mod tools;
mod tree;
mod verdict;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "The project's own commands", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Move a real file between two real processes, verify it, and print the rates
    Demo(cmd::demo::Options),
    /// Run every test that needs no hardware
    TestSim(cmd::test_sim::Options),
    /// Run the suites over the real libraries and devices of this machine; 77 when one is missing
    TestHw(cmd::test_hw::Options),
    /// Run the suites over RDMA verbs with programs that are built (internal)
    #[command(hide = true)]
    TestHwRdma(cmd::test_hw::rdma::Options),
    /// Check the rules of the project: dependencies, imports, file length, unsafe, documents, words
    Tidy,
    /// Prove that hmc-core links without any panic
    Nopanic(cmd::nopanic::Options),
    /// Build hmc-core for bare metal and run the embedding on it
    Nostd,
    /// Visit every state of the models of handshakes and of windows
    Explore,
    /// Check the claims made for hmc-core, and print the result and the figure of each
    Certify(cmd::certify::Options),
    /// Run the fuzz targets for a while
    Fuzz(cmd::fuzz::Options),
    /// Change the code outside the core in a sample of ways, and show which test notices each
    Mutants(cmd::mutants::Options),
    /// Run simulated clusters of real sessions from seeds
    Sim(cmd::sim::Options),
    /// Attack what README.md and SECURITY.md promise, and the same with each defect planted
    Attack(cmd::attack::Options),
    /// Measure against references in the same run
    Bench(cmd::bench::Options),
    /// Write the declarations of vendors' libraries from their headers, or compare them
    Bindings(cmd::bindings::Options),
    /// Build the Python package, and test it in a fresh virtual environment
    Wheel(cmd::wheel::Options),
    /// Package the libraries, and run a program that is built against the packages alone
    Packages,
    /// Compare the public items of the libraries with the stored ones
    Api(cmd::api::Options),
    /// Run the commands that the documents show
    Documents(cmd::documents::Options),
    /// Check licenses, duplicates and sources of dependencies; or advisories about them
    Deny(cmd::deny::Options),
    /// List what each package of a release is made of
    Sbom(cmd::sbom::Options),
    /// Check the stated minimum Rust version
    Msrv,
    /// Run a command of this machine in a small VM with two RDMA devices, without privileges
    Vm(cmd::vm::Options),
    /// Run the command in the guest (internal)
    #[command(hide = true)]
    VmGuest(cmd::vm::guest::Options),
    /// Execute QEMU (internal)
    #[command(hide = true)]
    VmQemu(cmd::vm::qemu::Options),
}

fn main() -> ExitCode {
    let verdict = match Arguments::parse().command {
        Command::Demo(options) => cmd::demo::run(&options),
        Command::TestSim(options) => cmd::test_sim::run(&options),
        Command::TestHw(options) => cmd::test_hw::run(&options),
        Command::TestHwRdma(options) => cmd::test_hw::rdma::run(&options),
        Command::Tidy => cmd::tidy::run(),
        Command::Nopanic(options) => cmd::nopanic::run(&options),
        Command::Nostd => cmd::nostd::run(),
        Command::Explore => cmd::explore::run(),
        Command::Certify(options) => cmd::certify::run(&options),
        Command::Fuzz(options) => cmd::fuzz::run(&options),
        Command::Mutants(options) => cmd::mutants::run(&options),
        Command::Sim(options) => cmd::sim::run(&options),
        Command::Attack(options) => cmd::attack::run(&options),
        Command::Bench(options) => cmd::bench::run(&options),
        Command::Bindings(options) => cmd::bindings::run(&options),
        Command::Wheel(options) => cmd::wheel::run(&options),
        Command::Packages => cmd::packages::run(),
        Command::Api(options) => cmd::api::run(&options),
        Command::Documents(options) => cmd::documents::run(&options),
        Command::Deny(options) => cmd::deny::run(&options),
        Command::Sbom(options) => cmd::sbom::run(&options),
        Command::Msrv => cmd::msrv::run(),
        Command::Vm(options) => return cmd::vm::run(&options),
        Command::VmGuest(options) => cmd::vm::guest::run(&options),
        Command::VmQemu(options) => cmd::vm::qemu::run(&options),
    };
    verdict.report()
}

#[cfg(test)]
mod tests {
    use super::Arguments;
    use crate::cmd::tidy::jobs;
    use crate::tree::{self, Tree};
    use clap::Parser as _;

    #[test]
    fn each_command_of_a_hosted_job_exists() {
        let tree = Tree::read(&tree::root()).unwrap();
        let commands = jobs::commands(&tree);
        let ours: Vec<_> = commands.iter().filter_map(|c| c.strip_prefix("cargo xtask ")).collect();
        assert!(ours.len() > 5, "{commands:?}");
        for command in ours {
            let words = ["xtask"].into_iter().chain(command.split_whitespace());
            assert!(Arguments::try_parse_from(words).is_ok(), "cargo xtask {command}");
        }
    }
}
