//! Random scripts over UCX's transport: whatever a legal UCX does, each operation ends once, a put that is reported has
//! its bytes there, nobody writes elsewhere or later, and everything is given back.
//!
//! `HMC_TEST_SEED=N` runs one seed; a failure prints its own.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "tests may panic"
)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hmc_core::transport::{CancelOutcome, PostErrorKind, Transport as _};
use hmc_core::types::Access;
use hmc_core::work::{Failure, Opcode, WorkRequest};
use hmc_hw::ucx::transport::UcxTransport;
use hmc_sim::rng::Rng;
use hmc_tests::fake_ucp::{CONNECTION_RESET, CallResult, ENDPOINT_TIMEOUT, FakeUcp, IO_ERROR};
use hmc_tests::ucx_pair::{Built, CountingNotify, connect};

/// Ranges of which each belongs to one operation at a time.
const PLACES: u16 = 48;
const PLACE: u64 = 256;
const SEEDS: u64 = 400;
const STEPS: u32 = 300;

/// What the plain vectors know of one place.
#[derive(Clone, Debug)]
struct Place {
    here: Vec<u8>,
    there: Vec<u8>,
    work: Option<WorkRequest>,
}

struct Run<'a> {
    fake_ucp: &'a FakeUcp,
    rng: Rng,
    pair: Built,
    places: Vec<Place>,
    done: u64,
    /// The endpoint has failed, or the peer was given up.
    over: bool,
}

fn at(place: u16) -> u64 {
    u64::from(place) * PLACE
}

fn len(work: &WorkRequest) -> usize {
    usize::try_from(work.local.span.len()).unwrap()
}

impl<'a> Run<'a> {
    fn new(fake_ucp: &'a FakeUcp, seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let total = u64::from(PLACES) * PLACE;
        let pair = Built::new(fake_ucp.library(), total, total, Access::all(), 1).unwrap();
        fake_ucp.set("seed", rng.next_u64());
        for knob in ["put_delay", "get_delay", "flush_delay", "close_delay", "jitter"] {
            fake_ucp.set(knob, rng.below(6));
        }
        fake_ucp.set("order", rng.below(3));
        fake_ucp.set("staged", rng.below(4).min(1));
        fake_ucp.set("immediate_bytes", rng.below(2 * PLACE));
        let size = usize::try_from(PLACE).unwrap();
        let places = (0..PLACES).map(|n| {
            let (here, there) = (rng.bytes(size), rng.bytes(size));
            pair.write_local(at(n), &here);
            pair.write_remote(at(n), &there);
            Place { here, there, work: None }
        });
        let places = places.collect();
        Self { fake_ucp, rng, pair, places, done: 0, over: false }
    }

    /// A fault for some call to come.
    fn fault(&mut self) {
        let calls = ["ucp_put_nbx", "ucp_get_nbx", "ucp_ep_flush_nbx"];
        let call = calls[self.rng.index(calls.len())];
        let status = [IO_ERROR, CONNECTION_RESET, ENDPOINT_TIMEOUT][self.rng.index(3)];
        let fate = match self.rng.below(8) {
            0 => CallResult::Refused(status),
            1 | 2 => CallResult::Failed(status),
            3 => CallResult::Held,
            _ => CallResult::Late(i64::try_from(self.rng.below(60)).unwrap()),
        };
        self.fake_ucp.rule(call, 1 + self.rng.below(10), fate);
    }

    fn post(&mut self) {
        let n = u16::try_from(self.rng.below(u64::from(PLACES))).unwrap();
        if self.places[usize::from(n)].work.is_some() {
            return;
        }
        let opcode = if self.rng.below(3) == 0 { Opcode::Get } else { Opcode::Put };
        let from = self.rng.below(PLACE);
        let bytes = 1 + self.rng.below(PLACE - from);
        let place = &mut self.places[usize::from(n)];
        // New bytes, so that a put that moved nothing is seen.
        place.here = self.rng.bytes(place.here.len());
        self.pair.write_local(at(n), &place.here);
        let work = self.pair.request(n, opcode, at(n) + from, at(n) + from, bytes);
        match self.pair.near.post(&work) {
            Ok(()) => self.places[usize::from(n)].work = Some(work),
            Err(PostErrorKind::Busy) => {}
            Err(PostErrorKind::Disconnected) if self.over => {}
            Err(e) => panic!("a put was refused: {e:?}"),
        }
    }

    /// The range of a place that its operation uses.
    fn range(work: &WorkRequest) -> std::ops::Range<usize> {
        let from = usize::try_from(work.local.span.offset() % PLACE).unwrap();
        from..from + len(work)
    }

    fn poll(&mut self) {
        self.over |= self.pair.near.0.failure().is_some();
        for completion in self.pair.poll() {
            let n = completion.op.index;
            let Place { here, there, work } = &mut self.places[usize::from(n)];
            let work = work.take().unwrap_or_else(|| panic!("{completion:?} was not due"));
            let range = Self::range(&work);
            let got = (
                self.pair.read_local(at(n), here.len()),
                self.pair.read_remote(at(n), there.len()),
            );
            let (source, target, now) = match work.opcode {
                Opcode::Get => (there.clone(), &mut *here, &got.0),
                _ => (here.clone(), &mut *there, &got.1),
            };
            match completion.result {
                Ok(moved) => {
                    assert_eq!(moved, work.local.span.len());
                    target[range.clone()].copy_from_slice(&source[range]);
                    assert!(now == target, "{work:?} was reported before its bytes");
                }
                Err(failure) => {
                    let broken = Failure::Transport(i32::from(IO_ERROR));
                    assert!([broken, Failure::PeerDead].contains(&failure), "{failure:?}");
                    for (i, byte) in now.iter().enumerate() {
                        let new = range.contains(&i) && *byte == source[i];
                        assert!(new || *byte == target[i], "byte {i} is neither old nor new");
                    }
                    target.clone_from(now);
                }
            }
            self.done += 1;
            // It is the owner's again, and what is written now stays.
            *here = self.rng.bytes(here.len());
            *there = self.rng.bytes(there.len());
            self.pair.write_local(at(n), here);
            self.pair.write_remote(at(n), there);
        }
    }

    fn cancel(&mut self) {
        let n = self.rng.index(self.places.len());
        let Some(work) = self.places[n].work else { return };
        if self.pair.near.cancel(work.op) == CancelOutcome::Withdrawn {
            self.places[n].work = None;
        }
    }

    fn is_busy(&self) -> bool {
        self.places.iter().any(|p| p.work.is_some())
    }

    /// All places hold what their owners wrote last.
    fn compare(&self) {
        for (n, place) in (0..PLACES).zip(&self.places) {
            if place.work.is_none() {
                let here = self.pair.read_local(at(n), place.here.len());
                let there = self.pair.read_remote(at(n), place.there.len());
                assert!(here == place.here, "place {n} here was written by nobody");
                assert!(there == place.there, "place {n} there was written by nobody");
            }
        }
        self.pair.check_margins().unwrap();
    }

    fn play(mut self) -> u64 {
        for _ in 0..STEPS {
            match self.rng.below(20) {
                0 => self.fault(),
                1 => self.cancel(),
                2 if self.rng.below(40) == 0 && !self.over => {
                    let status = [CONNECTION_RESET, ENDPOINT_TIMEOUT][self.rng.index(2)];
                    self.over = self.fake_ucp.kill(0, status, self.rng.below(2) == 0) != 0;
                }
                3 if self.rng.below(60) == 0 => {
                    self.pair.near.0.close();
                    self.over = true;
                }
                4..=9 => self.poll(),
                10 => {
                    let _ = self.fake_ucp.release();
                }
                _ => self.post(),
            }
            self.compare();
        }
        // What is held ends by a release, or by giving the peer up.
        if self.rng.below(2) == 0 {
            let _ = self.fake_ucp.release();
        } else {
            self.pair.near.0.close();
            self.over = true;
        }
        for _ in 0..2000 {
            if !self.is_busy() {
                break;
            }
            let _ = self.fake_ucp.release();
            self.poll();
        }
        assert!(!self.is_busy(), "operations never end");
        for _ in 0..100 {
            self.poll();
        }
        self.compare();
        assert!(self.fake_ucp.count("flushes_max") <= 4);
        drop(self.pair);
        self.fake_ucp.assert_clean();
        assert_eq!(self.fake_ucp.calls("ucp_request_free"), self.fake_ucp.count("ended"));
        self.done
    }
}

#[test]
fn random_scripts_end_every_operation_once_and_touch_nothing_else() {
    let fake_ucp = FakeUcp::take();
    let seeds = match hmc_tests::env::parsed("HMC_TEST_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..SEEDS,
    };
    let mut done = 0;
    for seed in seeds.clone() {
        let play = std::panic::AssertUnwindSafe(|| Run::new(&fake_ucp, seed).play());
        match std::panic::catch_unwind(play) {
            Ok(n) => done += n,
            Err(e) => {
                println!("seed = {seed}: run it again with HMC_TEST_SEED={seed}");
                std::panic::resume_unwind(e);
            }
        }
        fake_ucp.restart();
    }
    println!("{} seeds, {done} operations", seeds.end - seeds.start);
    assert!(done > 20 * (seeds.end - seeds.start), "{done} operations in all");
}

/// Two peers' transports, driven by a thread each, and a third thread that serves their worker: UCX sees one at a time.
#[test]
fn threads_that_share_a_worker_make_its_calls_one_at_a_time() {
    let fake_ucp = FakeUcp::take();
    fake_ucp.collect();
    let mut first = Built::new(fake_ucp.library(), 4096, 4096, Access::all(), 1).unwrap();
    let worker = Arc::clone(first.near.0.worker());
    let mut second = connect(&worker, &first.far, &CountingNotify::default()).unwrap().transport;
    let key = first.there.pack().unwrap();
    let base = u64::try_from(first.there.start().as_ptr().expose_provenance()).unwrap();
    second.add_remote(first.window, base, &key).unwrap();
    second.add_local(first.local.key, Arc::clone(&first.here));
    fake_ucp.set("yields", 2);
    fake_ucp.set("flush_delay", 2);
    let works: Vec<_> = (0..500).map(|n| first.request(n, Opcode::Put, 0, 0, 8)).collect();
    let over = AtomicBool::new(false);
    let drive = |transport: &mut UcxTransport| {
        let mut ended = BTreeMap::new();
        let mut rest = works.iter().peekable();
        while ended.len() < works.len() {
            if rest.peek().is_some_and(|work| transport.post(work).is_ok()) {
                rest.next();
            }
            let mut out = [hmc_core::work::Completion { op: works[0].op, result: Ok(0) }; 16];
            let n = transport.poll(&mut out);
            for c in &out[..n] {
                assert_eq!(c.result, Ok(8));
                assert_eq!(ended.insert(c.op.index, ()), None, "{c:?} came twice");
            }
        }
    };
    std::thread::scope(|s| {
        s.spawn(|| {
            while !over.load(Ordering::SeqCst) {
                if let Some(guard) = worker.try_lock().filter(|guard| !guard.progress()) {
                    let _ = guard.arm();
                }
                std::thread::yield_now();
            }
        });
        let other = s.spawn(|| drive(&mut second));
        drive(&mut first.near.0);
        other.join().unwrap();
        over.store(true, Ordering::SeqCst);
    });
    assert_eq!(fake_ucp.finding(), None);
    fake_ucp.set("yields", 0);
    drop((second, worker, first));
    fake_ucp.assert_clean();
}
