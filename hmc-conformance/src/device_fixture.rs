//! [`Fixture`]: a device under test, and the operations of cases on it.

use std::time::Instant;

use hmc_core::device::{Device, DeviceError, DeviceErrorKind, StreamEvent, StreamId};
use hmc_core::region::{LocalRegion, LocalSlice};

use super::device_subject::DeviceSubject;
use super::report::{Done, Stop};
use super::subject::IdleLimit;
use crate::rng::Rng;

pub(super) const STREAM: StreamId = StreamId(0);

/// The fixture of a case: a subject and ways to wait for it.
#[derive(Debug)]
pub(super) struct Fixture<'s, S: DeviceSubject> {
    pub(super) subject: &'s mut S,
    pub(super) rng: Rng,
    idle_limit: IdleLimit,
}

/// The fixture as a case gets it.
pub(super) type B<'b, 's, S> = &'b mut Fixture<'s, S>;

impl<'s, S: DeviceSubject> Fixture<'s, S> {
    pub(super) fn new(subject: &'s mut S) -> Self {
        let (idle_limit, rng) = (subject.idle_limit(), Rng::new(subject.seed()));
        Self { subject, rng, idle_limit }
    }

    /// Host memory with these bytes.
    pub(super) fn host(&mut self, bytes: &[u8]) -> Result<LocalRegion, Stop> {
        let len = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        let region = self.subject.host(len)?;
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
        let mut last = None;
        // A shortage may be temporary.
        for _ in 0..64 {
            match self.subject.device().alloc(len) {
                Ok(region) => return Ok(region),
                Err(e) if e.kind() == DeviceErrorKind::NoSpace => last = Some(e),
                Err(e) => return Err(format!("{len} bytes were refused: {e:?}").into()),
            }
        }
        Err(format!("{len} bytes were refused again and again: {last:?}").into())
    }

    /// Submits until the device accepts.
    pub(super) fn copy(
        &mut self,
        stream: StreamId,
        from: LocalSlice,
        to: LocalSlice,
    ) -> Result<StreamEvent, Stop> {
        for _ in 0..self.idle_limit.turns.min(1 << 20) {
            match self.subject.device().copy(stream, from, to) {
                Ok(mark) if mark.stream != stream => {
                    return Err(format!("a copy in {stream:?} got {mark:?}").into());
                }
                Ok(mark) => return Ok(mark),
                Err(e) if e.kind() == DeviceErrorKind::Busy => {
                    // A query makes a busy device progress.
                    self.subject.drive();
                    std::thread::yield_now();
                }
                Err(e) => return Err(format!("{from:?} to {to:?} was refused: {e:?}").into()),
            }
        }
        Err("busy for ever".to_owned().into())
    }

    /// Waits until a stream event has passed.
    pub(super) fn wait(&mut self, mark: StreamEvent) -> Result<(), Stop> {
        let begin = Instant::now();
        for turn in 0..self.idle_limit.turns {
            match self.subject.device().passed(mark) {
                Ok(true) => return Ok(()),
                Ok(false) => self.subject.drive(),
                Err(e) => return Err(format!("{mark:?}: {e:?}").into()),
            }
            if turn.is_multiple_of(64) {
                std::thread::yield_now();
                if begin.elapsed() > self.idle_limit.time {
                    break;
                }
            }
        }
        Err(format!("{mark:?} was never passed").into())
    }

    /// Copies and waits.
    pub(super) fn copied(&mut self, from: LocalSlice, to: LocalSlice) -> Result<(), Stop> {
        let mark = self.copy(STREAM, from, to)?;
        self.wait(mark)
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
