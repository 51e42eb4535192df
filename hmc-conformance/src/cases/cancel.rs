//! `Withdrawn` is a fence; `Running` keeps its promise to complete.

use hmc_core::slots::SlotId;
use hmc_core::transport::CancelOutcome;
use hmc_core::types::{Access, Caps};
use hmc_core::work::{Failure, Opcode, WorkRequest};

use super::super::completion_checker::L;
use super::super::expected_memory::{ExpectedMemory, index_range};
use super::super::report::{Done, Stop};
use super::super::subject::Subject;

const LEN: u64 = 3000;
const AT_ONCE: u64 = 8;

/// Writes over both ranges of a request, as their owner may.
fn reuse<S: Subject>(l: L<'_, '_, S>, expected: &mut ExpectedMemory, work: &WorkRequest) {
    let (local, remote) = (work.local.span, work.remote.span);
    let bytes = l.rng.bytes(index_range(0, LEN).end);
    expected.local[index_range(local.offset(), LEN)].copy_from_slice(&bytes);
    l.subject.write_local(local.offset(), &bytes);
    let bytes = l.rng.bytes(index_range(0, LEN).end);
    expected.remote[index_range(remote.offset(), LEN)].copy_from_slice(&bytes);
    l.subject.write_remote(remote.offset(), &bytes);
}

/// What the destination holds is unknown: take it as it is.
fn forget<S: Subject>(l: L<'_, '_, S>, expected: &mut ExpectedMemory, work: &WorkRequest) {
    let (local, remote) = (work.local.span, work.remote.span);
    if work.opcode == Opcode::Get {
        l.subject.read_local(local.offset(), &mut expected.local[index_range(local.offset(), LEN)]);
    } else {
        l.subject
            .read_remote(remote.offset(), &mut expected.remote[index_range(remote.offset(), LEN)]);
    }
}

fn cancels<S: Subject>(l: L<'_, '_, S>, opcode: Opcode) -> Done {
    l.fresh(AT_ONCE * LEN, AT_ONCE * LEN, Access::all())?;
    if opcode == Opcode::Get {
        l.need(Caps::GET)?;
    }
    let mut expected = ExpectedMemory::paint(l);
    for round in 0..40 {
        let mut works = Vec::new();
        for n in 0..AT_ONCE {
            let work = l.request(opcode, n * LEN, (AT_ONCE - 1 - n) * LEN, LEN);
            l.post(&work)?;
            works.push(work);
        }
        for _ in 0..l.rng.below(3 * round + 1) {
            l.step(1)?;
        }
        let mut withdrawn = Vec::<SlotId>::new();
        for work in &works {
            if l.is_open(work.op) && l.cancel(work.op) == CancelOutcome::Withdrawn {
                withdrawn.push(work.op);
                // The fence holds now, not at some later poll.
                reuse(l, &mut expected, work);
            }
        }
        l.wait_all()?;
        for work in works.iter().filter(|w| !withdrawn.contains(&w.op)) {
            match l.outcomes(work.op) {
                [Ok(_)] => expected.apply(work),
                [Err(Failure::Cancelled)] => forget(l, &mut expected, work),
                other => {
                    return Err(Stop::Failed(format!("a cancelled {opcode:?} gave {other:?}")));
                }
            }
        }
        l.settle()?;
        expected
            .compare(l, &format!("{opcode:?}, round {round}, {} withdrawn", withdrawn.len()))?;
    }
    l.finish()
}

pub(super) fn cancel_puts<S: Subject>(l: L<'_, '_, S>) -> Done {
    cancels(l, Opcode::Put)
}

pub(super) fn cancel_gets<S: Subject>(l: L<'_, '_, S>) -> Done {
    cancels(l, Opcode::Get)
}

/// A cancel that comes too late changes nothing for anybody.
pub(super) fn cancel_of_what_is_over<S: Subject>(l: L<'_, '_, S>) -> Done {
    l.fresh(AT_ONCE * LEN, AT_ONCE * LEN, Access::WRITE)?;
    let mut expected = ExpectedMemory::paint(l);
    let over = l.request(Opcode::Put, 0, 0, LEN);
    l.complete(&over)?;
    expected.apply(&over);
    let mut ops = Vec::new();
    for n in 1..AT_ONCE {
        let work = l.request(Opcode::Put, n * LEN, n * LEN, LEN);
        l.post(&work)?;
        expected.apply(&work);
        // Either answer is true of an operation that is over.
        let _ = l.cancel(over.op);
        ops.push(work.op);
    }
    l.finish()?;
    l.all_ok(&ops)?;
    expected.compare(l, "after late cancels of another operation")
}
