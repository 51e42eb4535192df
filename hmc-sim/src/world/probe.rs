//! The end of a run: when all faults are over, ranks that live must connect and put again.
//!
//! A probe is an ask like any other; the judge checks it too. A link that has to come back by itself is not
//! asked for.

use super::draft::Layout;
use super::engine::World;
use super::finding::{Kind, Verdict, found};
use super::node::{Ask, Cluster, Piece};
use super::ops::State;
use super::oracle::Stage;
use super::queue::What;
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

#[derive(Debug)]
struct Probe {
    pair: (u32, u32),
    goal: Goal,
    asked: [Option<u64>; 2],
}

/// All probes of a run.
pub(crate) struct Probes {
    list: Vec<Probe>,
    tickets: u64,
    until_ns: u64,
}

impl Probes {
    pub(crate) fn new(plan: &Plan) -> Self {
        let ticket = |event: &Event| match event {
            Event::Ask { ticket, .. } => Some(*ticket),
            _ => None,
        };
        let tickets = plan.steps.iter().filter_map(|step| ticket(&step.event)).max();
        Self { list: Vec::new(), tickets: tickets.map_or(0, |last| last + 1), until_ns: 0 }
    }

    fn ticket(&mut self) -> u64 {
        self.tickets += 1;
        self.tickets - 1
    }

    /// An ask was answered.
    pub(crate) fn answered(&mut self, ticket: u64, done: bool) {
        for probe in &mut self.list {
            if probe.goal == Goal::Putting(ticket) {
                probe.goal = if done { Goal::Reached } else { Goal::Meet };
            }
        }
    }
}

impl<C: Cluster> World<'_, C> {
    /// The run enters a phase.
    pub(crate) fn phase(&mut self, phase: u8) -> Verdict {
        self.trace.note(self.now, || format!("phase {phase}"));
        match phase {
            0 => {
                self.calm()?;
                self.take_back()?;
                let ranks: Vec<u32> = (0..self.plan.ranks)
                    .filter(|rank| self.oracle.alive(*rank) && !self.oracle.person(*rank).left)
                    .collect();
                let next = ranks.iter().cycle().skip(1);
                let pairs = ranks.iter().zip(next).filter(|(a, b)| a != b);
                self.probes.list = pairs
                    .map(|(a, b)| Probe { pair: (*a, *b), goal: Goal::Meet, asked: [None; 2] })
                    .collect();
                let long_ns = BACK_OFF_NS + 2 * self.plan.deadline_ns;
                self.probes.until_ns = self.now + long_ns;
                self.queue.push(self.now + 1, What::Phase(1));
            }
            1 => self.probe()?,
            _ => {
                self.oracle.unanswered()?;
                self.oracle.finish(&self.nodes)?;
                self.over = true;
            }
        }
        Ok(())
    }

    /// Owners take back their windows.
    fn take_back(&mut self) -> Verdict {
        for rank in 0..self.plan.ranks {
            if self.oracle.person(rank).left {
                continue;
            }
            let exposed = |(label, window): (&u64, &super::oracle::Window)| {
                (window.stage == Stage::Exposed).then_some(*label)
            };
            let labels: Vec<u64> =
                self.oracle.person(rank).windows.iter().filter_map(exposed).collect();
            for label in labels {
                let ticket = self.probes.ticket();
                let ask = Ask::Revoke { label, patience_ns: self.plan.deadline_ns };
                self.ask(ticket, rank, &ask)?;
            }
        }
        Ok(())
    }

    fn probe(&mut self) -> Verdict {
        for index in 0..self.probes.list.len() {
            let Probe { pair: (a, b), goal, asked } = self.probes.list[index];
            if goal != Goal::Meet {
                continue;
            }
            if self.oracle.links.joined(a, b) {
                let ticket = self.probes.ticket();
                self.probes.list[index].goal = Goal::Putting(ticket);
                let place = u64::from(a) * PROBE_LEN;
                let remote = Layout::of(self.plan.buffer_len).target + place;
                let piece = Piece { local: place, remote, len: PROBE_LEN };
                self.ask(ticket, a, &Ask::Put { peer: b, piece })?;
                continue;
            }
            let (low, high) = (a.min(b), a.max(b));
            if self.cluster.redials() && self.oracle.links.is_lost(low, high) {
                continue;
            }
            for (side, (from, to)) in [(a, b), (b, a)].into_iter().enumerate() {
                let state = asked[side].and_then(|ticket| Some(self.oracle.op(ticket)?.state));
                if state != Some(State::Running) {
                    let ticket = self.probes.ticket();
                    self.probes.list[index].asked[side] = Some(ticket);
                    self.ask(ticket, from, &Ask::Connect { rank: to })?;
                }
            }
        }
        let missing = self.probes.list.iter().find(|probe| probe.goal != Goal::Reached);
        match missing {
            None => {
                let quiet_ns = self.plan.deadline_ns + 4 * self.plan.heartbeat_ns;
                self.queue.push(self.now + quiet_ns, What::Phase(2));
            }
            Some(probe) if self.now > self.probes.until_ns => {
                let (a, b) = probe.pair;
                let text =
                    format!("ranks {a} and {b}: all is healed, but they are at {:?}", probe.goal);
                return found(Kind::Stuck, text);
            }
            Some(_) => self.queue.push(self.now + self.plan.heartbeat_ns, What::Phase(1)),
        }
        Ok(())
    }
}
