//! A tag follows its own bytes, once.

use hmc_core::types::{Access, Caps};
use hmc_core::window::WindowFault;
use hmc_core::work::{Failure, Opcode};

use super::super::completion_checker::L;
use super::super::expected_memory::ExpectedMemory;
use super::super::report::{Done, Stop};
use super::super::subject::Subject;

pub(super) fn notify_follows_its_bytes<S: Subject>(l: L<'_, '_, S>) -> Done {
    const LEN: u64 = (256 << 10) + 3;
    l.fresh(LEN, LEN, Access::WRITE)?;
    l.need(Caps::NOTIFY)?;
    let mut expected = ExpectedMemory::paint(l);
    for n in 0..20usize {
        expected.repaint_local(l);
        let len = if n % 2 == 0 { LEN } else { 8 };
        let tag = 100 + u64::try_from(n).unwrap_or(0);
        let work = l.request(Opcode::PutNotify { tag }, 0, 0, len);
        l.post(&work)?;
        expected.apply(&work);
        // Drives and polls apart, so that the tag is seen at the first moment.
        l.step_until("the tag arrives", |l| {
            let arrived = l.subject.notifications().len() > n;
            l.subject.drive();
            arrived || l.subject.notifications().len() > n
        })?;
        expected.compare(l, &format!("when tag {tag} arrived"))?;
        l.wait_all()?;
        l.all_ok(&[work.op])?;
        if l.subject.notifications().get(n) != Some(&tag) {
            return Err(Stop::Failed(format!("tag {tag} was not the one that arrived")));
        }
    }
    l.finish()?;
    match l.subject.notifications().len() {
        20 => Ok(()),
        n => Err(Stop::Failed(format!("{n} tags arrived of 20"))),
    }
}

pub(super) fn every_tag_once<S: Subject>(l: L<'_, '_, S>) -> Done {
    l.fresh(4096, 4096, Access::WRITE)?;
    l.need(Caps::NOTIFY)?;
    let mut expected = ExpectedMemory::paint(l);
    let mut sent = vec![0, 1, 7, 7, 7, u64::MAX, 1 << 63, 0, 0xFFFF_FFFF, 1 << 32];
    sent.extend((0..90).map(|_| l.rng.next_u64()));
    for (n, tag) in (0..).zip(&sent) {
        let work = l.request(Opcode::PutNotify { tag: *tag }, n, 40 * n, 40);
        l.post(&work)?;
        expected.apply(&work);
    }
    l.wait_all()?;
    l.step_until("all tags arrive", |l| l.subject.notifications().len() >= sent.len())?;
    l.finish()?;
    let mut got = l.subject.notifications();
    got.sort_unstable();
    sent.sort_unstable();
    if got != sent {
        return Err(Stop::Failed(format!("sent the tags {sent:?}, delivered {got:?}")));
    }
    expected.compare(l, "after a hundred notifies")
}

pub(super) fn refused_notify_is_silent<S: Subject>(l: L<'_, '_, S>) -> Done {
    l.fresh(4096, 4096, Access::READ)?;
    l.need(Caps::NOTIFY)?;
    for len in [0, 8, 4096] {
        l.fresh(4096, 4096, Access::READ)?;
        let expected = ExpectedMemory::paint(l);
        let work = l.request(Opcode::PutNotify { tag: 5 }, 0, 0, len);
        l.post(&work)?;
        let end = l.wait(work.op)?;
        if end != Err(Failure::Window(WindowFault::Access)) {
            return Err(Stop::Failed(format!("a notify of {len} bytes ended as {end:?}")));
        }
        l.finish()?;
        expected.compare(l, "after a refused notify")?;
        if !l.subject.notifications().is_empty() {
            return Err(Stop::Failed(format!("a refused notify of {len} bytes told its tag")));
        }
    }
    Ok(())
}

pub(super) fn zero_length<S: Subject>(l: L<'_, '_, S>) -> Done {
    l.fresh(64, 64, Access::all())?;
    let expected = ExpectedMemory::paint(l);
    let all = [
        (Caps::PUT, Opcode::Put),
        (Caps::GET, Opcode::Get),
        (Caps::NOTIFY, Opcode::PutNotify { tag: 3 }),
    ];
    let mut tags = 0;
    for (caps, opcode) in all {
        if l.need(caps).is_err() {
            continue;
        }
        // In the middle, and at the very end, where an empty range is legal.
        for at in [0, 17, 64] {
            let work = l.request(opcode, at, at, 0);
            l.complete(&work)?;
            tags += usize::from(matches!(opcode, Opcode::PutNotify { .. }));
        }
    }
    l.step_until("the tags arrive", |l| l.subject.notifications().len() >= tags)?;
    l.finish()?;
    if l.subject.notifications() != vec![3; tags] {
        return Err(Stop::Failed(format!("not the {tags} tags that were sent")));
    }
    expected.compare(l, "after transfers of nothing")
}
