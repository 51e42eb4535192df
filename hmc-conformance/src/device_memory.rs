//! Cases of the suite for devices: memory is allocated, freed, exhausted, and lost.

use hmc_core::device::{
    Allocation, Copies as _, Device as _, DeviceError as _, DeviceErrorKind, DeviceFeatures,
    DeviceMemory as _, Rows, Streams as _,
};
use hmc_core::place::{MemoryClass, Place};
use hmc_core::region::LocalRegion;

use super::device_fixture::{B, STREAM, fail, part, refusal, same, whole, with_space};
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
            let device = b.subject.device();
            let is_known =
                device.region(region.key).is_some() || device.memory(region.key).is_some();
            if kind != DeviceErrorKind::Region || is_known {
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
        let event = b.copy(STREAM, whole(region), whole(end))?;
        let free = b.subject.device().free(region.key).map_err(|e| e.kind());
        match free {
            // Then no copy is in flight any more.
            Ok(()) => match b.subject.device().passed(event) {
                Ok(true) => {}
                other => return fail(format!("freed while a copy ran: {other:?}")),
            },
            Err(DeviceErrorKind::Region) => {
                b.wait(event)?;
                if let Err(e) = b.subject.device().free(region.key) {
                    return fail(format!("free after the event: {e:?}"));
                }
            }
            Err(kind) => return fail(format!("free while a copy ran was refused as {kind:?}")),
        }
        same("a copy that ran when free was called", &b.host_bytes(end), &bytes)?;
        // A command that only writes uses the memory as well.
        let region = b.alloc(3000)?;
        let event = b.accepted("to fill", |device| device.fill(STREAM, whole(region), 1))?;
        let free = b.subject.device().free(region.key).map_err(|e| e.kind());
        let passed = b.subject.device().passed(event);
        match (free, passed) {
            (Err(DeviceErrorKind::Region), _) => b.wait(event)?,
            (Ok(()), Ok(true)) => {}
            other => return fail(format!("free while a fill ran: {other:?}")),
        }
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
        let region = b.alloc(capacity / 5)?;
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
        let (key, what) = (b.key(), Allocation::device(piece));
        let mut tried = b.subject.device().alloc(key, &what).map_err(|e| e.kind());
        for _ in 0..64 {
            if tried != Err(DeviceErrorKind::NoSpace) {
                break;
            }
            tried = b.subject.device().alloc(key, &what).map_err(|e| e.kind());
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
    let (key, what) = (b.key(), Allocation::device(8));
    let rows = Rows { count: 1, len: 64, from_stride: 64, to_stride: 64 };
    for turn in 0..50 {
        let device = b.subject.device();
        let added = device.memory(region.key).map(|memory| device.add(key, memory).err());
        let (near, far) = (whole(host), whole(region));
        let answers = [
            device.alloc(key, &what).err(),
            added.unwrap_or_else(|| device.usage().err()),
            device.free(region.key).err(),
            device.usage().err(),
            device.copy(STREAM, near, far).err(),
            device.copy_rows(STREAM, near, far, &rows).err(),
            device.fill(STREAM, far, 1).err(),
            device.copy_now(near, far).err(),
            device.open_stream().err(),
            device.close_stream(STREAM).err(),
            device.record(STREAM).err(),
            device.passed(running).err(),
            device.passed(before).err(),
            device.wait(STREAM, before).err(),
        ]
        .map(|answer| answer.map(|e| e.kind()));
        if answers.iter().any(|answer| *answer != Some(DeviceErrorKind::Lost)) {
            return fail(format!("{turn} turns after its loss the device answers {answers:?}"));
        }
        b.subject.drive();
    }
    Ok(())
}

pub(super) fn regions_are_described<S: DeviceSubject>(b: B<'_, '_, S>) -> Done {
    let place = Place::on(b.subject.device().id());
    if b.subject.device().name().is_empty() {
        return fail("the device has no name".to_owned());
    }
    let mut keys = Vec::new();
    for len in [1, 7, 4096, 10_000] {
        let region = b.alloc(len)?;
        if region.extent.len() != len || region.place != place {
            return fail(format!("{len} bytes on {place} gave {region:?}"));
        }
        if b.subject.device().region(region.key) != Some(region) || keys.contains(&region.key) {
            return fail(format!("{region:?} is not the region of its key"));
        }
        keys.push(region.key);
    }
    let host = b.host(&[1, 2, 3])?;
    if b.subject.device().region(host.key) != Some(host) || keys.contains(&host.key) {
        return fail("host memory is not a region of its key".to_owned());
    }
    Ok(())
}

/// Also memory that somebody else had before.
pub(super) fn new_memory_is_zero<S: DeviceSubject>(b: B<'_, '_, S>) -> Done {
    for round in 0..10 {
        let region = b.alloc(5000)?;
        same(&format!("new memory, {round}"), &b.bytes(region)?, &[0; 5000])?;
        let host = b.host(&[0x77; 5000])?;
        b.copied(whole(host), whole(region))?;
        if let Err(e) = b.subject.device().free(region.key) {
            return fail(format!("free: {e:?}"));
        }
    }
    Ok(())
}

pub(super) fn a_key_in_use_is_refused<S: DeviceSubject>(b: B<'_, '_, S>) -> Done {
    let bytes = b.rng.bytes(64);
    let (host, region) = (b.host(&bytes)?, b.filled(&bytes)?);
    for key in [host.key, region.key] {
        let what = Allocation::device(64);
        let mut kinds = vec![b.refusal("a key in use", |device| device.alloc(key, &what))?];
        if b.subject.device().memory(region.key).is_some() {
            kinds.push(b.refusal("a key in use", |device| {
                let memory = device.memory(region.key).expect("it was there");
                device.add(key, memory)
            })?);
        }
        if kinds.iter().any(|kind| *kind != DeviceErrorKind::Region) {
            return fail(format!("{key:?}, which is in use, was refused as {kinds:?}"));
        }
    }
    let device = b.subject.device();
    if device.region(host.key) != Some(host) || device.region(region.key) != Some(region) {
        return fail("a refused key has another region".to_owned());
    }
    same("a region whose key was refused", &b.bytes(region)?, &bytes)
}

pub(super) fn usage_counts_what_is_allocated<S: DeviceSubject>(b: B<'_, '_, S>) -> Done {
    let usage = |b: B<'_, '_, S>| b.accepted("usage", |device| device.usage());
    let total = b.subject.device().attributes().total_bytes;
    let before = usage(b)?;
    if before.total_bytes != total || before.free_bytes > total {
        return fail(format!("{before:?} on a device of {total} bytes"));
    }
    if b.subject.capacity().is_none() {
        return Err(Stop::Skipped("others use the device's memory, too".to_owned()));
    }
    let region = b.alloc(total / 4)?;
    let during = usage(b)?;
    if let Err(e) = b.subject.device().free(region.key) {
        return fail(format!("free: {e:?}"));
    }
    let after = usage(b)?;
    if during.free_bytes + total / 4 <= before.free_bytes && after == before {
        return Ok(());
    }
    fail(format!("{before:?}, then {during:?} with a quarter in use, then {after:?}"))
}

pub(super) fn pinned_memory_is_the_hosts<S: DeviceSubject>(b: B<'_, '_, S>) -> Done {
    let device = b.subject.device();
    if !device.attributes().features.contains(DeviceFeatures::PINNED) {
        return Err(Stop::Skipped("the device has no pinned memory".to_owned()));
    }
    let place = Place::new(device.id(), MemoryClass::Pinned);
    let what = Allocation { len_bytes: 3000, class: MemoryClass::Pinned };
    let key = b.key();
    let pinned = with_space(|| b.subject.device().alloc(key, &what))?;
    if Some(pinned.place) != place {
        return fail(format!("pinned memory is {}", pinned.place));
    }
    same("new pinned memory", &b.host_bytes(pinned), &[0; 3000])?;
    let (bytes, region) = (b.rng.bytes(3000), b.alloc(3000)?);
    b.subject.write_host(pinned, 0, &bytes);
    b.copied(whole(pinned), whole(region))?;
    b.subject.write_host(pinned, 0, &[0; 3000]);
    b.copied(whole(region), whole(pinned))?;
    same("pinned memory there and back", &b.host_bytes(pinned), &bytes)
}

pub(super) fn added_memory_is_the_same<S: DeviceSubject>(b: B<'_, '_, S>) -> Done {
    let bytes = b.rng.bytes(700);
    let (region, again) = (b.filled(&bytes)?, b.key());
    let Some(memory) = b.subject.device().memory(region.key) else {
        return Err(Stop::Skipped("the device reaches its own memory only".to_owned()));
    };
    let added = match b.subject.device().add(again, memory) {
        Ok(added) => added,
        Err(e) => return fail(format!("memory of the device itself: {e:?}")),
    };
    let want = LocalRegion { key: again, ..region };
    if added != want || b.subject.device().region(again) != Some(want) {
        return fail(format!("{region:?} was added as {added:?}"));
    }
    same("memory under its second key", &b.bytes(added)?, &bytes)?;
    let host = b.host(&[3; 700])?;
    b.copied(whole(host), whole(added))?;
    same("memory that was written under its second key", &b.bytes(region)?, &[3; 700])?;
    if let Err(e) = b.subject.device().free(again) {
        return fail(format!("free of added memory: {e:?}"));
    }
    same("memory whose second key is gone", &b.bytes(region)?, &[3; 700])
}

pub(super) fn copies_between_devices<S: DeviceSubject>(b: B<'_, '_, S>) -> Done {
    let (key, bytes) = (b.key(), b.rng.bytes(900));
    let Some(other) = b.subject.other() else {
        return Err(Stop::Skipped("there is one device".to_owned()));
    };
    let far = with_space(|| other.alloc(key, &Allocation::device(900)))?;
    let memory = other.memory(key).ok_or_else(|| "a region has no handle".to_owned())?;
    let region = b.filled(&bytes)?;
    let added = match b.subject.device().add(key, memory) {
        Ok(added) => added,
        Err(e) => return fail(format!("memory of the other device: {e:?}")),
    };
    if added != far || added.place == region.place {
        return fail(format!("{far:?} was added as {added:?}"));
    }
    b.copied(whole(region), whole(added))?;
    let back = b.alloc(900)?;
    b.copied(whole(added), whole(back))?;
    same("bytes by way of the other device", &b.bytes(back)?, &bytes)?;
    if let Err(e) = b.subject.device().free(key) {
        return fail(format!("free of memory of the other device: {e:?}"));
    }
    let freed = b.subject.other().map(|other| other.free(key));
    if matches!(freed, Some(Ok(()))) {
        return Ok(());
    }
    fail(format!("free on the other device: {freed:?}"))
}
