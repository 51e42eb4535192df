//! Puts over TCP, several in flight, against a bare socket stream between the same two processes.

use std::cell::RefCell;

use hmc_core::types::ConnType;

use crate::context::{Context, SessionPair};
use crate::error::{Res, text};
use crate::in_flight::InFlight;
use crate::line::Line;
use crate::measure::{Delay, interleave, timed};
use crate::reference::socket::{PageBytes, Stream};
use crate::row::{Row, size};

const MIB: u64 = 1 << 20;
/// Bytes on their way at a time, at the least two puts.
const IN_FLIGHT_BYTES: u64 = 16 * MIB;

/// The row.
pub(crate) struct TcpBandwidth;

impl Row for TcpBandwidth {
    fn name(&self) -> &'static str {
        "tcp-bandwidth"
    }

    fn unit(&self) -> &'static str {
        "GB/s"
    }

    fn reference(&self) -> &'static str {
        "bare socket stream between two processes, messages of the same size, one acknowledgement"
    }

    fn target(&self) -> &'static str {
        ">= 0.95"
    }

    fn run(&self, context: &Context) -> Res<Vec<Line>> {
        let sizes = context.pick(vec![MIB, 16 * MIB], vec![MIB, 4 * MIB, 16 * MIB, 64 * MIB]);
        let total = context.pick(128 * MIB, 256 * MIB);
        let most = sizes.last().copied().unwrap_or(MIB);
        let mut pair = context.pair(most, ConnType::Tcp)?;
        let address = pair.helper.request("listen tcp")?;
        let stream = RefCell::new(Stream::connect(&address)?);
        pair.helper.request("accept")?;
        let mut source = PageBytes::new(usize::try_from(most).map_err(text)?);
        let pair = RefCell::new(&mut pair);
        let mut lines = Vec::new();
        for len in sizes {
            let count = total / len;
            let bytes = source.bytes();
            let pairs = interleave(
                context.pick(5, 11),
                || Ok(ours(*pair.borrow_mut(), len, count, context.delay)? / count as f64),
                || {
                    pair.borrow_mut().helper.send(&format!("sink {len} {count}"))?;
                    let mut stream = stream.borrow_mut();
                    let message = &bytes[..usize::try_from(len).map_err(text)?];
                    let ns = timed(1, || {
                        for _ in 0..count {
                            stream.send(message)?;
                        }
                        stream.recv(&mut [0])
                    })?;
                    pair.borrow_mut().helper.receive()?;
                    Ok(ns / count as f64)
                },
            )?;
            lines.push(Line::bandwidth(
                format!("tcp put {}, pipelined", size(len)),
                len,
                &pairs,
                Some(0.95),
            ));
        }
        Ok(lines)
    }
}

/// Nanoseconds for `count` puts, as many in flight as fit the limit.
fn ours(pair: &SessionPair, len: u64, count: u64, delay: Delay) -> Res<f64> {
    let depth = usize::try_from((IN_FLIGHT_BYTES / len).max(2)).map_err(text)?;
    let (remote, range) = (pair.remote()?, pair.first(len)?);
    delay.timed(1, || {
        let mut ops = InFlight::new(depth);
        for _ in 0..count {
            ops.begin(|| remote.put(0, range).start_blocking())?;
        }
        ops.finish()
    })
}
