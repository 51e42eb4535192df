//! Every way in which an owner exposes memory to one or two peers, takes it back and exposes it again, while
//! they write to it: late frames, frames that overtake each other and the control connection, copies that
//! are under way, deadlines, quarantine, lost connections, deaths.
//!
//! [`WindowTable`] is the crate's; what is around it does what a transport and its owner do, in any order. A
//! peer reaches memory in one of two ways: by frames that the owner checks and copies (tcp), or by copying
//! into it itself between looks at the window (shm). All windows have the same random part of their names,
//! so that only epochs tell them apart.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    reason = "tests may panic"
)]

mod explore;

use explore::{Broken, Edge, Model, Pool, Report, explore};
use hmc_core::place::Place;
use hmc_core::range::Extent;
use hmc_core::region::{Epoch, LocalRegion, RegionKey, WindowId};
use hmc_core::types::{Access, MemoryKind};
use hmc_core::window::{WindowEntry, WindowFault, WindowState, WindowTable, WindowTransition};

const PLACES: usize = 2;
/// Bytes of a span.
const SPAN: u64 = 10;

/// A bug that can be planted in what is around the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bug {
    None,
    /// A frame is checked under the window's epoch of today.
    SkipTheEpoch,
    /// A frame that was let in is not checked again before its bytes land.
    CheckOnce,
    /// The deadline of a revocation is taken for a fence.
    FenceOnTimeout,
    /// A peer says that it let go while it is inside.
    AckWhileInside,
    /// A refused frame gets no answer.
    NoAnswer,
}

#[derive(Clone, Copy, Debug)]
struct Plan {
    /// For each peer whether it copies by itself.
    mapped: &'static [bool],
    spans: u8,
    exposes: u8,
    /// Puts of each peer.
    puts: u8,
    cuts: u8,
    deaths: u8,
    bug: Bug,
}

/// One exposure, named by its place in the list of all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Exposure {
    peer: u8,
    span: u8,
    id: u64,
    epoch: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Word {
    Advert(u8),
    Revoke(u8),
    Revoked(u8),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Peer {
    alive: bool,
    /// What the owner and the peer believe about the connection.
    linked: bool,
    sees_link: bool,
    table: u16,
    to_peer: Vec<Word>,
    to_owner: Vec<Word>,
    /// Windows that the peer may use, and those that it was asked to let go of.
    known: Vec<u8>,
    acks_due: Vec<u8>,
    /// Frames on their way, in no order, and whether each was let in.
    frames: Vec<(u8, bool)>,
    /// Copies under way.
    inside: Vec<u8>,
    /// Answers on their way, operations that wait for one.
    answers: u8,
    waiting: u8,
    puts: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct World {
    /// For each span the exposure that it is out with; `None`: it is the owner's own.
    spans: Vec<Option<u8>>,
    made: Vec<Exposure>,
    peers: Vec<Peer>,
    cuts: u8,
    deaths: u8,
}

struct Memory {
    plan: Plan,
    tables: Pool<WindowTable<[WindowEntry; PLACES]>>,
}

impl Memory {
    fn mapped(&self, p: u8) -> bool {
        self.plan.mapped[usize::from(p)]
    }

    fn state(&self, w: &World, n: u8) -> WindowState {
        let e = w.made[usize::from(n)];
        let table = self.tables.get(w.peers[usize::from(e.peer)].table);
        table.entry(WindowId(e.id), Epoch(e.epoch)).map_or(WindowState::Free, WindowEntry::state)
    }

    fn check(&self, w: &World, n: u8) -> Result<(), String> {
        let e = w.made[usize::from(n)];
        let table = self.tables.get(w.peers[usize::from(e.peer)].table);
        let epoch = match self.plan.bug {
            Bug::SkipTheEpoch => table
                .in_use()
                .map(WindowEntry::describe)
                .find(|d| d.window.0 == e.id)
                .map_or(Epoch(e.epoch), |d| d.epoch),
            _ => Epoch(e.epoch),
        };
        match table.check(WindowId(e.id), epoch, 0, SPAN, Access::WRITE) {
            Ok(slice) => {
                assert_eq!(slice.span.offset(), u64::from(e.span) * SPAN);
                Ok(())
            }
            Err(why) => Err(format!("{why:?}")),
        }
    }

    /// Whether a refusal is right: the window is no longer what it was exposed as.
    fn refused(&self, w: &World, n: u8, why: &str) -> Result<(), String> {
        if self.state(w, n) == WindowState::Exposed {
            return Err(format!("a put to exposure {n}, which stands, was refused: {why}"));
        }
        Ok(())
    }

    /// Bytes land.
    fn land(&self, w: &World, n: u8) -> Result<(), String> {
        let e = w.made[usize::from(n)];
        match w.spans[usize::from(e.span)] {
            Some(out) if out == n => Ok(()),
            Some(out) => Err(format!("bytes for exposure {n} landed in exposure {out}")),
            None => Err(format!("bytes for exposure {n} landed in memory that was given back")),
        }
    }

    fn transition(
        &mut self,
        w: &mut World,
        n: u8,
        transition: WindowTransition,
    ) -> Result<WindowState, WindowFault> {
        let e = w.made[usize::from(n)];
        let peer = &mut w.peers[usize::from(e.peer)];
        let mut table = self.tables.get(peer.table);
        let state = table.apply(WindowId(e.id), Epoch(e.epoch), transition)?;
        peer.table = self.tables.put(table);
        if state == WindowState::Free {
            w.spans[usize::from(e.span)] = None;
        }
        Ok(state)
    }

    /// The exposures to a peer that are not over.
    fn out(&self, w: &World, p: u8) -> Vec<u8> {
        w.spans.iter().flatten().copied().filter(|n| w.made[usize::from(*n)].peer == p).collect()
    }

    /// The connection to a peer is over, as the owner sees it.
    fn lose(&mut self, w: &mut World, p: u8, dead: bool) {
        let peer = &mut w.peers[usize::from(p)];
        peer.linked = false;
        peer.to_peer.clear();
        peer.to_owner.clear();
        peer.frames.clear();
        peer.answers = 0;
        for n in self.out(w, p) {
            let _ = self.transition(w, n, WindowTransition::Revoke);
            if dead || !self.mapped(p) {
                self.transition(w, n, WindowTransition::Fence).unwrap();
            }
        }
    }

    fn owner(&mut self, s: &World, out: &mut Vec<Edge<World>>) {
        for p in 0..s.peers.len() as u8 {
            let at = usize::from(p);
            for span in 0..s.spans.len() as u8 {
                let free = s.spans[usize::from(span)].is_none();
                if free && s.peers[at].linked && s.made.len() < usize::from(self.plan.exposes) {
                    let mut w = s.clone();
                    let mut table = self.tables.get(w.peers[at].table);
                    let key = RegionKey { index: 0, generation: 1 };
                    let region = LocalRegion { key, extent: Extent::new(100), place: Place::HOST };
                    let slice = region.slice(u64::from(span) * SPAN, SPAN).unwrap();
                    let Ok(told) = table.expose(slice, MemoryKind::Cpu, Access::WRITE, 0) else {
                        continue;
                    };
                    let n = w.made.len() as u8;
                    w.made.push(Exposure { peer: p, span, id: told.window.0, epoch: told.epoch.0 });
                    w.spans[usize::from(span)] = Some(n);
                    w.peers[at].table = self.tables.put(table);
                    w.peers[at].to_peer.push(Word::Advert(n));
                    out.push((format!("span {span} is exposed to {p} as {n}"), w));
                }
            }
            for n in self.out(s, p) {
                match self.state(s, n) {
                    WindowState::Exposed => {
                        let mut w = s.clone();
                        self.transition(&mut w, n, WindowTransition::Revoke).unwrap();
                        w.peers[at].to_peer.push(Word::Revoke(n));
                        if !self.mapped(p) {
                            self.transition(&mut w, n, WindowTransition::Fence).unwrap();
                        }
                        out.push((format!("{n} is revoked"), w));
                    }
                    state => {
                        if state == WindowState::Revoking {
                            let mut w = s.clone();
                            let transition = match self.plan.bug {
                                Bug::FenceOnTimeout => WindowTransition::Fence,
                                _ => WindowTransition::Expire,
                            };
                            self.transition(&mut w, n, transition).unwrap();
                            out.push((format!("the deadline of {n} passes"), w));
                        }
                        if !s.peers[at].inside.contains(&n) {
                            let mut w = s.clone();
                            self.transition(&mut w, n, WindowTransition::Fence).unwrap();
                            out.push((format!("{n} is drained"), w));
                        }
                    }
                }
            }
            if let Some(Word::Revoked(n)) = s.peers[at].to_owner.first().copied() {
                let mut w = s.clone();
                w.peers[at].to_owner.remove(0);
                // It may be over already.
                let _ = self.transition(&mut w, n, WindowTransition::Fence);
                out.push((format!("the owner hears that {n} was let go"), w));
            }
            if s.peers[at].linked && !s.peers[at].alive {
                let mut w = s.clone();
                self.lose(&mut w, p, true);
                out.push((format!("the owner learns of the death of {p}"), w));
            } else if !s.peers[at].alive && !self.out(s, p).is_empty() {
                let mut w = s.clone();
                for n in self.out(s, p) {
                    self.transition(&mut w, n, WindowTransition::Fence).unwrap();
                }
                out.push((format!("the process {p} is found dead"), w));
            }
        }
    }

    /// Frames at the owner.
    fn frames(&mut self, s: &World, out: &mut Vec<Edge<World>>) -> Result<(), String> {
        for (at, peer) in s.peers.iter().enumerate() {
            for (i, (n, let_in)) in peer.frames.iter().copied().enumerate() {
                if i > 0 && peer.frames[i - 1] == (n, let_in) {
                    continue;
                }
                let mut w = s.clone();
                let once = self.plan.bug == Bug::CheckOnce && let_in;
                let checked = if once { Ok(()) } else { self.check(s, n) };
                let answered = match checked {
                    Ok(()) if !let_in => {
                        w.peers[at].frames[i].1 = true;
                        w.peers[at].frames.sort_unstable();
                        out.push((format!("a frame for {n} is let in"), w));
                        continue;
                    }
                    Ok(()) => {
                        self.land(s, n).map_err(|why| format!("a frame lands: {why}"))?;
                        true
                    }
                    Err(why) => {
                        self.refused(s, n, &why)?;
                        self.plan.bug != Bug::NoAnswer
                    }
                };
                w.peers[at].frames.remove(i);
                w.peers[at].answers += u8::from(answered && peer.alive);
                out.push((format!("a frame for {n} is done with"), w));
            }
        }
        Ok(())
    }

    fn peer(&mut self, s: &World, p: u8, out: &mut Vec<Edge<World>>) -> Result<(), String> {
        let at = usize::from(p);
        let peer = &s.peers[at];
        if let Some(word) = peer.to_peer.first().copied() {
            let mut w = s.clone();
            let q = &mut w.peers[at];
            q.to_peer.remove(0);
            match word {
                Word::Advert(n) => q.known.push(n),
                Word::Revoke(n) => {
                    q.known.retain(|k| *k != n);
                    q.acks_due.push(n);
                }
                Word::Revoked(_) => return Err("the owner said Revoked".into()),
            }
            out.push((format!("{p} hears {word:?}"), w));
        }
        for n in peer.acks_due.iter().copied() {
            if self.plan.bug != Bug::AckWhileInside && peer.inside.contains(&n) {
                continue;
            }
            let mut w = s.clone();
            w.peers[at].acks_due.retain(|k| *k != n);
            if peer.linked && peer.sees_link {
                w.peers[at].to_owner.push(Word::Revoked(n));
            }
            out.push((format!("{p} lets go of {n}"), w));
        }
        for n in peer.known.iter().copied().filter(|_| peer.puts > 0 && peer.sees_link) {
            let mut w = s.clone();
            w.peers[at].puts -= 1;
            if self.mapped(p) {
                match self.check(s, n) {
                    Ok(()) => {
                        w.peers[at].inside.push(n);
                        w.peers[at].inside.sort_unstable();
                    }
                    Err(why) => self.refused(s, n, &why)?,
                }
            } else {
                w.peers[at].waiting += 1;
                if peer.linked {
                    w.peers[at].frames.push((n, false));
                    w.peers[at].frames.sort_unstable();
                }
            }
            out.push((format!("{p} puts to {n}"), w));
        }
        for (i, n) in peer.inside.iter().copied().enumerate() {
            if i > 0 && peer.inside[i - 1] == n {
                continue;
            }
            self.land(s, n).map_err(|why| format!("{p} copies: {why}"))?;
            let mut w = s.clone();
            w.peers[at].inside.remove(i);
            out.push((format!("{p} copies to {n} and leaves"), w));
        }
        if peer.answers > 0 {
            let mut w = s.clone();
            w.peers[at].answers -= 1;
            w.peers[at].waiting -= 1;
            out.push((format!("{p} hears an answer"), w));
        }
        if peer.sees_link && !peer.linked {
            let mut w = s.clone();
            let q = &mut w.peers[at];
            (q.sees_link, q.waiting) = (false, 0);
            q.known.clear();
            out.push((format!("{p} learns that its link is over"), w));
        }
        if s.deaths > 0 {
            let mut w = s.clone();
            w.deaths -= 1;
            let q = &mut w.peers[at];
            (q.alive, q.sees_link, q.waiting, q.answers) = (false, false, 0, 0);
            for list in [&mut q.known, &mut q.acks_due, &mut q.inside] {
                list.clear();
            }
            q.to_peer.clear();
            out.push((format!("{p} dies"), w));
        }
        if s.cuts > 0 && peer.linked {
            let mut w = s.clone();
            w.cuts -= 1;
            self.lose(&mut w, p, false);
            out.push((format!("the connection to {p} is lost"), w));
        }
        Ok(())
    }
}

impl Model for Memory {
    type State = World;

    fn start(&mut self) -> World {
        let table = self.tables.put(WindowTable::new([WindowEntry::FREE; PLACES]));
        let peer = Peer {
            alive: true,
            linked: true,
            sees_link: true,
            table,
            to_peer: Vec::new(),
            to_owner: Vec::new(),
            known: Vec::new(),
            acks_due: Vec::new(),
            frames: Vec::new(),
            inside: Vec::new(),
            answers: 0,
            waiting: 0,
            puts: self.plan.puts,
        };
        let Plan { mapped, spans, cuts, deaths, .. } = self.plan;
        let peers = vec![peer; mapped.len()];
        World { spans: vec![None; usize::from(spans)], made: Vec::new(), peers, cuts, deaths }
    }

    fn steps(&mut self, s: &World, out: &mut Vec<Edge<World>>) -> Result<(), String> {
        self.owner(s, out);
        self.frames(s, out)?;
        for p in 0..s.peers.len() as u8 {
            if s.peers[usize::from(p)].alive {
                self.peer(s, p, out)?;
            }
        }
        Ok(())
    }

    fn is_fault(name: &str) -> bool {
        name.ends_with(" dies") || name.ends_with(" is lost")
    }

    /// All memory is the owner's again, and every operation has ended.
    fn is_settled(&mut self, s: &World) -> bool {
        s.spans.iter().all(Option::is_none)
            && s.peers.iter().all(|p| {
                let lists = [&p.acks_due, &p.inside].iter().all(|l| l.is_empty());
                let words = p.to_peer.is_empty() && p.to_owner.is_empty();
                lists && words && p.frames.is_empty() && p.waiting == 0 && p.answers == 0
            })
    }
}

const TCP: Plan =
    Plan { mapped: &[false], spans: 1, exposes: 3, puts: 2, cuts: 1, deaths: 1, bug: Bug::None };
const SHM: Plan = Plan { mapped: &[true], ..TCP };
/// One span goes to and fro between two peers.
const BOTH: Plan = Plan { mapped: &[false, true], exposes: 2, puts: 1, cuts: 0, ..TCP };

fn run(plan: Plan) -> Result<Report, Broken> {
    let begun = std::time::Instant::now();
    let mut model = Memory { plan, tables: Pool::new() };
    let got = explore(&mut model, 40_000_000);
    let time = begun.elapsed().as_secs_f64();
    match &got {
        Ok(r) => println!("{plan:?}: {r:?}, {} tables, {time:.1} s", model.tables.len()),
        Err(b) => println!("{plan:?}: {b:#?}"),
    }
    got
}

#[test]
fn no_access_after_a_fence_and_every_revocation_can_end() {
    for (plan, least) in [(TCP, 5_000), (SHM, 2_000), (BOTH, 2_000)] {
        let r = run(plan).unwrap();
        assert!(r.states > least, "{r:?}");
    }
}

#[test]
#[ignore = "minutes and gigabytes: `cargo xtask explore`"]
fn long_every_revocation() {
    let mut all = 0;
    for plan in [
        Plan { puts: 3, spans: 2, ..TCP },
        Plan { puts: 3, spans: 2, ..SHM },
        Plan { cuts: 1, puts: 2, ..BOTH },
    ] {
        all += run(plan).unwrap().states;
    }
    println!("windows: {all} states");
    assert!(all >= 100_000, "{all} states");
}

#[test]
fn planted_bugs_are_found() {
    for (plan, bug, wanted) in [
        (TCP, Bug::SkipTheEpoch, "landed in exposure"),
        (TCP, Bug::CheckOnce, "given back"),
        (SHM, Bug::FenceOnTimeout, "given back"),
        (SHM, Bug::AckWhileInside, "given back"),
        (TCP, Bug::NoAnswer, "nothing can ever settle"),
    ] {
        let found = run(Plan { bug, ..plan }).unwrap_err();
        assert!(found.why.contains(wanted), "{bug:?}: {found:#?}");
    }
}
