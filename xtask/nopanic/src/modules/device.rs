//! `hmc_core::device`: the forwarding implementation for `&mut D` too.

use crate::values::{any, done, key, kind, local, number};
use hmc_core::device::{Device, DeviceError, DeviceErrorKind, CopyKind, StreamEvent, StreamId};
use hmc_core::types::MemoryKind;
use hmc_core::region::{LocalRegion, LocalSlice, RegionKey};
use hmc_core::range::Extent;

pub(crate) fn call() {
    done(CopyKind::between(kind(), kind()));
    let e = any(DeviceErrorKind::Busy);
    done((e.kind(), e.code()));
    forward(&mut Opaque);
}

fn forward<D: Device<Error = DeviceErrorKind>>(mut d: D) {
    let stream = any(StreamId(0));
    done((d.kind(), d.name(), d.region(key())));
    done(d.alloc(number()));
    done(d.free(key()));
    done(d.copy(stream, local(), local()));
    done(d.passed(any(StreamEvent { stream, number: number() })));
}

struct Opaque;

impl Device for Opaque {
    type Error = DeviceErrorKind;

    fn kind(&self) -> MemoryKind {
        kind()
    }

    fn name(&self) -> &str {
        any("")
    }

    fn alloc(&mut self, len_bytes: u64) -> Result<LocalRegion, DeviceErrorKind> {
        any(Ok(LocalRegion { key: key(), extent: Extent::new(len_bytes), kind: kind() }))
    }

    fn free(&mut self, key: RegionKey) -> Result<(), DeviceErrorKind> {
        done(key);
        any(Ok(()))
    }

    fn region(&self, key: RegionKey) -> Option<LocalRegion> {
        any(Some(LocalRegion { key, extent: Extent::new(number()), kind: kind() }))
    }

    fn copy(
        &mut self,
        stream: StreamId,
        from: LocalSlice,
        to: LocalSlice,
    ) -> Result<StreamEvent, DeviceErrorKind> {
        done((from, to));
        any(Ok(StreamEvent { stream, number: number() }))
    }

    fn passed(&mut self, mark: StreamEvent) -> Result<bool, DeviceErrorKind> {
        done(mark);
        any(Ok(true))
    }
}
