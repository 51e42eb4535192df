//! `hmc perf`: latency and bandwidth between two processes, by size.
//!
//! The passive side is this program again (`--serve`), started here or by hand elsewhere.

mod chart;
mod measure;
mod options;
mod peer_process;
mod row;

pub(crate) use options::Options;

use serde::Serialize;

use crate::connect::{self, Route};
use crate::failure::{Failure, Result};
use crate::output;
use crate::signal::Stop;
use crate::units::short;
use options::Op;
use row::Row;

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
        return peer_process::serve(options, stop);
    }
    let picture = options.plot.as_deref().map(chart::Chart::at).transpose()?;
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
        let child = peer_process::PeerProcess::start(&reach, largest)?;
        child.set_address(&mut reach);
        Some(child)
    };
    let (session, peer) = reach.connect(largest)?;
    stop.watch(&peer);
    let there = peer.buffer().map(|b| b.len())?;
    if there < largest {
        return Err(Failure::new(format!(
            "the peer's buffer has {there} bytes, the largest size is {largest}; start it with --buffer {}",
            short(largest)
        )));
    }
    let remote = peer.buffer()?;
    let mut rows = Vec::new();
    let ops: &[&'static str] = match options.op {
        Op::Put => &["put"],
        Op::Get => &["get"],
        Op::Both => &["put", "get"],
    };
    let people = !options.json && !options.csv;
    if people {
        output::text(&format!("over {}, depth {}", connect::transport(&peer), options.depth))?;
        output::text(row::HEADING)?;
    } else if options.csv {
        output::text(row::CSV_HEADING)?;
    }
    for op in ops {
        for size in &options.sizes {
            if stop.is_set() {
                return Err(Failure::interrupted());
            }
            let row = session
                .buffer()
                .range(0, *size)
                .map_err(Failure::from)
                .and_then(|range| measure::row(&remote, range, op, options.depth, options.iters))
                .map_err(|f| f.during(format_args!("{op} of {} bytes", size)))?;
            if people {
                output::text(&row.line())?;
            } else if options.csv {
                output::text(&row.csv(connect::transport(&peer)))?;
            }
            rows.push(row);
        }
    }
    if options.json {
        let route = connect::route(&peer);
        output::json(&Report { transport: route.transport, rows: &rows, route })?;
    }
    if let Some(picture) = picture {
        picture.draw(&rows, connect::transport(&peer))?;
    }
    let _ = session.shutdown().within(std::time::Duration::from_secs(1)).wait();
    Ok(())
}
