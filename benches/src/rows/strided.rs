//! Strided lists: how long and how much memory it takes to prepare one, and how fast it is put, over shared memory against the same
//! `memcpy`s, over TCP against a put of as many adjacent bytes.

use std::cell::RefCell;

use hmc_core::types::ConnType;
use hmc_std::{Op, Piece};

use crate::allocations;
use crate::context::{Context, SessionPair};
use crate::error::{Res, text};
use crate::line::Line;
use crate::measure::{alone, interleave, timed};
use crate::reference::pages::SharedPages;
use crate::row::Row;

const BLOCK_BYTES: u64 = 4096;
/// Every other block of the buffer.
const STRIDE_BYTES: u64 = 2 * BLOCK_BYTES;
const BLOCKS_A_RUN: u32 = 14_000;
const RUNS: usize = 8;
const BUFFER_BYTES: u64 = BLOCKS_A_RUN as u64 * STRIDE_BYTES;
const BYTES: u64 = RUNS as u64 * BLOCKS_A_RUN as u64 * BLOCK_BYTES;

/// The row.
pub(crate) struct Strided;

/// Which of two neighbouring blocks a run begins with, here and there.
fn phases() -> [(u64, u64); RUNS] {
    std::array::from_fn(|n| {
        let n = n as u64;
        ((n & 1) * BLOCK_BYTES, (n >> 1 & 1) * BLOCK_BYTES)
    })
}

/// 112,000 blocks in eight runs.
fn runs(pair: &SessionPair) -> Res<Vec<Piece<'_>>> {
    let run = |(here, there)| {
        let first = pair.session.buffer().range(here, BLOCK_BYTES).map_err(text)?;
        Ok(Piece::new(first, there).repeat(BLOCKS_A_RUN, STRIDE_BYTES, STRIDE_BYTES))
    };
    phases().into_iter().map(run).collect()
}

impl Row for Strided {
    fn name(&self) -> &'static str {
        "strided-lists"
    }

    fn unit(&self) -> &'static str {
        "ms, KiB, GB/s"
    }

    fn reference(&self) -> &'static str {
        "nothing; the same 112,000 memcpys between two mappings; puts of as many adjacent bytes"
    }

    fn target(&self) -> &'static str {
        "<= 1 ms, <= 4 KiB, >= 0.9"
    }

    fn run(&self, context: &Context) -> Res<Vec<Line>> {
        let mut lines = shm(context)?;
        lines.extend(tcp(context)?);
        Ok(lines)
    }
}

/// Preparing, and a put over shared memory.
fn shm(context: &Context) -> Res<Vec<Line>> {
    let mut pair = context.pair(BUFFER_BYTES, ConnType::Shm)?;
    let fd = pair.helper.request(&format!("share {BUFFER_BYTES} warm"))?;
    let fd = fd.parse().map_err(text)?;
    let there = SharedPages::of_process(pair.helper.pid(), fd, BUFFER_BYTES)?;
    let here = SharedPages::create(BUFFER_BYTES)?;
    here.warm()?;
    let (remote, buffer) = (pair.remote()?, pair.session.buffer());
    let many = |n: u64| {
        let first = buffer.range(n * 8, 8).map_err(text)?;
        Ok(Piece::new(first, n * 16).repeat(65_000, 24, 32))
    };
    let many: Vec<Piece<'_>> = (0..100).map(many).collect::<Res<_>>()?;
    let mut most = 0;
    let prepares = alone(context.pick(41, 161), || {
        context.delay.timed(1, || {
            let before = allocations::bytes_so_far();
            let plan = remote.put_list(&many).prepare().map_err(text)?;
            most = most.max(allocations::bytes_so_far() - before);
            drop(plan);
            Ok(())
        })
    })?;
    let phases = phases().map(|(from, to)| (from as usize, to as usize));
    let reference = || {
        timed(1, || {
            for (from, to) in phases {
                for n in 0..BLOCKS_A_RUN as usize {
                    let at = n * STRIDE_BYTES as usize;
                    there.copy_from(to + at, &here, from + at, BLOCK_BYTES as usize);
                }
            }
            Ok(())
        })
    };
    let plan = remote.put_list(&runs(&pair)?).prepare().map_err(text)?;
    let put = || plan.again().wait().map(drop).map_err(text);
    let puts = interleave(context.pick(21, 41), || context.delay.timed(1, put), reference)?;
    Ok(vec![
        Line::alone("prepare 6.5 M blocks as 100 strided runs", &prepares, ("ms", 1e6), Some(1.0)),
        Line::value("memory of the same", most as f64 / 1024.0, "KiB", Some(4.0)),
        Line::bandwidth("put 112,000 x 4 KiB over shm", BYTES, &puts, Some(0.9))
            .with_interval(&puts),
    ])
}

/// Puts over TCP.
fn tcp(context: &Context) -> Res<Vec<Line>> {
    let pair = context.pair(BUFFER_BYTES, ConnType::Tcp)?;
    let remote = pair.remote()?;
    let plan = remote.put_list(&runs(&pair)?).prepare().map_err(text)?;
    let gets = remote.get_list(&runs(&pair)?).prepare().map_err(text)?;
    let adjacent = pair.first(BYTES / RUNS as u64)?;
    let started = RefCell::new(Vec::with_capacity(RUNS));
    let all = |start: &dyn Fn() -> Res<Op>| {
        timed(1, || {
            let mut started = started.borrow_mut();
            for _ in 0..RUNS {
                started.push(start()?);
            }
            started.drain(..).try_for_each(|op: Op| op.wait().map(drop).map_err(text))
        })
    };
    let count = context.pick(21, 41);
    let puts = interleave(
        count,
        || context.delay.timed(1, || plan.again().wait().map(drop).map_err(text)),
        || all(&|| remote.put(0, adjacent).start().map_err(text)),
    )?;
    let got = interleave(
        count,
        || context.delay.timed(1, || gets.again().wait().map(drop).map_err(text)),
        || all(&|| remote.get(0, adjacent).start().map_err(text)),
    )?;
    Ok(vec![
        Line::bandwidth("put 112,000 x 4 KiB over tcp", BYTES, &puts, Some(0.9))
            .with_interval(&puts),
        Line::bandwidth("get 112,000 x 4 KiB over tcp", BYTES, &got, Some(0.9)).with_interval(&got),
    ])
}
