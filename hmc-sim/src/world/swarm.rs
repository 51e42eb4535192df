//! What a seed selects: network conditions, and the kinds and rates of faults.
//!
//! Swarm testing (Groce and others, ISSTA 2012): every kind is off in about half of the seeds, so that kinds that hide each
//! other also occur alone. Some seeds have no fault at all.

use crate::rng::Rng;

const MS: u64 = 1_000_000;

/// Parameters of a run that the caller fixes; the seed selects the rest.
#[derive(Clone, Copy, Debug, Default)]
pub struct RunShape {
    /// The number of ranks; the seed selects it if `None`.
    pub ranks: Option<u32>,
    /// The approximate number of requests; the seed selects it if `None`.
    pub requests: Option<u32>,
    /// Virtual hours that the script lasts, with few requests; seconds if zero.
    pub hours: u32,
    /// Also requests `Send` and `Recv`.
    pub rndv: bool,
    /// Factor of additional faults; a script without faults stays so.
    pub more_faults: u32,
}

/// How streams are cut into chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChunkMode {
    /// All that waits arrives at once.
    Whole,
    /// A random part of it.
    Random,
    /// Often one byte.
    Fine,
}

/// Network conditions: how the network behaves without faults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetConditions {
    /// Shortest delay from host to host.
    pub delay_ns: u64,
    /// At most so much more.
    pub jitter_ns: u64,
    /// Time for each KiB.
    pub ns_per_kib: u64,
    /// How streams are cut.
    pub split: ChunkMode,
    /// One of this number of chunks is followed by a stall; none if zero.
    pub stall_one_in: u64,
    /// How long such a stall is at most.
    pub stall_ns: u64,
    /// Bytes of a stream that may wait at the receiver.
    pub window: u64,
    /// Bytes that meet a closed end reset the connection, as TCP does.
    pub strict_close: bool,
    /// When a dialer without a reply fails.
    pub dial_ns: u64,
    /// A link may fail under these conditions alone, so a failed request needs no other cause.
    pub rough: bool,
}

/// How often each kind of event is put into a script.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FaultRates {
    /// Connections reset.
    pub cuts: u32,
    /// Paths blocked both ways.
    pub partitions: u32,
    /// Paths blocked one way.
    pub one_way: u32,
    /// Processes killed; the kernel closes their sockets.
    pub kills: u32,
    /// Hosts that vanish without closing anything.
    pub vanishes: u32,
    /// Killed ones start again in so many of ten cases.
    pub restarts: u32,
    /// Processes stopped and continued.
    pub pauses: u32,
    /// Streams that stand still.
    pub stalls: u32,
    /// Requests to disconnect.
    pub disconnects: u32,
    /// Requests to leave.
    pub leaves: u32,
    /// One of this number of requests is cancelled; none if zero.
    pub cancel_one_in: u64,
    /// One of so many ranges is bad; none if zero.
    pub bad_one_in: u64,
    /// Peers write to the same places.
    pub overlap: bool,
    /// Windows are used, in so many lives.
    pub windows: u32,
    /// Batches, gets, messages as well as puts.
    pub mixed: bool,
    /// Sizes around the chunk limit of 1 MiB.
    pub big: bool,
    /// Sizes that no send buffer takes at once.
    pub wide: bool,
}

impl FaultRates {
    /// How many faults a script with these rates gets.
    #[must_use]
    pub const fn faults(&self) -> u32 {
        self.cuts
            + self.partitions
            + self.one_way
            + self.kills
            + self.vanishes
            + self.pauses
            + self.stalls
    }
}

fn pick<T: Copy>(rng: &mut Rng, list: &[T]) -> T {
    list[rng.index(list.len())]
}

/// Samples network conditions.
#[must_use]
pub(crate) fn net_conditions(rng: &mut Rng, clean: bool) -> NetConditions {
    let rough = !clean && rng.below(5) == 0;
    let delay_ns = pick(rng, &[2_000, 20_000, 200_000, MS]);
    let jitter_ns = if rng.below(2) == 0 { 0 } else { rng.below(delay_ns * 4) };
    let mut conditions = NetConditions {
        delay_ns,
        jitter_ns,
        ns_per_kib: pick(rng, &[0, 100, 1_000, 5_000]),
        split: pick(rng, &[ChunkMode::Whole, ChunkMode::Random, ChunkMode::Fine]),
        stall_one_in: 0,
        stall_ns: 0,
        window: pick(rng, &[32 << 10, 64 << 10, 1 << 20]),
        strict_close: !clean && rng.below(2) == 0,
        dial_ns: pick(rng, &[300 * MS, 1_000 * MS]),
        rough,
    };
    if rough {
        conditions.delay_ns = pick(rng, &[MS, 20 * MS, 200 * MS]);
        conditions.jitter_ns = rng.below(conditions.delay_ns * 10);
        conditions.ns_per_kib = pick(rng, &[1_000, 100_000, 5 * MS]);
        conditions.stall_one_in = pick(rng, &[0, 50, 1_000]);
        conditions.stall_ns = pick(rng, &[10 * MS, 1_000 * MS, 5_000 * MS]);
        conditions.window = pick(rng, &[512, 4 << 10, 32 << 10]);
    }
    conditions
}

/// Samples the rates. `clean`: no fault, but everything an application may do.
#[must_use]
pub(crate) fn rates(rng: &mut Rng, clean: bool) -> FaultRates {
    let some = |rng: &mut Rng, most: u64| {
        if clean || rng.below(2) == 0 { 0 } else { rng.below(most) as u32 + 1 }
    };
    FaultRates {
        cuts: some(rng, 8),
        partitions: some(rng, 4),
        one_way: some(rng, 4),
        kills: some(rng, 4),
        vanishes: some(rng, 3),
        restarts: rng.below(11) as u32,
        pauses: some(rng, 4),
        stalls: some(rng, 4),
        disconnects: if rng.below(2) == 0 { 0 } else { rng.below(4) as u32 },
        leaves: if rng.below(4) == 0 { 1 } else { 0 },
        cancel_one_in: pick(rng, &[0, 0, 10, 40]),
        bad_one_in: pick(rng, &[0, 0, 20]),
        overlap: rng.below(4) == 0,
        windows: if rng.below(2) == 0 { 0 } else { rng.below(12) as u32 + 1 },
        mixed: rng.below(4) != 0,
        big: rng.below(64) == 0,
        wide: rng.below(8) == 0,
    }
}
