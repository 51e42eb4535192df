//! Bytes arrive: exactly these, exactly there, and when it is said.

use hmc_core::transport::PostErrorKind;
use hmc_core::types::{Access, Caps};
use hmc_core::work::{CompleteWhen, Opcode};

use super::super::completion_checker::L;
use super::super::expected_memory::ExpectedMemory;
use super::super::report::{Done, Stop};
use super::super::subject::Subject;

const SIZES: [u64; 13] =
    [0, 1, 7, 8, 63, 64, 65, 4095, 4096, 4097, (64 << 10) - 1, 64 << 10, (64 << 10) + 1];
const LARGE: [u64; 4] = [(1 << 20) - 1, 1 << 20, (1 << 20) + 1, (3 << 20) + 5];
/// Bytes of region and window around what moves.
const SLACK: u64 = 160;

fn sizes<S: Subject>(l: L<'_, '_, S>, opcode: Opcode, sizes: &[u64], at: &[(u64, u64)]) -> Done {
    // The least right must be enough.
    let (access, caps) = match opcode {
        Opcode::Put | Opcode::PutNotify { .. } => (Access::WRITE, Caps::PUT),
        Opcode::Get => (Access::READ, Caps::GET),
    };
    for &len in sizes {
        l.fresh(len + SLACK, len + SLACK, access)?;
        l.need(caps)?;
        for &(local, remote) in at {
            let mut expected = ExpectedMemory::paint(l);
            let work = l.request(opcode, local, remote, len);
            l.complete(&work)?;
            expected.apply(&work);
            let what = format!("{opcode:?} of {len} bytes from {local} to {remote}");
            // Nothing is driven between the completion and the look.
            expected.compare(l, &format!("{what}, at its completion"))?;
        }
        l.finish()?;
    }
    Ok(())
}

pub(super) fn put_moves_exactly_the_bytes<S: Subject>(l: L<'_, '_, S>) -> Done {
    sizes(l, Opcode::Put, &SIZES, &[(0, 0), (13, 29), (SLACK, 63), (1, SLACK)])
}

pub(super) fn get_moves_exactly_the_bytes<S: Subject>(l: L<'_, '_, S>) -> Done {
    sizes(l, Opcode::Get, &SIZES, &[(0, 0), (13, 29), (SLACK, 63), (1, SLACK)])
}

pub(super) fn large_puts<S: Subject>(l: L<'_, '_, S>) -> Done {
    sizes(l, Opcode::Put, &LARGE, &[(77, 31)])
}

pub(super) fn large_gets<S: Subject>(l: L<'_, '_, S>) -> Done {
    sizes(l, Opcode::Get, &LARGE, &[(31, 77)])
}

pub(super) fn overlapping_puts_in_sequence<S: Subject>(l: L<'_, '_, S>) -> Done {
    l.fresh(20_000, 20_000, Access::WRITE)?;
    let mut expected = ExpectedMemory::paint(l);
    for (local, remote, len) in
        [(0, 0, 9000), (3000, 4500, 9000), (11, 4499, 3), (0, 2, 13_000), (19_000, 8000, 1000)]
    {
        let work = l.request(Opcode::Put, local, remote, len);
        l.complete(&work)?;
        expected.apply(&work);
        expected.compare(l, "after an overlapping put that was waited for")?;
    }
    l.finish()
}

/// After its completion a request touches neither memory again.
pub(super) fn quiet_after_completion<S: Subject>(l: L<'_, '_, S>) -> Done {
    for opcode in [Opcode::Put, Opcode::Get] {
        l.fresh(100_000, 100_000, Access::all())?;
        if opcode == Opcode::Get {
            l.need(Caps::GET)?;
        }
        let mut expected = ExpectedMemory::paint(l);
        for len in [8, 4096, 90_000] {
            let work = l.request(opcode, 5, 9, len);
            l.complete(&work)?;
            expected.repaint_local(l);
            expected.repaint_remote(l);
            l.finish()?;
            expected.compare(l, &format!("long after a {opcode:?} of {len} bytes"))?;
        }
    }
    Ok(())
}

/// With `CompleteWhen::Local` the local memory may be used again, and the bytes arrive all the same.
pub(super) fn local_completion<S: Subject>(l: L<'_, '_, S>) -> Done {
    l.fresh(100_000, 100_000, Access::WRITE)?;
    let mut expected = ExpectedMemory::paint(l);
    for len in [1, 4096, 99_000] {
        let mut work = l.request(Opcode::Put, 3, 7, len);
        work.when = CompleteWhen::Local;
        l.complete(&work)?;
        expected.apply(&work);
        expected.repaint_local(l);
        let mut arrived = vec![0; expected.remote.len()];
        l.step_until("the bytes arrive", |l| {
            l.subject.read_remote(0, &mut arrived);
            arrived == expected.remote
        })?;
    }
    l.finish()?;
    expected.compare(l, "after puts with local completion")
}

pub(super) fn capabilities_are_honest<S: Subject>(l: L<'_, '_, S>) -> Done {
    l.fresh(64, 64, Access::all())?;
    let all = [
        (Caps::PUT, Opcode::Put),
        (Caps::GET, Opcode::Get),
        (Caps::NOTIFY, Opcode::PutNotify { tag: 1 }),
    ];
    for (caps, opcode) in all {
        let work = l.request(opcode, 0, 0, 8);
        if l.need(caps).is_ok() {
            l.complete(&work)?;
        } else if l.try_post(&work) != Err(PostErrorKind::Unsupported) {
            let why = format!("{opcode:?} without {caps:?} must be refused as unsupported");
            return Err(Stop::Failed(why));
        }
    }
    l.finish()
}
