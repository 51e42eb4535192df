//! One row of `cargo xtask attack`, in this process; see `hmc_tests::attack`.
//!
//! The last line of the output is `outcome`, the verdict, the number of attempts and what was seen, with tabs between. A row
//! that ends without that line could not be carried out.

use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use hmc_tests::attack::Context;
use hmc_tests::attack::rows::ROWS;
use hmc_tests::planted;
use rustix::process::{Signal, set_parent_process_death_signal};

/// Attacks one promise.
#[derive(Parser)]
#[command(name = "attack", version)]
struct Arguments {
    /// Print all rows: name, document, planted bug and promise, with tabs between
    #[arg(long)]
    list: bool,
    /// The row
    #[arg(long, required_unless_present = "list")]
    row: Option<String>,
    /// Of all choices
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Attempts for so long, instead of a number of them
    #[arg(long)]
    secs: Option<u64>,
}

/// One line: without line ends and tabs.
fn line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    planted::activate();
    if arguments.list {
        for row in ROWS {
            println!("{}\t{}\t{}\t{}", row.name, row.document, row.mutant, line(row.promise));
        }
        return ExitCode::SUCCESS;
    }
    // The processes that a row starts end with it, and it ends with whoever waits for it.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    let name = arguments.row.unwrap_or_default();
    let Some(row) = ROWS.iter().find(|row| row.name == name) else {
        eprintln!("attack: no row is called `{name}`; --list prints all");
        return ExitCode::from(2);
    };
    let actor = std::env::current_exe().map(|program| program.with_file_name("actor"));
    let Some(actor) = actor.ok().filter(|a| a.exists()).and_then(|a| Some(a.to_str()?.to_owned()))
    else {
        eprintln!("attack: the program `actor` is not beside this one");
        return ExitCode::from(2);
    };
    let time = arguments.secs.map(Duration::from_secs);
    let outcome = (row.attack)(&mut Context::new(&actor, arguments.seed, time));
    let (word, seen) = (outcome.verdict.word(), line(&outcome.seen));
    println!("outcome\t{word}\t{}\t{seen}", outcome.attempts);
    // Threads whose calls never end do not keep the process.
    if std::io::stdout().flush().is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
