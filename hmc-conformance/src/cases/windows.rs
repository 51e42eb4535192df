//! Whatever is not allowed fails for the right reason and changes no byte.

use hmc_core::range::{Extent, RangeError, Side};
use hmc_core::region::{Epoch, WindowId};
use hmc_core::transport::PostErrorKind;
use hmc_core::types::{Access, Caps};
use hmc_core::window::WindowFault;
use hmc_core::work::{Failure, Opcode, WorkRequest};

use super::super::completion_checker::L;
use super::super::expected_memory::ExpectedMemory;
use super::super::report::{Done, Stop};
use super::super::subject::Subject;

/// Bytes of the window; the region is twice as large.
const WINDOW: u64 = 1000;

fn opcodes<S: Subject>(l: L<'_, '_, S>) -> Vec<Opcode> {
    let all = [
        (Caps::PUT, Opcode::Put),
        (Caps::GET, Opcode::Get),
        (Caps::NOTIFY, Opcode::PutNotify { tag: 9 }),
    ];
    all.into_iter().filter(|(caps, _)| l.need(*caps).is_ok()).map(|(_, opcode)| opcode).collect()
}

/// Each opcode, changed by `spoil`, on a pair of its own (a violation may cost the link).
fn each<S: Subject>(
    l: L<'_, '_, S>,
    access: Access,
    len: u64,
    only: impl Fn(&Opcode) -> bool,
    spoil: impl Fn(&mut WorkRequest),
    is_expected: impl Fn(&WorkRequest, Result<Result<u64, Failure>, PostErrorKind>) -> bool,
) -> Done {
    l.fresh(2 * WINDOW, WINDOW, access)?;
    for opcode in opcodes(l).into_iter().filter(only) {
        l.fresh(2 * WINDOW, WINDOW, access)?;
        let expected = ExpectedMemory::paint(l);
        let mut work = l.request(opcode, 11, 0, len);
        spoil(&mut work);
        let end = loop {
            match l.try_post(&work) {
                Ok(()) => break Ok(l.wait(work.op)?),
                Err(PostErrorKind::Busy) => l.step(8).map(|_| ())?,
                Err(kind) => break Err(kind),
            }
        };
        expected.compare(l, &format!("after {work:?}"))?;
        if !is_expected(&work, end) {
            return Err(Stop::Failed(format!("{work:?} ended as {end:?}")));
        }
        l.finish()?;
        expected.compare(l, &format!("long after {work:?}"))?;
        if l.subject.notifications() != [0u64; 0] {
            return Err(Stop::Failed(format!("{work:?} delivered its tag")));
        }
    }
    Ok(())
}

fn fault(end: Result<Result<u64, Failure>, PostErrorKind>) -> Option<WindowFault> {
    match end {
        Ok(Err(Failure::Window(fault))) => Some(fault),
        _ => None,
    }
}

pub(super) fn out_of_window<S: Subject>(l: L<'_, '_, S>) -> Done {
    let ranges = [
        (WINDOW, 1),
        (WINDOW - 1, 2),
        (0, WINDOW + 1),
        (WINDOW - 8, 64),
        (1 << 32, 8),
        (1 << 63, 16),
        (u64::MAX - 8, 8),
        (u64::MAX - 900, 900),
    ];
    for (offset, len) in ranges {
        let outside = Extent::new(u64::MAX).span(Side::Remote, offset, len);
        let outside = outside.map_err(|e| format!("{e}"))?;
        let want = RangeError { side: Side::Remote, offset, len, limit: WINDOW };
        each(
            l,
            Access::all(),
            1,
            |_| true,
            |work| {
                let local = Extent::new(2 * WINDOW).span(Side::Local, 0, len);
                work.local.span = local.expect("within the region");
                work.remote.span = outside;
            },
            |_, end| fault(end) == Some(WindowFault::OutOfWindow(want)),
        )?;
    }
    Ok(())
}

pub(super) fn wrong_access<S: Subject>(l: L<'_, '_, S>) -> Done {
    for access in [Access::READ, Access::WRITE, Access::empty()] {
        let forbidden = |opcode: &Opcode| match opcode {
            Opcode::Put | Opcode::PutNotify { .. } => !access.contains(Access::WRITE),
            Opcode::Get => !access.contains(Access::READ),
        };
        let is_expected = |_: &WorkRequest, end| fault(end) == Some(WindowFault::Access);
        each(l, access, 100, forbidden, |_| (), is_expected)?;
    }
    Ok(())
}

pub(super) fn stale_epoch<S: Subject>(l: L<'_, '_, S>) -> Done {
    for change in [1, u32::MAX, 1 << 31] {
        each(
            l,
            Access::all(),
            100,
            |_| true,
            |work| work.remote.epoch = Epoch(work.remote.epoch.0.wrapping_add(change)),
            |_, end| fault(end) == Some(WindowFault::StaleEpoch),
        )?;
    }
    Ok(())
}

pub(super) fn unknown_window<S: Subject>(l: L<'_, '_, S>) -> Done {
    for flip in [1, 0xFF, 0xFFFF, 1 << 16, 1 << 40, 1 << 63, u64::MAX] {
        each(
            l,
            Access::all(),
            100,
            |_| true,
            |work| work.remote.window = WindowId(work.remote.window.0 ^ flip),
            |_, end| fault(end) == Some(WindowFault::Unknown),
        )?;
    }
    Ok(())
}

pub(super) fn unknown_local_region<S: Subject>(l: L<'_, '_, S>) -> Done {
    let known = |_: &WorkRequest, end| {
        matches!(end, Err(PostErrorKind::UnknownRegion) | Ok(Err(Failure::UnknownRegion)))
    };
    for change in [1, u32::MAX, 1 << 16] {
        let spoil = |w: &mut WorkRequest| {
            w.local.key.generation = w.local.key.generation.wrapping_add(change);
        };
        each(l, Access::all(), 100, |_| true, spoil, known)?;
    }
    for change in [1 << 15, u16::MAX - 1, 999] {
        let spoil = |w: &mut WorkRequest| {
            w.local.key.index = w.local.key.index.wrapping_add(change);
        };
        each(l, Access::all(), 100, |_| true, spoil, known)?;
    }
    Ok(())
}

/// A span that was proven against another, larger region is no proof for this one.
pub(super) fn foreign_local_span<S: Subject>(l: L<'_, '_, S>) -> Done {
    for offset in [2 * WINDOW - 99, 2 * WINDOW, 1 << 30, 1 << 62] {
        let foreign = Extent::new(u64::MAX).span(Side::Local, offset, 100);
        let foreign = foreign.map_err(|e| format!("{e}"))?;
        each(
            l,
            Access::all(),
            100,
            |_| true,
            |work| work.local.span = foreign,
            |_, end| {
                !matches!(end, Ok(Ok(_)) | Err(PostErrorKind::Busy | PostErrorKind::Disconnected))
            },
        )?;
    }
    Ok(())
}
