//! Peers die and windows are revoked: all requests complete and none writes afterwards.

use hmc_core::slots::SlotId;
use hmc_core::transport::PostErrorKind;
use hmc_core::types::{Access, Caps};
use hmc_core::window::WindowFault;
use hmc_core::work::{Failure, Opcode, WorkRequest};

use super::super::completion_checker::L;
use super::super::expected_memory::ExpectedMemory;
use super::super::report::{Done, Stop};
use super::super::subject::{Subject, Support};

const LEN: u64 = 40_000;
const AT_ONCE: u64 = 6;

fn must(support: Support) -> Done {
    match support {
        Support::Done => Ok(()),
        Support::Unsupported(why) => Err(Stop::Skipped(why.to_owned())),
    }
}

/// Posts some requests and lets them run a little.
fn begin<S: Subject>(l: L<'_, '_, S>, opcode: Opcode, turns: u64) -> Result<Vec<SlotId>, Stop> {
    let mut ops = Vec::new();
    for n in 0..AT_ONCE {
        let work = l.request(opcode, n * LEN, n * LEN, LEN);
        ops.push(l.post(&work)?);
    }
    for _ in 0..turns {
        l.step(1)?;
    }
    Ok(ops)
}

/// Returns the result of `post` other than `Busy`.
fn post_once<S: Subject>(
    l: L<'_, '_, S>,
    work: &WorkRequest,
) -> Result<Result<(), PostErrorKind>, Stop> {
    let mut result = Err(PostErrorKind::Busy);
    l.step_until("post is not busy", |l| {
        result = l.try_post(work);
        result != Err(PostErrorKind::Busy)
    })?;
    Ok(result)
}

pub(super) fn death_completes_everything<S: Subject>(l: L<'_, '_, S>) -> Done {
    for turns in [0, 1, 2, 5, 20, 100, 400] {
        l.fresh(AT_ONCE * LEN, AT_ONCE * LEN, Access::all())?;
        let ops = begin(l, Opcode::Put, turns)?;
        must(l.subject.kill_peer())?;
        l.wait_all()?;
        for op in ops {
            if !matches!(l.outcomes(op), [Ok(_) | Err(Failure::PeerDead)]) {
                let got = l.outcomes(op);
                return Err(Stop::Failed(format!("after a death {op:?} completed as {got:?}")));
            }
        }
        let late = l.request(Opcode::Put, 0, 0, 8);
        let mut result = post_once(l, &late)?;
        if result.is_ok() {
            // It was accepted before the death was known: its completion makes the death known.
            match l.wait(late.op)? {
                Err(Failure::PeerDead) => result = post_once(l, &late)?,
                end => return Err(Stop::Failed(format!("a put to a dead peer gave {end:?}"))),
            }
        }
        l.finish()?;
        for result in [result, post_once(l, &late)?] {
            if result != Err(PostErrorKind::Disconnected) {
                let why = format!("a post to a peer known to be dead gave {result:?}");
                return Err(Stop::Failed(why));
            }
        }
    }
    Ok(())
}

/// After the gets of a dead peer have completed, their memory is free.
pub(super) fn no_touch_after_death<S: Subject>(l: L<'_, '_, S>) -> Done {
    for turns in [0, 1, 5, 50, 300] {
        l.fresh(AT_ONCE * LEN, AT_ONCE * LEN, Access::all())?;
        l.need(Caps::GET)?;
        let mut expected = ExpectedMemory::paint(l);
        begin(l, Opcode::Get, turns)?;
        must(l.subject.kill_peer())?;
        l.wait_all()?;
        expected.repaint_local(l);
        l.finish()?;
        expected.compare_local(l, "after the gets of a dead peer completed")?;
    }
    Ok(())
}

fn is_gone(failure: Failure) -> bool {
    use WindowFault::{Revoked, StaleEpoch, Unknown};
    matches!(failure, Failure::Window(Revoked | StaleEpoch | Unknown))
}

pub(super) fn revoked_window_refuses<S: Subject>(l: L<'_, '_, S>) -> Done {
    l.fresh(LEN, LEN, Access::all())?;
    let mut expected = ExpectedMemory::paint(l);
    let before = l.request(Opcode::Put, 0, 0, 100);
    l.complete(&before)?;
    expected.apply(&before);
    must(l.subject.revoke())?;
    for opcode in [Opcode::Put, Opcode::Get, Opcode::PutNotify { tag: 4 }] {
        let caps = match opcode {
            Opcode::Put => Caps::PUT,
            Opcode::Get => Caps::GET,
            Opcode::PutNotify { .. } => Caps::NOTIFY,
        };
        if l.need(caps).is_err() {
            continue;
        }
        for len in [1, LEN] {
            let work = l.request(opcode, 0, 0, len);
            l.post(&work)?;
            match l.wait(work.op)? {
                Err(failure) if is_gone(failure) => {}
                end => {
                    let why = format!("{opcode:?} on a revoked window ended as {end:?}");
                    return Err(Stop::Failed(why));
                }
            }
            expected.compare(l, &format!("after a {opcode:?} on a revoked window"))?;
        }
    }
    l.finish()?;
    if !l.subject.notifications().is_empty() {
        return Err(Stop::Failed("a notify on a revoked window told its tag".to_owned()));
    }
    expected.compare(l, "long after accesses to a revoked window")
}

/// After `revoke` has returned, the owner may write and no request overwrites it.
pub(super) fn revoke_is_a_fence<S: Subject>(l: L<'_, '_, S>) -> Done {
    for turns in [0, 1, 2, 5, 20, 100, 400] {
        l.fresh(AT_ONCE * LEN, AT_ONCE * LEN, Access::all())?;
        let mut expected = ExpectedMemory::paint(l);
        let ops = begin(l, Opcode::Put, turns)?;
        must(l.subject.revoke())?;
        expected.repaint_remote(l);
        l.finish()?;
        for op in ops {
            match l.outcomes(op) {
                [Ok(_)] => {}
                [Err(failure)] if is_gone(*failure) => {}
                other => {
                    let why = format!("a put into a revoked window completed as {other:?}");
                    return Err(Stop::Failed(why));
                }
            }
        }
        expected.compare(l, &format!("{turns} turns and a revocation after the posts"))?;
    }
    Ok(())
}
