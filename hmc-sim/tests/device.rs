//! The devices of this crate pass the suite for devices, under any conditions; broken ones fail the case that is meant for them.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "tests may panic"
)]

mod broken_device;
mod device_faults;

use broken_device::{Broken, Flaw};
use hmc_core::device::{
    Allocation, Copies as _, DeviceErrorKind, DeviceMemory as _, StreamId, Streams as _,
};
use hmc_core::place::Place;
use hmc_core::region::{LocalRegion, RegionKey};
use hmc_core::types::MemoryKind;
use hmc_sim::conformance::device::{Call, cases_of, run};
use hmc_sim::conformance::device_subjects::{FakeSubject, HostSubject};
use hmc_sim::conformance::transport::Report;
use hmc_sim::device::fake::{Config, FakeDevice};
use hmc_sim::fault::Rate;

/// Cases that the host device does not support: it has one stream, may not be filled, is never lost, and reaches host memory.
const LACKING: [&str; 14] = [
    "pinned_memory_is_the_hosts",
    "usage_counts_what_is_allocated",
    "memory_comes_back",
    "memory_runs_out",
    "added_memory_is_the_same",
    "copies_between_devices",
    "rows_are_copied",
    "rows_within_one_region",
    "rows_must_fit",
    "host_memory_alone",
    "streams_run_side_by_side",
    "streams_close",
    "a_stream_waits_for_an_event",
    "loss_is_for_ever",
];

/// Those that need a second stream.
const STREAMS: [&str; 3] =
    ["streams_run_side_by_side", "streams_close", "a_stream_waits_for_an_event"];

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
            1 => &STREAMS,
            _ => &[],
        };
        let report = run(|| FakeSubject::new(config, |fake| fake));
        report.assert_passed_but(&format!("the fake device, streams: {}", config.streams), skipped);
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

        #[test]
        fn every_flaw_is_caught() {
            let caught = [$(Flaw::$flaw),+];
            let left: Vec<_> = Flaw::ALL.iter().filter(|(flaw, _)| !caught.contains(flaw)).collect();
            assert!(left.is_empty(), "{left:?}");
        }
    };
}

caught! {
    wrong_id: WrongId by "regions_are_described";
    no_name: NoName by "regions_are_described";
    wrong_total: WrongTotal by "usage_counts_what_is_allocated";
    wrong_shortage: WrongShortage by "memory_runs_out";
    leaves_old_bytes: LeavesOldBytes by "new_memory_is_zero";
    takes_used_keys: TakesUsedKeys by "a_key_in_use_is_refused";
    pinned_elsewhere: PinnedElsewhere by "pinned_memory_is_the_hosts";
    adds_other: AddsOther by "added_memory_is_the_same";
    keeps_handles: KeepsHandles by "freed_keys_are_dead";
    ignores_generation: IgnoresGeneration by "unknown_regions";
    leaks_freed: LeaksFreed by "memory_comes_back";
    frees_in_flight: FreesInFlight by "free_waits_for_copies";
    frees_when_lost: FreesWhenLost by "loss_is_for_ever";
    usage_stands_still: UsageStandsStill by "usage_counts_what_is_allocated";
    one_byte_short: OneByteShort by "to_the_device_and_back";
    forgets_order: ForgetsOrder by "a_stream_keeps_its_order";
    busy_but_done: BusyButDone by "busy_has_no_effect";
    cuts_unequal: CutsUnequal by "unequal_lengths";
    bends_range: BendsRange by "outside_of_regions";
    takes_overlaps: TakesOverlaps by "overlapping_ranges";
    any_class: AnyClass by "unknown_classes";
    copies_again: CopiesAgain by "source_and_destination_are_free";
    events_stand_still: EventsStandStill by "events_grow";
    any_stream: AnyStream by "unknown_streams_and_events";
    rows_without_gaps: RowsWithoutGaps by "rows_are_copied";
    rows_of_any_length: RowsOfAnyLength by "rows_must_fit";
    fills_one_short: FillsOneShort by "a_range_is_filled";
    returns_early: ReturnsEarly by "copies_in_the_call";
    opens_no_stream: OpensNoStream by "streams_run_side_by_side";
    closes_in_flight: ClosesInFlight by "streams_close";
    records_too_early: RecordsTooEarly by "a_record_is_behind_all";
    passed_at_once: PassedAtOnce by "to_the_device_and_back";
    never_passed: NeverPassed by "many_in_flight";
    forgets_passed: ForgetsPassed by "events_grow";
    forgets_loss: ForgetsLoss by "loss_is_for_ever";
    waits_for_nothing: WaitsForNothing by "a_stream_waits_for_an_event";
}

/// Prints, for each call, the cases that check it and the flaws that they were seen to catch.
#[test]
fn every_call_has_a_case_and_a_flaw() {
    for call in Call::ALL {
        let cases = cases_of::<HostSubject>(call);
        let flaws = Flaw::ALL.iter().filter(|(_, of)| *of == call);
        let flaws: Vec<_> = flaws.map(|(flaw, _)| flaw).collect();
        println!("{call:?}: {} caught {flaws:?}", cases.join(", "));
        assert!(!cases.is_empty() && !flaws.is_empty(), "{call:?} is not checked");
    }
}

const KEY: RegionKey = RegionKey { index: 1, generation: 1 };
const HOST: RegionKey = RegionKey { index: 2, generation: 1 };
const END: RegionKey = RegionKey { index: 3, generation: 1 };

#[test]
fn the_host_cannot_reach_the_device() {
    let mut fake = FakeDevice::new(Config::FAIR);
    let region = fake.alloc(KEY, &Allocation::device(64)).expect("memory");
    assert_eq!(region.place.kind(), MemoryKind::NvidiaGpu);
    let mut out = [7; 8];
    assert!(!fake.host_read(region, 0, &mut out) && !fake.host_write(region, 0, &[1; 8]));
    assert_eq!(out, [7; 8]);
    // Not even by calling it host memory.
    let pretended = LocalRegion { place: Place::HOST, ..region };
    assert!(!fake.host_read(pretended, 0, &mut out));
}

/// Its key is that of other memory there.
#[test]
fn memory_of_another_machine_is_out_of_reach() {
    let [mut here, mut there] = [(); 2].map(|()| FakeDevice::new(Config::FAIR));
    here.alloc(KEY, &Allocation::device(64)).unwrap();
    there.alloc(KEY, &Allocation::device(64)).unwrap();
    let memory = there.memory(KEY).unwrap();
    assert_eq!(here.add(END, memory), Err(DeviceErrorKind::Unsupported));
    let memory = here.memory(KEY).unwrap();
    assert_eq!(here.add(END, memory).map(|region| region.key), Ok(END));
}

#[test]
fn who_looks_too_early_sees_that_it_was() {
    let mut fake = FakeDevice::new(Config { delay_max_ns: 50_000, seed: 4, ..Config::FAIR });
    let (source, end) = (fake.host(HOST, 64).expect("memory"), fake.host(END, 64).expect("memory"));
    let region = fake.alloc(KEY, &Allocation::device(64)).expect("memory");
    assert!(fake.host_write(source, 0, &[1; 64]));
    let all = |r: LocalRegion| r.slice(0, 64).expect("all");
    fake.copy(StreamId::FIRST, all(source), all(region)).expect("accepted");
    let event = fake.copy(StreamId::FIRST, all(region), all(end)).expect("accepted");
    let mut out = [0; 64];
    fake.advance(1_000_000);
    // It is over, and nobody has asked.
    assert!(fake.host_read(end, 0, &mut out));
    assert_eq!((out, fake.misuse().len()), ([0xBB; 64], 1));
    assert_eq!(fake.passed(event), Ok(true));
    assert!(fake.host_read(end, 0, &mut out));
    assert_eq!((out, fake.misuse().len()), ([1; 64], 1));
}

#[test]
fn a_failed_copy_fails_every_event_behind_it_and_is_a_fence() {
    let mut fake = FakeDevice::new(Config { failed: Rate::ALWAYS, ..Config::FAIR });
    let (host, region) = (
        fake.host(HOST, 64).expect("memory"),
        fake.alloc(KEY, &Allocation::device(64)).expect("memory"),
    );
    let all = |r: LocalRegion| r.slice(0, 64).expect("all");
    let event = fake.copy(StreamId::FIRST, all(host), all(region)).expect("accepted");
    let end = loop {
        match fake.passed(event) {
            Ok(false) => {}
            end => break end,
        }
    };
    assert_eq!(end, Err(DeviceErrorKind::Other));
    assert_eq!(fake.free(region.key), Ok(()));
    assert_eq!(fake.free(host.key), Ok(()));
}

#[test]
fn a_lost_device_keeps_its_memory() {
    let mut fake = FakeDevice::new(Config { lost_after: Some(3), ..Config::FAIR });
    let (host, region) = (
        fake.host(HOST, 64).expect("memory"),
        fake.alloc(KEY, &Allocation::device(64)).expect("memory"),
    );
    let all = |r: LocalRegion| r.slice(0, 64).expect("all");
    for _ in 0..3 {
        fake.copy(StreamId::FIRST, all(host), all(region)).expect("it lives");
    }
    let copy = fake.copy(StreamId::FIRST, all(host), all(region));
    assert_eq!(copy, Err(DeviceErrorKind::Lost));
    assert_eq!(fake.free(region.key), Err(DeviceErrorKind::Lost));
    assert_eq!((fake.used_bytes(), fake.region(region.key)), (64, Some(region)));
}
