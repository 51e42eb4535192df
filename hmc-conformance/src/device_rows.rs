//! Cases of the suite for devices: copies of rows.

use hmc_core::device::{Copies as _, Device as _, DeviceErrorKind, DeviceFeatures, Rows};

use super::device_fixture::{B, STREAM, fail, part, same, size};
use super::device_subject::DeviceSubject;
use super::report::{Done, Stop};

fn must_have_rows<S: DeviceSubject>(b: B<'_, '_, S>) -> Done {
    if b.subject.device().attributes().features.contains(DeviceFeatures::ROWS) {
        return Ok(());
    }
    Err(Stop::Skipped("the device copies row after row".to_owned()))
}

/// Each in turn to the device, within it, and back.
pub(super) fn rows_are_copied<S: DeviceSubject>(b: B<'_, '_, S>) -> Done {
    must_have_rows(b)?;
    for (count, len, from_stride, to_stride) in
        [(1, 7, 7, 7), (5, 16, 16, 16), (9, 3, 100, 5), (30, 64, 65, 128), (4, 1000, 1000, 1001)]
    {
        let rows = Rows { count, len, from_stride, to_stride };
        let (from_len, to_len) = rows.extents().expect("strides are no shorter than rows");
        let bytes = b.rng.bytes(size(from_len));
        let (host, near) = (b.host(&bytes)?, b.filled(&bytes)?);
        for (what, from, to_host) in
            [("in", host, false), ("within", near, false), ("out", near, true)]
        {
            let mut want = b.rng.bytes(size(to_len) + 20);
            let to = if to_host { b.host(&want)? } else { b.filled(&want)? };
            let (source, target) = (part(from, 0, from_len), part(to, 11, to_len));
            let event =
                b.accepted("rows", |device| device.copy_rows(STREAM, source, target, &rows))?;
            b.wait(event)?;
            for row in 0..u64::from(count) {
                let (f, t) = (size(row * from_stride), size(11 + row * to_stride));
                want[t..t + size(len)].copy_from_slice(&bytes[f..f + size(len)]);
            }
            let got = if to_host { b.host_bytes(to) } else { b.bytes(to)? };
            same(&format!("{rows:?} {what}"), &got, &want)?;
        }
    }
    Ok(())
}

/// Between parts of one region, which lie apart.
pub(super) fn rows_within_one_region<S: DeviceSubject>(b: B<'_, '_, S>) -> Done {
    must_have_rows(b)?;
    for (count, len, from_stride, to_stride) in
        [(3, 8, 40, 40), (3, 8, 16, 32), (4, 16, 16, 20), (1, 5, 5, 5)]
    {
        let rows = Rows { count, len, from_stride, to_stride };
        let (from_len, to_len) = rows.extents().expect("strides are no shorter than rows");
        let mut want = b.rng.bytes(size(from_len + to_len) + 10);
        let region = b.filled(&want)?;
        let (source, target) = (part(region, 3, from_len), part(region, 7 + from_len, to_len));
        let event = b.accepted("rows", |device| device.copy_rows(STREAM, source, target, &rows))?;
        b.wait(event)?;
        let old = want.clone();
        for row in 0..u64::from(count) {
            let (f, t) = (size(3 + row * from_stride), size(7 + from_len + row * to_stride));
            want[t..t + size(len)].copy_from_slice(&old[f..f + size(len)]);
        }
        same(&format!("{rows:?} within one region"), &b.bytes(region)?, &want)?;
    }
    Ok(())
}

/// Slices are as long as the rows, no shorter and no longer, and strides no shorter than a row.
pub(super) fn rows_must_fit<S: DeviceSubject>(b: B<'_, '_, S>) -> Done {
    must_have_rows(b)?;
    let bytes = b.rng.bytes(200);
    let (host, region) = (b.host(&[9; 200])?, b.filled(&bytes)?);
    let rows = Rows { count: 3, len: 10, from_stride: 20, to_stride: 30 };
    for (from, to, rows) in [
        (49, 70, rows),
        (51, 70, rows),
        (50, 69, rows),
        (50, 71, rows),
        (28, 70, Rows { from_stride: 9, ..rows }),
        (50, 70, Rows { to_stride: u64::MAX, ..rows }),
        (50, 70, Rows { count: 0, ..rows }),
    ] {
        let (source, target) = (part(host, 0, from), part(region, 0, to));
        let what = format!("{rows:?} from {from} to {to} bytes");
        let kind = b.refusal(&what, |device| device.copy_rows(STREAM, source, target, &rows))?;
        if kind != DeviceErrorKind::Range {
            return fail(format!("{what} was refused as {kind:?}"));
        }
    }
    b.settle();
    same("after rows that were refused", &b.bytes(region)?, &bytes)
}
