//! The cases of the suite for devices.

use hmc_core::device::{Device, DeviceError, DeviceErrorKind, StreamEvent, StreamId};
use hmc_core::range::Extent;
use hmc_core::region::{LocalRegion, LocalSlice, RegionKey};

use super::device_fixture::{B, Fixture, STREAM, fail, part, refusal, same, whole};
use super::device_memory::{
    free_waits_for_copies, freed_keys_are_dead, loss_is_for_ever, memory_comes_back,
    memory_runs_out, regions_are_apart,
};
use super::device_subject::DeviceSubject;
use super::report::{Done, Stop};

/// A promise, and the function that tries to catch the device breaking it.
#[derive(Debug)]
pub(super) struct DeviceCase<S: DeviceSubject> {
    pub(super) name: &'static str,
    pub(super) body: fn(&mut Fixture<'_, S>) -> Done,
}

macro_rules! cases {
    ($($name:ident),+ $(,)?) => {
        pub(super) fn all<S: DeviceSubject>() -> Vec<DeviceCase<S>> {
            vec![$(DeviceCase { name: stringify!($name), body: $name::<S> }),+]
        }
    };
}

cases! {
    regions_are_described, to_the_device_and_back, ranges_and_neighbours, within_the_device,
    a_stream_keeps_its_order, marks_grow, streams_run_side_by_side, source_and_destination_are_free,
    many_in_flight, busy_has_no_effect, nothing_to_copy, unequal_lengths, outside_of_regions, unknown_regions,
    unknown_streams_and_marks, freed_keys_are_dead, free_waits_for_copies, regions_are_apart,
    memory_comes_back, memory_runs_out, loss_is_for_ever, random_script,
}

fn place(n: u64) -> usize {
    usize::try_from(n).expect("test memory is small")
}

fn regions_are_described<S: DeviceSubject>(b: B<'_, '_, S>) -> Done {
    let kind = b.subject.device().kind();
    if b.subject.device().name().is_empty() {
        return fail("the device has no name".to_owned());
    }
    let mut keys = Vec::new();
    for len in [1, 7, 4096, 10_000] {
        let region = b.alloc(len)?;
        if region.extent.len() != len || region.place.kind() != kind {
            return fail(format!("{len} bytes on {kind:?} gave {region:?}"));
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

fn to_the_device_and_back<S: DeviceSubject>(b: B<'_, '_, S>) -> Done {
    for len in [1, 2, 63, 64, 65, 4095, 4096, 65_537] {
        let bytes = b.rng.bytes(len);
        let region = b.filled(&bytes)?;
        same(&format!("{len} bytes there and back"), &b.bytes(region)?, &bytes)?;
    }
    Ok(())
}

fn ranges_and_neighbours<S: DeviceSubject>(b: B<'_, '_, S>) -> Done {
    let (mut expected, patch) = (b.rng.bytes(2000), b.rng.bytes(2000));
    let (region, source) = (b.filled(&expected)?, b.host(&patch)?);
    for (from, to, len) in [(0, 0, 1), (0, 1999, 1), (13, 7, 100), (999, 998, 1001), (5, 500, 64)] {
        b.copied(part(source, from, len), part(region, to, len))?;
        let (f, t, n) = (place(from), place(to), place(len));
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

fn within_the_device<S: DeviceSubject>(b: B<'_, '_, S>) -> Done {
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

fn a_stream_keeps_its_order<S: DeviceSubject>(b: B<'_, '_, S>) -> Done {
    for round in 0..8 {
        let bytes = b.rng.bytes(512);
        let source = b.host(&bytes)?;
        let mut at = whole(source);
        let mut last = None;
        // From one to the next: each copy needs the one before it.
        for _ in 0..6 {
            let next = b.alloc(512)?;
            last = Some(b.copy(STREAM, at, whole(next))?);
            at = whole(next);
        }
        let end = b.host(&[0; 512])?;
        let mark = b.copy(STREAM, at, whole(end))?;
        b.wait(mark)?;
        same(&format!("chain {round}"), &b.host_bytes(end), &bytes)?;
        let last = last.expect("six copies");
        match b.subject.device().passed(last) {
            Ok(true) => {}
            other => {
                return fail(format!("{mark:?} was passed, and {last:?} before it: {other:?}"));
            }
        }
    }
    Ok(())
}

fn marks_grow<S: DeviceSubject>(b: B<'_, '_, S>) -> Done {
    let source = b.host(&[7; 64])?;
    let region = b.alloc(64)?;
    let mut marks: Vec<StreamEvent> = Vec::new();
    for _ in 0..20 {
        let mark = b.copy(STREAM, whole(source), whole(region))?;
        if marks.last().is_some_and(|last| mark.number <= last.number) {
            return fail(format!("{mark:?} after {marks:?}"));
        }
        marks.push(mark);
    }
    b.wait(*marks.last().expect("twenty"))?;
    for _ in 0..3 {
        for mark in &marks {
            if !matches!(b.subject.device().passed(*mark), Ok(true)) {
                return fail(format!("{mark:?} was passed and is not any more"));
            }
        }
    }
    Ok(())
}

fn streams_run_side_by_side<S: DeviceSubject>(b: B<'_, '_, S>) -> Done {
    if b.subject.streams() < 2 {
        return Err(Stop::Skipped("the device has one stream".to_owned()));
    }
    let mut all = Vec::new();
    for stream in (0..b.subject.streams()).map(StreamId) {
        let bytes = b.rng.bytes(700);
        let (source, end) = (b.host(&bytes)?, b.host(&[0; 700])?);
        let region = b.alloc(700)?;
        b.copy(stream, whole(source), whole(region))?;
        let mark = b.copy(stream, whole(region), whole(end))?;
        all.push((mark, end, bytes));
    }
    // The youngest first: no stream waits for another to be asked.
    for (mark, end, bytes) in all.into_iter().rev() {
        b.wait(mark)?;
        same(&format!("{:?}", mark.stream), &b.host_bytes(end), &bytes)?;
    }
    Ok(())
}

fn source_and_destination_are_free<S: DeviceSubject>(b: B<'_, '_, S>) -> Done {
    for _ in 0..10 {
        let (bytes, other) = (b.rng.bytes(800), b.rng.bytes(800));
        let source = b.host(&bytes)?;
        let region = b.alloc(800)?;
        b.copied(whole(source), whole(region))?;
        b.subject.write_host(source, 0, &other);
        b.settle();
        let end = b.host(&[0; 800])?;
        b.copied(whole(region), whole(end))?;
        same("the source was written after its mark", &b.host_bytes(end), &bytes)?;
        b.subject.write_host(end, 0, &other);
        b.settle();
        same("the destination was written after its mark", &b.host_bytes(end), &other)?;
    }
    Ok(())
}

fn many_in_flight<S: DeviceSubject>(b: B<'_, '_, S>) -> Done {
    const COUNT: u64 = 600;
    let bytes = b.rng.bytes(place(COUNT) * 16);
    let source = b.host(&bytes)?;
    let region = b.alloc(COUNT * 16)?;
    let mut marks = Vec::new();
    for n in 0..COUNT {
        let stream = StreamId(u16::try_from(n).unwrap_or(0) % b.subject.streams());
        let at = n * 16;
        let range = (part(source, at, 16), part(region, at, 16));
        let mark = loop {
            match b.subject.device().copy(stream, range.0, range.1) {
                Ok(mark) => break mark,
                Err(e) if e.kind() == DeviceErrorKind::Busy => {
                    // A query of the oldest frees an entry; nothing was accepted.
                    match marks.first().copied() {
                        Some(oldest) => b.wait(oldest)?,
                        None => b.subject.drive(),
                    }
                    if !marks.is_empty() {
                        marks.remove(0);
                    }
                }
                Err(e) => return fail(format!("copy {n}: {e:?}")),
            }
        };
        marks.push(mark);
    }
    for mark in marks {
        b.wait(mark)?;
    }
    same("600 copies", &b.bytes(region)?, &bytes)
}

fn busy_has_no_effect<S: DeviceSubject>(b: B<'_, '_, S>) -> Done {
    const COUNT: u64 = 300;
    let bytes = b.rng.bytes(place(COUNT * 16));
    let mut want = vec![0x11; place(COUNT * 16)];
    let (source, region) = (b.host(&bytes)?, b.filled(&want)?);
    let mut last = None;
    for at in (0..COUNT).map(|n| n * 16) {
        let copy = (part(source, at, 16), part(region, at, 16));
        match b.subject.device().copy(STREAM, copy.0, copy.1) {
            Ok(mark) => {
                last = Some(mark);
                let range = place(at)..place(at + 16);
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

fn nothing_to_copy<S: DeviceSubject>(b: B<'_, '_, S>) -> Done {
    let bytes = b.rng.bytes(100);
    let (host, region) = (b.host(&bytes)?, b.filled(&bytes)?);
    for at in [0, 50, 100] {
        b.copied(part(host, at, 0), part(region, 100 - at, 0))?;
    }
    same("nothing was copied", &b.bytes(region)?, &bytes)
}

/// A copy that must be refused as one of `kinds`, without an effect on either region.
fn refused<S: DeviceSubject>(
    b: B<'_, '_, S>,
    (from, to): (LocalSlice, LocalSlice),
    kinds: &[DeviceErrorKind],
    unchanged: (LocalRegion, &[u8]),
) -> Done {
    let what = format!("{from:?} to {to:?}");
    let kind = loop {
        let kind = refusal(&what, b.subject.device().copy(STREAM, from, to))?;
        if kind != DeviceErrorKind::Busy {
            break kind;
        }
        b.subject.drive();
    };
    if !kinds.contains(&kind) {
        return fail(format!("{what} was refused as {kind:?}, not as one of {kinds:?}"));
    }
    b.settle();
    same(&format!("{what} was refused"), &b.bytes(unchanged.0)?, unchanged.1)
}

fn unequal_lengths<S: DeviceSubject>(b: B<'_, '_, S>) -> Done {
    let bytes = b.rng.bytes(100);
    let (host, region) = (b.host(&[9; 100])?, b.filled(&bytes)?);
    for (from, to) in [(10, 11), (11, 10), (0, 1), (1, 0), (100, 50)] {
        let ranges = (part(host, 0, from), part(region, 0, to));
        refused(b, ranges, &[DeviceErrorKind::Range], (region, &bytes))?;
    }
    Ok(())
}

/// A span that was proven against another, larger region is no proof for this one.
fn outside_of_regions<S: DeviceSubject>(b: B<'_, '_, S>) -> Done {
    let bytes = b.rng.bytes(100);
    let (host, region) = (b.host(&[9; 100])?, b.filled(&bytes)?);
    let everything = Extent::new(u64::MAX);
    for (offset, len) in [(99, 2), (100, 1), (0, 101), (1 << 32, 8), (u64::MAX - 8, 8)] {
        let span = everything.span(hmc_core::range::Side::Local, offset, len).expect("it is");
        let local = host.extent.contains(Extent::new(len).whole());
        let near = if local { part(host, 0, len) } else { LocalSlice { key: host.key, span } };
        let far = LocalSlice { key: region.key, span };
        refused(b, (near, far), &[DeviceErrorKind::Range], (region, &bytes))?;
        refused(b, (far, near), &[DeviceErrorKind::Range], (region, &bytes))?;
    }
    Ok(())
}

fn unknown_regions<S: DeviceSubject>(b: B<'_, '_, S>) -> Done {
    let bytes = b.rng.bytes(64);
    let (host, region) = (b.host(&[9; 64])?, b.filled(&bytes)?);
    for key in [
        RegionKey { generation: region.key.generation.wrapping_add(1), ..region.key },
        RegionKey { generation: region.key.generation.wrapping_sub(1), ..region.key },
        RegionKey { index: u16::MAX - 3, generation: 1 },
    ] {
        if b.subject.device().region(key).is_some() {
            return fail(format!("{key:?} has a region"));
        }
        let foreign = LocalSlice { key, span: region.extent.whole() };
        for ranges in [(whole(host), foreign), (foreign, whole(region))] {
            refused(b, ranges, &[DeviceErrorKind::Region], (region, &bytes))?;
        }
        let kind = refusal("free of an unknown region", b.subject.device().free(key))?;
        if kind != DeviceErrorKind::Region {
            return fail(format!("free of {key:?} was refused as {kind:?}"));
        }
    }
    Ok(())
}

fn unknown_streams_and_marks<S: DeviceSubject>(b: B<'_, '_, S>) -> Done {
    let (host, region) = (b.host(&[9; 64])?, b.alloc(64)?);
    let stream = StreamId(u16::MAX);
    let copy = b.subject.device().copy(stream, whole(host), whole(region));
    refusal("a copy in a stream that there is not", copy)?;
    let mark = b.copy(STREAM, whole(host), whole(region))?;
    b.wait(mark)?;
    for mark in
        [StreamEvent { stream, number: 1 }, StreamEvent { number: mark.number + 1000, ..mark }]
    {
        if matches!(b.subject.device().passed(mark), Ok(true)) {
            return fail(format!("{mark:?}, which there is not, was passed"));
        }
    }
    Ok(())
}

fn random_script<S: DeviceSubject>(b: B<'_, '_, S>) -> Done {
    const SIZE: u64 = 2048;
    for _ in 0..4 {
        let mut expected_regions = Vec::new();
        let mut regions = Vec::new();
        for n in 0..4 {
            let bytes = b.rng.bytes(place(SIZE));
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
            let piece = expected_regions[from][place(x)..place(x + len)].to_vec();
            expected_regions[to][place(y)..place(y + len)].copy_from_slice(&piece);
        }
        b.wait(last.expect("many"))?;
        for (n, (region, expected)) in regions.iter().zip(&expected_regions).enumerate() {
            let got = if n < 2 { b.host_bytes(*region) } else { b.bytes(*region)? };
            same(&format!("region {n} after a script"), &got, expected)?;
        }
    }
    Ok(())
}
