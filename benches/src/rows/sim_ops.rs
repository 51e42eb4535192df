//! put + progress + wait over the simulated NIC: what our own logic costs without any machine.

use hmc_core::queue::{Transfer, WorkQueue};
use hmc_core::slots::Slot;
use hmc_core::time::Instant;
use hmc_core::work::{CompleteWhen, Opcode};
use hmc_sim::nic::{Bytes, SimNic};

use crate::context::Context;
use crate::error::{Res, text};
use crate::line::Line;
use crate::measure::{alone, timed};
use crate::row::Row;
use crate::{allocations, instructions, series};

/// Operations in one sample: short, so that most samples are not interrupted by other work.
const OPS: u32 = 2_000;
/// What an instruction count may differ from the stored one.
const WITHIN: f64 = 0.02;

/// A work queue over an instant NIC.
pub(crate) struct Rig {
    queue: WorkQueue<SimNic, [Slot; 64]>,
    transfer: Transfer,
    _far: SimNic,
}

impl Rig {
    pub(crate) fn new(bytes: Bytes) -> Res<Self> {
        let pair = SimNic::pair_fast(4096, 4096, bytes).ok_or("no simulated NIC")?;
        Ok(Self {
            queue: WorkQueue::new(pair.near, [Slot::FREE; 64]),
            transfer: Transfer {
                opcode: Opcode::Put,
                when: CompleteWhen::Visible,
                local: pair.local.slice(64, 8).map_err(text)?,
                remote: pair.remote.slice(128, 8).map_err(text)?,
            },
            _far: pair.far,
        })
    }

    /// Puts, progresses and waits `count` times.
    pub(crate) fn rounds(&mut self, count: u32) -> Res<()> {
        for _ in 0..count {
            let op = self
                .queue
                .post(std::hint::black_box(&self.transfer), Instant::NEVER)
                .map_err(text)?;
            self.queue.progress();
            let outcome = self.queue.try_wait(op).map_err(text)?.ok_or("not done")?;
            if outcome.result != Ok(8) {
                return Err("the put failed".to_owned());
            }
            while self.queue.next_event().is_some() {}
        }
        Ok(())
    }
}

/// The row.
pub(crate) struct SimOps;

impl Row for SimOps {
    fn name(&self) -> &'static str {
        "sim-ops"
    }

    fn unit(&self) -> &'static str {
        "ns"
    }

    fn reference(&self) -> &'static str {
        "nothing; the stored count of instructions"
    }

    fn target(&self) -> &'static str {
        "<= 40 ns, instructions within 2 %, 0 allocations"
    }

    fn run(&self, context: &Context) -> Res<Vec<Line>> {
        let mut lines = Vec::new();
        let mut allocated = 0;
        for (bytes, name) in [
            (Bytes::Move, "put + progress + wait, 8 B"),
            (Bytes::Skip, "the same without the copy"),
        ] {
            let mut rig = Rig::new(bytes)?;
            let samples = alone(context.pick(201, 20_001), || {
                let before = allocations::so_far();
                let ns = timed(1, || rig.rounds(OPS))?;
                allocated += allocations::so_far() - before;
                Ok(ns / f64::from(OPS))
            })?;
            let bound = (bytes == Bytes::Move).then_some(40.0);
            lines.push(Line::alone(format!("simulated NIC: {name}"), &samples, ("ns", 1.0), bound));
        }
        lines.push(Line::value(
            "simulated NIC: allocations in all of these",
            allocated as f64,
            "",
            Some(0.0),
        ));
        if series::are_taken() {
            return Ok(lines);
        }
        let name = "simulated NIC: instructions for one";
        lines.push(match (instructions::measure(), instructions::stored()) {
            (Ok(count), Ok(stored)) => Line::stored(name, count, "", stored, WITHIN),
            (Ok(count), Err(why)) => Line::not_compared(name, count, "", WITHIN, why),
            (Err(why), _) => Line::missing(name, "", why),
        });
        Ok(lines)
    }
}
