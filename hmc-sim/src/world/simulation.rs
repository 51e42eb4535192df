//! One simulation: it takes events in order, feeds the nodes, applies their outputs, and calls the oracle.
//!
//! Phases of a run: the script; a quiet phase, in which every request must complete; probes, in which running ranks must
//! connect and put again; a final check of every byte.

use std::collections::BTreeMap;

use hmc_core::time::Instant;

use super::finding::{Kind, Verdict, found};
use super::network::{Network, NodeEvent};
use super::node::{Cluster, Node, NodeConfig, NodeInput, NodeOutput, Outsider, Request};
use super::nodes::{Nodes, Process};
use super::ops::State;
use super::oracle::Oracle;
use super::oracle_results::brief;
use super::outside::Outside;
use super::probe::Probes;
use super::queue::{Queue, What};
use super::script::{Event, Plan};
use super::stats::Stats;
use super::trace::Trace;

/// Events at one moment of virtual time, before it counts as a livelock.
const SAME_TIME_EVENTS: u32 = 1_000_000;

/// A run of one plan.
pub(crate) struct Simulation<'p, C: Cluster> {
    plan: &'p Plan,
    cluster: C,
    nodes: Nodes<C::Node>,
    processes: Vec<Process>,
    queue: Queue,
    net: Network,
    oracle: Oracle,
    pub(crate) trace: Trace,
    pub(crate) stats: Stats,
    now: u64,
    /// Steps that wait for a result.
    waiting: BTreeMap<u64, Vec<u32>>,
    probes: Probes,
    outside: Outside,
    finished: bool,
}

impl<'p, C: Cluster> Simulation<'p, C> {
    pub(crate) fn new(plan: &'p Plan, cluster: C, trace: Trace) -> Self {
        let mut queue = Queue::default();
        for (rank, at_ns) in plan.starts_ns.iter().enumerate() {
            queue.push(*at_ns, What::Start(rank as u32));
        }
        for (index, step) in plan.steps.iter().enumerate() {
            queue.push(step.at_ns, What::Step(index as u32));
        }
        let quiet_ns = 2 * (plan.deadline_ns + 5 * plan.heartbeat_ns);
        queue.push(plan.last_ns() + quiet_ns, What::Phase(0));
        let oracle = Oracle { drains: cluster.drains(), ..Oracle::new(plan) };
        Self {
            cluster,
            nodes: Nodes((0..plan.ranks).map(|_| None).collect()),
            processes: (0..plan.ranks).map(|_| Process::default()).collect(),
            queue,
            net: Network::new(plan.ranks, plan.conditions.clone(), plan.seed),
            oracle,
            trace,
            stats: Stats::default(),
            now: 0,
            waiting: BTreeMap::new(),
            probes: Probes::new(plan),
            outside: Outside::new(plan.ranks),
            finished: false,
            plan,
        }
    }

    /// Runs it to its end.
    pub(crate) fn run(&mut self) -> Verdict {
        let mut same = 0u32;
        while !self.finished {
            let Some((at, what)) = self.queue.pop() else {
                return found(Kind::Hang, "nothing happens any more");
            };
            same = if at == self.now { same + 1 } else { 0 };
            if same > SAME_TIME_EVENTS {
                return found(Kind::Livelock, format!("time stands still; last event {what:?}"));
            }
            self.now = at;
            self.stats.events += 1;
            self.stats.virtual_ns = at;
            self.event(what)?;
        }
        for node in self.nodes.0.iter().flatten() {
            if let Err(text) = node.health() {
                return found(Kind::Health, text);
            }
        }
        Ok(())
    }

    fn event(&mut self, what: What) -> Verdict {
        let event = match what {
            What::Flow(pipe) => {
                let event = self.net.flow(self.now, pipe, &mut self.queue);
                if let NodeEvent::Bytes { rank, conn } = event {
                    if rank == self.plan.ranks {
                        // They are never read.
                        self.net.bytes_delivered(self.now, pipe, &mut self.queue);
                        return Ok(());
                    }
                    let (live, sent) = (C::live_bytes(), self.outside.sent);
                    let bytes = self.net.bytes(pipe);
                    self.trace.mix(self.now ^ u64::from(pipe) << 40);
                    self.trace.bytes(bytes);
                    self.trace.note(self.now, || {
                        format!("rank {rank} gets {} bytes on {}", bytes.len(), conn.0)
                    });
                    self.stats.bytes += bytes.len() as u64;
                    if let Some(node) = &mut self.nodes.0[rank as usize] {
                        node.handle(
                            Instant::from_nanos(self.now),
                            NodeInput::Bytes { conn, bytes },
                        );
                    }
                    let grown = C::live_bytes() - live;
                    self.net.bytes_delivered(self.now, pipe, &mut self.queue);
                    self.drain(rank)?;
                    if self.net.comes_from_outside(pipe) {
                        let sent = self.outside.sent - sent;
                        self.outside.check_held(&self.net, conn, grown, sent)?;
                    }
                    return Ok(());
                }
                event
            }
            What::Tick(rank) => return self.tick(rank),
            What::SendSpace(pipe) => self.net.send_space(pipe),
            What::Step(index) => return self.step(index),
            What::Start(rank) => return self.start(rank),
            What::Syn(dial) => {
                self.net.syn(self.now, dial, &mut self.queue);
                NodeEvent::Nothing
            }
            What::Accept(conn) => self.net.open_side(conn, 1),
            What::Opened(conn) => self.net.open_side(conn, 0),
            What::Refused(dial) => self.net.refused(dial),
            What::Outside(index) => {
                self.outside.step(self.now, index, &mut self.net, &mut self.queue);
                NodeEvent::Nothing
            }
            What::Heal(from, to) => {
                self.trace.note(self.now, || format!("path {from} -> {to} heals"));
                self.net.heal(self.now, from, to, &mut self.queue);
                NodeEvent::Nothing
            }
            What::Resume(rank) => {
                self.resume(rank);
                NodeEvent::Nothing
            }
            What::Phase(phase) => return self.phase(phase),
        };
        self.notify(what, event)
    }

    fn notify(&mut self, what: What, event: NodeEvent) -> Verdict {
        let (rank, input) = match event {
            NodeEvent::Nothing | NodeEvent::Bytes { .. } => return Ok(()),
            NodeEvent::Later(rank) => {
                self.processes[rank as usize].backlog.push(what);
                return Ok(());
            }
            NodeEvent::Closed { rank, conn, reset } => (rank, NodeInput::Closed { conn, reset }),
            NodeEvent::SendSpace { rank, conn, bytes } => {
                (rank, NodeInput::SendSpace { conn, bytes })
            }
            NodeEvent::Accepted { rank, conn, from } => {
                let from = self.outside.seen_from(&self.net, rank, conn, from);
                (rank, NodeInput::Accepted { conn, from })
            }
            NodeEvent::Opened { rank, conn, number } => (rank, NodeInput::Opened { number, conn }),
            NodeEvent::Failed { rank, number } => (rank, NodeInput::Failed { number }),
        };
        if rank == self.plan.ranks {
            let (net, queue) = (&mut self.net, &mut self.queue);
            self.outside.notify(self.now, event, &self.cluster, net, queue);
            return Ok(());
        }
        self.feed(rank, input)
    }

    /// Passes an input to a node, and processes its outputs.
    fn feed(&mut self, rank: u32, input: NodeInput<'_>) -> Verdict {
        self.trace.mix(self.now);
        self.trace.mix(input.code() ^ u64::from(rank) << 56);
        if !matches!(input, NodeInput::Tick | NodeInput::SendSpace { .. }) {
            self.trace.note(self.now, || format!("rank {rank} gets {input:?}"));
        }
        if let Some(node) = &mut self.nodes.0[rank as usize] {
            node.handle(Instant::from_nanos(self.now), input);
        }
        self.drain(rank)
    }

    fn drain(&mut self, rank: u32) -> Verdict {
        let mut many = 0;
        while let Some(output) = self.nodes.0[rank as usize].as_mut().and_then(Node::poll) {
            self.output(rank, output)?;
            many += 1;
            if many > SAME_TIME_EVENTS {
                return found(Kind::Livelock, format!("rank {rank} has no end of outputs"));
            }
        }
        self.oracle.batch_ends()?;
        let Some(node) = &self.nodes.0[rank as usize] else { return Ok(()) };
        let wake_ns = node.wake_at().as_nanos();
        let process = &mut self.processes[rank as usize];
        if wake_ns < process.tick_ns {
            process.tick_ns = wake_ns.max(self.now);
            self.queue.push(process.tick_ns, What::Tick(rank));
        }
        Ok(())
    }

    fn output(&mut self, rank: u32, output: NodeOutput) -> Verdict {
        self.trace.mix(u64::from(rank) ^ self.now << 8);
        if !matches!(output, NodeOutput::Send { .. } | NodeOutput::Taken { .. }) {
            self.trace.note(self.now, || format!("rank {rank} outputs {output:?}"));
        }
        match output {
            NodeOutput::Send { conn, bytes } => {
                self.trace.mix(bytes.len() as u64);
                self.trace.note(self.now, || {
                    format!("rank {rank} sends {} bytes on {}", bytes.len(), conn.0)
                });
                self.outside.sent += bytes.capacity() as i64;
                self.net.send(self.now, rank, conn, bytes, &mut self.queue);
            }
            NodeOutput::Taken { conn, bytes } => {
                if !self.net.taken(self.now, rank, conn, bytes, &mut self.queue) {
                    let text = format!("rank {rank} took {bytes} bytes that it never got");
                    return found(Kind::Interface, text);
                }
            }
            NodeOutput::Connect { number, to } => {
                self.net.dial(self.now, rank, number, to, &mut self.queue);
            }
            NodeOutput::Close { conn } => self.net.close(self.now, rank, conn, &mut self.queue),
            NodeOutput::Result { number, result } => {
                self.stats.completed(&result);
                self.trace.mix(number);
                let done =
                    self.oracle.completed(self.now, &mut self.nodes, rank, number, &result)?;
                self.probes.answered(number, done);
                for step in self.waiting.remove(&number).into_iter().flatten() {
                    self.queue.push(self.now, What::Step(step));
                }
            }
            NodeOutput::Message { from, message } => {
                self.stats.messages += 1;
                self.oracle.message(&self.nodes, rank, from, &message)?;
            }
            NodeOutput::PeerUp { rank: peer, incarnation } => {
                self.oracle.up(rank, peer, incarnation)?;
            }
            NodeOutput::PeerDown { rank: peer } => {
                self.oracle.down(self.now, &self.nodes, rank, peer)?;
            }
        }
        Ok(())
    }

    fn tick(&mut self, rank: u32) -> Verdict {
        let host = self.net.hosts[rank as usize];
        let process = &mut self.processes[rank as usize];
        if process.tick_ns != self.now || !host.alive {
            return Ok(()); // replaced by an earlier one
        }
        if host.paused {
            process.backlog.push(What::Tick(rank));
            return Ok(());
        }
        process.tick_ns = u64::MAX;
        let Some(node) = &self.nodes.0[rank as usize] else { return Ok(()) };
        let wake_ns = node.wake_at().as_nanos();
        if wake_ns > self.now {
            if wake_ns != u64::MAX {
                process.tick_ns = wake_ns;
                self.queue.push(wake_ns, What::Tick(rank));
            }
            return Ok(());
        }
        self.feed(rank, NodeInput::Tick)
    }

    fn start(&mut self, rank: u32) -> Verdict {
        let host = &mut self.net.hosts[rank as usize];
        if host.alive {
            return Ok(());
        }
        host.alive = true;
        host.silent = false;
        host.incarnation += 1;
        let boot = NodeConfig {
            rank,
            ranks: self.plan.ranks,
            incarnation: host.incarnation,
            seed: self.plan.seed ^ host.incarnation << 32 ^ u64::from(rank) << 48,
            now: Instant::from_nanos(self.now),
            buffer_len: self.plan.buffer_len,
            heartbeat_ns: self.plan.heartbeat_ns,
            deadline_ns: self.plan.deadline_ns,
        };
        self.stats.restarts += u64::from(host.incarnation > 1);
        self.trace
            .note(self.now, || format!("rank {rank} starts, incarnation {}", boot.incarnation));
        self.nodes.0[rank as usize] = Some(self.cluster.boot(&boot));
        self.processes[rank as usize] = Process { tick_ns: u64::MAX, ..Process::default() };
        self.oracle.start(&mut self.nodes, rank)?;
        self.drain(rank)
    }

    fn resume(&mut self, rank: u32) {
        let process = &mut self.processes[rank as usize];
        let host = &mut self.net.hosts[rank as usize];
        if self.now < process.paused_until_ns || !host.paused {
            return;
        }
        self.trace.note(self.now, || format!("rank {rank} goes on"));
        host.paused = false;
        self.oracle.model(rank).resumed_ns = self.now;
        for what in process.backlog.drain(..) {
            if let What::Tick(_) = what {
                process.tick_ns = self.now;
            }
            self.queue.push(self.now, what);
        }
    }

    fn step(&mut self, index: u32) -> Verdict {
        let plan = self.plan;
        let Some(step) = plan.steps.get(index as usize) else { return Ok(()) };
        match &step.event {
            Event::Request { number, rank, after, request } => {
                let host = self.net.hosts[*rank as usize];
                if host.alive && host.paused {
                    self.processes[*rank as usize].backlog.push(What::Step(index));
                    return Ok(());
                }
                if let Some(before) = after {
                    match self.oracle.op(*before).map(|op| op.state) {
                        Some(State::Done) => {}
                        Some(State::Running) => {
                            self.waiting.entry(*before).or_default().push(index);
                            return Ok(());
                        }
                        _ => {
                            self.stats.skipped += 1;
                            return Ok(());
                        }
                    }
                }
                self.request(*number, *rank, request)
            }
            fault => self.fault(fault),
        }
    }

    /// The application of a rank submits a request.
    fn request(&mut self, number: u64, rank: u32, request: &Request) -> Verdict {
        let alive = self.net.hosts[rank as usize].alive;
        if !alive || !self.oracle.begin(self.now, &mut self.nodes, number, rank, request)? {
            self.stats.skipped += 1;
            return Ok(());
        }
        self.stats.requests += 1;
        self.trace
            .note(self.now, || format!("rank {rank} gets request {number}: {}", brief(request)));
        self.feed(rank, NodeInput::Request { number, request })
    }

    fn fault(&mut self, event: &Event) -> Verdict {
        let (now, settle) = (self.now, self.oracle.settle_ns());
        self.trace.note(now, || format!("fault: {event:?}"));
        let kind = match *event {
            Event::Request { .. } => return Ok(()),
            Event::Outside { to, what, many, within_ns, for_ns } => {
                if let Outsider::Claim { rank, .. } = what
                    && rank < self.plan.ranks
                {
                    // The rank is taken while the claim lasts.
                    self.oracle.trouble(to, rank, now + within_ns + for_ns + settle);
                }
                for _ in 0..many {
                    let at = now + self.net.rng.below(within_ns + 1);
                    let index = self.outside.add(to, what, at + for_ns);
                    self.queue.push(at, What::Outside(index));
                }
                self.stats.outsiders[what.index()] += 1;
                return Ok(());
            }
            Event::Cut { a, b, all } => {
                if self.net.cut(now, a, b, all, &mut self.queue) == 0 {
                    return Ok(());
                }
                self.oracle.trouble(a, b, now + settle);
                0
            }
            Event::Partition { a, b, both, for_ns } => {
                for (from, to) in [(a, b), (b, a)].into_iter().take(1 + usize::from(both)) {
                    self.net.block(from, to);
                    self.queue.push(now + for_ns, What::Heal(from, to));
                }
                self.oracle.trouble(a, b, now + for_ns + settle);
                if both { 1 } else { 2 }
            }
            Event::Crash { rank, silent, restart_ns } => {
                if !self.net.hosts[rank as usize].alive {
                    return Ok(());
                }
                self.oracle.undelivered.excuse_all(rank);
                let whole = !silent && self.net.sends_the_rest();
                if whole {
                    self.stats.last_messages += self.oracle.killed(now, rank);
                }
                self.oracle.end(&self.nodes, rank)?;
                self.net.crash(now, rank, (silent, whole), &mut self.queue);
                self.nodes.0[rank as usize] = None;
                self.processes[rank as usize].backlog.clear();
                let until = restart_ns.map_or(u64::MAX, |ns| now + ns + settle);
                self.oracle.links.trouble_all(rank, until);
                if let Some(ns) = restart_ns {
                    self.queue.push(now + ns, What::Start(rank));
                }
                if silent { 4 } else { 3 }
            }
            Event::Pause { rank, for_ns } => {
                let host = &mut self.net.hosts[rank as usize];
                if !host.alive {
                    return Ok(());
                }
                host.paused = true;
                let process = &mut self.processes[rank as usize];
                process.paused_until_ns = process.paused_until_ns.max(now + for_ns);
                self.queue.push(process.paused_until_ns, What::Resume(rank));
                self.oracle.links.trouble_all(rank, now + for_ns + settle);
                self.oracle.undelivered.excuse_all(rank);
                5
            }
            Event::Stall { a, b, all, for_ns } => {
                self.net.stall(a, b, all, now + for_ns);
                self.oracle.trouble(a, b, now + for_ns + settle);
                6
            }
        };
        self.stats.faults[kind] += 1;
        Ok(())
    }

    /// The run enters a phase.
    fn phase(&mut self, phase: u8) -> Verdict {
        let plan = self.plan;
        self.trace.note(self.now, || format!("phase {phase}"));
        match phase {
            0 => {
                // No rank is stopped and the network has no faults: all requests have completed.
                self.net.heal_faults();
                self.oracle.check_unfinished()?;
                for rank in 0..plan.ranks {
                    for (number, request) in self.probes.take_back(plan, &mut self.oracle, rank) {
                        self.request(number, rank, &request)?;
                    }
                }
                self.probes.begin(self.now, plan, &mut self.oracle);
                self.queue.push(self.now + 1, What::Phase(1));
            }
            1 => {
                let redials = self.cluster.redials();
                while let Some((number, rank, request)) =
                    self.probes.next(plan, &mut self.oracle, redials)
                {
                    self.request(number, rank, &request)?;
                }
                let (at, phase) = self.probes.next_phase(self.now, plan)?;
                self.queue.push(at, What::Phase(phase));
            }
            _ => {
                self.oracle.check_unfinished()?;
                self.oracle.finish(&self.nodes)?;
                self.finished = true;
            }
        }
        Ok(())
    }
}
