//! Bulk puts and gets over shared memory against `memcpy` between two mappings, one thread.

use std::time::Duration;

use hmc_core::types::ConnType;

use crate::context::{Context, SessionPair};
use crate::error::{Res, text};
use crate::line::Line;
use crate::measure::{Pairs, interleave, timed};
use crate::reference::pages::SharedPages;
use crate::row::{Row, size};

const MIB: u64 = 1 << 20;
/// Bytes that one sample moves at least: few, so that most samples are not interrupted by other work.
const SAMPLE_BYTES: u64 = 8 * MIB;
/// Bytes of the line about fresh memory.
const FRESH_BYTES: u64 = 64 * MIB;
const LIMIT: Duration = Duration::from_secs(30);

/// The row. The self-test uses its first line alone.
pub(crate) struct ShmBandwidth {
    pub(crate) first_size_only: bool,
}

impl Row for ShmBandwidth {
    fn name(&self) -> &'static str {
        "shm-bandwidth"
    }

    fn unit(&self) -> &'static str {
        "GB/s"
    }

    fn reference(&self) -> &'static str {
        "memcpy of the same size between two mappings, one thread"
    }

    fn target(&self) -> &'static str {
        ">= 0.95"
    }

    fn run(&self, context: &Context) -> Res<Vec<Line>> {
        let sizes = context
            .pick(vec![MIB, 16 * MIB, 64 * MIB], vec![MIB, 4 * MIB, 16 * MIB, 64 * MIB, 256 * MIB]);
        let most = sizes.last().copied().unwrap_or(MIB);
        let sizes = if self.first_size_only { vec![MIB] } else { sizes };
        let most = if self.first_size_only { MIB } else { most };
        let mut pair = context.pair(most, ConnType::Shm)?;
        let there = SharedPages::of_session(pair.helper.pid(), most)?;
        let here = SharedPages::of_session(std::process::id(), most)?;
        // Enters every page into this process's table, as the session's own mapping has them.
        there.warm()?;
        here.warm()?;
        let mut lines = Vec::new();
        for len in sizes {
            let times = u32::try_from((SAMPLE_BYTES / len).clamp(1, 64)).map_err(text)?;
            let count = context.pick(15, if len > 16 * MIB { 21 } else { 61 });
            let n = usize::try_from(len).map_err(text)?;
            let (remote, range) = (pair.remote()?, pair.first(len)?);
            let put = || remote.put(0, range).wait().map(drop).map_err(text);
            let puts = interleave(
                count,
                || context.delay.timed(times, put),
                || {
                    timed(times, || {
                        there.copy_from(0, &here, 0, n);
                        Ok(())
                    })
                },
            )?;
            lines.push(Line::bandwidth(format!("shm put {}", size(len)), len, &puts, Some(0.95)));
            if self.first_size_only {
                return Ok(lines);
            }
            let get = || remote.get(0, range).wait().map(drop).map_err(text);
            let gets = interleave(
                count,
                || context.delay.timed(times, get),
                || {
                    timed(times, || {
                        here.copy_from(0, &there, 0, n);
                        Ok(())
                    })
                },
            )?;
            lines.push(Line::bandwidth(format!("shm get {}", size(len)), len, &gets, Some(0.95)));
        }
        let pairs = fresh(&mut pair, context.pick(3, 7))?;
        lines.push(
            Line::bandwidth(
                format!("shm put {} of fresh memory to fresh memory", size(FRESH_BYTES)),
                FRESH_BYTES,
                &pairs,
                None,
            )
            .noted("first touch of both ends' pages by this process"),
        );
        Ok(lines)
    }
}

/// First touch: the source was never touched, the target never by this process.
fn fresh(pair: &mut SessionPair, count: usize) -> Res<Pairs> {
    let mut label = 100u64;
    let cell = std::cell::RefCell::new(pair);
    interleave(
        count,
        || {
            let pair = &mut *cell.borrow_mut();
            label += 1;
            pair.helper.request(&format!("window 1 0 {label} {FRESH_BYTES} memfd cold"))?;
            let window = pair.peer.window(label).within(Duration::from_secs(10)).wait();
            let window = window.map_err(text)?;
            let region = pair.session.memory().allocate(FRESH_BYTES).map_err(text)?;
            let span = region.take_all().map_err(text)?;
            let mut span = Some(span);
            let ns = timed(1, || {
                let span = span.take().ok_or("put twice")?;
                window.put(0, span).within(LIMIT).wait().map(drop).map_err(text)
            })?;
            pair.helper.request("unwindow")?;
            Ok(ns)
        },
        || {
            let pair = &mut *cell.borrow_mut();
            let fd = pair.helper.request(&format!("share {FRESH_BYTES} cold"))?;
            let fd = fd.parse().map_err(text)?;
            let there = SharedPages::of_process(pair.helper.pid(), fd, FRESH_BYTES)?;
            let here = SharedPages::create(FRESH_BYTES)?;
            let n = usize::try_from(FRESH_BYTES).map_err(text)?;
            timed(1, || {
                there.copy_from(0, &here, 0, n);
                Ok(())
            })
        },
    )
}
