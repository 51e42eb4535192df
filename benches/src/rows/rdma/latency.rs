//! A put of 8 bytes: until the target sees it, and until the initiator knows that the target can see it.

use std::cell::{Cell, RefCell};

use super::{Rig, pairs, with_interval};
use crate::context::Context;
use crate::error::{Res, text};
use crate::in_flight::InFlight;
use crate::line::Line;
use crate::reference::ibv_perftest::Test;
use crate::reference::pages::spin;
use crate::row::Row;

const LEN: u64 = 8;
const WARM_ROUNDS: u64 = 10;
/// Puts of an end that nobody has waited for: the oldest is waited for when there are more, and a flush covers all.
const DEPTH: usize = 64;
/// Rounds of a sample, and messages of a run of perftest.
const ROUNDS: u32 = 300;

/// The row.
pub(crate) struct RdmaLatency;

impl Row for RdmaLatency {
    fn name(&self) -> &'static str {
        "rdma-latency"
    }

    fn unit(&self) -> &'static str {
        "us"
    }

    fn reference(&self) -> &'static str {
        "ib_write_lat; ib_write_lat and ib_read_lat, added up"
    }

    fn target(&self) -> &'static str {
        "<= 1.1"
    }

    fn run(&self, context: &Context) -> Res<Vec<Line>> {
        context.two_cpus()?;
        let rig = RefCell::new(Rig::new(context, 1 << 20)?);
        let perftest = rig.borrow().perftest.clone();
        let lat = |program| {
            perftest.run(context, Test { program, len: LEN, messages: ROUNDS, depth: None })
        };
        let seq = Cell::new(1);
        let ours = || Ok(seen(context, &mut rig.borrow_mut(), &seq)? / 2.0);
        let until_seen = pairs(context, ours, || lat("ib_write_lat"))?;
        let ours = || {
            let pair = &rig.borrow().pair;
            let (remote, range) = (pair.remote()?, pair.first(LEN)?);
            context.delay.timed(ROUNDS, || remote.put(0, range).wait().map(drop).map_err(text))
        };
        let waited = pairs(context, ours, || Ok(lat("ib_write_lat")? + lat("ib_read_lat")?))?;
        let first = Line::latency("rdma put 8 B until seen", 1.0, &until_seen, Some(1.1));
        let second = Line::latency("rdma put 8 B, waited for", 1.0, &waited, Some(1.1));
        Ok(vec![
            with_interval(first, &until_seen, "ib_write_lat"),
            with_interval(second, &waited, "ib_write_lat + ib_read_lat"),
        ])
    }
}

/// A round trip of a ping-pong: neither end waits for its put before it looks for the answer. `ib_write_lat` does not flush at all.
fn seen(context: &Context, rig: &mut Rig, seq: &Cell<u64>) -> Res<f64> {
    let first = seq.get();
    let rounds = WARM_ROUNDS + u64::from(ROUNDS);
    seq.set(first + rounds);
    rig.pair.helper.send(&format!("flags 1 0 {LEN} {first} {rounds} {DEPTH}"))?;
    let buffer = rig.pair.session.buffer();
    let (remote, range) = (rig.pair.remote()?, buffer.range(0, LEN).map_err(text)?);
    let mut n = first;
    let mut puts = InFlight::new(DEPTH);
    let mut round = || {
        buffer.store_flag(0, n).map_err(text)?;
        puts.begin(|| remote.put(0, range).start_blocking())?;
        spin(|| buffer.load_flag(8192).is_ok_and(|v| v == n))?;
        n += 1;
        Ok(())
    };
    for _ in 0..WARM_ROUNDS {
        round()?;
    }
    let ns = context.delay.timed(ROUNDS, round)?;
    puts.finish()?;
    rig.pair.helper.receive()?;
    Ok(ns)
}
