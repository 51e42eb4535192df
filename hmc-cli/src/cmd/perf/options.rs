//! The options of `hmc perf`.

use std::path::PathBuf;

use clap::ValueEnum;

use crate::connect::PeerArgs;
use crate::units;

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
    pub(super) sizes: Vec<u64>,
    /// Operations to measure
    #[arg(long, value_enum, default_value_t = Op::Both)]
    pub(super) op: Op,
    /// Operations under way when bandwidth is measured, 1 to 1024
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(super) depth: u16,
    /// Operations for each size [default: as many as fit in about a quarter of a second]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) iters: Option<u32>,
    #[command(flatten)]
    pub(super) reach: PeerArgs,
    /// Be the passive side until interrupted: a peer's buffer, nothing else
    #[arg(long, conflicts_with_all = ["to", "plot", "csv"])]
    pub(super) serve: bool,
    /// With --serve: listen on this TCP address, IP:PORT
    #[arg(long, value_name = "ADDR", requires = "serve")]
    pub(super) listen: Option<String>,
    /// With --serve: bytes of the buffer
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = units::size)]
    pub(super) buffer: u64,
    /// With --serve: end when stdin ends
    #[arg(long, requires = "serve", hide = true)]
    pub(super) with_stdin: bool,
    /// Print one JSON document
    #[arg(long, conflicts_with = "csv")]
    pub(super) json: bool,
    /// Print comma-separated values
    #[arg(long)]
    pub(super) csv: bool,
    /// Write a chart of bandwidth and latency by size to this file, as SVG (its name ends in .svg)
    #[arg(long, value_name = "FILE")]
    pub(super) plot: Option<PathBuf>,
}
