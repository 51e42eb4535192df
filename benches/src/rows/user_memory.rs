//! Puts from and into memory that was registered in place (a plain vector).
//!
//! From it into a mappable window: one copy by us, against `memcpy`. Into it: the target reads our
//! memory by process_vm_readv(2), against that call alone, done by the target's process.

use std::collections::VecDeque;
use std::time::Duration;

use hmc_core::types::ConnType;
use hmc_std::{Op, Remote, Span};

use crate::context::{Context, SessionPair};
use crate::error::{Res, text};
use crate::line::Line;
use crate::measure::{interleave, timed};
use crate::reference::pages::SharedPages;
use crate::row::{Row, size};

const MIB: u64 = 1 << 20;
const SAMPLE_BYTES: u64 = 8 * MIB;
/// Puts under way at a time where bandwidth is measured, at the most, and bytes.
const DEPTH: u64 = 16;
const DEPTH_BYTES: u64 = 128 * MIB;
const LIMIT: Duration = Duration::from_secs(30);

/// The row.
pub(crate) struct UserMemory;

impl Row for UserMemory {
    fn name(&self) -> &'static str {
        "adopted"
    }

    fn unit(&self) -> &'static str {
        "GB/s"
    }

    fn reference(&self) -> &'static str {
        "memcpy from a vector to a shared mapping / process_vm_readv by the other process"
    }

    fn target(&self) -> &'static str {
        ">= 0.95 / >= 0.95"
    }

    fn run(&self, context: &Context) -> Res<Vec<Line>> {
        let mut pair = context.pair(4096, ConnType::Shm)?;
        let mut lines = Vec::new();
        for len in context.pick(vec![MIB, 16 * MIB], vec![MIB, 16 * MIB, 64 * MIB]) {
            lines.push(outwards(context, &mut pair, len)?);
            lines.extend(inwards(context, &mut pair, len)?);
        }
        Ok(lines)
    }
}

/// A warm vector as a span.
fn vector(pair: &SessionPair, len: u64) -> Res<Span> {
    let bytes = vec![7u8; usize::try_from(len).map_err(text)?];
    let region =
        pair.session.memory().register(hmc_std::memory::HeapBytes::from(bytes)).map_err(text)?;
    region.take_all().map_err(text)
}

fn window(pair: &mut SessionPair, label: u64, len: u64, kind: &str) -> Res<Remote> {
    pair.helper.request(&format!("window 1 0 {label} {len} {kind} warm"))?;
    pair.peer.window(label).within(Duration::from_secs(10)).wait().map_err(text)
}

/// Puts the span and takes it back.
fn put(span: &mut Option<Span>, window: &Remote) -> Res<()> {
    let mine = span.take().ok_or("the span is gone")?;
    *span = Some(window.put(0, mine).within(LIMIT).wait().map_err(text)?.memory);
    Ok(())
}

fn outwards(context: &Context, pair: &mut SessionPair, len: u64) -> Res<Line> {
    let n = usize::try_from(len).map_err(text)?;
    let window = window(pair, len, len, "memfd")?;
    let fd = pair.helper.request(&format!("share {len} warm"))?;
    let there = SharedPages::of_process(pair.helper.pid(), fd.parse().map_err(text)?, len)?;
    let source = vec![7u8; n];
    let mut span = Some(vector(pair, len)?);
    let times = u32::try_from((SAMPLE_BYTES / len).max(1)).map_err(text)?;
    let pairs = interleave(
        context.pick(15, 41),
        || context.delay.timed(times, || put(&mut span, &window)),
        || {
            timed(times, || {
                there.copy_in(0, &source);
                Ok(())
            })
        },
    )?;
    pair.helper.request("unwindow")?;
    Ok(Line::bandwidth(
        format!("shm put {} from adopted memory", size(len)),
        len,
        &pairs,
        Some(0.95),
    ))
}

/// Into adopted memory: with several operations under way, as for any bandwidth, and one by one.
fn inwards(context: &Context, pair: &mut SessionPair, len: u64) -> Res<Vec<Line>> {
    let window = window(pair, len + 1, len, "heap")?;
    let depth = (DEPTH_BYTES / len).clamp(2, DEPTH);
    let spans = (0..depth).map(|_| vector(pair, len)).collect::<Res<Vec<_>>>()?;
    // The reference reads the same sources, into the same window: where pages lie moves the speed of a copy.
    let address = |s: &Span| s.as_slice().as_ptr().expose_provenance().to_string();
    let sources: Vec<_> = spans.iter().map(address).collect();
    let pid = std::process::id();
    let begin = |span: Span| window.put(0, span).within(LIMIT).start_blocking().map_err(text);
    let end = |op: Op<Span>| op.wait().map(|done| done.memory).map_err(text);
    let count = context.pick(15, 41);
    let mut bare = |sources: &[String], times: u32| {
        let told =
            pair.helper.request(&format!("cma {pid} {len} {times} {}", sources.join(" ")))?;
        told.parse().map_err(text)
    };
    let mut idle: VecDeque<Span> = spans.into();
    // Long enough that the first and the last, which run alone, do not show.
    let times = u32::try_from((32 * SAMPLE_BYTES / len).max(4 * depth)).map_err(text)?;
    let several = interleave(
        count,
        || {
            let ns = context.delay.timed(1, || {
                let mut in_flight = VecDeque::new();
                for _ in 0..times {
                    let span = match idle.pop_front() {
                        Some(span) => span,
                        None => end(in_flight.pop_front().ok_or("no put is under way")?)?,
                    };
                    in_flight.push_back(begin(span)?);
                }
                for op in in_flight {
                    idle.push_back(end(op)?);
                }
                Ok(())
            })?;
            Ok(ns / f64::from(times))
        },
        || bare(&sources, times),
    )?;
    let mut one = idle.pop_front();
    let times = u32::try_from(SAMPLE_BYTES / len).map_err(text)?.max(1);
    let single = interleave(
        count,
        || context.delay.timed(times, || put(&mut one, &window)),
        || bare(&sources[..1], times),
    )?;
    pair.helper.request("unwindow")?;
    let name = format!("shm put {} into adopted memory (CMA)", size(len));
    Ok(vec![
        Line::bandwidth(format!("{name}, {depth} under way"), len, &several, Some(0.95)),
        Line::bandwidth(format!("{name}, one by one"), len, &single, None)
            .noted("with a round trip that the bare call has not"),
    ])
}
