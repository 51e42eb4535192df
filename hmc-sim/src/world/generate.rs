//! Generates the plan of a seed: which ranks connect, their requests, and the faults.
//!
//! All random choices of a script are here; a run samples only the behaviour of its network.

use super::node::{BatchPart, Outsider, Request};
use super::script::{Event, Plan, Step, tag_of};
use super::swarm::{self, FaultRates, RunShape};
use crate::rng::Rng;

const MS: u64 = 1_000_000;

/// The parts of a rank's buffer: sources of puts, landing places of gets, targets of peers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BufferLayout {
    /// Where landing places begin.
    pub(crate) landing: u64,
    /// Where targets begin.
    pub(crate) target: u64,
    /// Where targets end; a guard follows.
    pub(crate) end: u64,
}

impl BufferLayout {
    pub(crate) const fn of(buffer_len: u64) -> Self {
        Self { landing: buffer_len / 4, target: buffer_len / 2, end: buffer_len - 64 }
    }
}

struct PlanBuilder {
    rng: Rng,
    /// For what is added to the script of a seed: the rest of it stays as it is.
    more: Rng,
    plan: Plan,
    layout: BufferLayout,
    next_number: u64,
    sources: Vec<u64>,
    landings: Vec<u64>,
    pairs: Vec<(u32, u32)>,
    /// When ranks connect first.
    meet_ns: u64,
    first_ns: u64,
    last_ns: u64,
}

impl Plan {
    /// The plan of that seed.
    #[must_use]
    pub fn generate(seed: u64, shape: &RunShape) -> Self {
        let mut rng = Rng::new(seed ^ 0x5EED_0000_0000_0001);
        let clean = rng.below(8) == 0;
        let ranks = shape.ranks.unwrap_or_else(|| match rng.below(64) {
            0 => 9 + rng.below(56) as u32,
            n if n < 24 => 2,
            _ => 2 + rng.below(7) as u32,
        });
        let ranks = ranks.clamp(2, 64);
        let mut rates = swarm::rates(&mut rng, clean);
        // Long pieces need long strips, and long buffers time.
        rates.big &= ranks <= 4;
        rates.overlap |= rates.big;
        let mut conditions = swarm::net_conditions(&mut rng, clean);
        if rates.big {
            // Else a long piece outlasts the script: what has begun holds its memory until it is sent.
            conditions.window = conditions.window.max(1 << 20);
        }
        let skew_ns = if rng.below(2) == 0 { 0 } else { 1 + rng.below(2_000 * MS) };
        let starts_ns: Vec<u64> = (0..ranks).map(|_| rng.below(skew_ns)).collect();
        let buffer_len = match (rates.big, rates.wide) {
            (true, _) => 5 << 20,
            (_, true) => 256 << 10,
            _ => 16 << 10,
        };
        let first_ns = skew_ns + rng.below(100 * MS);
        let length_ns = match shape.hours {
            0 => (1 + rng.below(10)) * 1_000 * MS,
            hours => u64::from(hours) * 3_600_000 * MS,
        };
        let plan = Self {
            seed,
            ranks,
            buffer_len,
            heartbeat_ns: 500 * MS,
            deadline_ns: [1_000, 3_000, 10_000][rng.index(3)] * MS,
            starts_ns,
            conditions,
            rates,
            clean,
            steps: Vec::new(),
        };
        let mut draft = PlanBuilder {
            rng,
            more: Rng::new(seed ^ 0x5EED_0000_0000_0002),
            layout: BufferLayout::of(buffer_len),
            next_number: 0,
            sources: vec![0; ranks as usize],
            landings: vec![0; ranks as usize],
            pairs: Vec::new(),
            meet_ns: first_ns,
            first_ns,
            last_ns: first_ns + length_ns,
            plan,
        };
        draft.connect_ranks(shape.hours);
        let requests = shape.requests.unwrap_or_else(|| match draft.rng.below(4) {
            0 => 30 + draft.rng.below(100) as u32,
            _ => 100 + draft.rng.below(900) as u32,
        });
        let most = match (draft.plan.rates.big, draft.plan.rates.wide) {
            (true, _) => 60,
            (_, true) => 200,
            _ => u32::MAX,
        };
        draft.work(requests.min(most), shape.rndv);
        draft.windows();
        draft.ends();
        draft.faults(1 + shape.more_faults);
        draft.last_messages();
        draft.claims();
        draft.floods();
        draft.silent_connections();
        let mut plan = draft.plan;
        plan.steps.sort_by_key(|step| step.at_ns);
        plan
    }
}

impl PlanBuilder {
    fn when(&mut self) -> u64 {
        self.first_ns + self.rng.below(self.last_ns - self.first_ns)
    }

    fn one_in(&mut self, n: u64) -> bool {
        n != 0 && self.rng.below(n) == 0
    }

    fn request(&mut self, at_ns: u64, rank: u32, after: Option<u64>, request: Request) -> u64 {
        let number = self.next_number;
        self.next_number += 1;
        self.plan
            .steps
            .push(Step { at_ns, event: Event::Request { number, rank, after, request } });
        number
    }

    /// Selects the pairs of ranks that connect, and the dialing end.
    fn connect_ranks(&mut self, hours: u32) {
        let ranks = self.plan.ranks;
        for a in 0..ranks {
            for b in a + 1..ranks {
                let near = b == a + 1 || (a == 0 && b == ranks - 1);
                if near || (ranks <= 8 && self.rng.below(3) != 0) {
                    self.pairs.push((a, b));
                }
            }
        }
        for (a, b) in self.pairs.clone() {
            let calls = self.rng.below(4);
            let at = self.first_ns;
            // Both at once, one of them, and again later: a lost link is requested again.
            for (from, to) in [(a, b), (b, a)] {
                if calls == 0 || (calls % 2 == 1) == (from == a) {
                    let late = if self.rng.below(2) == 0 { 0 } else { self.rng.below(200 * MS) };
                    self.request(at + late, from, None, Request::Connect { rank: to });
                }
            }
            for _ in 0..2 + hours * 2 {
                let at = self.when();
                let (from, to) = if self.rng.below(2) == 0 { (a, b) } else { (b, a) };
                self.request(at, from, None, Request::Connect { rank: to });
            }
        }
        self.first_ns += 300 * MS;
        self.last_ns += 300 * MS;
    }

    fn pair(&mut self) -> (u32, u32) {
        let (a, b) = self.pairs[self.rng.index(self.pairs.len())];
        if self.rng.below(2) == 0 { (a, b) } else { (b, a) }
    }

    fn len(&mut self) -> u64 {
        let FaultRates { big, wide, .. } = self.plan.rates;
        match self.rng.below(if big || wide { 20 } else { 16 }) {
            0 => 0,
            1 => 1,
            2..=4 => 256 + self.rng.below(768),
            5..=15 => 1 + self.rng.below(256),
            n if big => (1 << 20) + n - 18,
            _ => 2_000 + self.rng.below(22_000),
        }
    }

    /// Returns the next offset in a ring of ranges.
    fn ring(next: &mut u64, from: u64, to: u64, len: u64) -> u64 {
        let at = if *next < from || *next + len > to { from } else { *next };
        *next = at + len;
        at
    }

    fn source(&mut self, rank: u32, len: u64) -> u64 {
        Self::ring(&mut self.sources[rank as usize], 0, self.layout.landing, len)
    }

    fn landing(&mut self, rank: u32, len: u64) -> u64 {
        let BufferLayout { landing, target, .. } = self.layout;
        Self::ring(&mut self.landings[rank as usize], landing, target, len)
    }

    /// Returns where `rank` writes in a peer's buffer: its own strip, or anywhere.
    fn remote(&mut self, rank: u32, len: u64) -> (u64, u64) {
        if self.one_in(self.plan.rates.bad_one_in) {
            // One byte too far, half of it too far, all of it, and an offset that overflows.
            let (len, end) = (len.max(2), self.plan.buffer_len);
            let offset = [end + 1 - len, end - len / 2, end, u64::MAX - len / 2];
            return (offset[self.rng.index(4)], len);
        }
        let BufferLayout { target, end, .. } = self.layout;
        let (from, to) = if self.plan.rates.overlap {
            (target, end)
        } else {
            let strip = (end - target) / u64::from(self.plan.ranks);
            (target + strip * u64::from(rank), target + strip * (u64::from(rank) + 1))
        };
        let len = len.min(to - from);
        (from + self.rng.below(to - from - len + 1), len)
    }

    fn piece(&mut self, rank: u32, get: bool) -> BatchPart {
        let len = self.len();
        let (remote, len) = self.remote(rank, len);
        let local = if get { self.landing(rank, len) } else { self.source(rank, len) };
        BatchPart { local, remote, len }
    }

    fn work(&mut self, requests: u32, rndv: bool) {
        let mut at = self.first_ns;
        for _ in 0..requests {
            // Bursts: many requests at one moment.
            if self.rng.below(4) != 0 {
                at = self.when();
            }
            let (rank, peer) = self.pair();
            if self.rng.below(8) == 0 {
                self.request(at, rank, None, Request::Connect { rank: peer });
            }
            let kind = if self.plan.rates.mixed { self.rng.below(16) } else { 0 };
            let tag = tag_of(self.next_number);
            let number = self.next_number;
            let request = match kind {
                0..=5 => Request::Put { peer, piece: self.piece(rank, false) },
                6..=8 => Request::Get { peer, piece: self.piece(rank, true) },
                9..=10 => Request::PutNotify { peer, piece: self.piece(rank, false), tag },
                11 => {
                    let many = self.rng.below(6);
                    let list = (0..many).map(|_| self.piece(rank, false)).collect();
                    Request::PutBatch { peer, list }
                }
                12..=13 => Request::Tag { peer, tag },
                14 => Request::Int { peer, value: i32::try_from(number).unwrap_or(-1) },
                _ if rndv && self.rng.below(2) == 0 => {
                    self.sends(at, rank, peer);
                    continue;
                }
                _ => {
                    let mut bytes = number.to_le_bytes().to_vec();
                    let more = self.rng.index(300);
                    bytes.extend(self.rng.bytes(more));
                    Request::Struct { peer, bytes }
                }
            };
            let put = matches!(request, Request::Put { .. });
            let number = self.request(at, rank, None, request);
            if put && self.rng.below(4) == 0 {
                let tag = tag_of(self.next_number);
                self.request(at, rank, Some(number), Request::Tag { peer, tag });
            }
            if self.one_in(self.plan.rates.cancel_one_in) {
                let late = self.rng.below(2) * self.rng.below(4 * self.plan.conditions.delay_ns);
                self.request(at + late, rank, None, Request::Cancel { number });
            }
        }
    }

    /// Sends and receives of data: several at once, either side first.
    fn sends(&mut self, at: u64, rank: u32, peer: u32) {
        const MOST: u64 = 256;
        for _ in 0..1 + self.rng.below(4) {
            let len = self.len().min(MOST);
            let (sends, receives) = (self.rng.below(100 * MS), self.rng.below(100 * MS));
            let local = self.source(rank, len);
            self.request(at + sends, rank, None, Request::Send { peer, local, len });
            let local = self.landing(peer, MOST);
            self.request(at + receives, peer, None, Request::Recv { peer: rank, local, len: MOST });
        }
    }

    /// Windows are exposed, used, revoked, and exposed again.
    fn windows(&mut self) {
        for incarnation in 0..self.plan.rates.windows {
            let (owner, peer) = self.pair();
            // Few labels for one pair, so that lives follow each other.
            let label = u64::from(owner) << 32 | u64::from(peer) << 8 | u64::from(incarnation % 2);
            let len = 64 + 64 * (label % 7);
            let from = self.when();
            let rights = self.rng.below(6);
            let (read, write) = (rights != 0, rights != 1);
            let expose = Request::Expose { peer, label, len, read, write };
            self.request(from, owner, None, expose);
            let length = self.rng.below(3_000) * MS;
            for _ in 0..self.rng.below(20) {
                let at =
                    from + 5 * self.plan.conditions.delay_ns + self.rng.below(length + length / 4);
                let many = self.rng.below(len + 1);
                let mut remote = self.rng.below(len - many + 1);
                if self.one_in(self.plan.rates.bad_one_in) {
                    remote = [len - many / 2, len + 1 - many][self.rng.index(2)];
                }
                let request = if self.rng.below(3) == 0 {
                    let local = self.landing(peer, many);
                    let piece = BatchPart { local, remote, len: many };
                    Request::GetWindow { peer: owner, label, piece }
                } else {
                    let local = self.source(peer, many);
                    let piece = BatchPart { local, remote, len: many };
                    Request::PutWindow { peer: owner, label, piece }
                };
                self.request(at, peer, None, request);
            }
            if self.rng.below(5) != 0 {
                let patience_ns = [10, 1_000][self.rng.index(2)] * MS;
                let revoke = Request::Revoke { label, patience_ns };
                let revoked = self.request(from + length, owner, None, revoke);
                if self.rng.below(3) == 0 {
                    // At once it is exposed again: what is still on its way means the last life.
                    let expose = Request::Expose { peer, label, len, read, write };
                    self.request(from + length, owner, Some(revoked), expose);
                }
                // A put in the same moment races with the revoke.
                let local = self.source(peer, len);
                let piece = BatchPart { local, remote: 0, len };
                let early = self.rng.below(2 * self.plan.conditions.delay_ns + 1);
                let at = (from + length).saturating_sub(early);
                self.request(at, peer, None, Request::PutWindow { peer: owner, label, piece });
            }
        }
    }

    /// Links that end in order.
    fn ends(&mut self) {
        for _ in 0..self.plan.rates.disconnects {
            let (rank, peer) = self.pair();
            let at = self.when();
            self.request(at, rank, None, Request::Disconnect { peer });
            if self.rng.below(2) == 0 {
                let at = at + self.rng.below(2_000 * MS);
                self.request(at, rank, None, Request::Connect { rank: peer });
            }
        }
        for _ in 0..self.plan.rates.leaves {
            let (rank, _) = self.pair();
            let at = self.when();
            self.request(at, rank, None, Request::Leave);
        }
    }

    fn faults(&mut self, times: u32) {
        let rates = self.plan.rates.clone();
        let kinds = [
            rates.cuts,
            rates.partitions,
            rates.one_way,
            rates.kills,
            rates.vanishes,
            rates.pauses,
            rates.stalls,
        ];
        for (kind, count) in kinds.into_iter().enumerate() {
            for _ in 0..count * times {
                let (a, b) = self.pair();
                // Short ones pass unnoticed, long ones outlast the heartbeats.
                let most_ms = [50, 1_000, 8_000][self.rng.index(3)];
                let for_ns = self.rng.below(most_ms * MS);
                let event = match kind {
                    0 => Event::Cut { a, b, all: self.rng.below(2) == 0 },
                    1 | 2 => Event::Partition { a, b, both: kind == 1, for_ns },
                    3 | 4 => {
                        let again = self.rng.below(10) < u64::from(rates.restarts);
                        let restart_ns = again.then_some(for_ns);
                        Event::Crash { rank: a, silent: kind == 4, restart_ns }
                    }
                    5 => Event::Pause { rank: a, for_ns },
                    _ => Event::Stall { a, b, all: self.rng.below(2) == 0, for_ns },
                };
                let at_ns = self.when();
                self.plan.steps.push(Step { at_ns, event });
                let later = at_ns + for_ns + self.rng.below(3_000 * MS);
                self.request(later, a, None, Request::Connect { rank: b });
            }
        }
    }

    /// What processes send right before they are killed.
    fn last_messages(&mut self) {
        let kill = |step: &Step| match step.event {
            Event::Crash { rank, silent: false, .. } => Some((step.at_ns, rank)),
            _ => None,
        };
        let kills: Vec<(u64, u32)> = self.plan.steps.iter().filter_map(kill).collect();
        let near_ns = 3 * self.plan.conditions.delay_ns + self.plan.conditions.jitter_ns;
        for (at_ns, rank) in kills {
            let of = |(a, b): &(u32, u32)| [(*a == rank, *b), (*b == rank, *a)];
            let ends = self.pairs.iter().flat_map(of).filter(|(is_it, _)| *is_it);
            let peers: Vec<u32> = ends.map(|(_, peer)| peer).collect();
            for _ in 0..self.more.below(4) {
                let peer = peers[self.more.index(peers.len())];
                let at = at_ns.saturating_sub(1 + self.more.below(near_ns));
                for _ in 0..1 + self.more.below(12) {
                    let number = self.next_number;
                    let request = if self.more.below(4) == 0 {
                        let mut bytes = number.to_le_bytes().to_vec();
                        let len = self.more.index(2_000);
                        bytes.extend(self.more.bytes(len));
                        Request::Struct { peer, bytes }
                    } else {
                        Request::Tag { peer, tag: tag_of(number) }
                    };
                    self.request(at, rank, None, request);
                }
            }
        }
    }

    fn outside(&mut self, at_ns: u64, to: u32, what: Outsider, many: u32, times: (u64, u64)) {
        let (within_ns, for_ns) = times;
        let event = Event::Outside { to, what, many, within_ns, for_ns };
        self.plan.steps.push(Step { at_ns, event });
    }

    /// Processes of another host claim ranks that their holders have not claimed yet, and go.
    fn claims(&mut self) {
        if self.plan.clean || self.more.below(4) != 0 {
            return;
        }
        for _ in 0..1 + self.more.below(3) {
            let (a, b) = self.pairs[self.more.index(self.pairs.len())];
            let (to, rank) = if self.more.below(2) == 0 { (a, b) } else { (b, a) };
            let from_ns = self.plan.starts_ns[to as usize];
            let at = from_ns + self.more.below(self.meet_ns + 100 * MS - from_ns);
            let incarnation = [u64::MAX, 1, self.more.next_u64()][self.more.index(3)];
            let most_ms = [10, 300, 1_500][self.more.index(3)];
            let times = (0, self.more.below(most_ms * MS));
            self.outside(at, to, Outsider::Claim { rank, incarnation }, 1, times);
        }
    }

    /// A process sends many requests for replies of one kind, and reads none.
    fn floods(&mut self) {
        const FRAMES: u32 = 16 << 10;
        if self.plan.clean || self.more.below(16) != 0 {
            return;
        }
        let to = self.more.below(u64::from(self.plan.ranks)) as u32;
        let at = self.first_ns + self.more.below(self.last_ns - self.first_ns);
        let rank = self.plan.ranks + self.more.below(64) as u32;
        let what = Outsider::Flood { rank, kind: self.more.below(256) as u8, frames: FRAMES };
        let times = (0, (1_000 + self.more.below(3_000)) * MS);
        self.outside(at, to, what, 1, times);
    }

    /// Silent connections fill the places of a rank while others connect to it. All of these have to get in.
    fn silent_connections(&mut self) {
        if self.more.below(3) != 0 {
            return;
        }
        let to = self.more.below(u64::from(self.plan.ranks)) as u32;
        let near_ns = 1 + 6 * self.plan.conditions.delay_ns + self.plan.conditions.jitter_ns;
        let at = self.meet_ns + self.more.below(20 * MS);
        let (many, for_ns) = (8 + self.more.below(56) as u32, self.more.below(4_000) * MS);
        let within_ns = self.more.below(near_ns);
        self.outside(at, to, Outsider::Silent, many, (within_ns, for_ns));
        for (a, b) in self.pairs.clone() {
            if a == to || b == to {
                let from = if a == to { b } else { a };
                let at = at + self.more.below(near_ns);
                self.request(at, from, None, Request::Connect { rank: to });
            }
        }
    }
}
