//! Cases of the suite for devices: bytes are copied.

use hmc_core::device::{Copies as _, DeviceError as _, DeviceErrorKind};

use super::device_fixture::{B, STREAM, fail, part, same, size, whole};
use super::device_subject::DeviceSubject;
use super::report::Done;

pub(super) fn to_the_device_and_back<S: DeviceSubject>(b: B<'_, '_, S>) -> Done {
    for len in [1, 2, 63, 64, 65, 4095, 4096, 65_537] {
        let bytes = b.rng.bytes(len);
        let region = b.filled(&bytes)?;
        same(&format!("{len} bytes there and back"), &b.bytes(region)?, &bytes)?;
    }
    Ok(())
}

pub(super) fn ranges_and_neighbours<S: DeviceSubject>(b: B<'_, '_, S>) -> Done {
    let (mut expected, patch) = (b.rng.bytes(2000), b.rng.bytes(2000));
    let (region, source) = (b.filled(&expected)?, b.host(&patch)?);
    for (from, to, len) in [(0, 0, 1), (0, 1999, 1), (13, 7, 100), (999, 998, 1001), (5, 500, 64)] {
        b.copied(part(source, from, len), part(region, to, len))?;
        let (f, t, n) = (size(from), size(to), size(len));
        expected[t..t + n].copy_from_slice(&patch[f..f + n]);
        same(&format!("{len} bytes from {from} to {to}"), &b.bytes(region)?, &expected)?;
        // And out again, beside bytes that are not its own.
        let host = b.host(&patch)?;
        b.copied(part(region, to, len), part(host, from, len))?;
        let mut want = patch.clone();
        want[f..f + n].copy_from_slice(&expected[t..t + n]);
        same(&format!("{len} bytes out"), &b.host_bytes(host), &want)?;
    }
    Ok(())
}

pub(super) fn within_the_device<S: DeviceSubject>(b: B<'_, '_, S>) -> Done {
    let (first, second) = (b.rng.bytes(900), b.rng.bytes(900));
    let (x, y) = (b.filled(&first)?, b.filled(&second)?);
    b.copied(part(x, 100, 300), part(y, 550, 300))?;
    let mut want = second;
    want[550..850].copy_from_slice(&first[100..400]);
    same("between two regions", &b.bytes(y)?, &want)?;
    same("the source", &b.bytes(x)?, &first)?;
    // Within one region, ranges that touch each other.
    b.copied(part(x, 0, 450), part(x, 450, 450))?;
    let twice = [&first[..450], &first[..450]].concat();
    same("within one region", &b.bytes(x)?, &twice)
}

pub(super) fn source_and_destination_are_free<S: DeviceSubject>(b: B<'_, '_, S>) -> Done {
    for _ in 0..10 {
        let (bytes, other) = (b.rng.bytes(800), b.rng.bytes(800));
        let source = b.host(&bytes)?;
        let region = b.alloc(800)?;
        b.copied(whole(source), whole(region))?;
        b.subject.write_host(source, 0, &other);
        b.settle();
        let end = b.host(&[0; 800])?;
        b.copied(whole(region), whole(end))?;
        same("the source was written after its event", &b.host_bytes(end), &bytes)?;
        b.subject.write_host(end, 0, &other);
        b.settle();
        same("the destination was written after its event", &b.host_bytes(end), &other)?;
    }
    Ok(())
}

pub(super) fn many_in_flight<S: DeviceSubject>(b: B<'_, '_, S>) -> Done {
    const COUNT: u64 = 600;
    let bytes = b.rng.bytes(size(COUNT) * 16);
    let source = b.host(&bytes)?;
    let region = b.alloc(COUNT * 16)?;
    let mut events = Vec::new();
    let mut streams = b.streams(2).unwrap_or_default();
    streams.push(STREAM);
    for (n, stream) in (0..COUNT).zip(streams.into_iter().cycle()) {
        let at = n * 16;
        let range = (part(source, at, 16), part(region, at, 16));
        let event = loop {
            match b.subject.device().copy(stream, range.0, range.1) {
                Ok(event) => break event,
                Err(e) if e.kind() == DeviceErrorKind::Busy => {
                    // A query of the oldest frees an entry; nothing was accepted.
                    match events.first().copied() {
                        Some(oldest) => b.wait(oldest)?,
                        None => b.subject.drive(),
                    }
                    if !events.is_empty() {
                        events.remove(0);
                    }
                }
                Err(e) => return fail(format!("copy {n}: {e:?}")),
            }
        };
        events.push(event);
    }
    for event in events {
        b.wait(event)?;
    }
    same("600 copies", &b.bytes(region)?, &bytes)
}

pub(super) fn busy_has_no_effect<S: DeviceSubject>(b: B<'_, '_, S>) -> Done {
    const COUNT: u64 = 300;
    let bytes = b.rng.bytes(size(COUNT * 16));
    let mut want = vec![0x11; size(COUNT * 16)];
    let (source, region) = (b.host(&bytes)?, b.filled(&want)?);
    let mut last = None;
    for at in (0..COUNT).map(|n| n * 16) {
        let copy = (part(source, at, 16), part(region, at, 16));
        match b.subject.device().copy(STREAM, copy.0, copy.1) {
            Ok(event) => {
                last = Some(event);
                let range = size(at)..size(at + 16);
                want[range.clone()].copy_from_slice(&bytes[range]);
            }
            // It is not asked again.
            Err(e) if e.kind() == DeviceErrorKind::Busy => b.subject.drive(),
            Err(e) => return fail(format!("{e:?}")),
        }
    }
    if let Some(last) = last {
        b.wait(last)?;
    }
    b.settle();
    same("after copies that were refused as busy", &b.bytes(region)?, &want)
}

pub(super) fn nothing_to_copy<S: DeviceSubject>(b: B<'_, '_, S>) -> Done {
    let bytes = b.rng.bytes(100);
    let (host, region) = (b.host(&bytes)?, b.filled(&bytes)?);
    for at in [0, 50, 100] {
        b.copied(part(host, at, 0), part(region, 100 - at, 0))?;
    }
    same("nothing was copied", &b.bytes(region)?, &bytes)
}

pub(super) fn random_script<S: DeviceSubject>(b: B<'_, '_, S>) -> Done {
    const SIZE: u64 = 2048;
    for _ in 0..4 {
        let mut expected_regions = Vec::new();
        let mut regions = Vec::new();
        for n in 0..4 {
            let bytes = b.rng.bytes(size(SIZE));
            regions.push(if n < 2 { b.host(&bytes)? } else { b.filled(&bytes)? });
            expected_regions.push(bytes);
        }
        let mut last = None;
        for _ in 0..150 {
            let (mut from, mut to) = (b.rng.index(4), b.rng.index(4));
            if from < 2 && to < 2 {
                // One of them must be on the device.
                if b.rng.below(2) == 0 { from = 2 } else { to = 3 }
            }
            let half = SIZE / 2;
            let len = b.rng.below(half);
            // Halves of one region do not overlap.
            let (low, high) = (b.rng.below(half - len), half + b.rng.below(half - len));
            let (x, y) = if b.rng.below(2) == 0 { (low, high) } else { (high, low) };
            let stream = STREAM;
            last = Some(b.copy(stream, part(regions[from], x, len), part(regions[to], y, len))?);
            let piece = expected_regions[from][size(x)..size(x + len)].to_vec();
            expected_regions[to][size(y)..size(y + len)].copy_from_slice(&piece);
        }
        b.wait(last.expect("many"))?;
        for (n, (region, expected)) in regions.iter().zip(&expected_regions).enumerate() {
            let got = if n < 2 { b.host_bytes(*region) } else { b.bytes(*region)? };
            same(&format!("region {n} after a script"), &got, expected)?;
        }
    }
    Ok(())
}

/// Nothing has to be asked afterwards.
pub(super) fn copies_in_the_call<S: DeviceSubject>(b: B<'_, '_, S>) -> Done {
    for len in [0, 1, 63, 4096, 65_537] {
        let bytes = b.rng.bytes(len);
        let (from, to) = (b.host(&bytes)?, b.host(&vec![0x5A; len])?);
        let (near, far) = (b.alloc(from.extent.len())?, b.alloc(from.extent.len())?);
        for (from, to) in [(from, near), (near, far), (far, to)] {
            b.accepted("a copy in the call", |device| device.copy_now(whole(from), whole(to)))?;
        }
        same(&format!("{len} bytes in the call"), &b.host_bytes(to), &bytes)?;
    }
    Ok(())
}

pub(super) fn a_range_is_filled<S: DeviceSubject>(b: B<'_, '_, S>) -> Done {
    let mut want = b.rng.bytes(5000);
    let region = b.filled(&want)?;
    for (offset, len, byte) in [(0, 5000, 0), (1, 4096, 0xFF), (4999, 1, 7), (63, 65, 1), (9, 0, 3)]
    {
        let to = part(region, offset, len);
        let event = b.accepted("to fill", |device| device.fill(STREAM, to, byte))?;
        b.wait(event)?;
        want[size(offset)..size(offset + len)].fill(byte);
        same(&format!("{len} bytes from {offset}"), &b.bytes(region)?, &want)?;
    }
    Ok(())
}
