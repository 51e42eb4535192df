//! Cases of the suite for devices: copies that must be refused.

use hmc_core::device::{
    Allocation, Copies as _, Device as _, DeviceErrorKind, DeviceFeatures, DeviceMemory as _, Rows,
};
use hmc_core::place::{DeviceId, MemoryClass};
use hmc_core::range::{Extent, Side};
use hmc_core::region::{LocalRegion, LocalSlice, RegionKey};

use super::device_fixture::{B, STREAM, fail, part, refusal, same, whole};
use super::device_subject::DeviceSubject;
use super::report::{Done, Stop};

/// A copy that must be refused as one of `kinds`, submitted, as a row and in the call, without an effect on the region.
fn refused<S: DeviceSubject>(
    b: B<'_, '_, S>,
    (from, to): (LocalSlice, LocalSlice),
    kinds: &[DeviceErrorKind],
    unchanged: (LocalRegion, &[u8]),
) -> Done {
    let what = format!("{from:?} to {to:?}");
    let copy = b.refusal(&what, |device| device.copy(STREAM, from, to))?;
    let now = b.refusal(&what, |device| device.copy_now(from, to))?;
    let len = from.span.len();
    let rows = Rows { count: 1, len, from_stride: len, to_stride: to.span.len().max(len) };
    let by_rows = b.refusal(&what, |device| device.copy_rows(STREAM, from, to, &rows))?;
    let has_rows = b.subject.device().attributes().features.contains(DeviceFeatures::ROWS);
    if !has_rows && by_rows != DeviceErrorKind::Unsupported {
        return fail(format!("rows, which it does not have, were refused as {by_rows:?}"));
    }
    for kind in [copy, now, if has_rows { by_rows } else { copy }] {
        if !kinds.contains(&kind) {
            return fail(format!("{what} was refused as {kind:?}, not as one of {kinds:?}"));
        }
    }
    b.settle();
    same(&format!("{what} was refused"), &b.bytes(unchanged.0)?, unchanged.1)
}

/// A range that must not be filled.
fn not_filled<S: DeviceSubject>(
    b: B<'_, '_, S>,
    to: LocalSlice,
    want: DeviceErrorKind,
    unchanged: (LocalRegion, &[u8]),
) -> Done {
    let what = format!("to fill {to:?}");
    let kind = b.refusal(&what, |device| device.fill(STREAM, to, 0x77))?;
    if kind != want {
        return fail(format!("{what} was refused as {kind:?}, not as {want:?}"));
    }
    b.settle();
    same(&what, &b.bytes(unchanged.0)?, unchanged.1)
}

pub(super) fn unequal_lengths<S: DeviceSubject>(b: B<'_, '_, S>) -> Done {
    let bytes = b.rng.bytes(100);
    let (host, region) = (b.host(&[9; 100])?, b.filled(&bytes)?);
    for (from, to) in [(10, 11), (11, 10), (0, 1), (1, 0), (100, 50)] {
        let ranges = (part(host, 0, from), part(region, 0, to));
        refused(b, ranges, &[DeviceErrorKind::Range], (region, &bytes))?;
    }
    Ok(())
}

/// A span that was proven against another, larger region is no proof for this one.
pub(super) fn outside_of_regions<S: DeviceSubject>(b: B<'_, '_, S>) -> Done {
    let bytes = b.rng.bytes(100);
    let (host, region) = (b.host(&[9; 100])?, b.filled(&bytes)?);
    let everything = Extent::new(u64::MAX);
    for (offset, len) in [(99, 2), (100, 1), (0, 101), (1 << 32, 8), (u64::MAX - 8, 8)] {
        let span = everything.span(Side::Local, offset, len).expect("it is");
        let local = host.extent.contains(Extent::new(len).whole());
        let near = if local { part(host, 0, len) } else { LocalSlice { key: host.key, span } };
        let far = LocalSlice { key: region.key, span };
        refused(b, (near, far), &[DeviceErrorKind::Range], (region, &bytes))?;
        refused(b, (far, near), &[DeviceErrorKind::Range], (region, &bytes))?;
        not_filled(b, far, DeviceErrorKind::Range, (region, &bytes))?;
    }
    Ok(())
}

pub(super) fn unknown_regions<S: DeviceSubject>(b: B<'_, '_, S>) -> Done {
    let bytes = b.rng.bytes(64);
    let (host, region) = (b.host(&[9; 64])?, b.filled(&bytes)?);
    for key in [
        RegionKey { generation: region.key.generation.wrapping_add(1), ..region.key },
        RegionKey { generation: region.key.generation.wrapping_sub(1), ..region.key },
        RegionKey { index: u16::MAX - 3, generation: 1 },
    ] {
        let device = b.subject.device();
        if device.region(key).is_some() || device.memory(key).is_some() {
            return fail(format!("{key:?} has a region"));
        }
        let foreign = LocalSlice { key, span: region.extent.whole() };
        for ranges in [(whole(host), foreign), (foreign, whole(region))] {
            refused(b, ranges, &[DeviceErrorKind::Region], (region, &bytes))?;
        }
        not_filled(b, foreign, DeviceErrorKind::Region, (region, &bytes))?;
        let kind = refusal("free of an unknown region", b.subject.device().free(key))?;
        if kind != DeviceErrorKind::Region {
            return fail(format!("free of {key:?} was refused as {kind:?}"));
        }
    }
    Ok(())
}

/// Ranges of one region that share a byte, also by a second key of its memory.
pub(super) fn overlapping_ranges<S: DeviceSubject>(b: B<'_, '_, S>) -> Done {
    let bytes = b.rng.bytes(100);
    let (region, again) = (b.filled(&bytes)?, b.key());
    let mut regions = vec![region];
    if let Some(memory) = b.subject.device().memory(region.key) {
        match b.subject.device().add(again, memory) {
            Ok(added) => regions.push(added),
            Err(e) => return fail(format!("memory of the device itself: {e:?}")),
        }
    }
    for other in regions {
        for (from, to, len) in [(0, 0, 100), (0, 1, 99), (49, 0, 51), (7, 7, 1)] {
            let ranges = (part(region, from, len), part(other, to, len));
            refused(b, ranges, &[DeviceErrorKind::Range], (region, &bytes))?;
        }
    }
    Ok(())
}

/// Memory of a class that the device does not have.
pub(super) fn unknown_classes<S: DeviceSubject>(b: B<'_, '_, S>) -> Done {
    let has_pinned = b.subject.device().attributes().features.contains(DeviceFeatures::PINNED);
    for class in [MemoryClass::Pageable, MemoryClass::Managed, MemoryClass::Pinned] {
        if has_pinned && class == MemoryClass::Pinned {
            continue;
        }
        let (key, what) = (b.key(), Allocation { len_bytes: 64, class });
        let kind = b.refusal("a class", |device| device.alloc(key, &what))?;
        if kind != DeviceErrorKind::Unsupported || b.subject.device().region(key).is_some() {
            return fail(format!("{class:?} memory was refused as {kind:?}"));
        }
    }
    Ok(())
}

/// A copy between two ranges of host memory is the host's.
pub(super) fn host_memory_alone<S: DeviceSubject>(b: B<'_, '_, S>) -> Done {
    let (from, to) = (b.host(&[9; 64])?, b.host(&[4; 64])?);
    if !to.place.is_host() || b.subject.device().id() == DeviceId::CPU {
        return Err(Stop::Skipped("host memory is the device's own".to_owned()));
    }
    let unsupported = &[DeviceErrorKind::Unsupported];
    let bytes = b.rng.bytes(64);
    let region = b.filled(&bytes)?;
    refused(b, (whole(from), whole(to)), unsupported, (region, &bytes))?;
    not_filled(b, whole(to), DeviceErrorKind::Unsupported, (region, &bytes))?;
    same("host memory", &b.host_bytes(to), &[4; 64])
}
