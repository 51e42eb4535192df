//! One batch of 1,024 scattered ranges of 4 KiB over shared memory, against the same `memcpy`s.

use hmc_core::types::ConnType;
use hmc_std::{Op, Piece};

use crate::context::Context;
use crate::error::{Res, text};
use crate::line::Line;
use crate::measure::{interleave, timed};
use crate::reference::pages::SharedPages;
use crate::row::Row;

const RANGES: u64 = 1024;
const RANGE_BYTES: u64 = 4096;
const BUFFER_BYTES: u64 = 64 << 20;
const TIMES: u32 = 1;

/// The row.
pub(crate) struct Batches;

/// Scattered places: a full period of a linear congruence, so that none comes twice.
fn places(seed: u64) -> Vec<u64> {
    let slots = BUFFER_BYTES / RANGE_BYTES;
    let mut x = seed;
    (0..RANGES)
        .map(|_| {
            // Odd increment and a multiplier of 1 modulo 4: full period modulo a power of two.
            x = (x * 5 + 2_741) % slots;
            x * RANGE_BYTES
        })
        .collect()
}

impl Row for Batches {
    fn name(&self) -> &'static str {
        "batch"
    }

    fn unit(&self) -> &'static str {
        "GB/s"
    }

    fn reference(&self) -> &'static str {
        "the same 1,024 memcpys between two mappings"
    }

    fn target(&self) -> &'static str {
        ">= 0.7"
    }

    fn run(&self, context: &Context) -> Res<Vec<Line>> {
        let mut pair = context.pair(BUFFER_BYTES, ConnType::Shm)?;
        let fd = pair.helper.request(&format!("share {BUFFER_BYTES} warm"))?;
        let there =
            SharedPages::of_process(pair.helper.pid(), fd.parse().map_err(text)?, BUFFER_BYTES)?;
        let here = SharedPages::create(BUFFER_BYTES)?;
        here.warm()?;
        let places: Vec<(u64, u64)> = places(1).into_iter().zip(places(77)).collect();
        let number = |at: u64| usize::try_from(at).map_err(text);
        let offsets = places.iter().map(|(from, to)| Ok((number(*from)?, number(*to)?)));
        let offsets: Vec<(usize, usize)> = offsets.collect::<Res<_>>()?;
        let reference = || {
            timed(TIMES, || {
                for (from, to) in &offsets {
                    there.copy_from(*to, &here, *from, RANGE_BYTES as usize);
                }
                Ok(())
            })
        };
        let (remote, buffer) = (pair.remote()?, pair.session.buffer());
        let piece = |(from, to): &(u64, u64)| {
            Ok(Piece::new(buffer.range(*from, RANGE_BYTES).map_err(text)?, *to))
        };
        let pieces: Vec<Piece<'_>> = places.iter().map(piece).collect::<Res<_>>()?;
        let count = context.pick(41, 161);
        let plain = interleave(
            count,
            || {
                context.delay.timed(TIMES, || {
                    let done = remote.put_list(&pieces).start().and_then(Op::wait);
                    done.map(drop).map_err(text)
                })
            },
            reference,
        )?;
        let prepared = remote.put_list(&pieces).prepare().map_err(text)?;
        let again = interleave(
            count,
            || {
                context.delay.timed(TIMES, || {
                    let done = prepared.again().start().and_then(Op::wait);
                    done.map(drop).map_err(text)
                })
            },
            reference,
        )?;
        let bytes = RANGES * RANGE_BYTES;
        Ok(vec![
            Line::bandwidth("shm put_batch of 1,024 x 4 KiB scattered", bytes, &plain, Some(0.7)),
            Line::bandwidth("the same, prepared before", bytes, &again, Some(0.7)),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::{BUFFER_BYTES, RANGE_BYTES, places};
    use std::collections::HashSet;

    #[test]
    fn no_place_comes_twice_and_all_fit() {
        for seed in [1, 77] {
            let all = places(seed);
            assert!(all.iter().all(|p| p + RANGE_BYTES <= BUFFER_BYTES));
            assert_eq!(all.iter().collect::<HashSet<_>>().len(), all.len());
        }
    }
}
