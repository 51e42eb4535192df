//! Messages of any size (`send_data`, `recv_data`) from buffer to buffer: short ones against a flag in shared memory or a socket that
//! spins, long ones against puts of the same bytes on the same link.

use std::cell::RefCell;

use hmc_core::types::ConnType;

use crate::context::{Context, SessionPair};
use crate::error::{Res, text};
use crate::line::Line;
use crate::measure::{Delay, Pairs, interleave, timed};
use crate::reference::pages::SharedPages;
use crate::reference::socket::PingPong;
use crate::row::{Row, SPINNING, size};

const MIB: u64 = 1 << 20;
/// Bytes of a sample of long messages, at the most.
const SAMPLE_BYTES: u64 = 16 * MIB;
/// Messages of a sample, at the most.
const MOST: u64 = 500;
/// A short message.
const SHORT: u64 = 8;
const WARM_ROUNDS: u32 = 20;
const ROUNDS: u32 = 500;
/// Bytes of the shared pages of the reference.
const PAGES_BYTES: u64 = 65_536;

/// Messages before those that are timed: with the first one the receiver's process wakes and begins to receive.
const WARM: u64 = 1;

/// The row.
pub(crate) struct Messages;

impl Row for Messages {
    fn name(&self) -> &'static str {
        "messages"
    }

    fn unit(&self) -> &'static str {
        "us, GB/s"
    }

    fn reference(&self) -> &'static str {
        "short: a flag there and back, and a ping-pong of sockets that spin; long: blocking puts of the same size on the same link"
    }

    fn target(&self) -> &'static str {
        "<= 4 flags, <= 1.3 sockets, >= 0.8 (shm), 0.9 (tcp) of a put"
    }

    fn run(&self, context: &Context) -> Res<Vec<Line>> {
        let mut lines = Vec::new();
        for via in [ConnType::Shm, ConnType::Tcp] {
            let mut pair = context.pair(16 * MIB, via)?;
            match via {
                ConnType::Shm => beside_flags(context, &mut pair, &mut lines)?,
                _ => beside_sockets(context, &mut pair, &mut lines)?,
            }
            let put_share = if via == ConnType::Shm { 0.8 } else { 0.9 };
            for (len, bound) in [
                (64 << 10, None),
                (MIB, Some(put_share)),
                (4 * MIB, Some(put_share)),
                (16 * MIB, None),
            ] {
                lines.push(warm_message(context, &mut pair, (via, len), bound)?);
            }
            for len in [MIB, 4 * MIB] {
                let pairs = beside_puts(context, &mut pair, len, |pair, count| {
                    message(pair, context.delay, len, (0, count))
                })?;
                let name = format!("{} messages of {} and their start", via.name(), size(len));
                lines.push(Line::bandwidth(name, len, &pairs, None).with_interval(&pairs));
            }
            for len in [MIB, 4 * MIB] {
                let slice = vec![5u8; usize::try_from(len).map_err(text)?];
                let pairs = beside_puts(context, &mut pair, len, |pair, count| {
                    slice_message(pair, context.delay, &slice, count)
                })?;
                let name = format!("{} message of {} between slices", via.name(), size(len));
                lines.push(Line::bandwidth(name, len, &pairs, None).with_interval(&pairs));
            }
        }
        Ok(lines)
    }
}

/// Messages of `len` bytes against puts of the same bytes.
fn warm_message(
    context: &Context,
    pair: &mut SessionPair,
    (via, len): (ConnType, u64),
    bound: Option<f64>,
) -> Res<Line> {
    let pairs = beside_puts(context, pair, len, |pair, count| {
        message(pair, context.delay, len, (WARM, count))
    })?;
    let name = format!("{} message of {}", via.name(), size(len));
    Ok(Line::bandwidth(name, len, &pairs, bound).with_interval(&pairs))
}

/// Nanoseconds of one of `count` messages to a receiver that waits for it: a round trip, its bytes there and their end back. `warm`
/// messages come before them; without any the time in which the receiver's process wakes and begins to receive counts.
fn message(pair: &mut SessionPair, delay: Delay, len: u64, (warm, count): (u64, u64)) -> Res<f64> {
    pair.helper.send(&format!("receive 1 0 {len} {} buffer", warm + count))?;
    let range = pair.first(len)?;
    let send = || pair.peer.send_data(range).wait().map(drop).map_err(text);
    (0..warm).try_for_each(|_| send())?;
    let ns = delay.timed(u32::try_from(count).map_err(text)?, send)?;
    pair.helper.receive()?;
    Ok(ns)
}

/// As [`message`], between slices.
fn slice_message(pair: &mut SessionPair, delay: Delay, slice: &[u8], count: u64) -> Res<f64> {
    pair.helper.send(&format!("receive 1 0 {} {} slice", slice.len(), WARM + count))?;
    let send = || pair.peer.send_data(slice).wait().map(drop).map_err(text);
    (0..WARM).try_for_each(|_| send())?;
    let ns = delay.timed(u32::try_from(count).map_err(text)?, send)?;
    pair.helper.receive()?;
    Ok(ns)
}

/// Nanoseconds of a message there and one back.
fn ping_pong(pair: &mut SessionPair) -> Res<f64> {
    pair.helper.send(&format!("pong 1 0 {SHORT} {}", WARM_ROUNDS + ROUNDS))?;
    let range = pair.first(SHORT)?;
    let round = || {
        pair.peer.send_data(range).wait().map_err(text)?;
        pair.peer.recv_data(range).wait().map(drop).map_err(text)
    };
    timed(WARM_ROUNDS, round)?;
    let ns = timed(ROUNDS, round)?;
    pair.helper.receive()?;
    Ok(ns)
}

/// Nanoseconds of a flag there and back.
fn flag(pair: &mut SessionPair, pages: &SharedPages, seq: &mut u64) -> Res<f64> {
    let (first, rounds) = (*seq, WARM_ROUNDS + ROUNDS);
    *seq += u64::from(rounds);
    pair.helper.send(&format!("flagref {SHORT} {first} {rounds}"))?;
    let mut n = first;
    let mut round = || {
        pages.store(0, n);
        pages.wait(8192, n)?;
        n += 1;
        Ok(())
    };
    timed(WARM_ROUNDS, &mut round)?;
    let ns = timed(ROUNDS, round)?;
    pair.helper.receive()?;
    Ok(ns)
}

fn beside_flags(context: &Context, pair: &mut SessionPair, lines: &mut Vec<Line>) -> Res<()> {
    context.two_cpus()?;
    let fd = pair.helper.request(&format!("share {PAGES_BYTES} warm"))?;
    let pages = SharedPages::of_process(pair.helper.pid(), fd.parse().map_err(text)?, PAGES_BYTES)?;
    let (pair, seq, count) = (RefCell::new(pair), RefCell::new(1), context.pick(7, 21));
    let flags = || flag(&mut pair.borrow_mut(), &pages, &mut seq.borrow_mut());
    let half = || Ok(message(&mut pair.borrow_mut(), context.delay, SHORT, (WARM, MOST))? / 2.0);
    let pairs = interleave(count, half, flags)?;
    lines.push(
        Line::latency("shm message of 8 B, half a round trip", 1.0, &pairs, Some(4.0))
            .noted("reference: there and back")
            .with_interval(&pairs),
    );
    let pairs = interleave(count, || ping_pong(&mut pair.borrow_mut()), flags)?;
    lines.push(
        Line::latency("shm messages of 8 B there and back", 1.0, &pairs, None)
            .with_interval(&pairs),
    );
    Ok(())
}

fn beside_sockets(context: &Context, pair: &mut SessionPair, lines: &mut Vec<Line>) -> Res<()> {
    let bytes = usize::try_from(SHORT).map_err(text)?;
    let bare = RefCell::new(PingPong::open(&mut pair.helper, None, bytes)?);
    let (pair, count) = (RefCell::new(pair), context.pick(7, 21));
    let sockets =
        || bare.borrow_mut().sample(&mut pair.borrow_mut().helper, true, WARM_ROUNDS, ROUNDS);
    let short = || message(&mut pair.borrow_mut(), context.delay, SHORT, (WARM, MOST));
    let pairs = interleave(count, short, sockets)?;
    lines.push(
        Line::latency("tcp message of 8 B, a round trip", 1.0, &pairs, Some(1.3))
            .noted(SPINNING)
            .with_interval(&pairs),
    );
    let pairs = interleave(count, || ping_pong(&mut pair.borrow_mut()), sockets)?;
    lines.push(
        Line::latency("tcp messages of 8 B there and back", 1.0, &pairs, None)
            .with_interval(&pairs),
    );
    Ok(())
}

fn beside_puts(
    context: &Context,
    pair: &mut SessionPair,
    len: u64,
    message: impl Fn(&mut SessionPair, u64) -> Res<f64>,
) -> Res<Pairs> {
    let count = (SAMPLE_BYTES / len).min(MOST);
    let remote = pair.remote()?;
    let pair = RefCell::new(pair);
    let put = || {
        let pair = pair.borrow();
        let range = pair.first(len)?;
        let put = || remote.put(0, range).wait().map(drop);
        let puts = || (0..count).try_for_each(|_| put());
        Ok(timed(1, || puts().map_err(text))? / count as f64)
    };
    interleave(context.pick(7, 21), || message(&mut pair.borrow_mut(), count), put)
}
