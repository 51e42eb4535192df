//! The command `hmc`: look at a machine, move files, measure.
//!
//! A front end: arguments in, answers out. Everything that moves bytes is in hmc-std. Each command is one
//! module of [`cmd`]; the modules beside it are what they share. A command ends with a status and, when
//! it failed, one line on stderr.
#![allow(
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    reason = "a front end: sizes are bounded by files and by arguments that were checked"
)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests may panic"))]

mod cmd;
mod connect;
mod crc;
mod failure;
mod output;
mod signal;
mod transfer;
mod units;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::signal::Stop;

/// HMC moves bytes between registered memory of two processes, over shared memory or TCP.
#[derive(Parser)]
#[command(name = "hmc", version, max_term_width = 100, after_help = AFTER)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

const AFTER: &str = "\
Sizes are bytes, or numbers with K, M, G, T (powers of 1024). Rates are GB/s, 10^9 bytes a second.
Exit status: 0 done, 1 failed (one line on stderr says why), 2 wrong arguments, 130 interrupted.
HMC_UDS_DIR names the folder of control sockets when --uds does not.

  hmc doctor                                what works on this machine
  hmc serve --into inbox                    receive files on this host
  hmc put big.bin                           send one to it
  hmc serve --listen 127.0.0.1:7000 --into inbox
  hmc put big.bin --to tcp://127.0.0.1:7000 --via tcp
  hmc perf                                  latency and bandwidth between two processes";

#[derive(Subcommand)]
enum Command {
    /// Say what works on this machine, what does not, why, and what to do
    Doctor(cmd::doctor::Options),
    /// Receive files that `hmc put` sends, and offer files to `hmc get`
    Serve(cmd::serve::Options),
    /// Send files to an `hmc serve`
    Put(cmd::put::Options),
    /// Fetch a file that an `hmc serve --share` offers
    Get(cmd::get::Options),
    /// Measure latency and bandwidth between two processes
    Perf(cmd::perf::Options),
}

fn main() -> ExitCode {
    let command = Arguments::parse().command;
    let result = Stop::install().and_then(|stop| {
        let run = match &command {
            Command::Doctor(options) => cmd::doctor::run(options),
            Command::Serve(options) => cmd::serve::run(options, &stop),
            Command::Put(options) => cmd::put::run(options, &stop),
            Command::Get(options) => cmd::get::run(options, &stop),
            Command::Perf(options) => cmd::perf::run(options, &stop),
        };
        run.map_err(|f| stop.explain(f))
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            let text = failure.to_string();
            if !text.is_empty() {
                output::note(&text);
            }
            ExitCode::from(failure.code())
        }
    }
}
