//! `cargo xtask sim`: whole clusters of real sessions in one thread each, from seeds.
//!
//! Exit status 0 when every seed passed, 1 when one failed (its script is shrunk and printed with the command that
//! runs it again), 2 for wrong arguments.

use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use clap::Parser;
use hmc_sim::world::run::{Options, run};
use hmc_sim::world::swarm::RunShape;
use hmc_sim::world::trace::TraceSink;
use hmc_tests::campaign;
use hmc_tests::cluster::Sessions;
use hmc_tests::metered::Metered;

/// What nodes hold for others is counted.
#[global_allocator]
static METERED: Metered = Metered;

/// Runs simulated clusters of real sessions and checks every byte, answer and message.
#[derive(Parser)]
#[command(name = "cargo xtask sim", version)]
struct Arguments {
    /// How many seeds; 1 with --seed, else 500
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    seeds: Option<u64>,
    /// The first seed
    #[arg(long)]
    seed: Option<u64>,
    /// Ranks of every world, 2 to 64; drawn by the seed otherwise
    #[arg(long, value_parser = clap::value_parser!(u32).range(2..=64))]
    ranks: Option<u32>,
    /// Let each script last so many virtual hours, with few operations
    #[arg(long, default_value_t = 0)]
    hours: u32,
    /// Print every event; for a single seed
    #[arg(long)]
    trace: bool,
    /// 100,000 seeds, or as many as --seeds says, with 1,300 operations each and twice the faults
    #[arg(long)]
    full: bool,
    /// Threads; one for each processor otherwise
    #[arg(long, default_value_t = 0)]
    threads: usize,
    /// Plant one bug after the other and look for it in --seeds seeds (10,000) and --secs seconds
    #[arg(long)]
    mutants: bool,
    /// With --mutants: time for each bug
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..))]
    secs: u64,
    /// With --mutants: only bugs whose name contains this
    #[arg(long)]
    only: Option<String>,
    /// With --mutants: seeds that must pass without any bug
    #[arg(long, default_value_t = 2_000, value_parser = clap::value_parser!(u64).range(1..))]
    green: u64,
    /// Go on after failures, up to this many
    #[arg(long, default_value_t = 1)]
    stop_after: usize,
}

impl Arguments {
    fn options(&self) -> Options {
        let default = match (self.full, self.seed) {
            (true, _) => 100_000,
            (false, Some(_)) => 1,
            (false, None) => 500,
        };
        let requests = self.full.then_some(1_300);
        let print: TraceSink = |line| println!("{line}");
        Options {
            first: self.seed.unwrap_or(1),
            seeds: self.seeds.unwrap_or(default),
            shape: RunShape {
                ranks: self.ranks,
                requests,
                hours: self.hours,
                rndv: true,
                more_faults: self.full.into(),
            },
            threads: if self.trace { 1 } else { self.threads },
            trace: self.trace.then_some(print),
            replay: if self.full { "--full --seeds 1".into() } else { String::new() },
            stop_after: self.stop_after.max(1),
            ..Options::default()
        }
    }
}

#[cfg(hmc_mutants)]
fn mutants(arguments: &Arguments) -> ExitCode {
    let found = hmc_tests::mutants::run(&hmc_tests::mutants::Options {
        first: arguments.seed.unwrap_or(1),
        limit: arguments.seeds.unwrap_or(10_000),
        time: std::time::Duration::from_secs(arguments.secs),
        green: arguments.green,
        only: arguments.only.clone(),
        threads: arguments.threads,
    });
    code(found)
}

#[cfg(not(hmc_mutants))]
fn mutants(arguments: &Arguments) -> ExitCode {
    let _ = (arguments.secs, &arguments.only, arguments.green);
    eprintln!("no bug is planted in this build; `cargo xtask sim --mutants` makes one");
    ExitCode::from(2)
}

/// The exit status, and on the standard error why it is none of success.
fn code(verdict: Result<(), String>) -> ExitCode {
    match verdict {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("sim: {why}");
            ExitCode::FAILURE
        }
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if arguments.mutants {
        return mutants(&arguments);
    }
    let options = arguments.options();
    let begun = Instant::now();
    let told = AtomicU64::new(0);
    let summary = run(
        &options,
        || Sessions,
        |done| {
            // One line every ten seconds.
            let now = begun.elapsed().as_secs() / 10;
            if told.fetch_max(now, Ordering::Relaxed) < now {
                eprintln!("{done} of {} seeds, {} s", options.seeds, begun.elapsed().as_secs());
            }
        },
    );
    for failure in &summary.failures {
        println!("{failure}");
    }
    println!("{summary}");
    code(campaign::seeds(
        options.seeds,
        summary.seeds,
        summary.stats.requests,
        summary.failures.len(),
    ))
}

#[cfg(test)]
mod tests {
    use super::Arguments;
    use clap::Parser as _;

    #[test]
    fn a_run_of_nothing_is_a_wrong_argument() {
        let is_taken = |words: &[&str]| {
            Arguments::try_parse_from(std::iter::once(&"sim").chain(words)).is_ok()
        };
        assert!(is_taken(&["--seeds", "1"]) && is_taken(&["--mutants", "--green", "1"]));
        for words in [["--seeds", "0"], ["--green", "0"], ["--secs", "0"]] {
            assert!(!is_taken(&words), "{words:?}");
        }
    }
}
