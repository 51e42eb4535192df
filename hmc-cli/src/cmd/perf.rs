//! `hmc perf`: latency and bandwidth between two processes, by size.
//!
//! The passive side is this program again (`--serve`), started here or by hand elsewhere.

mod chart;
mod glyphs;
mod measure;
mod passive;
mod png;
mod text;

use std::path::PathBuf;

use clap::ValueEnum;
use serde::Serialize;

use crate::connect::{self, Reach, Route};
use crate::fail::{Failure, Result};
use crate::say;
use crate::signal::Stop;
use crate::units::{self, short};

/// Which operations are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Op {
    /// Puts only
    Put,
    /// Gets only
    Get,
    /// Both
    Both,
}

/// What `hmc perf` is told.
#[derive(clap::Args)]
#[command(after_help = "\
Latency is that of one blocking operation at a time, until the target can read the bytes (put) or
they are here (get), in microseconds. Bandwidth is that of --depth operations under way, in GB/s
(10^9 bytes a second). Without --to or --uds the peer is a process of this program's own.")]
pub(crate) struct Options {
    /// Sizes of one operation, in bytes (K, M, G: powers of 1024)
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = units::size,
          default_value = "8,64,512,4K,32K,256K,1M,4M,16M,64M")]
    sizes: Vec<u64>,
    /// Operations to measure
    #[arg(long, value_enum, default_value_t = Op::Both)]
    op: Op,
    /// Operations under way when bandwidth is measured, 1 to 1024
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=1024))]
    depth: u16,
    /// Operations for each size [default: as many as fit in about a quarter of a second]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    iters: Option<u32>,
    #[command(flatten)]
    reach: Reach,
    /// Be the passive side until interrupted: a peer's buffer, nothing else
    #[arg(long, conflicts_with_all = ["to", "plot", "csv"])]
    serve: bool,
    /// With --serve: listen on this TCP address, IP:PORT
    #[arg(long, value_name = "ADDR", requires = "serve")]
    listen: Option<String>,
    /// With --serve: bytes of the buffer
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = units::size)]
    buffer: u64,
    /// With --serve: end when stdin ends
    #[arg(long, requires = "serve", hide = true)]
    with_stdin: bool,
    /// Print one JSON document
    #[arg(long, conflicts_with = "csv")]
    json: bool,
    /// Print comma-separated values
    #[arg(long)]
    csv: bool,
    /// Draw bandwidth and latency by size into this file, .svg or .png
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
}

/// One size of one operation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Row {
    /// `put` or `get`.
    pub(crate) op: &'static str,
    /// Bytes of one operation.
    pub(crate) size: u64,
    /// Operations measured one at a time.
    pub(crate) latency_iters: u32,
    /// Half of the operations took no longer, in microseconds.
    pub(crate) p50_us: f64,
    /// 99 of 100 took no longer.
    pub(crate) p99_us: f64,
    /// Operations measured several at a time.
    pub(crate) bandwidth_iters: u32,
    /// How many at a time.
    pub(crate) depth: u16,
    /// 10^9 bytes a second.
    pub(crate) gb_per_s: f64,
}

/// What is printed as JSON.
#[derive(Debug, Serialize)]
struct Report<'a> {
    transport: &'static str,
    rows: &'a [Row],
    route: Route,
}

/// Measures, or serves one that does.
pub(crate) fn run(options: &Options, stop: &Stop) -> Result<()> {
    if options.serve {
        return passive::serve(options, stop);
    }
    let picture = options.plot.as_deref().map(chart::Picture::at).transpose()?;
    let largest = options.sizes.iter().copied().max().unwrap_or(0);
    if options.sizes.contains(&0) {
        return Err(Failure::new("a size of 0 bytes cannot be measured"));
    }
    let elsewhere = options.reach.to.is_some() || options.reach.uds.is_some();
    let mut reach = options.reach.clone();
    // Ended when it is dropped.
    let _child = if elsewhere {
        None
    } else {
        let child = passive::Child::start(&reach, largest)?;
        child.lead(&mut reach);
        Some(child)
    };
    let (session, peer) = reach.connect(largest)?;
    stop.watch(&peer);
    let there = peer.remote_len()?;
    if there < largest {
        return Err(Failure::new(format!(
            "the peer's buffer has {there} bytes, the largest size is {largest}; start it with --buffer {}",
            short(largest)
        )));
    }
    let mut rows = Vec::new();
    let ops: &[&'static str] = match options.op {
        Op::Put => &["put"],
        Op::Get => &["get"],
        Op::Both => &["put", "get"],
    };
    let people = !options.json && !options.csv;
    if people {
        say::text(&format!("over {}, depth {}", connect::transport(&peer), options.depth))?;
        say::text(HEADING)?;
    } else if options.csv {
        say::text("op,size,latency_iters,p50_us,p99_us,bandwidth_iters,depth,gb_per_s,transport")?;
    }
    for op in ops {
        for size in &options.sizes {
            if stop.is_set() {
                return Err(Failure::interrupted());
            }
            let row = measure::row(&peer, op, *size, options.depth, options.iters)
                .map_err(|f| f.during(format_args!("{op} of {} bytes", size)))?;
            if people {
                say::text(&line(&row))?;
            } else if options.csv {
                say::text(&csv(&row, connect::transport(&peer)))?;
            }
            rows.push(row);
        }
    }
    if options.json {
        let route = connect::route(&peer);
        say::json(&Report { transport: route.transport, rows: &rows, route })?;
    }
    if let Some(picture) = picture {
        picture.draw(&rows, connect::transport(&peer))?;
    }
    let _ = session.shutdown(std::time::Duration::from_secs(1));
    Ok(())
}

const HEADING: &str = "op       size     p50 us     p99 us       GB/s";

fn line(r: &Row) -> String {
    format!(
        "{:<4} {:>8} {:>10.2} {:>10.2} {:>10.3}",
        r.op,
        short(r.size),
        r.p50_us,
        r.p99_us,
        r.gb_per_s
    )
}

fn csv(r: &Row, transport: &str) -> String {
    format!(
        "{},{},{},{:.3},{:.3},{},{},{:.6},{transport}",
        r.op, r.size, r.latency_iters, r.p50_us, r.p99_us, r.bandwidth_iters, r.depth, r.gb_per_s
    )
}
