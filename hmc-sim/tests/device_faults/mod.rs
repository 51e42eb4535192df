//! Scripts of random calls to the fake device, under faults: what it says of bytes and memory stays true.
//!
//! Each stream has regions of its own, and the script knows what each byte of them must be: the value of the last command that
//! wrote it, or nothing once a command of the stream has failed.

use crate::broken_device::{Broken, Flaw};
use hmc_core::device::{Allocation, Device, DeviceErrorKind, Rows, StreamEvent, StreamId};
use hmc_core::region::{LocalRegion, LocalSlice, RegionKey};
use hmc_sim::device::fake::{Config, FakeDevice};
use hmc_sim::fault::Rate;
use hmc_sim::rng::Rng;

const SEEDS: u64 = 2_000;
/// Bytes of a region.
const LEN: u64 = 256;
/// Queries after which a command is taken for one that never ends.
const PATIENCE: u32 = 4_000;

/// A stream with a region of the host and two of the device, and what their bytes must be.
struct Lane {
    stream: StreamId,
    regions: [LocalRegion; 3],
    bytes: [Vec<Option<u8>>; 3],
    last: Option<StreamEvent>,
}

/// What ended a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Done,
    Lost,
}

#[derive(Debug, Default)]
struct Seen {
    failed: u64,
    stuck: u64,
    no_space: u64,
    lost: u64,
}

struct Script<'s, D> {
    device: D,
    rng: Rng,
    keys: u16,
    seen: &'s mut Seen,
}

type Step<T> = Result<T, Stop>;

/// Why a script stops.
enum Stop {
    Lost,
    /// The device broke a promise.
    Broken(String),
}

fn broken<T>(what: impl Into<String>) -> Step<T> {
    Err(Stop::Broken(what.into()))
}

impl<D: Device<Error = DeviceErrorKind> + AsMut<FakeDevice>> Script<'_, D> {
    fn key(&mut self) -> RegionKey {
        self.keys += 1;
        RegionKey { index: self.keys, generation: 3 }
    }

    /// A call that may be refused for a while.
    fn accepted<T>(
        &mut self,
        mut call: impl FnMut(&mut D) -> Result<T, DeviceErrorKind>,
    ) -> Step<Result<T, DeviceErrorKind>> {
        for _ in 0..PATIENCE {
            match call(&mut self.device) {
                Err(DeviceErrorKind::Busy) => self.device.as_mut().advance(1_000),
                Err(DeviceErrorKind::Lost) => return Err(Stop::Lost),
                answer => return Ok(answer),
            }
        }
        Ok(Err(DeviceErrorKind::Busy))
    }

    fn alloc(&mut self) -> Step<Option<LocalRegion>> {
        let key = self.key();
        let before = self.accepted(|d| d.usage())?;
        match self.accepted(|d| d.alloc(key, &Allocation::device(LEN)))? {
            Ok(region) => Ok(Some(region)),
            Err(DeviceErrorKind::NoSpace) => {
                self.seen.no_space += 1;
                if self.device.region(key).is_some() || self.accepted(|d| d.usage())? != before {
                    return broken("memory that was refused is counted");
                }
                Ok(None)
            }
            Err(e) => broken(format!("memory was refused as {e:?}")),
        }
    }

    /// A lane, unless the device has no stream or no memory for it.
    fn lane(&mut self) -> Step<Option<Lane>> {
        let stream = match self.accepted(|d| d.open_stream())? {
            Ok(stream) => stream,
            Err(_) => return Ok(None),
        };
        let (Some(near), Some(far)) = (self.alloc()?, self.alloc()?) else {
            let _ = self.accepted(|d| d.close_stream(stream))?;
            return Ok(None);
        };
        let key = self.key();
        let host = self.device.as_mut().host(key, LEN).unwrap();
        let fresh: Vec<u8> = self.rng.bytes(usize::try_from(LEN).unwrap());
        assert!(self.device.as_mut().host_write(host, 0, &fresh));
        let zero = vec![Some(0); fresh.len()];
        let bytes = [fresh.into_iter().map(Some).collect(), zero.clone(), zero];
        Ok(Some(Lane { stream, regions: [host, near, far], bytes, last: None }))
    }

    /// One command, or none if the stream is stuck.
    fn command(&mut self, lane: &mut Lane) -> Step<()> {
        let (from, to) = [(0, 1), (1, 2), (2, 0), (0, 2), (2, 1), (1, 0)][self.rng.index(6)];
        let len = self.rng.below(LEN / 2);
        let at = [(); 2].map(|()| self.rng.below(LEN - len));
        let [f, t] = at.map(|at| usize::try_from(at).unwrap());
        let n = usize::try_from(len).unwrap();
        let slice = |region: LocalRegion, at| -> LocalSlice { region.slice(at, len).unwrap() };
        let (source, target) = (slice(lane.regions[from], at[0]), slice(lane.regions[to], at[1]));
        let (stream, fill) = (lane.stream, self.rng.index(4) == 0 && to != 0);
        let rows = Rows { count: 1, len, from_stride: len, to_stride: len };
        let by_rows = self.rng.index(4) == 0;
        let answer = self.accepted(|d| match (fill, by_rows) {
            (true, _) => d.fill(stream, target, 0x3C),
            (false, true) => d.copy_rows(stream, source, target, &rows),
            (false, false) => d.copy(stream, source, target),
        })?;
        match answer {
            Ok(event) => lane.last = Some(event),
            // The stream is full, and stays so.
            Err(DeviceErrorKind::Busy) => return Ok(()),
            Err(e) => return broken(format!("{source:?} to {target:?} was refused as {e:?}")),
        }
        let new = if fill { vec![Some(0x3C); n] } else { lane.bytes[from][f..f + n].to_vec() };
        lane.bytes[to][t..t + n].copy_from_slice(&new);
        Ok(())
    }

    /// Waits for all commands of a lane. Returns `false` if one never ends.
    fn finish(&mut self, lane: &mut Lane) -> Step<bool> {
        let Some(event) = lane.last.take() else { return Ok(true) };
        for _ in 0..PATIENCE {
            match self.device.passed(event) {
                Ok(true) => return Ok(true),
                Ok(false) => self.device.as_mut().advance(1_000),
                Err(DeviceErrorKind::Lost) => return Err(Stop::Lost),
                Err(DeviceErrorKind::Other) => {
                    self.seen.failed += 1;
                    // It is a fence, and says nothing of the bytes.
                    lane.bytes.iter_mut().for_each(|bytes| bytes.fill(None));
                    return Ok(true);
                }
                Err(e) => return broken(format!("{event:?}: {e:?}")),
            }
        }
        self.seen.stuck += 1;
        Ok(false)
    }

    /// Compares what is known of a lane, by copies in the call, and gives its memory back.
    fn check(&mut self, lane: &Lane) -> Step<()> {
        let [host, near, far] = lane.regions;
        let (mut key, mut bounce) = (self.key(), None);
        for (region, want) in [host, near, far].into_iter().zip(&lane.bytes) {
            let mut seen = vec![0; want.len()];
            if region == host {
                assert!(self.device.as_mut().host_read(host, 0, &mut seen));
            } else {
                let to =
                    *bounce.get_or_insert_with(|| self.device.as_mut().host(key, LEN).unwrap());
                let whole = |r: LocalRegion| LocalSlice { key: r.key, span: r.extent.whole() };
                if self.accepted(|d| d.copy_now(whole(region), whole(to)))?.is_err() {
                    continue;
                }
                assert!(self.device.as_mut().host_read(to, 0, &mut seen));
            }
            let wrong = want.iter().zip(&seen).position(|(w, s)| w.is_some_and(|w| w != *s));
            if let Some(at) = wrong {
                return broken(format!("byte {at} of {region:?} is wrong"));
            }
        }
        key = bounce.map_or(key, |region| region.key);
        for key in [host.key, near.key, far.key].into_iter().chain(bounce.map(|_| key)) {
            if let Err(e) = self.accepted(|d| d.free(key))? {
                return broken(format!("free of {key:?}: {e:?}"));
            }
        }
        match self.accepted(|d| d.close_stream(lane.stream))? {
            Ok(()) => Ok(()),
            Err(e) => broken(format!("to close {:?}: {e:?}", lane.stream)),
        }
    }

    /// What a command uses that never ends is not given back.
    fn check_stuck(&mut self, lane: &Lane) -> Step<()> {
        if self.accepted(|d| d.close_stream(lane.stream))? != Err(DeviceErrorKind::Stream) {
            return broken(format!("{:?}, which is stuck, was closed", lane.stream));
        }
        let freed = lane.regions.map(|region| self.accepted(|d| d.free(region.key)));
        let mut refused = 0;
        for answer in freed {
            refused += u32::from(answer? == Err(DeviceErrorKind::Region));
        }
        if refused == 0 { broken("all memory of a stuck stream was given back") } else { Ok(()) }
    }

    fn run(&mut self) -> Step<()> {
        for _ in 0..6 {
            let mut lanes = Vec::new();
            while let Some(lane) = self.lane()? {
                lanes.push(lane);
            }
            for _ in 0..30 {
                if let Some(at) = lanes.len().checked_sub(1) {
                    let at = self.rng.index(at + 1);
                    self.command(&mut lanes[at])?;
                }
            }
            for mut lane in lanes {
                match self.finish(&mut lane)? {
                    true => self.check(&lane)?,
                    false => self.check_stuck(&lane)?,
                }
            }
        }
        Ok(())
    }
}

fn config(seed: u64) -> Config {
    let mut rng = Rng::new(seed);
    let mut rate = |most: u64| Rate::per_million(u32::try_from(rng.below(most)).unwrap());
    let (busy, no_space, failed, never) =
        (rate(200_000), rate(200_000), rate(20_000), rate(10_000));
    let lost_after = (rng.below(4) == 0).then(|| 1 + rng.below(300));
    Config {
        seed,
        busy,
        no_space,
        failed,
        never,
        lost_after,
        capacity_bytes: 4 * LEN + rng.below(8 * LEN),
        streams: u16::try_from(2 + rng.below(4)).unwrap(),
        depth: usize::try_from(2 + rng.below(30)).unwrap(),
        delay_max_ns: 1 << rng.below(16),
        ..Config::FAIR
    }
}

/// Runs one script.
fn script<D>(seed: u64, seen: &mut Seen, wrap: impl Fn(FakeDevice) -> D) -> Result<End, String>
where
    D: Device<Error = DeviceErrorKind> + AsMut<FakeDevice>,
{
    let device = wrap(FakeDevice::new(config(seed)));
    let mut script = Script { device, rng: Rng::new(seed ^ 0x5EED), keys: 0, seen };
    let end = match script.run() {
        Ok(()) => End::Done,
        Err(Stop::Lost) => {
            script.seen.lost += 1;
            End::Lost
        }
        Err(Stop::Broken(why)) => return Err(format!("seed {seed}: {why}")),
    };
    let mut device = script.device;
    if end == End::Lost && device.usage() != Err(DeviceErrorKind::Lost) {
        return Err(format!("seed {seed}: the device came back"));
    }
    let fake = device.as_mut();
    fake.check().map_err(|corruption| format!("seed {seed}: {corruption}"))?;
    match fake.misuse().first() {
        Some(misuse) => Err(format!("seed {seed}: {misuse}")),
        None => Ok(end),
    }
}

#[test]
fn two_thousand_seeds() {
    let mut seen = Seen::default();
    for seed in 0..SEEDS {
        script(seed, &mut seen, |fake| fake).unwrap();
    }
    println!("{seen:?}");
    // Each fault acted.
    assert!(seen.failed > 100 && seen.stuck > 100 && seen.no_space > 100 && seen.lost > 100);
}

/// A script finds flaws by the bytes and the memory alone.
#[test]
fn flaws_are_found_by_some_seed() {
    for flaw in [
        Flaw::OneByteShort,
        Flaw::FillsOneShort,
        Flaw::PassedAtOnce,
        Flaw::CopiesAgain,
        Flaw::FreesInFlight,
        Flaw::ClosesInFlight,
        Flaw::LeavesOldBytes,
        Flaw::ReturnsEarly,
    ] {
        let found = (0..SEEDS).find_map(|seed| {
            script(seed, &mut Seen::default(), |fake| Broken::new(fake, flaw)).err()
        });
        println!("{flaw:?}: {found:?}");
        assert!(found.is_some(), "{flaw:?} was not found");
    }
    assert_eq!(script(1, &mut Seen::default(), |fake| Broken::new(fake, Flaw::None)).err(), None);
}
