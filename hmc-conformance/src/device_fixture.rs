//! [`Fixture`]: a device under test, and the operations of cases on it.

use std::time::Instant;

use hmc_core::device::{
    Allocation, Copies as _, DeviceError, DeviceErrorKind, DeviceMemory, StreamEvent, StreamId,
    Streams as _,
};
use hmc_core::region::{LocalRegion, LocalSlice, RegionKey};

use super::device_subject::DeviceSubject;
use super::report::{Done, Stop};
use super::subject::IdleLimit;
use crate::rng::Rng;

pub(super) const STREAM: StreamId = StreamId::FIRST;

/// The fixture of a case: a subject and ways to wait for it.
#[derive(Debug)]
pub(super) struct Fixture<'s, S: DeviceSubject> {
    pub(super) subject: &'s mut S,
    pub(super) rng: Rng,
    keys: u16,
    idle_limit: IdleLimit,
}

/// The fixture as a case gets it.
pub(super) type B<'b, 's, S> = &'b mut Fixture<'s, S>;

impl<'s, S: DeviceSubject> Fixture<'s, S> {
    pub(super) fn new(subject: &'s mut S) -> Self {
        let (idle_limit, rng) = (subject.idle_limit(), Rng::new(subject.seed()));
        Self { subject, rng, keys: 0, idle_limit }
    }

    /// A key that no region of the case has.
    pub(super) fn key(&mut self) -> RegionKey {
        self.keys = self.keys.checked_add(1).expect("a case makes few regions");
        RegionKey { index: self.keys, generation: 7 }
    }

    /// Host memory with these bytes.
    pub(super) fn host(&mut self, bytes: &[u8]) -> Result<LocalRegion, Stop> {
        let len = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        let key = self.key();
        let region = self.subject.host(key, len)?;
        self.subject.write_host(region, 0, bytes);
        Ok(region)
    }

    /// Returns the bytes of host memory.
    pub(super) fn host_bytes(&mut self, region: LocalRegion) -> Vec<u8> {
        let mut bytes =
            vec![0; usize::try_from(region.extent.len()).expect("test memory is small")];
        self.subject.read_host(region, 0, &mut bytes);
        bytes
    }

    /// Memory of the device.
    pub(super) fn alloc(&mut self, len: u64) -> Result<LocalRegion, Stop> {
        let key = self.key();
        with_space(|| self.subject.device().alloc(key, &Allocation::device(len)))
    }

    /// Makes a call until the device accepts it.
    pub(super) fn accepted<T: core::fmt::Debug>(
        &mut self,
        what: &str,
        mut call: impl FnMut(&mut S::D) -> Result<T, <S::D as DeviceMemory>::Error>,
    ) -> Result<T, Stop> {
        for _ in 0..self.idle_limit.turns.min(1 << 20) {
            match call(self.subject.device()) {
                Ok(done) => return Ok(done),
                Err(e) if e.kind() == DeviceErrorKind::Busy => {
                    // A query makes a busy device progress.
                    self.subject.drive();
                    std::thread::yield_now();
                }
                Err(e) => return Err(format!("{what} was refused: {e:?}").into()),
            }
        }
        Err("busy for ever".to_owned().into())
    }

    /// Submits a copy until the device accepts it.
    pub(super) fn copy(
        &mut self,
        stream: StreamId,
        from: LocalSlice,
        to: LocalSlice,
    ) -> Result<StreamEvent, Stop> {
        let what = format!("{from:?} to {to:?}");
        let event = self.accepted(&what, |device| device.copy(stream, from, to))?;
        if event.stream == stream {
            return Ok(event);
        }
        Err(format!("a copy in {stream:?} got {event:?}").into())
    }

    /// The kind of a refusal that is not `Busy`.
    pub(super) fn refusal<T>(
        &mut self,
        what: &str,
        mut call: impl FnMut(&mut S::D) -> Result<T, <S::D as DeviceMemory>::Error>,
    ) -> Result<DeviceErrorKind, Stop> {
        for _ in 0..self.idle_limit.turns.min(1 << 20) {
            match refusal(what, call(self.subject.device()))? {
                DeviceErrorKind::Busy => self.subject.drive(),
                kind => return Ok(kind),
            }
        }
        Err("busy for ever".to_owned().into())
    }

    /// New streams, as many as the device has and at most `count`.
    pub(super) fn streams(&mut self, count: usize) -> Result<Vec<StreamId>, Stop> {
        let mut all = Vec::new();
        while all.len() < count {
            match self.subject.device().open_stream() {
                Ok(stream) if stream == STREAM || all.contains(&stream) => {
                    return fail(format!("{stream:?} is there already"));
                }
                Ok(stream) => all.push(stream),
                Err(e) if e.kind() == DeviceErrorKind::NoSpace => break,
                Err(e) => return fail(format!("no stream: {e:?}")),
            }
        }
        if all.is_empty() {
            return Err(Stop::Skipped("the device has one stream".to_owned()));
        }
        Ok(all)
    }

    /// Waits until a stream event has passed.
    pub(super) fn wait(&mut self, event: StreamEvent) -> Result<(), Stop> {
        let begin = Instant::now();
        for turn in 0..self.idle_limit.turns {
            match self.subject.device().passed(event) {
                Ok(true) => return Ok(()),
                Ok(false) => self.subject.drive(),
                Err(e) => return Err(format!("{event:?}: {e:?}").into()),
            }
            if turn.is_multiple_of(64) {
                std::thread::yield_now();
                if begin.elapsed() > self.idle_limit.time {
                    break;
                }
            }
        }
        Err(format!("{event:?} was never passed").into())
    }

    /// Copies and waits.
    pub(super) fn copied(&mut self, from: LocalSlice, to: LocalSlice) -> Result<(), Stop> {
        let event = self.copy(STREAM, from, to)?;
        self.wait(event)
    }

    /// Memory of the device with these bytes.
    pub(super) fn filled(&mut self, bytes: &[u8]) -> Result<LocalRegion, Stop> {
        let host = self.host(bytes)?;
        let region = self.alloc(host.extent.len())?;
        self.copied(whole(host), whole(region))?;
        Ok(region)
    }

    /// Returns the bytes of a region of the device.
    pub(super) fn bytes(&mut self, region: LocalRegion) -> Result<Vec<u8>, Stop> {
        let blank = vec![0x5A; usize::try_from(region.extent.len()).expect("small")];
        let host = self.host(&blank)?;
        self.copied(whole(region), whole(host))?;
        Ok(self.host_bytes(host))
    }

    /// Drives the device for a while, in which nothing may change.
    pub(super) fn settle(&mut self) {
        for _ in 0..self.idle_limit.settle {
            self.subject.drive();
        }
    }
}

/// Allocates, also if a shortage is temporary.
pub(super) fn with_space<E: DeviceError>(
    mut alloc: impl FnMut() -> Result<LocalRegion, E>,
) -> Result<LocalRegion, Stop> {
    let mut last = None;
    for _ in 0..64 {
        match alloc() {
            Ok(region) => return Ok(region),
            Err(e) if e.kind() == DeviceErrorKind::NoSpace => last = Some(e),
            Err(e) => return fail(format!("memory was refused: {e:?}")),
        }
    }
    fail(format!("memory was refused again and again: {last:?}"))
}

/// All of a region.
pub(super) const fn whole(region: LocalRegion) -> LocalSlice {
    LocalSlice { key: region.key, span: region.extent.whole() }
}

pub(super) fn part(region: LocalRegion, offset: u64, len: u64) -> LocalSlice {
    region.slice(offset, len).expect("within the region")
}

pub(super) fn fail<T>(why: String) -> Result<T, Stop> {
    Err(Stop::Failed(why))
}

pub(super) fn same(what: &str, got: &[u8], want: &[u8]) -> Done {
    if got == want {
        return Ok(());
    }
    let first = got.iter().zip(want).position(|(g, w)| g != w).unwrap_or(want.len().min(got.len()));
    fail(format!("{what}: the first of the wrong bytes is {first} of {}", want.len()))
}

/// The kind of a refusal.
pub(super) fn refusal<T, E: DeviceError>(
    what: &str,
    got: Result<T, E>,
) -> Result<DeviceErrorKind, Stop> {
    got.err().map(|e| e.kind()).ok_or_else(|| Stop::Failed(format!("{what} was accepted")))
}

pub(super) fn size(n: u64) -> usize {
    usize::try_from(n).expect("test memory is small")
}
