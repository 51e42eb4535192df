//! Cases of the suite for devices: streams and their events.

use hmc_core::device::{
    Copies as _, DeviceError as _, DeviceErrorKind, StreamEvent, StreamId, Streams as _,
};

use super::device_fixture::{B, STREAM, fail, same, whole};
use super::device_subject::DeviceSubject;
use super::report::Done;

pub(super) fn a_stream_keeps_its_order<S: DeviceSubject>(b: B<'_, '_, S>) -> Done {
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
        let event = b.copy(STREAM, at, whole(end))?;
        b.wait(event)?;
        same(&format!("chain {round}"), &b.host_bytes(end), &bytes)?;
        let last = last.expect("six copies");
        match b.subject.device().passed(last) {
            Ok(true) => {}
            other => {
                return fail(format!("{event:?} was passed, and {last:?} before it: {other:?}"));
            }
        }
    }
    Ok(())
}

pub(super) fn events_grow<S: DeviceSubject>(b: B<'_, '_, S>) -> Done {
    let source = b.host(&[7; 64])?;
    let region = b.alloc(64)?;
    let mut events: Vec<StreamEvent> = Vec::new();
    for _ in 0..20 {
        let event = b.copy(STREAM, whole(source), whole(region))?;
        if events.last().is_some_and(|last| event.number <= last.number) {
            return fail(format!("{event:?} after {events:?}"));
        }
        events.push(event);
    }
    b.wait(*events.last().expect("twenty"))?;
    for _ in 0..3 {
        for event in &events {
            if !matches!(b.subject.device().passed(*event), Ok(true)) {
                return fail(format!("{event:?} was passed and is not any more"));
            }
        }
    }
    Ok(())
}

pub(super) fn streams_run_side_by_side<S: DeviceSubject>(b: B<'_, '_, S>) -> Done {
    let mut all = Vec::new();
    for stream in b.streams(3)? {
        let bytes = b.rng.bytes(700);
        let (source, end) = (b.host(&bytes)?, b.host(&[0; 700])?);
        let region = b.alloc(700)?;
        b.copy(stream, whole(source), whole(region))?;
        let event = b.copy(stream, whole(region), whole(end))?;
        all.push((event, end, bytes));
    }
    // The youngest first: no stream waits for another to be asked.
    for (event, end, bytes) in all.into_iter().rev() {
        b.wait(event)?;
        same(&format!("{:?}", event.stream), &b.host_bytes(end), &bytes)?;
    }
    Ok(())
}

pub(super) fn unknown_streams_and_events<S: DeviceSubject>(b: B<'_, '_, S>) -> Done {
    let (host, region) = (b.host(&[9; 64])?, b.alloc(64)?);
    let event = b.copy(STREAM, whole(host), whole(region))?;
    b.wait(event)?;
    let mut unknown = vec![StreamId { index: u16::MAX, generation: 1 }];
    if let Ok(streams) = b.streams(1) {
        let stream = streams[0];
        b.accepted("to close a stream", |device| device.close_stream(stream))?;
        unknown.push(stream);
    }
    for stream in unknown {
        let refusals = [
            b.refusal("a copy", |d| d.copy(stream, whole(host), whole(region)))?,
            b.refusal("a fill", |d| d.fill(stream, whole(region), 1))?,
            b.refusal("a record", |d| d.record(stream))?,
            b.refusal("a close", |d| d.close_stream(stream))?,
            b.refusal("a wait in it", |d| d.wait(stream, event))?,
            b.refusal("a wait for it", |d| d.wait(STREAM, StreamEvent { stream, number: 1 }))?,
            b.refusal("a query", |d| d.passed(StreamEvent { stream, number: 1 }))?,
        ];
        if refusals != [DeviceErrorKind::Stream; 7] {
            return fail(format!("in {stream:?}, which there is not: {refusals:?}"));
        }
    }
    for number in [0, event.number + 1000] {
        let event = StreamEvent { number, ..event };
        let passed = b.refusal("an event that there is not", |d| d.passed(event))?;
        let wait = b.refusal("a wait for it", |d| d.wait(STREAM, event))?;
        if (passed, wait) != (DeviceErrorKind::Stream, DeviceErrorKind::Stream) {
            return fail(format!("{event:?}, which there is not: {passed:?}, {wait:?}"));
        }
    }
    Ok(())
}

pub(super) fn streams_close<S: DeviceSubject>(b: B<'_, '_, S>) -> Done {
    let (host, region) = (b.host(&[9; 64])?, b.alloc(64)?);
    let mut seen = Vec::new();
    for _ in 0..20 {
        let stream = b.streams(1)?[0];
        if seen.contains(&stream) {
            return fail(format!("{stream:?} was given out twice"));
        }
        seen.push(stream);
        let event = b.copy(stream, whole(host), whole(region))?;
        match b.subject.device().close_stream(stream) {
            // Then nothing is under way any more.
            Ok(()) => {
                let bytes = b.bytes(region)?;
                same("a copy of a stream that was closed", &bytes, &[9; 64])?;
                continue;
            }
            Err(e) if e.kind() == DeviceErrorKind::Stream => b.wait(event)?,
            Err(e) => return fail(format!("to close a stream while a copy ran: {e:?}")),
        }
        b.accepted("to close a stream", |device| device.close_stream(stream))?;
    }
    let kind = b.refusal("to close the first stream", |d| d.close_stream(STREAM))?;
    if kind != DeviceErrorKind::Stream {
        return fail(format!("to close the first stream was refused as {kind:?}"));
    }
    let event = b.copy(STREAM, whole(host), whole(region))?;
    b.wait(event)
}

pub(super) fn a_record_is_behind_all<S: DeviceSubject>(b: B<'_, '_, S>) -> Done {
    for _ in 0..10 {
        let bytes = b.rng.bytes(3000);
        let (host, end) = (b.host(&bytes)?, b.host(&[0; 3000])?);
        let region = b.alloc(3000)?;
        b.copy(STREAM, whole(host), whole(region))?;
        let last = b.copy(STREAM, whole(region), whole(end))?;
        let event = b.accepted("to record", |device| device.record(STREAM))?;
        if event.stream != STREAM || event.number < last.number {
            return fail(format!("{event:?} was recorded behind {last:?}"));
        }
        b.wait(event)?;
        same("before an event that was recorded", &b.host_bytes(end), &bytes)?;
    }
    Ok(())
}

/// The second stream reads what the first one writes.
pub(super) fn a_stream_waits_for_an_event<S: DeviceSubject>(b: B<'_, '_, S>) -> Done {
    let stream = b.streams(1)?[0];
    for _ in 0..20 {
        let bytes = b.rng.bytes(3000);
        let (host, end) = (b.host(&bytes)?, b.host(&[0; 3000])?);
        let (near, far) = (b.alloc(3000)?, b.alloc(3000)?);
        b.copy(STREAM, whole(host), whole(near))?;
        let event = b.copy(STREAM, whole(near), whole(far))?;
        b.accepted("to wait", |device| device.wait(stream, event))?;
        let event = b.copy(stream, whole(far), whole(end))?;
        b.wait(event)?;
        same("what another stream wrote", &b.host_bytes(end), &bytes)?;
    }
    Ok(())
}
