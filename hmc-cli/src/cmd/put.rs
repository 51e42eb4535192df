//! `hmc put`: sends files, one after the other, over one connection.

use std::path::{Path, PathBuf};

use hmc_std::{Peer, Session};
use serde::Serialize;

use crate::connect::{self, PeerArgs, Route};
use crate::failure::{Failure, Result};
use crate::output;
use crate::signal::Stop;
use crate::transfer::meter::Meter;
use crate::transfer::protocol::{self, Reply, Request, RequestKind};
use crate::transfer::sender;
use crate::transfer::source::{Source, name_of};
use crate::units;

/// What `hmc put` is told.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Files to send; each arrives under its base name
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    #[command(flatten)]
    reach: PeerArgs,
    /// Print one line of JSON for each file
    #[arg(long)]
    json: bool,
    /// Say which transport was chosen, why, and why not the others
    #[arg(long)]
    explain: bool,
}

/// One file that was moved.
#[derive(Debug, Serialize)]
pub(crate) struct Moved {
    /// `put` or `get`.
    pub(crate) op: &'static str,
    /// Base name.
    pub(crate) name: String,
    /// Bytes, holes included.
    pub(crate) bytes: u64,
    /// From the request to the last word of the other end.
    pub(crate) seconds: f64,
    /// 10^9 bytes a second.
    pub(crate) gb_per_s: f64,
    /// What moved the bytes, as told by itself.
    pub(crate) transport: &'static str,
    /// Of the whole file.
    pub(crate) crc32c: String,
    /// Rank of the other end.
    pub(crate) peer: u32,
    /// Where it was written, for `get`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) path: Option<String>,
    /// Why that transport.
    pub(crate) route: Route,
}

impl Moved {
    /// Prints it as asked.
    pub(crate) fn print(&self, json: bool, explain: bool, peer: &Peer) -> Result<()> {
        if json {
            return output::json(self);
        }
        output::text(&format!(
            "{} {}: {} bytes in {:.3} s, {:.2} GB/s over {}, crc32c {}",
            self.op,
            self.name,
            self.bytes,
            self.seconds,
            self.gb_per_s,
            self.transport,
            self.crc32c
        ))?;
        if explain {
            output::text(&peer.explain().to_string())?;
        }
        Ok(())
    }
}

/// Sends the files.
pub(crate) fn run(options: &Options, stop: &Stop) -> Result<()> {
    // What cannot be read or named is said before anything is sent.
    for file in &options.files {
        name_of(file)?;
        Source::open(file)?;
    }
    let (session, peer) = options.reach.connect(0)?;
    stop.watch(&peer);
    for file in &options.files {
        let moved = put(options, &session, &peer, file)
            .map_err(|f| f.during(format_args!("put {}", file.display())))?;
        moved.print(options.json, options.explain, &peer)?;
    }
    // The files are in place; a peer that is slow to say goodbye changes nothing.
    let _ = session
        .shutdown()
        .within(options.reach.timeout().min(std::time::Duration::from_secs(2)))
        .wait();
    Ok(())
}

fn put(options: &Options, session: &Session, peer: &Peer, file: &Path) -> Result<Moved> {
    let source = Source::open(file)?;
    let name = name_of(file)?;
    let shown = String::from_utf8_lossy(&name).into_owned();
    let meta = source.meta();
    let mut meter = Meter::new(&shown, meta.size, !options.json);
    let timeout = options.reach.timeout();
    protocol::send(
        peer,
        &Request { hmc_file: protocol::VERSION, name, kind: RequestKind::Put(meta) },
    )?;
    let ring = match protocol::receive(peer, timeout)? {
        Reply::Ready(ring) => ring,
        Reply::Refused(why) => return Err(Failure::new(format!("the receiver refused: {why}"))),
        Reply::Sending(_) => return Err(Failure::new("the receiver wants to send instead")),
    };
    let crc = sender::send(session, peer, &source, ring, &mut meter, timeout)?;
    let seconds = meter.seconds();
    Ok(Moved {
        op: "put",
        name: shown,
        bytes: meta.size,
        seconds,
        gb_per_s: units::gb_per_s(meta.size, seconds),
        transport: connect::transport(peer),
        crc32c: format!("{crc:08x}"),
        peer: peer.rank().0,
        path: None,
        route: connect::route(peer),
    })
}
