//! Each accepted request completes once, however many there are and however they are polled.

use hmc_core::limits::MAX_SLOTS;
use hmc_core::slots::SlotId;
use hmc_core::transport::PostErrorKind;
use hmc_core::types::Access;
use hmc_core::work::{Opcode, WorkRequest};

use super::super::completion_checker::L;
use super::super::expected_memory::ExpectedMemory;
use super::super::report::{Done, Stop};
use super::super::subject::Subject;

/// Bytes of each of many small puts.
const PIECE: u64 = 56;

fn many() -> u64 {
    u64::try_from(MAX_SLOTS).unwrap_or(1024)
}

fn prepare<S: Subject>(l: L<'_, '_, S>) -> Result<ExpectedMemory, Stop> {
    l.fresh(many() * PIECE, many() * PIECE, Access::WRITE)?;
    Ok(ExpectedMemory::paint(l))
}

/// Posts disjoint puts until the transport says `Busy`, and gives the one that it refused.
fn fill<S: Subject>(
    l: L<'_, '_, S>,
    expected: &mut ExpectedMemory,
) -> Result<(Vec<SlotId>, Option<WorkRequest>), Stop> {
    let mut ops = Vec::new();
    for n in 0..many() {
        // Backwards there, so that no two neighbours become one transfer.
        let work = l.request(Opcode::Put, n * PIECE, (many() - 1 - n) * PIECE, PIECE);
        match l.try_post(&work) {
            Ok(()) => {
                expected.apply(&work);
                ops.push(work.op);
            }
            Err(PostErrorKind::Busy) => return Ok((ops, Some(work))),
            Err(kind) => return Err(format!("{work:?} was refused: {kind:?}").into()),
        }
    }
    Ok((ops, None))
}

pub(super) fn one_completion_each<S: Subject>(l: L<'_, '_, S>) -> Done {
    l.fresh(4096, 4096, Access::WRITE)?;
    for n in 0..50 {
        let work = l.request(Opcode::Put, n, n, 100);
        l.complete(&work)?;
        l.settle()?;
    }
    l.finish()
}

pub(super) fn many_in_flight<S: Subject>(l: L<'_, '_, S>) -> Done {
    let mut expected = prepare(l)?;
    let mut most = 0;
    for round in 0..5 {
        expected.repaint_local(l);
        let (ops, _) = fill(l, &mut expected)?;
        most = most.max(ops.len());
        l.wait_all()?;
        l.all_ok(&ops)?;
        expected.compare(l, &format!("round {round} of {} puts in flight", ops.len()))?;
    }
    if most == 0 {
        return Err("an idle transport accepted nothing".to_owned().into());
    }
    l.finish()
}

/// What was refused has no effect: neither bytes nor a completion.
pub(super) fn busy_has_no_effect<S: Subject>(l: L<'_, '_, S>) -> Done {
    let mut expected = prepare(l)?;
    let mut refused = 0;
    for _ in 0..5 {
        expected.repaint_local(l);
        let (_, busy) = fill(l, &mut expected)?;
        refused += usize::from(busy.is_some());
        l.finish()?;
        expected.compare(l, "after a post was refused as busy")?;
    }
    if refused == 0 {
        return Err(Stop::Skipped(format!("never busy with {} in flight", many())));
    }
    Ok(())
}

/// Every completion returns its credit, whatever its result.
pub(super) fn no_credit_is_lost<S: Subject>(l: L<'_, '_, S>) -> Done {
    let mut expected = prepare(l)?;
    for n in 0..3 * many() {
        let mut work = l.request(Opcode::Put, 0, (n % many()) * PIECE, PIECE);
        expected.apply(&work);
        l.post(&work)?;
        if n % 4 == 0 {
            work.op = l.name();
            work.remote.epoch.0 ^= 1;
            l.post(&work)?;
            // An epoch goes stale in the normal course of a revocation: the link lives.
            if l.wait(work.op)?.is_ok() {
                return Err("a put under a wrong epoch succeeded".to_owned().into());
            }
        }
    }
    l.finish()?;
    expected.compare(l, "after thousands of puts")
}

/// Polls with an empty buffer lose nothing.
pub(super) fn poll_into_nothing<S: Subject>(l: L<'_, '_, S>) -> Done {
    let mut expected = prepare(l)?;
    let (ops, _) = fill(l, &mut expected)?;
    for _ in 0..2000 {
        l.subject.drive();
        l.poll(0)?;
    }
    l.finish()?;
    l.all_ok(&ops)?;
    expected.compare(l, "after polls into nothing")
}

/// Polls with a buffer for one lose nothing.
pub(super) fn poll_one_at_a_time<S: Subject>(l: L<'_, '_, S>) -> Done {
    let mut expected = prepare(l)?;
    let (ops, _) = fill(l, &mut expected)?;
    while ops.iter().any(|op| l.is_open(*op)) {
        l.step(1)?;
    }
    l.finish()?;
    l.all_ok(&ops)?;
    expected.compare(l, "after polls of one")
}

/// Several requests of one operation complete one by one.
pub(super) fn requests_share_an_operation<S: Subject>(l: L<'_, '_, S>) -> Done {
    let mut expected = prepare(l)?;
    let op = l.name();
    for n in 0..20 {
        let mut work = l.request(Opcode::Put, n * PIECE, n * PIECE, 30 + n);
        work.op = op;
        l.post(&work)?;
        expected.apply(&work);
    }
    l.finish()?;
    let outcomes = l.outcomes(op);
    if outcomes.len() != 20 || outcomes.iter().any(Result::is_err) {
        return Err(format!("20 requests of one operation completed as {outcomes:?}").into());
    }
    expected.compare(l, "after requests that share an operation")
}
