//! Small puts over shared memory until the target sees them, against a bare flag ping-pong.

use std::cell::RefCell;

use hmc_core::types::ConnType;

use crate::context::{Context, SessionPair};
use crate::error::{Res, text};
use crate::line::Line;
use crate::measure::{alone, interleave, timed};
use crate::reference::pages::{SharedPages, spin};
use crate::row::{Row, size};

const WARM_ROUNDS: u64 = 100;
const ROUNDS: u64 = 2_000;
/// Bytes of the shared pages of the reference; the layout is that of `passive`.
const PAGES_BYTES: u64 = 65_536;

/// The row.
pub(crate) struct ShmLatency {
    pub(crate) first_size_only: bool,
}

impl Row for ShmLatency {
    fn name(&self) -> &'static str {
        "shm-latency"
    }

    fn unit(&self) -> &'static str {
        "us"
    }

    fn reference(&self) -> &'static str {
        "bare shared-memory flag ping-pong with the same bytes, half a round trip"
    }

    fn target(&self) -> &'static str {
        "<= 1.5"
    }

    fn run(&self, context: &Context) -> Res<Vec<Line>> {
        context.two_cpus()?;
        let mut pair = context.pair(1 << 20, ConnType::Shm)?;
        let fd = pair.helper.request(&format!("share {PAGES_BYTES} warm"))?;
        let pages =
            SharedPages::of_process(pair.helper.pid(), fd.parse().map_err(text)?, PAGES_BYTES)?;
        let sizes: &[u64] = if self.first_size_only { &[8] } else { &[8, 64, 512, 4096] };
        let mut lines = Vec::new();
        let seq = RefCell::new(1u64);
        let pair = RefCell::new(&mut pair);
        for &len in sizes {
            let pairs = interleave(
                context.pick(15, 51),
                || ours(context, *pair.borrow_mut(), &mut seq.borrow_mut(), len),
                || reference(*pair.borrow_mut(), &pages, &mut seq.borrow_mut(), len),
            )?;
            lines.push(Line::latency(
                format!("shm put {} until seen", size(len)),
                2.0,
                &pairs,
                Some(1.5),
            ));
        }
        let pair = pair.into_inner();
        let (remote, range) = (pair.remote()?, pair.first(8)?);
        let put = || remote.put(0, range).wait().map(drop).map_err(text);
        let calls = alone(context.pick(101, 501), || timed(1_000, put))?;
        lines.push(
            Line::alone("shm put 8 B, the call alone", &calls, ("ns", 1.0), None)
                .noted("nobody reads what is written"),
        );
        Ok(lines)
    }
}

fn ours(context: &Context, pair: &mut SessionPair, seq: &mut u64, len: u64) -> Res<f64> {
    let first = *seq;
    *seq += WARM_ROUNDS + ROUNDS;
    pair.helper.send(&format!("flags 1 0 {len} {first} {} both", WARM_ROUNDS + ROUNDS))?;
    let buffer = pair.session.buffer();
    let seen = |at: u64, n: u64| buffer.load_flag(at).is_ok_and(|v| v == n);
    let (remote, range) = (pair.peer.buffer().map_err(text)?, buffer.range(0, len).map_err(text)?);
    let mut n = first;
    let mut round = || {
        buffer.store_flag(0, n).map_err(text)?;
        if len > 8 {
            buffer.store_flag(len - 8, n).map_err(text)?;
        }
        remote.put(0, range).wait().map_err(text)?;
        spin(|| seen(8192 + len - 8, n) && seen(8192, n))?;
        n += 1;
        Ok(())
    };
    for _ in 0..WARM_ROUNDS {
        round()?;
    }
    let ns = context.delay.timed(ROUNDS as u32, round)?;
    pair.helper.receive()?;
    Ok(ns)
}

fn reference(pair: &mut SessionPair, pages: &SharedPages, seq: &mut u64, len: u64) -> Res<f64> {
    let first = *seq;
    *seq += WARM_ROUNDS + ROUNDS;
    let len = usize::try_from(len).map_err(text)?;
    pair.helper.send(&format!("flagref {len} {first} {}", WARM_ROUNDS + ROUNDS))?;
    let mut body = vec![9u8; len - 8];
    let mut n = first;
    let mut round = || {
        // As ours does: the first word changes too, and the other end looks at it.
        if let Some(word) = body.first_chunk_mut::<8>() {
            *word = n.to_ne_bytes();
            pages.copy_in(0, &body);
        }
        pages.store(len - 8, n);
        pages.wait(8192 + len - 8, n)?;
        pages.wait(8192, n)?;
        n += 1;
        Ok(())
    };
    for _ in 0..WARM_ROUNDS {
        round()?;
    }
    let ns = timed(ROUNDS as u32, round)?;
    pair.helper.receive()?;
    Ok(ns)
}
