//! A put to one peer while a thousand others are connected and idle, and what those cost the hub.
//!
//! The thousand are real links with heartbeats: sessions in eight other processes. Two hubs live in
//! this process: one with one peer only, one with that peer's process and the thousand. Puts through
//! the two alternate; a third figure compares with the time before the thousand came.

use std::cell::RefCell;
use std::path::Path;
use std::time::{Duration, Instant};

use hmc_core::types::ConnType;
use hmc_std::address::Address;
use hmc_std::peer::Peer;
use hmc_std::session::Session;

use crate::context::{Context, Folder};
use crate::error::{Res, text};
use crate::helper::Helper;
use crate::line::Line;
use crate::machine;
use crate::measure::{interleave, median, timed};
use crate::row::Row;

const PROCESSES: u32 = 8;
const EACH: u32 = 125;
const PEERS: u32 = PROCESSES * EACH;
/// Ranks of the idle ones begin here.
const FIRST_IDLE: u32 = 1_000;
const IDLE_TIME: Duration = Duration::from_secs(5);
const BUFFER_BYTES: u64 = 1 << 20;

/// The row.
pub(crate) struct IdlePeers;

/// A hub and its active peer.
struct Hub {
    session: Session,
    shm: Peer,
    tcp: Peer,
}

fn start_hub(rank: u32, folder: &Path, helper: &mut Helper, peers: (u32, u32)) -> Res<Hub> {
    let session = Session::builder(rank).uds(folder).buffer(BUFFER_BYTES).start().map_err(text)?;
    session.buffer().fill(0, BUFFER_BYTES, 7).map_err(text)?;
    let connect = |peer: u32, via: ConnType, address: &Address| {
        session
            .connect(address)
            .rank(peer)
            .over(via)
            .within(Duration::from_secs(10))
            .wait()
            .map_err(text)
    };
    let mut began =
        |peer: u32| helper.request(&format!("session {peer} {} {BUFFER_BYTES}", folder.display()));
    began(peers.0)?;
    let shm = connect(peers.0, ConnType::Shm, &Address::Uds(folder.to_path_buf()))?;
    let told = began(peers.1)?;
    let tcp = connect(peers.1, ConnType::Tcp, &told.parse().map_err(text)?)?;
    Ok(Hub { session, shm, tcp })
}

fn shm_put(hub: &Hub) -> Res<f64> {
    put(hub, &hub.shm, 2_000, 8)
}

fn tcp_put(hub: &Hub) -> Res<f64> {
    put(hub, &hub.tcp, 200, 64)
}

fn put(hub: &Hub, peer: &Peer, times: u32, len: u64) -> Res<f64> {
    let remote = peer.buffer().map_err(text)?;
    let range = hub.session.buffer().range(0, len).map_err(text)?;
    timed(times, || remote.put(0, range).wait().map(drop).map_err(text))
}

impl Row for IdlePeers {
    fn name(&self) -> &'static str {
        "idle-peers"
    }

    fn unit(&self) -> &'static str {
        "us"
    }

    fn reference(&self) -> &'static str {
        "the same put of a session with that one peer only"
    }

    fn target(&self) -> &'static str {
        "<= 1.2; <= 64 KiB resident for each idle peer; < 1 % of a core"
    }

    fn run(&self, context: &Context) -> Res<Vec<Line>> {
        let count = context.pick(21, 61);
        let folder = Folder::new(&std::env::temp_dir())?;
        let mut helper = context.helper()?;
        let alone = start_hub(0, folder.path(), &mut helper, (10, 11))?;
        let crowded = start_hub(1, folder.path(), &mut helper, (20, 21))?;
        let sampled = |put: fn(&Hub) -> Res<f64>, hub: &Hub| -> Res<f64> {
            put(hub)?;
            let all: Vec<f64> = (0..count).map(|_| put(hub)).collect::<Res<_>>()?;
            Ok(median(&all))
        };
        let before = (sampled(shm_put, &crowded)?, sampled(tcp_put, &crowded)?);
        let bytes_before = machine::resident_bytes()?;
        let begun = Instant::now();
        let mut crowd = gather(&crowded, folder.path())?;
        let gathered = begun.elapsed();
        let bytes_after = machine::resident_bytes()?;
        // Idle: nobody here calls anything; the helper says nothing meanwhile.
        let cpu = machine::cpu_ns();
        let begun = Instant::now();
        helper.stay_quiet(IDLE_TIME)?;
        let share = (machine::cpu_ns() - cpu) / begun.elapsed().as_nanos() as f64 * 100.0;
        let shm = interleave(count, || shm_put(&crowded), || shm_put(&alone))?;
        let tcp = interleave(count, || tcp_put(&crowded), || tcp_put(&alone))?;
        let during = (sampled(shm_put, &crowded)?, sampled(tcp_put, &crowded)?);
        let still = crowded.session.peers().len();
        if still < (PEERS + 2) as usize {
            return Err(format!("only {still} of {} peers are still connected", PEERS + 2));
        }
        crowd.get_mut().clear();
        let after = (sampled(shm_put, &alone)?, sampled(tcp_put, &alone)?);
        let each = bytes_after.saturating_sub(bytes_before) as f64 / f64::from(PEERS) / 1024.0;
        let than = |name: &str, with: f64, without: [f64; 2]| {
            Line::ratio(name, with / 1e3, median(&without) / 1e3, "us", None)
                .noted("before and after, not interleaved: the idle ones load this machine too")
        };
        Ok(vec![
            Line::latency("shm put 8 B with 1,000 idle peers", 1.0, &shm, Some(1.2)),
            Line::latency("tcp put 64 B with 1,000 idle peers", 1.0, &tcp, Some(1.2)),
            than("shm put 8 B, against a quiet machine", during.0, [before.0, after.0]),
            than("tcp put 64 B, against a quiet machine", during.1, [before.1, after.1]),
            Line::value("resident memory for each idle peer", each, "KiB", Some(64.0)),
            Line::value("processor time of the hub, idle", share, "% core", Some(1.0))
                .noted(format!("heartbeats of {PEERS} peers, over {} s", IDLE_TIME.as_secs())),
            Line::value("a thousand peers connect in", gathered.as_secs_f64(), "s", None),
        ])
    }
}

/// Starts the idle ones and waits until all are connected.
fn gather(hub: &Hub, folder: &Path) -> Res<RefCell<Vec<Helper>>> {
    let mut crowd = Vec::new();
    for _ in 0..PROCESSES {
        crowd.push(Context::loose_helper()?);
    }
    for (helper, i) in crowd.iter_mut().zip(0u32..) {
        let first = FIRST_IDLE + i * EACH;
        helper.send(&format!(
            "idle {first} {EACH} {} {}",
            folder.display(),
            hub.session.rank().0
        ))?;
    }
    for helper in &mut crowd {
        helper.receive()?;
    }
    let there = hub.session.peers().len();
    if there < PEERS as usize {
        return Err(format!("{there} peers are connected, not {PEERS}"));
    }
    Ok(RefCell::new(crowd))
}
