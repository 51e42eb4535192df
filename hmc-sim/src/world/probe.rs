//! The end of a run: when all faults are healed, running ranks must connect and put again.
//!
//! A probe is a request like any other; the oracle checks it too. No request connects a link that must reconnect by itself.

use super::finding::{Finding, Kind, found};
use super::generate::BufferLayout;
use super::node::{BatchPart, Request};
use super::ops::State;
use super::oracle::{Oracle, Window, WindowStage};
use super::script::{Event, Plan};

/// Bytes of a probe's put.
const PROBE_LEN: u64 = 32;
/// Virtual time that a back-off may add.
const BACK_OFF_NS: u64 = 30_000_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Goal {
    Meet,
    Putting(u64),
    Reached,
}

#[derive(Clone, Copy, Debug)]
struct Probe {
    pair: (u32, u32),
    goal: Goal,
    requested: [Option<u64>; 2],
}

/// All probes of a run.
pub(crate) struct Probes {
    list: Vec<Probe>,
    next_number: u64,
    until_ns: u64,
    /// Where [`Self::next`] goes on: a probe, and its sides that were looked at.
    next: (usize, usize),
}

impl Probes {
    pub(crate) fn new(plan: &Plan) -> Self {
        let number = |event: &Event| match event {
            Event::Request { number, .. } => Some(*number),
            _ => None,
        };
        let numbers = plan.steps.iter().filter_map(|step| number(&step.event)).max();
        let next_number = numbers.map_or(0, |last| last + 1);
        Self { list: Vec::new(), next_number, until_ns: 0, next: (0, 0) }
    }

    fn take_number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number - 1
    }

    /// A request completed.
    pub(crate) fn answered(&mut self, number: u64, done: bool) {
        for probe in &mut self.list {
            if probe.goal == Goal::Putting(number) {
                probe.goal = if done { Goal::Reached } else { Goal::Meet };
            }
        }
    }

    /// Returns the requests by which a rank revokes its windows, with their numbers.
    pub(crate) fn take_back(
        &mut self,
        plan: &Plan,
        oracle: &mut Oracle,
        rank: u32,
    ) -> Vec<(u64, Request)> {
        if oracle.model(rank).left {
            return Vec::new();
        }
        let exposed = |(label, window): (&u64, &Window)| {
            (window.stage == WindowStage::Exposed).then_some(*label)
        };
        let labels = oracle.model(rank).windows.iter().filter_map(exposed);
        let patience_ns = plan.deadline_ns;
        labels.map(|label| (self.take_number(), Request::Revoke { label, patience_ns })).collect()
    }

    /// Plans a probe between each running rank and the next one.
    pub(crate) fn begin(&mut self, now: u64, plan: &Plan, oracle: &mut Oracle) {
        let ranks: Vec<u32> = (0..plan.ranks)
            .filter(|rank| oracle.alive(*rank) && !oracle.model(*rank).left)
            .collect();
        let next = ranks.iter().cycle().skip(1);
        let pairs = ranks.iter().zip(next).filter(|(a, b)| a != b);
        self.list = pairs
            .map(|(a, b)| Probe { pair: (*a, *b), goal: Goal::Meet, requested: [None; 2] })
            .collect();
        self.until_ns = now + BACK_OFF_NS + 2 * plan.deadline_ns;
    }

    /// Returns the next request of this turn over all probes: its number and its rank. `None` at the end of the turn; the next call
    /// begins another one. `redials`: see [`Cluster::redials`](super::node::Cluster::redials).
    pub(crate) fn next(
        &mut self,
        plan: &Plan,
        oracle: &mut Oracle,
        redials: bool,
    ) -> Option<(u64, u32, Request)> {
        loop {
            let (index, side) = self.next;
            let Some(Probe { pair: (a, b), goal, requested }) = self.list.get(index).copied()
            else {
                self.next = (0, 0);
                return None;
            };
            self.next = (index + 1, 0);
            if side == 0 {
                if goal != Goal::Meet {
                    continue;
                }
                if oracle.links.joined(a, b) {
                    let number = self.take_number();
                    self.list[index].goal = Goal::Putting(number);
                    let place = u64::from(a) * PROBE_LEN;
                    let remote = BufferLayout::of(plan.buffer_len).target + place;
                    let piece = BatchPart { local: place, remote, len: PROBE_LEN };
                    return Some((number, a, Request::Put { peer: b, piece }));
                }
                let (low, high) = (a.min(b), a.max(b));
                if redials && oracle.links.is_lost(low, high) {
                    continue;
                }
                self.next = (index, 1);
            }
            let (from, to) = if side == 0 { (a, b) } else { (b, a) };
            let state = requested[side].and_then(|number| Some(oracle.op(number)?.state));
            if state != Some(State::Running) {
                let number = self.take_number();
                self.list[index].requested[side] = Some(number);
                return Some((number, from, Request::Connect { rank: to }));
            }
        }
    }

    /// The next phase after a turn, and when it begins: another turn, or the end.
    ///
    /// # Errors
    /// Some ranks have not reached each other in time.
    pub(crate) fn next_phase(&self, now: u64, plan: &Plan) -> Result<(u64, u8), Finding> {
        match self.list.iter().find(|probe| probe.goal != Goal::Reached) {
            None => Ok((now + plan.deadline_ns + 4 * plan.heartbeat_ns, 2)),
            Some(probe) if now > self.until_ns => {
                let (a, b) = probe.pair;
                let text =
                    format!("ranks {a} and {b}: all is healed, but they are at {:?}", probe.goal);
                found(Kind::Stuck, text)
            }
            Some(_) => Ok((now + plan.heartbeat_ns, 1)),
        }
    }
}
