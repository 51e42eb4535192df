//! The devices of this crate pass the suite for devices, under any conditions; broken ones fail the case that is meant for them.

#![allow(clippy::arithmetic_side_effects, clippy::indexing_slicing, reason = "tests may panic")]

use hmc_core::device::{Device, DeviceErrorKind, StreamEvent, StreamId};
use hmc_core::place::Place;
use hmc_core::region::{LocalRegion, LocalSlice, RegionKey};
use hmc_core::types::MemoryKind;
use hmc_sim::conformance::device::run;
use hmc_sim::conformance::device_subjects::{FakeSubject, HostSubject};
use hmc_sim::conformance::transport::Report;
use hmc_sim::device::fake::{Config, FakeDevice};
use hmc_sim::fault::Rate;

/// Cases that the host device does not support: it has one stream, may not be filled, and is never lost.
const LACKING: [&str; 4] =
    ["streams_run_side_by_side", "memory_comes_back", "memory_runs_out", "loss_is_for_ever"];

#[test]
fn the_host_device_passes() {
    let report = run(HostSubject::default);
    report.assert_passed_but("the host device", &LACKING);
}

#[test]
fn the_fake_device_passes_in_ideal_conditions() {
    run(|| FakeSubject::new(Config::FAIR, |fake| fake)).assert_all_passed();
}

#[test]
fn the_fake_device_passes_under_any_legal_conditions() {
    for seed in 1..=12u32 {
        let config = Config {
            seed: u64::from(seed),
            delay_max_ns: 200 << (seed % 8),
            busy: Rate::percent(seed * 4),
            no_space: Rate::percent(seed * 2),
            streams: u16::try_from(seed % 4 + 1).expect("small"),
            depth: 2 + 3 * usize::try_from(seed).expect("small"),
            ..Config::FAIR
        };
        println!("{config:?}");
        let skipped: &[&str] = match config.streams {
            1 => &["streams_run_side_by_side"],
            _ => &[],
        };
        let report = run(|| FakeSubject::new(config, |fake| fake));
        report.assert_passed_but(&format!("the fake device, streams: {}", config.streams), skipped);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flaw {
    /// The control: the wrapper itself is correct.
    None,
    /// Copies one byte less.
    OneByteShort,
    /// Says that a mark was passed when it was submitted.
    PassedAtOnce,
    /// Every seventh mark is never passed.
    NeverPassed,
    /// Copies of one stream run in several.
    ForgetsOrder,
    /// Says `Busy` to every fifth copy, and does it all the same.
    BusyButDone,
    /// Cuts unequal ranges to the shorter one.
    CutsUnequal,
    /// Bends a range that leaves its region.
    BendsRange,
    /// Takes any generation of a key for the newest.
    IgnoresGeneration,
    /// Says that freed memory is free, and keeps it.
    LeaksFreed,
    /// Frees under a running copy: says `Ok` whatever runs.
    FreesInFlight,
    /// Says `Other` when memory has run out.
    WrongShortage,
    /// Works again some time after its loss.
    ForgetsLoss,
    /// Frees memory of a lost device.
    FreesWhenLost,
    /// Copies once more after the mark was passed.
    CopiesAgain,
    /// Marks do not grow.
    MarksStandStill,
    /// Tells another kind of memory.
    WrongKind,
    /// Accepts streams that there are not.
    AnyStream,
    /// A mark that was passed once is not passed when asked again.
    ForgetsPassed,
}

struct Broken {
    fake: FakeDevice,
    flaw: Flaw,
    counted: u64,
    passed: Vec<StreamEvent>,
    newest: Vec<RegionKey>,
    /// Copies to be made again.
    again: Vec<(u32, LocalSlice, LocalSlice)>,
    /// Marks as told, and as they are.
    named: Vec<(StreamEvent, StreamEvent)>,
    copies: Vec<(StreamEvent, LocalSlice, LocalSlice)>,
    losses: u32,
}

impl AsMut<FakeDevice> for Broken {
    fn as_mut(&mut self) -> &mut FakeDevice {
        self.tick();
        &mut self.fake
    }
}

impl Broken {
    fn tick(&mut self) {
        for (wait, _, _) in &mut self.again {
            *wait -= 1;
        }
        while let Some(at) = self.again.iter().position(|(wait, _, _)| *wait == 0) {
            let (_, from, to) = self.again.swap_remove(at);
            // What is refused by now does no harm.
            let _ = self.fake.copy(StreamId(0), from, to);
        }
    }

    fn new(fake: FakeDevice, flaw: Flaw) -> Self {
        Self {
            fake,
            flaw,
            counted: 0,
            passed: Vec::new(),
            newest: Vec::new(),
            again: Vec::new(),
            named: Vec::new(),
            copies: Vec::new(),
            losses: 0,
        }
    }

    fn every(&mut self, n: u64) -> bool {
        self.counted += 1;
        self.counted.is_multiple_of(n)
    }

    fn cut(&self, slice: LocalSlice, len: u64) -> LocalSlice {
        let region = self.fake.region(slice.key);
        let cut = region.and_then(|r| r.slice(slice.span.offset(), len).ok());
        cut.unwrap_or(slice)
    }
}

impl Device for Broken {
    type Error = DeviceErrorKind;

    fn kind(&self) -> MemoryKind {
        match self.flaw {
            Flaw::WrongKind => MemoryKind::AmdGpu,
            _ => self.fake.kind(),
        }
    }

    fn name(&self) -> &str {
        self.fake.name()
    }

    fn alloc(&mut self, len_bytes: u64) -> Result<LocalRegion, DeviceErrorKind> {
        let region = self.fake.alloc(len_bytes).map_err(|e| match self.flaw {
            Flaw::WrongShortage if e == DeviceErrorKind::NoSpace => DeviceErrorKind::Other,
            _ => e,
        })?;
        self.newest.push(region.key);
        Ok(region)
    }

    fn free(&mut self, key: RegionKey) -> Result<(), DeviceErrorKind> {
        match (self.flaw, self.fake.free(key)) {
            (Flaw::FreesInFlight, Err(DeviceErrorKind::Region))
                if self.fake.region(key).is_some() =>
            {
                Ok(())
            }
            (Flaw::FreesWhenLost, Err(DeviceErrorKind::Lost)) => Ok(()),
            (Flaw::LeaksFreed, Ok(())) => {
                // As much as was freed stays away.
                let _ = self.fake.alloc(Config::FAIR.capacity_bytes / 8);
                Ok(())
            }
            (_, answer) => answer,
        }
    }

    fn region(&self, key: RegionKey) -> Option<LocalRegion> {
        let same = self.newest.iter().rev().find(|k| k.index == key.index);
        match (self.flaw, same) {
            (Flaw::IgnoresGeneration, Some(newest)) => self.fake.region(*newest),
            _ => self.fake.region(key),
        }
    }

    fn copy(
        &mut self,
        stream: StreamId,
        mut from: LocalSlice,
        mut to: LocalSlice,
    ) -> Result<StreamEvent, DeviceErrorKind> {
        let mut used = stream;
        let len = from.span.len().min(to.span.len());
        match self.flaw {
            Flaw::OneByteShort if len > 0 && from.span.len() == to.span.len() => {
                (from, to) = (self.cut(from, len - 1), self.cut(to, len - 1));
            }
            Flaw::CutsUnequal => (from, to) = (self.cut(from, len), self.cut(to, len)),
            Flaw::BendsRange => {
                for slice in [&mut from, &mut to] {
                    let region = self.fake.region(slice.key);
                    if let Some(region) = region.filter(|r| !r.extent.contains(slice.span)) {
                        let len = len.min(region.extent.len());
                        *slice = region.slice(0, len).expect("it fits");
                    }
                }
                let len = from.span.len().min(to.span.len());
                (from, to) = (self.cut(from, len), self.cut(to, len));
            }
            Flaw::ForgetsOrder => {
                self.counted += 1;
                used = StreamId(u16::try_from(self.counted % 3).expect("small"));
            }
            Flaw::AnyStream if stream.0 >= Config::FAIR.streams => used = StreamId(0),
            _ => {}
        }
        let real = self.fake.copy(used, from, to)?;
        if self.flaw == Flaw::BusyButDone && self.every(5) {
            return Err(DeviceErrorKind::Busy);
        }
        let told = match self.flaw {
            Flaw::MarksStandStill => StreamEvent { stream, number: real.number / 2 },
            Flaw::ForgetsOrder => {
                self.counted += 1;
                StreamEvent { stream, number: self.counted }
            }
            _ => StreamEvent { stream, ..real },
        };
        self.named.push((told, real));
        self.copies.push((told, from, to));
        Ok(told)
    }

    fn passed(&mut self, mark: StreamEvent) -> Result<bool, DeviceErrorKind> {
        let real = self.named.iter().rev().find(|(told, _)| *told == mark).map(|(_, real)| *real);
        let answer = self.fake.passed(real.unwrap_or(mark));
        match (self.flaw, answer) {
            (Flaw::PassedAtOnce, Ok(false)) => Ok(true),
            (Flaw::NeverPassed, Ok(true)) if mark.number.is_multiple_of(7) => Ok(false),
            (Flaw::ForgetsPassed, Ok(true)) if self.passed.contains(&mark) => Ok(false),
            (Flaw::ForgetsLoss, Err(DeviceErrorKind::Lost)) => {
                self.losses += 1;
                if self.losses > 4 { Ok(true) } else { Err(DeviceErrorKind::Lost) }
            }
            (_, Ok(true)) => {
                self.passed.push(mark);
                let copy = self.copies.iter().position(|(told, _, _)| *told == mark);
                if let (Flaw::CopiesAgain, Some(at)) = (self.flaw, copy) {
                    let (_, from, to) = self.copies.swap_remove(at);
                    self.again.push((2, from, to));
                }
                Ok(true)
            }
            (_, answer) => answer,
        }
    }
}

fn report(flaw: Flaw) -> Report {
    run(|| FakeSubject::new(Config::FAIR, move |fake| Broken::new(fake, flaw)))
}

#[test]
fn the_wrapper_itself_is_correct() {
    report(Flaw::None).assert_all_passed();
}

/// The flaw must be caught, and by the case that is meant for it.
#[track_caller]
fn caught(flaw: Flaw, by: &str) {
    let report = report(flaw);
    let failed: Vec<_> = report.failed().map(|(name, _)| name).collect();
    assert!(failed.contains(&by), "{flaw:?} was to be caught by {by}, and was by {failed:?}");
    println!("{flaw:?}: {failed:?}");
}

macro_rules! caught {
    ($($test:ident: $flaw:ident by $case:literal;)+) => {
        $(#[test] fn $test() { caught(Flaw::$flaw, $case); })+
    };
}

caught! {
    one_byte_short: OneByteShort by "to_the_device_and_back";
    passed_at_once: PassedAtOnce by "to_the_device_and_back";
    never_passed: NeverPassed by "many_in_flight";
    forgets_order: ForgetsOrder by "a_stream_keeps_its_order";
    busy_but_done: BusyButDone by "busy_has_no_effect";
    cuts_unequal: CutsUnequal by "unequal_lengths";
    bends_range: BendsRange by "outside_of_regions";
    ignores_generation: IgnoresGeneration by "unknown_regions";
    leaks_freed: LeaksFreed by "memory_comes_back";
    frees_in_flight: FreesInFlight by "free_waits_for_copies";
    wrong_shortage: WrongShortage by "memory_runs_out";
    forgets_loss: ForgetsLoss by "loss_is_for_ever";
    frees_when_lost: FreesWhenLost by "loss_is_for_ever";
    copies_again: CopiesAgain by "source_and_destination_are_free";
    marks_stand_still: MarksStandStill by "marks_grow";
    wrong_kind: WrongKind by "regions_are_described";
    any_stream: AnyStream by "unknown_streams_and_marks";
    forgets_passed: ForgetsPassed by "marks_grow";
}

#[test]
fn the_host_cannot_reach_the_device() {
    let mut fake = FakeDevice::new(Config::FAIR);
    let region = fake.alloc(64).expect("memory");
    assert_eq!(region.place.kind(), MemoryKind::NvidiaGpu);
    let mut out = [7; 8];
    assert!(!fake.host_read(region, 0, &mut out) && !fake.host_write(region, 0, &[1; 8]));
    assert_eq!(out, [7; 8]);
    // Not even by calling it host memory.
    let pretended = LocalRegion { place: Place::HOST, ..region };
    assert!(!fake.host_read(pretended, 0, &mut out));
}

#[test]
fn who_looks_too_early_sees_that_it_was() {
    let mut fake = FakeDevice::new(Config { delay_max_ns: 50_000, seed: 4, ..Config::FAIR });
    let (source, end) = (fake.host(64).expect("memory"), fake.host(64).expect("memory"));
    let region = fake.alloc(64).expect("memory");
    assert!(fake.host_write(source, 0, &[1; 64]));
    let all = |r: LocalRegion| r.slice(0, 64).expect("all");
    fake.copy(StreamId(0), all(source), all(region)).expect("accepted");
    let mark = fake.copy(StreamId(0), all(region), all(end)).expect("accepted");
    let mut out = [0; 64];
    fake.advance(1_000_000);
    // It is over, and nobody has asked.
    assert!(fake.host_read(end, 0, &mut out));
    assert_eq!((out, fake.misuse().len()), ([0xBB; 64], 1));
    assert_eq!(fake.passed(mark), Ok(true));
    assert!(fake.host_read(end, 0, &mut out));
    assert_eq!((out, fake.misuse().len()), ([1; 64], 1));
}

#[test]
fn a_failed_copy_fails_every_mark_behind_it_and_is_a_fence() {
    let mut fake = FakeDevice::new(Config { failed: Rate::ALWAYS, ..Config::FAIR });
    let (host, region) = (fake.host(64).expect("memory"), fake.alloc(64).expect("memory"));
    let all = |r: LocalRegion| r.slice(0, 64).expect("all");
    let mark = fake.copy(StreamId(0), all(host), all(region)).expect("accepted");
    let end = loop {
        match fake.passed(mark) {
            Ok(false) => {}
            end => break end,
        }
    };
    assert_eq!(end, Err(DeviceErrorKind::Other));
    assert_eq!(fake.free(region.key), Ok(()));
    assert!(fake.remove(host.key));
}

#[test]
fn a_lost_device_keeps_its_memory() {
    let mut fake = FakeDevice::new(Config { lost_after: Some(3), ..Config::FAIR });
    let (host, region) = (fake.host(64).expect("memory"), fake.alloc(64).expect("memory"));
    let all = |r: LocalRegion| r.slice(0, 64).expect("all");
    for _ in 0..3 {
        fake.copy(StreamId(0), all(host), all(region)).expect("it lives");
    }
    let copy = fake.copy(StreamId(0), all(host), all(region));
    assert_eq!(copy, Err(DeviceErrorKind::Lost));
    assert_eq!(fake.free(region.key), Err(DeviceErrorKind::Lost));
    assert_eq!((fake.used_bytes(), fake.region(region.key)), (64, Some(region)));
}
