//! Messages of any size (`send_data`, `recv_data`) from buffer to buffer, against puts of the same bytes on the same link.

use std::cell::RefCell;

use hmc_core::types::ConnType;

use crate::context::Context;
use crate::error::{Res, text};
use crate::line::Line;
use crate::measure::{interleave, timed};
use crate::row::{Row, size};

const MIB: u64 = 1 << 20;
/// Bytes of a sample, at the most.
const SAMPLE_BYTES: u64 = 64 * MIB;
/// Messages of a sample, at the most.
const MOST: u64 = 500;

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
        "blocking puts of the same size on the same link; a message waits for its receiver and is matched with it"
    }

    fn target(&self) -> &'static str {
        "-"
    }

    fn run(&self, context: &Context) -> Res<Vec<Line>> {
        let mut lines = Vec::new();
        for via in [ConnType::Shm, ConnType::Tcp] {
            let mut pair = context.pair(16 * MIB, via)?;
            let (peer, remote) = (pair.peer.clone(), pair.remote()?);
            let buffer = pair.session.buffer();
            for len in [8, 64 << 10, MIB, 16 * MIB] {
                let count = (SAMPLE_BYTES / len).min(MOST);
                let range = buffer.range(0, len).map_err(text)?;
                let helper = RefCell::new(&mut pair.helper);
                let pairs = interleave(
                    context.pick(3, 7),
                    || {
                        helper.borrow_mut().send(&format!("receive 1 0 {len} {count}"))?;
                        let ns = timed(1, || {
                            let send = || peer.send_data(range).wait().map(drop);
                            (0..count).try_for_each(|_| send()).map_err(text)
                        })?;
                        helper.borrow_mut().receive()?;
                        Ok(ns / count as f64)
                    },
                    || {
                        let put = || remote.put(0, range).wait().map(drop);
                        let puts = || (0..count).try_for_each(|_| put());
                        Ok(timed(1, || puts().map_err(text))? / count as f64)
                    },
                )?;
                let name = format!("{} message of {}", via.name(), size(len));
                lines.push(if len < MIB {
                    Line::latency(name, 1.0, &pairs, None)
                } else {
                    Line::bandwidth(name, len, &pairs, None)
                });
            }
        }
        Ok(lines)
    }
}
