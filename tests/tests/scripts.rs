//! Random scripts of operations on two sessions, against plain vectors.
//!
//! `HMC_TEST_SEED` plays a run again; a failure prints the shortest script that still fails.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "tests may panic"
)]

use std::collections::VecDeque;
use std::ops::Range;
use std::pin::Pin;
use std::task::{Context, Waker};
use std::time::Duration;

use hmc_core::types::Access;
use hmc_std::{ErrorKind, Op, Peer, Session, Waited, wait_any, want};
use hmc_testkit::buffers::{BufferTransfers as _, Copy, Direction, has_ended, wait};
use hmc_tests::env::{TempDir, Via, seed, until};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

const LONG: Duration = Duration::from_secs(20);
/// Local ranges lie below, remote ones above: a session's link to itself has but one buffer.
const HALF: usize = LARGE + (96 << 10);
/// Longer than one copy into mapped memory: such an operation is under way for a while over any transport.
const LARGE: usize = (1 << 20) + 1;
/// Of puts that are begun with a tag, for they are not done in the call that begins them.
const TAG: u64 = u64::MAX;
/// The last bytes of each half, for puts that only flush.
const SCRATCH: usize = 8;
const AREA: usize = HALF - SCRATCH;

#[derive(Clone, Debug)]
struct Move {
    local: usize,
    remote: usize,
    len: usize,
}

#[derive(Clone, Debug)]
enum Step {
    /// New bytes in the local half: where, how many, and which.
    Write(usize, usize, u8),
    Now(bool, Move),
    /// Of two that are true, a put with a tag is begun.
    Later(bool, bool, Move),
    Notify(Move),
    Batch(bool, Vec<Move>),
    Pipeline(bool, Move, u64, usize),
    Cancel(usize),
    Wait(usize),
    WaitAny,
    WaitAll,
    Forget(usize),
    Beyond(bool, u64, u64),
    /// A window of that length is opened, written with that byte, and taken back or dropped.
    Window(usize, u8, bool),
}

fn movement() -> impl Strategy<Value = Move> {
    let len = prop_oneof![
        16 => 0usize..300,
        8 => 0usize..9000,
        4 => 0usize..60_000,
        1 => LARGE..LARGE + 9000,
    ];
    // Close together, so that they meet.
    (0..AREA - LARGE, 0..AREA - LARGE, len).prop_map(|(local, remote, len)| Move {
        local: local.min(AREA - len),
        remote: remote.min(AREA - len),
        len,
    })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => (0..AREA - LARGE, 1usize..4000, any::<u8>())
            .prop_map(|(at, len, byte)| Step::Write(at, len, byte)),
        4 => (any::<bool>(), movement()).prop_map(|(put, m)| Step::Now(put, m)),
        8 => (any::<bool>(), any::<bool>(), movement())
            .prop_map(|(put, tagged, m)| Step::Later(put, tagged, m)),
        2 => movement().prop_map(Step::Notify),
        2 => (any::<bool>(), prop::collection::vec(movement(), 0..12))
            .prop_map(|(put, all)| Step::Batch(put, all)),
        2 => (any::<bool>(), movement(), 1u64..5000, 1usize..9)
            .prop_map(|(put, m, chunk, max)| Step::Pipeline(put, m, chunk, max)),
        2 => (0usize..8).prop_map(Step::Cancel),
        3 => (0usize..8).prop_map(Step::Wait),
        1 => Just(Step::WaitAny),
        1 => Just(Step::WaitAll),
        1 => (0usize..8).prop_map(Step::Forget),
        1 => (any::<bool>(), any::<u64>(), any::<u64>())
            .prop_map(|(put, at, len)| Step::Beyond(put, at, len)),
        1 => (1usize..20_000, any::<u8>(), any::<bool>())
            .prop_map(|(len, byte, dropped)| Step::Window(len, byte, dropped)),
    ]
}

/// Which range of which model an operation reads or writes.
#[derive(Debug)]
struct Begun {
    op: Op,
    put: bool,
    moves: Vec<Move>,
    tagged: bool,
    cancelled: bool,
    /// Both ends as they were.
    local: Vec<u8>,
    remote: Vec<u8>,
}

struct World<'a> {
    source: &'a Session,
    target: &'a Session,
    peer: &'a Peer,
    back: &'a Peer,
    local: Vec<u8>,
    remote: Vec<u8>,
    begun: Vec<Begun>,
    /// Puts with [`TAG`] that have ended well.
    tags: usize,
    label: &'a std::cell::Cell<u64>,
}

fn big(n: usize) -> u64 {
    u64::try_from(n).unwrap()
}

fn overlap(a: &Range<usize>, b: &Range<usize>) -> bool {
    a.start < b.end && b.start < a.end
}

impl Move {
    fn here(&self) -> Range<usize> {
        self.local..self.local + self.len
    }

    fn there(&self) -> Range<usize> {
        self.remote..self.remote + self.len
    }

    fn copy(&self) -> Copy {
        Copy {
            local_offset: big(self.local),
            remote_offset: big(HALF + self.remote),
            len: big(self.len),
        }
    }

    /// Whether the two may not run at the same time.
    fn fights(&self, put: bool, other: &Self, other_put: bool) -> bool {
        let (read, written) =
            if put { (self.here(), self.there()) } else { (self.there(), self.here()) };
        let (o_read, o_written) =
            if other_put { (other.here(), other.there()) } else { (other.there(), other.here()) };
        // Here and there are different memories.
        let same = put == other_put;
        if same {
            overlap(&written, &o_written)
        } else {
            overlap(&written, &o_read) || overlap(&read, &o_written)
        }
    }
}

impl World<'_> {
    fn begin(&mut self) {
        let mut fill = (0..253).collect::<Vec<u8>>().repeat(2 * HALF / 253 + 1);
        fill.truncate(2 * HALF);
        self.source.buffer().write_at(0, &fill).unwrap();
        self.target.buffer().write_at(0, &fill).unwrap();
        self.local = fill[..HALF].to_vec();
        self.remote = fill[HALF..].to_vec();
        self.begun.clear();
    }

    /// Operations at a time are unordered: whoever touches the same bytes goes first alone.
    fn clear_way(&mut self, put: bool, m: &Move) {
        while let Some(at) =
            self.begun.iter().position(|f| f.moves.iter().any(|other| m.fights(put, other, f.put)))
        {
            self.land(at);
        }
    }

    fn apply(&mut self, put: bool, m: &Move) {
        if put {
            self.remote[m.there()].copy_from_slice(&self.local[m.here()]);
        } else {
            self.local[m.here()].copy_from_slice(&self.remote[m.there()]);
        }
    }

    fn now(&self, put: bool, c: Copy) -> hmc_std::Result<()> {
        if put {
            self.peer.put_at(c.local_offset, c.remote_offset, c.len)
        } else {
            self.peer.get_at(c.local_offset, c.remote_offset, c.len)
        }
    }

    fn start(&self, put: bool, tagged: bool, c: Copy) -> Op {
        let Copy { local_offset, remote_offset, len } = c;
        let op = match (put, tagged) {
            (true, true) => self.peer.start_put_notify_at(local_offset, remote_offset, len, TAG),
            (true, false) => self.peer.start_put_at(local_offset, remote_offset, len),
            (false, _) => self.peer.start_get_at(local_offset, remote_offset, len),
        };
        op.unwrap()
    }

    /// Moves it in operations of at least `chunk` bytes, of which `max` run at a time.
    fn pipeline(&self, put: bool, c: Copy, chunk: u64, max: usize) {
        let chunk = chunk.max(c.len / 60_000);
        let (mut running, mut at) = (VecDeque::new(), 0);
        while at < c.len || !running.is_empty() {
            if at < c.len && running.len() < max {
                let len = chunk.min(c.len - at);
                let (local_offset, remote_offset) = (c.local_offset + at, c.remote_offset + at);
                let op = self.start(put, false, Copy { local_offset, remote_offset, len });
                running.push_back((op, len));
                at += len;
            } else if let Some((op, len)) = running.pop_front() {
                assert_eq!(wait(op).unwrap(), len);
            }
        }
    }

    /// Waits for one operation and accounts for it.
    fn land(&mut self, at: usize) {
        let f = self.begun.swap_remove(at);
        let result = f.op.wait_for(LONG).ended().expect("it ends");
        match &result {
            Ok(n) => {
                assert_eq!(*n, f.moves.iter().map(|m| big(m.len)).sum::<u64>(), "{f:?}");
                f.moves.iter().for_each(|m| self.apply(f.put, m));
                self.tags += usize::from(f.tagged);
            }
            Err(e) => {
                assert!(f.cancelled && e.kind() == ErrorKind::Cancelled, "{e} {:?}", f.moves);
                self.adopt(&f);
            }
        }
        let again = f.op.wait().map(|done| done.bytes).map_err(|e| e.kind());
        assert_eq!(again, result.map_err(|e| e.kind()), "an operation has one result");
    }

    /// After a cancellation the destination is old, new or mixed, and settled once something posted
    /// later is done.
    fn adopt(&mut self, f: &Begun) {
        self.peer.put_at(big(AREA), big(HALF + AREA), big(SCRATCH)).unwrap();
        for m in &f.moves {
            let mut now = vec![0; m.len];
            let (old, new, model, range) = if f.put {
                self.target.buffer().read_at(big(HALF + m.remote), &mut now).unwrap();
                (&f.remote[m.there()], &f.local[m.here()], &mut self.remote, m.there())
            } else {
                self.source.buffer().read_at(big(m.local), &mut now).unwrap();
                (&f.local[m.here()], &f.remote[m.there()], &mut self.local, m.here())
            };
            let lie = (0..m.len).find(|&i| now[i] != old[i] && now[i] != new[i]);
            // Moves of one batch may overlap each other.
            assert!(
                lie.is_none() || f.moves.len() > 1,
                "byte {lie:?} of {m:?} is neither old nor new"
            );
            model[range].copy_from_slice(&now);
        }
    }

    fn compare(&self, what: &dyn std::fmt::Debug) {
        let mut got = vec![0; HALF];
        self.source.buffer().read_at(0, &mut got).unwrap();
        assert!(got[..AREA] == self.local[..AREA], "the local half differs after {what:?}");
        self.target.buffer().read_at(big(HALF), &mut got).unwrap();
        assert!(got[..AREA] == self.remote[..AREA], "the remote half differs after {what:?}");
    }

    fn finish(&mut self) {
        while !self.begun.is_empty() {
            self.land(0);
        }
        (0..std::mem::take(&mut self.tags)).for_each(|_| self.await_tag(TAG));
    }

    fn await_tag(&self, tag: u64) {
        assert_eq!(self.back.recv(want::TagIs(tag)).within(LONG).wait().unwrap(), tag);
    }

    fn fly(&mut self, op: Op, put: bool, tagged: bool, moves: Vec<Move>) {
        let (local, remote) = (self.local.clone(), self.remote.clone());
        self.begun.push(Begun { op, put, moves, tagged, cancelled: false, local, remote });
    }

    fn window(&mut self, len: usize, byte: u8, dropped: bool) {
        let label = self.label.get() + 1;
        self.label.set(label);
        let region = self.target.memory().allocate(big(len)).unwrap();
        let window = self.back.expose(region.take_all().unwrap(), Access::all(), label);
        let window = window.map_err(|(e, _)| e).unwrap();
        let remote = self.peer.window(label).within(LONG).wait().unwrap();
        let mut span = self.source.memory().allocate(big(len)).unwrap().take_all().unwrap();
        span.fill(byte);
        let done = remote.put(0, span).within(LONG).start().unwrap().wait().unwrap();
        assert_eq!(done.bytes, big(len));
        if dropped {
            drop(window);
        } else {
            let back = window.revoke().within(LONG).wait().unwrap();
            assert!(back.as_slice().iter().all(|b| *b == byte));
        }
        let end = remote.put(0, done.memory).within(LONG).start().and_then(Op::wait);
        assert!(end.is_err(), "a put into a window that is gone");
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Write(at, len, byte) => {
                let m = Move { local: *at, remote: AREA, len: *len };
                // As a get into these bytes would have to wait.
                self.clear_way(false, &m);
                self.finish_readers(&m);
                self.source.buffer().fill(big(*at), big(*len), *byte).unwrap();
                self.local[m.here()].fill(*byte);
            }
            Step::Now(put, m) => {
                self.clear_way(*put, m);
                self.now(*put, m.copy()).unwrap();
                self.apply(*put, m);
            }
            Step::Later(put, tagged, m) => {
                self.clear_way(*put, m);
                let op = self.start(*put, *tagged, m.copy());
                self.fly(op, *put, *put && *tagged, vec![m.clone()]);
            }
            Step::Notify(m) => {
                self.clear_way(true, m);
                let (c, tag) = (m.copy(), big(m.len) << 32 | big(m.local));
                self.peer.put_notify_at(c.local_offset, c.remote_offset, c.len, tag).unwrap();
                self.await_tag(tag);
                self.apply(true, m);
            }
            Step::Batch(put, all) => {
                let mut moves: Vec<Move> = Vec::new();
                for m in all {
                    if !moves.iter().any(|other| m.fights(*put, other, *put)) {
                        self.clear_way(*put, m);
                        moves.push(m.clone());
                    }
                }
                let copies: Vec<Copy> = moves.iter().map(Move::copy).collect();
                let way = if *put { Direction::Put } else { Direction::Get };
                let op = self.peer.prepare_at(way, &copies).unwrap().start().unwrap();
                self.fly(op, *put, false, moves);
            }
            Step::Pipeline(put, m, chunk, max) => {
                self.clear_way(*put, m);
                self.pipeline(*put, m.copy(), *chunk, *max);
                self.apply(*put, m);
            }
            Step::Cancel(n) if !self.begun.is_empty() => {
                let at = n % self.begun.len();
                self.begun[at].op.cancel();
                self.begun[at].cancelled = true;
            }
            Step::Wait(n) if !self.begun.is_empty() => self.land(n % self.begun.len()),
            Step::WaitAny if self.begun.iter().any(|f| !f.cancelled) => {
                let ops: Vec<&Op> = self.begun.iter().map(|f| &f.op).collect();
                let Waited::Ended(at) = wait_any(&ops, LONG).unwrap() else { panic!("none ends") };
                assert!(has_ended(&self.begun[at].op), "it was reported as ended");
                self.land(at);
            }
            Step::WaitAll => self.finish(),
            Step::Forget(n) if !self.begun.is_empty() => {
                // A future that is dropped: the operation runs on; a later one shows that it ended.
                let m = self.begun[n % self.begun.len()].moves.clone();
                if let Some(m) = m.first() {
                    let c = m.copy();
                    self.clear_way(true, m);
                    let ends = self.peer.ends().unwrap();
                    let range = ends.local.range(c.local_offset, c.len).unwrap();
                    let mut future = ends.remote.put(c.remote_offset, range).into_future();
                    let _ = Pin::new(&mut future).poll(&mut Context::from_waker(Waker::noop()));
                    drop(future);
                    self.now(true, c).unwrap();
                    self.apply(true, m);
                }
            }
            Step::Beyond(put, at, len) => {
                let total = self.target.buffer().len();
                let outside = at.checked_add(*len).is_none_or(|end| end > total);
                let (local_offset, remote_offset) = if *put { (*at, 0) } else { (0, *at) };
                let r = self.now(*put, Copy { local_offset, remote_offset, len: *len });
                assert!(outside, "not meant to fit");
                let e = r.expect_err("beyond the buffer");
                assert_eq!(e.kind(), ErrorKind::Range, "{e}");
                assert!(e.range().is_some_and(|r| r.len == *len && r.limit == total), "{e}");
            }
            Step::Window(len, byte, dropped) => self.window(*len, *byte, *dropped),
            Step::Cancel(_) | Step::Wait(_) | Step::WaitAny | Step::Forget(_) => {}
        }
    }

    /// Puts that read these bytes end first.
    fn finish_readers(&mut self, m: &Move) {
        while let Some(at) = self
            .begun
            .iter()
            .position(|f| f.put && f.moves.iter().any(|other| overlap(&other.here(), &m.here())))
        {
            self.land(at);
        }
    }
}

/// Two ends, or one that is both; fresh for each script, so that each stands for itself.
struct Ends {
    source: Session,
    target: Option<Session>,
    peer: Peer,
    back: Peer,
    _dir: TempDir,
}

fn play(ends: &Ends, script: &[Step]) {
    let label = std::cell::Cell::new(0);
    let mut world = World {
        source: &ends.source,
        target: ends.target.as_ref().unwrap_or(&ends.source),
        peer: &ends.peer,
        back: &ends.back,
        local: Vec::new(),
        remote: Vec::new(),
        begun: Vec::new(),
        tags: 0,
        label: &label,
    };
    world.begin();
    for s in script {
        world.step(s);
    }
    world.finish();
    world.compare(&script.last());
    let left = || ends.source.stats().peers.iter().map(|p| p.in_flight).sum::<usize>();
    // What was cancelled ends when the peer has answered.
    until("no operation is left behind", LONG, || (left() == 0).then_some(()));
}

fn run(name: &str, cases: u32, make: impl Fn() -> Ends) {
    let seed = seed(1);
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let config =
        Config { cases, failure_persistence: None, max_shrink_iters: 400, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, rng);
    let result = runner.run(&prop::collection::vec(step(), 1..60), |script| {
        play(&make(), &script);
        Ok(())
    });
    if let Err(e) = result {
        panic!("{name}, HMC_TEST_SEED={seed}: {e}");
    }
}

fn between_two(via: Via, cases: u32) {
    run(&format!("{via:?}"), cases, || {
        let dir = TempDir::new();
        let size = big(2 * HALF);
        let target =
            Session::builder(1).uds(dir.path()).tcp("127.0.0.1:0").buffer(size).start().unwrap();
        let source = Session::builder(0).buffer(size).start().unwrap();
        let peer = source.connect(&dir.address()).over(via.conn()).wait().unwrap();
        let back = target.accept(0).within(LONG).wait().unwrap();
        Ends { source, target: Some(target), peer, back, _dir: dir }
    });
}

#[test]
fn shm() {
    between_two(Via::Shm, 100);
}

#[test]
fn tcp() {
    between_two(Via::Tcp, 100);
}

#[test]
fn loopback() {
    run("loopback", 60, || {
        let source = Session::builder(0).buffer(big(2 * HALF)).start().unwrap();
        let peer = source.peer(0).unwrap();
        let back = peer.clone();
        Ends { source, target: None, peer, back, _dir: TempDir::new() }
    });
}
