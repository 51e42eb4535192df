//! Cases of the suite for devices: memory is allocated, freed, exhausted, and lost.

use hmc_core::device::{Device, DeviceError, DeviceErrorKind};

use super::device_fixture::{B, STREAM, fail, part, refusal, same, whole};
use super::device_subject::DeviceSubject;
use super::report::{Done, Stop};
use super::subject::Support;

pub(super) fn freed_keys_are_dead<S: DeviceSubject>(b: B<'_, '_, S>) -> Done {
    let mut seen = Vec::new();
    for _ in 0..20 {
        let host = b.host(&[9; 64])?;
        let region = b.alloc(64)?;
        if seen.contains(&region.key) {
            return fail(format!("{:?} was given out twice", region.key));
        }
        seen.push(region.key);
        if let Err(e) = b.subject.device().free(region.key) {
            return fail(format!("free of an idle region: {e:?}"));
        }
        for _ in 0..2 {
            let kind = refusal("a second free", b.subject.device().free(region.key))?;
            if kind != DeviceErrorKind::Region || b.subject.device().region(region.key).is_some() {
                return fail(format!("a freed region is still there ({kind:?})"));
            }
        }
        let copy = b.subject.device().copy(STREAM, whole(host), whole(region));
        let kind = refusal("a copy to a freed region", copy)?;
        if !matches!(kind, DeviceErrorKind::Region | DeviceErrorKind::Busy) {
            return fail(format!("a copy to a freed region was refused as {kind:?}"));
        }
    }
    Ok(())
}

pub(super) fn free_waits_for_copies<S: DeviceSubject>(b: B<'_, '_, S>) -> Done {
    for _ in 0..10 {
        let bytes = b.rng.bytes(3000);
        let (host, end) = (b.host(&bytes)?, b.host(&[0; 3000])?);
        let region = b.alloc(3000)?;
        b.copy(STREAM, whole(host), whole(region))?;
        let mark = b.copy(STREAM, whole(region), whole(end))?;
        let free = b.subject.device().free(region.key).map_err(|e| e.kind());
        match free {
            // Then no copy is in flight any more.
            Ok(()) => match b.subject.device().passed(mark) {
                Ok(true) => {}
                other => return fail(format!("freed while a copy ran: {other:?}")),
            },
            Err(DeviceErrorKind::Region) => {
                b.wait(mark)?;
                if let Err(e) = b.subject.device().free(region.key) {
                    return fail(format!("free after the mark: {e:?}"));
                }
            }
            Err(kind) => return fail(format!("free while a copy ran was refused as {kind:?}")),
        }
        same("a copy that ran when free was called", &b.host_bytes(end), &bytes)?;
    }
    Ok(())
}

pub(super) fn regions_are_apart<S: DeviceSubject>(b: B<'_, '_, S>) -> Done {
    let mut all = Vec::new();
    for n in 0..30usize {
        let bytes = b.rng.bytes(1 + n * 37);
        all.push((b.filled(&bytes)?, bytes));
    }
    for (region, bytes) in &all {
        same("a region after others were filled", &b.bytes(*region)?, bytes)?;
    }
    Ok(())
}

pub(super) fn memory_comes_back<S: DeviceSubject>(b: B<'_, '_, S>) -> Done {
    let Some(capacity) = b.subject.capacity() else {
        return Err(Stop::Skipped("the device must not be filled".to_owned()));
    };
    for _ in 0..50 {
        let region = b.alloc(capacity / 3)?;
        if let Err(e) = b.subject.device().free(region.key) {
            return fail(format!("free: {e:?}"));
        }
    }
    Ok(())
}

pub(super) fn memory_runs_out<S: DeviceSubject>(b: B<'_, '_, S>) -> Done {
    let Some(capacity) = b.subject.capacity() else {
        return Err(Stop::Skipped("the device must not be filled".to_owned()));
    };
    let piece = capacity / 8;
    let mut all = Vec::new();
    let kind = loop {
        let bytes = b.rng.bytes(64);
        let mut tried = b.subject.device().alloc(piece).map_err(|e| e.kind());
        for _ in 0..64 {
            if tried != Err(DeviceErrorKind::NoSpace) {
                break;
            }
            tried = b.subject.device().alloc(piece).map_err(|e| e.kind());
        }
        match tried {
            Ok(region) => {
                let host = b.host(&bytes)?;
                b.copied(whole(host), part(region, 0, 64))?;
                all.push((region, bytes));
            }
            Err(kind) => break kind,
        }
        if all.len() > 16 {
            return fail("more memory than there is".to_owned());
        }
    };
    if kind != DeviceErrorKind::NoSpace || all.len() < 4 {
        return fail(format!("{} pieces of an eighth, then {kind:?}", all.len()));
    }
    // A refused allocation has no effect: the others stay, and freed memory can be allocated again.
    for (region, bytes) in &all {
        let end = b.host(&[0; 64])?;
        b.copied(part(*region, 0, 64), whole(end))?;
        same("a region when memory had run out", &b.host_bytes(end), bytes)?;
    }
    let (region, _) = all.pop().expect("at least four");
    if let Err(e) = b.subject.device().free(region.key) {
        return fail(format!("free: {e:?}"));
    }
    b.alloc(piece).map(|_| ())
}

pub(super) fn loss_is_for_ever<S: DeviceSubject>(b: B<'_, '_, S>) -> Done {
    let (host, region) = (b.host(&[9; 64])?, b.alloc(64)?);
    let before = b.copy(STREAM, whole(host), whole(region))?;
    b.wait(before)?;
    let running = b.copy(STREAM, whole(host), whole(region))?;
    if let Support::Unsupported(why) = b.subject.lose() {
        return Err(Stop::Skipped(why.to_owned()));
    }
    for turn in 0..50 {
        let device = b.subject.device();
        let answers = [
            device.copy(STREAM, whole(host), whole(region)).err().map(|e| e.kind()),
            device.alloc(8).err().map(|e| e.kind()),
            device.free(region.key).err().map(|e| e.kind()),
            device.passed(running).err().map(|e| e.kind()),
            device.passed(before).err().map(|e| e.kind()),
        ];
        if answers != [Some(DeviceErrorKind::Lost); 5] {
            return fail(format!("{turn} turns after its loss the device answers {answers:?}"));
        }
        b.subject.drive();
    }
    Ok(())
}
