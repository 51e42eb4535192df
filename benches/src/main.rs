//! `hmc-bench`: HMC against plain references, in one run, on this machine.
//!
//! Every row measures ours and its reference alternately, with the same sizes, alignment, pinning and
//! warmth, and gives the median of the ratios of neighbouring samples. The passive end is a process
//! of its own: this program again, started with `--passive` and driven by lines on a pipe.
//! Reading order: [`mod@line`] (a line of the report), [`measure`] (how samples are taken), [`helper`] and
//! [`peer_process`] (the other process), [`rows`] (one file for each row of the table).
#![allow(
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::indexing_slicing,
    reason = "a measuring program: floats for the report, and a mistake may end it"
)]

mod allocations;
mod context;
mod error;
mod helper;
mod in_flight;
mod instructions;
mod line;
mod machine;
mod measure;
mod ops;
mod peer_process;
mod reference;
mod report;
mod row;
mod rows;
mod self_test;
mod series;
mod turns;

use std::process::ExitCode;

use clap::Parser;

use context::Context;
use error::{Res, text};
use reference::ibv_perftest::Perftest;
use report::Report;

/// The status of a run that lacks what it needs, as automake and Meson have it.
const SKIPPED: u8 = 77;

/// The options, as `cargo xtask bench` passes them on.
#[derive(Parser)]
#[command(
    name = "hmc-bench",
    version,
    about = "Measures HMC against plain references in the same run"
)]
struct Arguments {
    /// Fewer samples and sizes: about a minute
    #[arg(long)]
    quick: bool,
    /// Only rows whose name contains this
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
    /// Write every line to FILE as one JSON object a line
    #[arg(long, value_name = "FILE")]
    json: Option<std::path::PathBuf>,
    /// The rows over UCX, with the lanes that UCX_TLS allows; ends with status 77 where there is no UCX
    #[arg(long)]
    ucx: bool,
    /// The rows over RDMA verbs beside perftest; ends with status 77 where no port can be used
    #[arg(long, conflicts_with = "ucx")]
    rdma: bool,
    /// Collectives beside those of an MPI library; ends with status 77 where mpicc or mpirun is missing
    #[arg(long, conflicts_with_all = ["ucx", "rdma"])]
    mpi: bool,
    /// With --json: add to FILE
    #[arg(long, hide = true)]
    append: bool,
    /// End with status 1 when a target was missed
    #[arg(long)]
    strict: bool,
    /// Check the measurement itself: a delay of 10 % must lower the ratio by about that
    #[arg(long)]
    self_test: bool,
    /// Store the present count of instructions as the one to compare with
    #[arg(long)]
    store_instructions: bool,
    /// List the rows
    #[arg(long)]
    list: bool,
    /// Take samples when they are asked for on the standard input
    #[arg(long, hide = true)]
    turns: bool,
    /// With --turns: the share of our time that is wasted
    #[arg(long, hide = true, default_value_t = 0.0)]
    delay: f64,
    /// Take so many samples of one series of the row that --only names
    #[arg(long, hide = true, value_name = "SERIES,SAMPLES")]
    count: Option<String>,
    #[arg(long, hide = true)]
    passive: bool,
    #[arg(long, hide = true)]
    cpu: Option<usize>,
    #[arg(long, hide = true, value_name = "COUNT")]
    ops: Option<u32>,
    #[arg(long, hide = true, value_enum, default_value = "sim")]
    over: instructions::Over,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if arguments.passive {
        return peer_process::main(arguments.cpu);
    }
    if let Some(count) = arguments.ops {
        return ops::run(arguments.over, count);
    }
    match run(&arguments) {
        Ok(code) => code,
        Err(why) => {
            eprintln!("hmc-bench: {why}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Res<ExitCode> {
    let rows = match (arguments.ucx, arguments.rdma, arguments.mpi) {
        (true, ..) => rows::over_ucx(),
        (_, true, _) => rows::over_rdma(),
        (.., true) => rows::beside_mpi(),
        _ => rows::all(),
    };
    if arguments.list {
        for row in &rows {
            println!(
                "{:<16} {:<8} against {}; to reach: {}",
                row.name(),
                row.unit(),
                row.reference(),
                row.target()
            );
        }
        return Ok(ExitCode::SUCCESS);
    }
    if arguments.turns {
        machine::raise_open_files();
        return turns::serve(&rows, &Context::new(true)?, arguments.delay);
    }
    if let Some(asked) = &arguments.count {
        let (series, samples) = asked.split_once(',').ok_or("--count SERIES,SAMPLES")?;
        let (series, samples) = (series.parse().map_err(text)?, samples.parse().map_err(text)?);
        let row = rows.iter().find(|row| arguments.only.as_deref() == Some(row.name()));
        let row = row.ok_or("--count needs --only with the whole name of a row")?;
        return turns::count(row.as_ref(), &Context::new(true)?, series, samples);
    }
    if arguments.store_instructions {
        println!("{}", instructions::store()?);
        return Ok(ExitCode::SUCCESS);
    }
    machine::raise_open_files();
    println!("{}", machine::describe());
    if arguments.ucx {
        match hmc_std::probe::ucx() {
            Ok(ucx) => println!("UCX {}, {}", ucx.version, ucx.path.display()),
            Err(why) => {
                eprintln!("hmc-bench: not run: {why}");
                return Ok(ExitCode::from(SKIPPED));
            }
        }
    }
    if arguments.rdma {
        match Perftest::of_sessions() {
            Ok(perftest) => println!("RDMA verbs, {perftest}"),
            Err(why) => {
                eprintln!("hmc-bench: not run: {why}");
                return Ok(ExitCode::from(SKIPPED));
            }
        }
    }
    if arguments.mpi {
        match rows::mpi::compiled() {
            Ok(mpi) => println!("{}", mpi.version()),
            Err(why) => {
                eprintln!("hmc-bench: not run: {why}");
                return Ok(ExitCode::from(SKIPPED));
            }
        }
    }
    let context = Context::new(arguments.quick)?;
    if arguments.self_test {
        let rows =
            if arguments.mpi { rows::self_test_beside_mpi() } else { rows::self_test_rows() };
        return self_test::run(&rows, &context).map(|()| ExitCode::SUCCESS);
    }
    let mut report = Report::new();
    let mut chosen = 0;
    for row in &rows {
        if arguments.only.as_ref().is_some_and(|only| !row.name().contains(only.as_str())) {
            continue;
        }
        chosen += 1;
        report.row(row.as_ref(), &context);
    }
    if chosen == 0 {
        let names: Vec<_> = rows.iter().map(|r| r.name()).collect();
        return Err(format!("no row of that name; there are: {}", names.join(", ")));
    }
    if let Some(path) = &arguments.json {
        report.write_json(path, arguments.append)?;
    }
    Ok(report.conclude(arguments.strict))
}
