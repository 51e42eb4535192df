//! Puts from and into memory that was registered in place (a plain vector).
//!
//! From it into a mappable window: one copy by us, against `memcpy`. Into it: the target reads our
//! memory by process_vm_readv(2), against that call alone, done by the target's process.

use std::time::Duration;

use hmc_core::kinds::ConnType;
use hmc_std::future::Op;
use hmc_std::memory::Span;
use hmc_std::peer::Peer;
use hmc_std::window::RemoteWindow;

use super::{Row, size};
use crate::context::{Context, Duo};
use crate::measure::{interleave, timed};
use crate::reference::pages::SharedPages;
use crate::report::Line;
use crate::{Res, text};

const MIB: u64 = 1 << 20;
const SAMPLE_BYTES: u64 = 8 * MIB;

/// The row.
pub(crate) struct Adopted;

impl Row for Adopted {
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
        let mut duo = context.duo(4096, ConnType::Shm)?;
        let mut lines = Vec::new();
        for len in context.pick(vec![MIB, 16 * MIB], vec![MIB, 16 * MIB, 64 * MIB]) {
            lines.push(outwards(context, &mut duo, len)?);
            lines.extend(inwards(context, &mut duo, len)?);
        }
        Ok(lines)
    }
}

/// A warm vector as a span.
fn vector(duo: &Duo, len: u64) -> Res<Span> {
    let bytes = vec![7u8; usize::try_from(len).map_err(text)?];
    let region = duo.session.register_vec(bytes).map_err(text)?;
    region.take_all().map_err(text)
}

fn window(duo: &mut Duo, label: u64, len: u64, kind: &str) -> Res<RemoteWindow> {
    duo.helper.ask(&format!("window 1 0 {label} {len} {kind} warm"))?;
    duo.peer.remote_window(label, Duration::from_secs(10)).map_err(text)
}

/// Puts the span and takes it back.
fn put(peer: &Peer, span: &mut Option<Span>, window: &RemoteWindow) -> Res<()> {
    let mine = span.take().ok_or("the span is gone")?;
    let op = peer.put_span(mine, window, 0).map_err(text)?;
    let (_, back) = op.wait(Duration::from_secs(30)).map_err(text)?;
    *span = Some(back);
    Ok(())
}

fn outwards(context: &Context, duo: &mut Duo, len: u64) -> Res<Line> {
    let n = usize::try_from(len).map_err(text)?;
    let window = window(duo, len, len, "memfd")?;
    let fd = duo.helper.ask(&format!("share {len} warm"))?;
    let there = SharedPages::of_process(duo.helper.pid(), fd.parse().map_err(text)?, len)?;
    let source = vec![7u8; n];
    let mut span = Some(vector(duo, len)?);
    let times = u32::try_from((SAMPLE_BYTES / len).max(1)).map_err(text)?;
    let pairs = interleave(
        context.pick(15, 41),
        || context.delay.timed(times, || put(&duo.peer, &mut span, &window)),
        || {
            timed(times, || {
                there.copy_in(0, &source);
                Ok(())
            })
        },
    )?;
    duo.helper.ask("unwindow")?;
    Ok(Line::bandwidth(
        format!("shm put {} from adopted memory", size(len)),
        len,
        &pairs,
        Some(0.95),
    ))
}

/// Into adopted memory: with two operations under way, as for any bandwidth, and one by one.
fn inwards(context: &Context, duo: &mut Duo, len: u64) -> Res<Vec<Line>> {
    let window = window(duo, len + 1, len, "heap")?;
    let spans = [vector(duo, len)?, vector(duo, len)?];
    // The reference reads the same sources, into the same window: where pages lie moves the speed of a copy.
    let [first, second] = spans.each_ref().map(|s| s.as_slice().as_ptr().expose_provenance());
    let [mut one, mut two] = spans.map(Some);
    let times = u32::try_from((SAMPLE_BYTES / len).max(2)).map_err(text)?;
    let pid = std::process::id();
    let peer = duo.peer.clone();
    let begin = |span: &mut Option<Span>| {
        let mine = span.take().ok_or("the span is gone")?;
        peer.put_span(mine, &window, 0).map_err(text)
    };
    let end = |op: Op, span: &mut Option<Span>| {
        let (_, back) = op.wait(Duration::from_secs(30)).map_err(text)?;
        *span = Some(back);
        Res::Ok(())
    };
    let count = context.pick(15, 41);
    let mut bare = |other: usize| {
        let told = duo.helper.ask(&format!("cma {pid} {first} {other} {len} {times}"))?;
        told.parse().map_err(text)
    };
    let paired = interleave(
        count,
        || {
            let ns = context.delay.timed(1, || {
                let mut flying = begin(&mut one)?;
                for _ in 1..times {
                    let next = begin(&mut two)?;
                    end(flying, &mut one)?;
                    std::mem::swap(&mut one, &mut two);
                    flying = next;
                }
                end(flying, &mut one)
            })?;
            Ok(ns / f64::from(times))
        },
        || bare(second),
    )?;
    let single = interleave(
        count,
        || context.delay.timed(times, || put(&peer, &mut one, &window)),
        || bare(first),
    )?;
    duo.helper.ask("unwindow")?;
    let name = format!("shm put {} into adopted memory (CMA)", size(len));
    Ok(vec![
        Line::bandwidth(format!("{name}, two under way"), len, &paired, Some(0.95)),
        Line::bandwidth(format!("{name}, one by one"), len, &single, None)
            .noted("with a round trip that the bare call has not"),
    ])
}
