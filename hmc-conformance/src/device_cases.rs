//! The cases of the suite for devices, and the calls that each of them checks.

use super::device_copies::*;
use super::device_fixture::Fixture;
use super::device_memory::*;
use super::device_refusals::*;
use super::device_rows::*;
use super::device_streams::*;
use super::device_subject::DeviceSubject;
use super::report::Done;

/// The calls of the interface of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each is a function of `hmc_core::device`")]
pub enum Call {
    Id,
    Name,
    Attributes,
    Alloc,
    Add,
    Memory,
    Free,
    Region,
    Usage,
    Copy,
    CopyRows,
    Fill,
    CopyNow,
    OpenStream,
    CloseStream,
    Record,
    Passed,
    Wait,
}

impl Call {
    /// All of them.
    pub const ALL: [Self; 18] = [
        Self::Id,
        Self::Name,
        Self::Attributes,
        Self::Alloc,
        Self::Add,
        Self::Memory,
        Self::Free,
        Self::Region,
        Self::Usage,
        Self::Copy,
        Self::CopyRows,
        Self::Fill,
        Self::CopyNow,
        Self::OpenStream,
        Self::CloseStream,
        Self::Record,
        Self::Passed,
        Self::Wait,
    ];
}

/// A promise, the calls that it is about, and the function that tries to catch the device breaking it.
#[derive(Debug)]
pub(super) struct DeviceCase<S: DeviceSubject> {
    pub(super) name: &'static str,
    pub(super) calls: &'static [Call],
    pub(super) body: fn(&mut Fixture<'_, S>) -> Done,
}

macro_rules! cases {
    ($($name:ident: $($call:ident)+;)+) => {
        pub(super) fn all<S: DeviceSubject>() -> Vec<DeviceCase<S>> {
            vec![$(DeviceCase {
                name: stringify!($name),
                calls: &[$(Call::$call),+],
                body: $name::<S>,
            }),+]
        }
    };
}

cases! {
    regions_are_described: Id Name Attributes Alloc Region;
    new_memory_is_zero: Alloc;
    a_key_in_use_is_refused: Alloc Add;
    regions_are_apart: Alloc;
    pinned_memory_is_the_hosts: Alloc;
    usage_counts_what_is_allocated: Usage Attributes;
    memory_comes_back: Free Usage;
    memory_runs_out: Alloc;
    freed_keys_are_dead: Free Region Memory;
    free_waits_for_copies: Free;
    added_memory_is_the_same: Add Memory Free;
    copies_between_devices: Add Memory Copy;
    to_the_device_and_back: Copy;
    ranges_and_neighbours: Copy;
    within_the_device: Copy;
    source_and_destination_are_free: Copy Passed;
    many_in_flight: Copy Passed;
    busy_has_no_effect: Copy;
    nothing_to_copy: Copy;
    copies_in_the_call: CopyNow;
    a_range_is_filled: Fill;
    rows_are_copied: CopyRows;
    rows_within_one_region: CopyRows;
    rows_must_fit: CopyRows;
    unequal_lengths: Copy CopyRows CopyNow;
    outside_of_regions: Copy CopyRows CopyNow Fill;
    overlapping_ranges: Copy CopyRows CopyNow;
    unknown_regions: Copy CopyRows CopyNow Fill Region Memory Free;
    unknown_classes: Alloc;
    host_memory_alone: Copy CopyRows CopyNow Fill;
    random_script: Copy;
    a_stream_keeps_its_order: Copy Passed;
    events_grow: Copy Passed;
    streams_run_side_by_side: OpenStream Copy Passed;
    streams_close: OpenStream CloseStream;
    unknown_streams_and_events: Copy CopyRows Fill Record Passed Wait CloseStream;
    a_record_is_behind_all: Record Passed;
    a_stream_waits_for_an_event: Wait;
    loss_is_for_ever: Alloc Add Free Usage Copy CopyRows Fill CopyNow OpenStream CloseStream Record Passed Wait;
}
