//! A soak over one transport; see `hmc_tests::soak`. `cargo xtask test-hw --soak SECONDS` runs it over UCX's lanes, `--vm` over RDMA verbs.
//!
//! Exit status 0 when nothing went wrong; 1 otherwise, with the command that makes the same choices again.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use hmc_tests::env::Via;
use hmc_tests::soak::{KillableArgs, Settings, run, serve};

/// Puts, gets, notifies, lends and takes back at random, kills peers and compares every byte.
#[derive(Parser)]
#[command(name = "soak", version)]
struct Arguments {
    /// The transport: shm, tcp, ucx or rdma
    #[arg(long, default_value = "ucx", value_parser = via)]
    via: Via,
    /// UCX's lanes, as in UCX_TLS
    #[arg(long)]
    lanes: Option<String>,
    /// How long
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    /// Of all choices
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Kill no process
    #[arg(long)]
    no_kills: bool,
    /// Be one of the processes that are killed: its rank
    #[arg(long, requires = "home", hide = true)]
    rank: Option<u32>,
    /// Where the others are
    #[arg(long, hide = true)]
    home: Option<PathBuf>,
}

fn via(name: &str) -> Result<Via, String> {
    [Via::Shm, Via::Tcp, Via::Ucx, Via::Rdma]
        .into_iter()
        .find(|via| via.conn().name() == name)
        .ok_or_else(|| "shm, tcp, ucx or rdma".to_owned())
}

fn main() -> ExitCode {
    hmc_tests::links::record();
    let a = Arguments::parse();
    let settings = Settings {
        via: a.via,
        lanes: a.lanes,
        time: Duration::from_secs(a.seconds),
        seed: a.seed,
        kills: !a.no_kills,
    };
    if let (Some(rank), Some(home)) = (a.rank, a.home) {
        return match serve(&KillableArgs { rank, home, settings }) {
            Ok(()) => ExitCode::SUCCESS,
            Err(why) => {
                eprintln!("soak: {why}");
                ExitCode::FAILURE
            }
        };
    }
    match run(&settings) {
        Ok(done) => {
            println!("soak: {done}");
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("soak: {why}");
            eprintln!("soak: again: {}", std::env::args().collect::<Vec<_>>().join(" "));
            ExitCode::FAILURE
        }
    }
}
