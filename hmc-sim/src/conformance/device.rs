//! The suite that every device must pass, and what it needs to know of one.
//!
//! Implement [`DeviceSubject`] for your device and call [`run`]. Each case gets a fresh subject. No
//! case sleeps: it asks for a mark until it was passed, for as long as its [`Patience`].

use std::time::Instant;

use hmc_core::device::{Device, DeviceError, DeviceErrorKind, Mark, StreamId};
use hmc_core::region::{LocalRegion, LocalSlice};

use super::device_cases;
use super::report::{Report, Stop, caught};
use super::subject::{Patience, Support};
use crate::rng::Rng;

/// A device under test, and host memory that it can reach.
pub trait DeviceSubject {
    /// The device.
    type D: Device;

    /// Makes a device without memory. Earlier ones may be dropped.
    ///
    /// # Errors
    /// Why it could not be made; the case fails with it.
    fn fresh(&mut self) -> Result<(), String>;
    /// The device.
    fn device(&mut self) -> &mut Self::D;
    /// Host memory of `len` bytes that the device can reach.
    ///
    /// # Errors
    /// Why there is none.
    fn host(&mut self, len: u64) -> Result<LocalRegion, String>;
    /// Writes host memory.
    fn write_host(&mut self, region: LocalRegion, offset: u64, bytes: &[u8]);
    /// Reads host memory: it must move nothing and wait for nothing.
    fn read_host(&mut self, region: LocalRegion, offset: u64, out: &mut [u8]);
    /// How many streams may be used, from 0 on.
    fn streams(&self) -> u16 {
        1
    }
    /// Lets the device make progress where it does not by itself.
    fn drive(&mut self) {}
    /// Bytes that may be allocated in all, where a test may use them up.
    fn capacity(&self) -> Option<u64> {
        None
    }
    /// The device is lost.
    fn lose(&mut self) -> Support {
        Support::Unsupported("this device cannot be lost on purpose")
    }
    /// Looks for bytes that nobody may write and somebody wrote.
    ///
    /// # Errors
    /// What was found.
    fn check(&mut self) -> Result<(), String> {
        Ok(())
    }
    /// How long a case waits for this subject.
    fn patience(&self) -> Patience {
        Patience::REAL
    }
    /// The seed of the suite's own chance.
    fn seed(&self) -> u64 {
        1
    }
}

/// What a case works with: a subject and ways to wait for it.
#[derive(Debug)]
pub(super) struct Bench<'s, S: DeviceSubject> {
    pub(super) subject: &'s mut S,
    pub(super) rng: Rng,
    patience: Patience,
}

/// A promise, and the function that tries to catch the device breaking it.
#[derive(Debug)]
pub(super) struct DeviceCase<S: DeviceSubject> {
    pub(super) name: &'static str,
    pub(super) body: fn(&mut Bench<'_, S>) -> Result<(), Stop>,
}

pub(super) const STREAM: StreamId = StreamId(0);

impl<S: DeviceSubject> Bench<'_, S> {
    /// Host memory with these bytes.
    pub(super) fn host(&mut self, bytes: &[u8]) -> Result<LocalRegion, Stop> {
        let len = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        let region = self.subject.host(len)?;
        self.subject.write_host(region, 0, bytes);
        Ok(region)
    }

    /// What host memory holds.
    pub(super) fn host_bytes(&mut self, region: LocalRegion) -> Vec<u8> {
        let mut bytes =
            vec![0; usize::try_from(region.extent.len()).expect("test memory is small")];
        self.subject.read_host(region, 0, &mut bytes);
        bytes
    }

    /// Memory of the device.
    pub(super) fn alloc(&mut self, len: u64) -> Result<LocalRegion, Stop> {
        let mut last = None;
        // A shortage may pass.
        for _ in 0..64 {
            match self.subject.device().alloc(len) {
                Ok(region) => return Ok(region),
                Err(e) if e.kind() == DeviceErrorKind::NoSpace => last = Some(e),
                Err(e) => return Err(format!("{len} bytes were refused: {e:?}").into()),
            }
        }
        Err(format!("{len} bytes were refused again and again: {last:?}").into())
    }

    /// Submits until there is room.
    pub(super) fn copy(
        &mut self,
        stream: StreamId,
        from: LocalSlice,
        to: LocalSlice,
    ) -> Result<Mark, Stop> {
        for _ in 0..self.patience.turns.min(1 << 20) {
            match self.subject.device().copy(stream, from, to) {
                Ok(mark) if mark.stream != stream => {
                    return Err(format!("a copy in {stream:?} got {mark:?}").into());
                }
                Ok(mark) => return Ok(mark),
                Err(e) if e.kind() == DeviceErrorKind::Busy => {
                    // Whoever is busy must be asked about something to make progress.
                    self.subject.drive();
                    std::thread::yield_now();
                }
                Err(e) => return Err(format!("{from:?} to {to:?} was refused: {e:?}").into()),
            }
        }
        Err("busy for ever".to_owned().into())
    }

    /// Waits until a mark was passed.
    pub(super) fn wait(&mut self, mark: Mark) -> Result<(), Stop> {
        let begin = Instant::now();
        for turn in 0..self.patience.turns {
            match self.subject.device().passed(mark) {
                Ok(true) => return Ok(()),
                Ok(false) => self.subject.drive(),
                Err(e) => return Err(format!("{mark:?}: {e:?}").into()),
            }
            if turn.is_multiple_of(64) {
                std::thread::yield_now();
                if begin.elapsed() > self.patience.wall {
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

    /// What a region of the device holds.
    pub(super) fn bytes(&mut self, region: LocalRegion) -> Result<Vec<u8>, Stop> {
        let blank = vec![0x5A; usize::try_from(region.extent.len()).expect("small")];
        let host = self.host(&blank)?;
        self.copied(whole(region), whole(host))?;
        Ok(self.host_bytes(host))
    }

    /// Nothing may happen for a while.
    pub(super) fn settle(&mut self) {
        for _ in 0..self.patience.settle {
            self.subject.drive();
        }
    }
}

/// All of a region.
pub(super) const fn whole(region: LocalRegion) -> LocalSlice {
    LocalSlice { key: region.key, span: region.extent.whole() }
}

/// Runs all cases, each on a fresh subject.
pub fn run<S: DeviceSubject>(make: impl Fn() -> S) -> Report {
    let one = |case: &DeviceCase<S>| {
        caught(|| {
            let mut subject = make();
            subject.fresh()?;
            let (patience, rng) = (subject.patience(), Rng::new(subject.seed()));
            let mut bench = Bench { subject: &mut subject, rng, patience };
            (case.body)(&mut bench)?;
            bench.settle();
            Ok(bench.subject.check()?)
        })
    };
    let cases = device_cases::all::<S>();
    Report { lines: cases.iter().map(|case| (case.name, one(case))).collect() }
}
