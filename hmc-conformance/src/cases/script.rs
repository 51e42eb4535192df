//! Seeded random scripts, checked against expected bytes.

use hmc_core::range::ByteRange;
use hmc_core::transport::Transport;
use hmc_core::types::{Access, Caps};
use hmc_core::work::{Opcode, WorkRequest};

use super::super::completion_checker::L;
use super::super::expected_memory::ExpectedMemory;
use super::super::report::{Done, Stop};
use super::super::subject::Subject;

const SIZE: u64 = 64 << 10;
const SCRIPTS: u64 = 4;
const STEPS: u64 = 400;

/// Whether two requests may run at the same time and still have one result.
fn clash(a: &WorkRequest, b: &WorkRequest) -> bool {
    let reads = |w: &WorkRequest| {
        if w.opcode == Opcode::Get { there(w) } else { here(w) }
    };
    let writes = |w: &WorkRequest| {
        if w.opcode == Opcode::Get { here(w) } else { there(w) }
    };
    fn here(w: &WorkRequest) -> (bool, ByteRange) {
        (true, w.local.span)
    }
    fn there(w: &WorkRequest) -> (bool, ByteRange) {
        (false, w.remote.span)
    }
    let meet = |x: (bool, ByteRange), y: (bool, ByteRange)| x.0 == y.0 && x.1.overlaps(y.1);
    meet(writes(a), writes(b)) || meet(writes(a), reads(b)) || meet(reads(a), writes(b))
}

fn choose<S: Subject>(l: L<'_, '_, S>, caps: Caps) -> WorkRequest {
    let len = match l.rng.below(8) {
        0 => l.rng.below(4),
        1 => 10_000 + l.rng.below(20_000),
        2 | 3 => l.rng.below(4096),
        _ => l.rng.below(300),
    };
    let opcode = match l.rng.below(8) {
        0 if caps.contains(Caps::NOTIFY) => Opcode::PutNotify { tag: l.rng.next_u64() },
        1..=3 if caps.contains(Caps::GET) => Opcode::Get,
        _ => Opcode::Put,
    };
    let (local, remote) = (l.rng.below(SIZE - len + 1), l.rng.below(SIZE - len + 1));
    l.request(opcode, local, remote, len)
}

fn script<S: Subject>(l: L<'_, '_, S>) -> Done {
    l.fresh(SIZE, SIZE, Access::all())?;
    let (caps, mut expected) = (l.subject.transport().caps(), ExpectedMemory::paint(l));
    let mut in_flight = Vec::<WorkRequest>::new();
    let (mut ops, mut tags) = (Vec::new(), Vec::new());
    for step in 0..STEPS {
        let at = |stop| match stop {
            Stop::Failed(why) => Stop::Failed(format!("step {step}: {why}")),
            skipped @ Stop::Skipped(_) => skipped,
        };
        let work = choose(l, caps);
        in_flight.retain(|other| l.is_open(other.op));
        if in_flight.iter().any(|other| clash(other, &work)) || l.rng.below(16) == 0 {
            l.wait_all().map_err(at)?;
            in_flight.clear();
            expected.compare(l, "with nothing in flight").map_err(at)?;
        }
        l.post(&work).map_err(at)?;
        expected.apply(&work);
        in_flight.push(work);
        if let Opcode::PutNotify { tag } = work.opcode {
            tags.push(tag);
        }
        for _ in 0..l.rng.below(4) {
            l.step(2).map_err(at)?;
        }
        ops.push(work.op);
    }
    l.wait_all()?;
    l.step_until("all tags arrive", |l| l.subject.notifications().len() >= tags.len())?;
    l.finish()?;
    l.all_ok(&ops)?;
    let mut got = l.subject.notifications();
    got.sort_unstable();
    tags.sort_unstable();
    if got != tags {
        return Err(Stop::Failed(format!("{} tags sent, {} delivered", tags.len(), got.len())));
    }
    expected.compare(l, "at the end")
}

pub(super) fn random_script<S: Subject>(l: L<'_, '_, S>) -> Done {
    for n in 0..SCRIPTS {
        let seed = l.subject.seed().wrapping_add(n);
        l.rng = crate::rng::Rng::new(seed);
        script(l).map_err(|stop| match stop {
            Stop::Failed(why) => Stop::Failed(format!("script of seed {seed}: {why}")),
            skipped @ Stop::Skipped(_) => skipped,
        })?;
    }
    Ok(())
}
