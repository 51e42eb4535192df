//! Buffers beside the sessions' own: shared, aliased, exposed by range, and transfers between them, over every transport.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    clippy::as_conversions,
    reason = "tests may panic"
)]

use hmc_testkit::buffers::{BufferTransfers as _, Copy, Direction, Ends, has_ended, wait};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hmc_std::config::Progress;
use hmc_std::memory::HeapBytes;
use hmc_std::memory::StableBytes;
use hmc_std::{
    Access, ConnBuffer, ConnType, ErrorKind, Peer, Remote, Session, Waited, Window, want,
};
use hmc_tests::env::{TempDir, Via, until};
use hmc_tests::pair::{ALL, Pair, pattern, transports};

const LONG: Duration = Duration::from_secs(30);
const MIB: u64 = 1 << 20;
const LEN: u64 = 5 * MIB;

/// A buffer of `len` bytes: pages that peers can map, or memory that the application keeps.
fn shared(session: &Session, adopted: bool, len: u64) -> ConnBuffer {
    let region = if adopted {
        session.memory().register(HeapBytes::from(vec![0; usize::try_from(len).unwrap()]))
    } else {
        session.memory().allocate(len)
    };
    region.unwrap().share().unwrap()
}

/// Two sessions, a buffer of each beside its own, and both as the ends of transfers.
struct Two {
    pair: Pair,
    near: ConnBuffer,
    far: ConnBuffer,
    window: Window<ConnBuffer>,
    ends: Ends,
}

impl Two {
    fn new(conn: ConnType, adopted: (bool, bool)) -> Self {
        let pair = Pair::new(conn, 4096);
        let near = shared(pair.sender(), adopted.0, LEN);
        let far = shared(pair.receiver(), adopted.1, LEN);
        let window = pair.b.expose(far.range(0, LEN).unwrap(), Access::all(), 7).unwrap();
        let ends = Ends { local: near.clone(), remote: find(&pair.a, 7) };
        Self { pair, near, far, window, ends }
    }
}

fn find(peer: &Peer, label: u64) -> Remote {
    peer.window(label).within(LONG).wait().unwrap()
}

fn bytes_of(buffer: &ConnBuffer, at: u64, len: u64) -> Vec<u8> {
    let mut out = vec![0; usize::try_from(len).unwrap()];
    buffer.read_at(at, &mut out).unwrap();
    out
}

/// Every combination of transports and of memory at both ends.
fn everywhere(test: impl Fn(&str, &Two)) {
    for conn in transports() {
        for adopted in [(false, false), (true, false), (false, true), (true, true)] {
            test(&format!("{conn:?} {adopted:?}"), &Two::new(conn, adopted));
        }
    }
}

#[test]
fn every_kind_of_transfer_moves_its_bytes_and_no_others() {
    everywhere(|what, t| {
        let ends = &t.ends;
        assert_eq!((ends.local.len(), ends.remote.len(), t.window.len()), (LEN, LEN, LEN));
        let mut ours = pattern(LEN, 1);
        let mut theirs = pattern(LEN, 2);
        t.near.write_at(0, &ours).unwrap();
        t.far.write_at(0, &theirs).unwrap();
        let put = |theirs: &mut Vec<u8>, ours: &[u8], lo: u64, ro: u64, len: u64| {
            let (lo, ro, len) = (lo as usize, ro as usize, len as usize);
            theirs[ro..ro + len].copy_from_slice(&ours[lo..lo + len]);
        };
        for (i, len) in [0, 1, 8, 4096, MIB, 2 * MIB + 3].into_iter().enumerate() {
            let (lo, ro) = (i as u64 * 17, MIB + i as u64 * 31);
            ends.put_at(lo, ro, len).unwrap();
            put(&mut theirs, &ours, lo, ro, len);
            ends.get_at(ro + 5, lo + 3, len).unwrap();
            put(&mut ours, &theirs, lo + 3, ro + 5, len);
            let op = ends.start_put_at(lo + 1, ro, len).unwrap();
            assert_eq!(wait(op).unwrap(), len, "{what}");
            put(&mut theirs, &ours, lo + 1, ro, len);
            let op = ends.start_get_at(ro, lo, len).unwrap();
            assert_eq!(wait(op).unwrap(), len, "{what}");
            put(&mut ours, &theirs, lo, ro, len);
            for (direction, at) in [(Direction::Put, 100), (Direction::Get, 200)] {
                let copy = Copy { local_offset: at, remote_offset: at + 7, len };
                ends.transfer_within(direction, copy, LONG).unwrap();
                match direction {
                    Direction::Put => put(&mut theirs, &ours, at, at + 7, len),
                    Direction::Get => put(&mut ours, &theirs, at + 7, at, len),
                }
            }
            ends.put_notify_at(0, ro, len, i as u64).unwrap();
            put(&mut theirs, &ours, 0, ro, len);
            assert_eq!(t.pair.b.recv(want::Notify).within(LONG).wait().unwrap(), i as u64);
            let op = ends.start_put_notify_at(9, ro, len, 100 + i as u64).unwrap();
            put(&mut theirs, &ours, 9, ro, len);
            assert_eq!(t.pair.b.recv(want::Notify).within(LONG).wait().unwrap(), 100 + i as u64);
            wait(op).unwrap();
        }
        for small in [true, false] {
            let len = if small { 512 } else { 300_000 };
            let copies: Vec<Copy> = (0..4)
                .map(|n| Copy { local_offset: n * len, remote_offset: LEN - (n + 1) * len, len })
                .collect();
            let batch = ends.prepare_at(Direction::Put, &copies).unwrap();
            for run in [true, false] {
                let value = if run { 0x21 } else { 0x43 };
                t.near.fill(0, 4 * len, value).unwrap();
                ours[..4 * len as usize].fill(value);
                if run {
                    batch.run().unwrap();
                } else {
                    wait(batch.start().unwrap()).unwrap();
                }
                for c in &copies {
                    put(&mut theirs, &ours, c.local_offset, c.remote_offset, c.len);
                }
                assert!(bytes_of(&t.far, 0, LEN) == theirs, "{what}: batch");
            }
        }
        assert!(bytes_of(&t.near, 0, LEN) == ours, "{what}: ours differ");
        assert!(bytes_of(&t.far, 0, LEN) == theirs, "{what}: theirs differ");
    });
}

#[test]
fn the_sessions_own_buffers_are_ends_like_others() {
    for conn in transports() {
        let p = Pair::new(conn, 3 * MIB);
        let (own, all) = (p.sender().buffer(), p.a.buffer().unwrap());
        assert_eq!(all.len(), 3 * MIB);
        let both = Ends { local: own.clone(), remote: all.clone() };
        own.write_at(0, b"the ends").unwrap();
        both.put_at(0, MIB, 8).unwrap();
        assert_eq!(bytes_of(p.receiver().buffer(), MIB, 8), b"the ends");
        // Mixed: from a shared buffer into the peer's own, and from there into ours.
        let near = shared(p.sender(), true, MIB);
        near.write_at(0, b"from beside").unwrap();
        Ends { local: near, remote: all }.put_at(0, 2 * MIB, 11).unwrap();
        p.a.get_at(100, 2 * MIB, 11).unwrap();
        assert_eq!(bytes_of(own, 100, 11), b"from beside");
        let far = shared(p.receiver(), false, MIB);
        let window = p.b.expose(far.range(4096, 8192).unwrap(), Access::all(), 1).unwrap();
        let remote = find(&p.a, 1);
        let ends = Ends { local: own.clone(), remote: remote.clone() };
        ends.put_at(100, 1, 11).unwrap();
        assert_eq!(bytes_of(&far, 4097, 11), b"from beside");
        assert_eq!((window.len(), remote.len()), (8192, 8192));
        window.revoke().within(LONG).wait().unwrap();
    }
}

#[test]
fn the_address_is_that_of_the_bytes() {
    for adopted in [false, true] {
        let t = Two::new(ConnType::Shm, (adopted, adopted));
        let (near, far) = (t.near.as_ptr(), t.far.as_ptr());
        // SAFETY: the buffer has those bytes, and no other thread touches them now.
        unsafe { near.wrapping_add(10).write_bytes(0xA5, 32) };
        t.ends.put_at(0, 0, 4096).unwrap();
        let mut got = [0u8; 32];
        // SAFETY: as above: the put is over.
        unsafe { far.wrapping_add(10).copy_to_nonoverlapping(got.as_mut_ptr(), 32) };
        assert_eq!(got, [0xA5; 32]);
        assert_eq!(near, t.near.clone().as_ptr());
    }
}

/// One source for many targets, at the same time, and several windows over the same bytes.
#[test]
fn the_same_bytes_serve_several_at_once() {
    let vias = Via::all().into_iter().map(Via::conn);
    for (conn, adopted) in vias.flat_map(|conn| [(conn, false), (conn, true)]) {
        let dir = TempDir::new();
        let root = Session::builder(0).uds(dir.path()).tcp("127.0.0.1:0").start().unwrap();
        let source = shared(&root, adopted, 2 * MIB);
        let bytes = pattern(2 * MIB, 77);
        source.write_at(0, &bytes).unwrap();
        let leaves: Vec<Session> =
            (1..4).map(|rank| Session::builder(rank).start().unwrap()).collect();
        let ends: Vec<_> = leaves
            .iter()
            .map(|leaf| {
                let up =
                    leaf.connect(&dir.address()).rank(0).over(conn).within(LONG).wait().unwrap();
                let down = root.accept(leaf.rank().0).within(LONG).wait().unwrap();
                let sink = shared(leaf, adopted, 2 * MIB);
                let sunk = up.expose(&sink, Access::all(), 1).unwrap();
                let to = Ends { local: source.clone(), remote: find(&down, 1) };
                // The source is exposed to everybody, too: all of it, and a part twice.
                let all = down.expose(source.range(0, 2 * MIB).unwrap(), Access::READ, 2).unwrap();
                let part = down.expose(source.range(MIB, 4096).unwrap(), Access::READ, 3).unwrap();
                let from = Ends { local: sink.clone(), remote: find(&up, 2) };
                (sink, to, from, (up, sunk, all, part))
            })
            .collect();
        for len in [512, 2 * MIB] {
            std::thread::scope(|s| {
                for (_, to, from, _) in &ends {
                    s.spawn(move || (0..20).for_each(|_| to.put_at(0, 0, len).unwrap()));
                    s.spawn(move || (0..20).for_each(|_| from.get_at(0, 0, len).unwrap()));
                }
            });
            for (sink, ..) in &ends {
                assert!(bytes_of(sink, 0, len) == bytes[..len as usize], "{conn:?}");
            }
        }
        // One window of a peer is taken back; the others over the same bytes stay.
        let mut ends = ends.into_iter();
        let (_, _, from, (up, _, all, part)) = ends.next().unwrap();
        all.revoke().within(LONG).wait().unwrap();
        let e = from.get_at(0, 0, 8).unwrap_err();
        assert!(matches!(e.kind(), ErrorKind::Revoked | ErrorKind::NotFound), "{conn:?}: {e}");
        let sink = shared(&leaves[0], false, 4096);
        let ends_of_part = Ends { local: sink.clone(), remote: find(&up, 3) };
        ends_of_part.get_at(0, 0, 4096).unwrap();
        assert!(bytes_of(&sink, 0, 4096) == bytes[MIB as usize..MIB as usize + 4096]);
        drop(part);
        for (_, _, from, _) in ends {
            from.get_at(0, 0, MIB).unwrap();
        }
    }
}

#[test]
fn what_is_not_allowed_is_reported() {
    everywhere(|what, t| {
        let (a, b) = (&t.pair.a, &t.pair.b);
        t.far.fill(0, LEN, 1).unwrap();
        for (lo, ro, len) in
            [(LEN, 0, 1), (0, LEN, 1), (u64::MAX, 0, 2), (0, LEN - 3, 4), (0, 1, LEN)]
        {
            for kind in [
                t.ends.put_at(lo, ro, len).unwrap_err().kind(),
                t.ends.get_at(lo, ro, len).unwrap_err().kind(),
                t.ends.start_put_at(lo, ro, len).unwrap_err().kind(),
                t.ends.start_get_at(lo, ro, len).unwrap_err().kind(),
                t.ends.start_put_notify_at(lo, ro, len, 1).unwrap_err().kind(),
            ] {
                assert_eq!(kind, ErrorKind::Range, "{what}: {lo} {ro} {len}");
            }
            let copy = Copy { local_offset: lo, remote_offset: ro, len };
            let e = t.ends.prepare_at(Direction::Put, &[copy]).unwrap_err();
            assert_eq!(e.kind(), ErrorKind::Range);
        }
        let e = t.far.range(LEN - 1, 2).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Range, "{what}: {e}");
        let _look = b.expose(t.far.range(4096, 4096).unwrap(), Access::READ, 8).unwrap();
        let look = Ends { local: t.near.clone(), remote: find(a, 8) };
        look.get_at(0, 0, 4096).unwrap();
        assert_eq!(look.put_at(0, 0, 8).unwrap_err().kind(), ErrorKind::Access, "{what}");
        assert_eq!(look.get_at(0, 4090, 8).unwrap_err().kind(), ErrorKind::Range, "{what}");
        assert!(bytes_of(&t.far, 0, LEN).iter().all(|b| *b == 1), "{what}: a stray byte");
        // Only a free range can be shared, and it stays shared.
        let session = t.pair.sender();
        let region = session.memory().allocate(8192).unwrap();
        let span = region.take(100, 10).unwrap();
        assert_eq!(region.clone().share().unwrap_err().kind(), ErrorKind::Busy);
        drop(span);
        let first = region.clone().share().unwrap();
        let second = region.clone().share().unwrap();
        first.write_at(5, b"alias").unwrap();
        assert_eq!(bytes_of(&second, 5, 5), b"alias");
        drop((first, second));
        assert_eq!(region.take(0, 1).unwrap_err().kind(), ErrorKind::Busy);
    });
}

/// Keys of memory are counted by each session: what belongs to another one is refused, not mistaken for ours.
#[test]
fn memory_of_others_is_refused() {
    for conn in Via::all().into_iter().map(Via::conn) {
        let t = Two::new(conn, (false, false));
        let foreign = Session::builder(9).buffer(4096).start().unwrap();
        let other = shared(&foreign, false, LEN);
        let remote = &t.ends.remote;
        let mixed = Ends { local: other.clone(), remote: remote.clone() };
        let copy = Copy { local_offset: 0, remote_offset: 0, len: 8 };
        for e in [
            mixed.put_at(0, 0, 8).unwrap_err(),
            mixed.get_at(0, 0, LEN).unwrap_err(),
            mixed.put_notify_at(0, 0, 8, 1).unwrap_err(),
            mixed.start_put_at(0, 0, LEN).unwrap_err(),
            mixed.start_get_at(0, 0, 8).unwrap_err(),
            mixed.prepare_at(Direction::Put, &[copy]).unwrap_err(),
        ] {
            assert_eq!(e.kind(), ErrorKind::InvalidConfig, "{e}");
        }
        let e = t.pair.a.expose(other.range(0, 8).unwrap(), Access::all(), 1).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::InvalidConfig, "{e}");
        let span = foreign.memory().allocate(64).unwrap().take_all().unwrap();
        let (e, span) = t.pair.a.expose(span, Access::all(), 3).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::InvalidConfig, "{e}");
        let e = remote.put(0, span).start().unwrap_err();
        assert_eq!(e.kind(), ErrorKind::InvalidConfig, "{e}");
        let e = remote.get(0, e.reclaim().wait().unwrap()).wait().unwrap_err();
        assert_eq!(e.kind(), ErrorKind::InvalidConfig, "{e}");
        let e = t.pair.a.send_data(e.reclaim().wait().unwrap()).start().unwrap_err();
        assert_eq!(e.kind(), ErrorKind::InvalidConfig, "{e}");
        let e = t.pair.a.recv_data(e.reclaim().wait().unwrap()).start().unwrap_err();
        assert_eq!(e.kind(), ErrorKind::InvalidConfig, "{e}");
        // The link that refused all this is as good as before.
        t.near.write_at(0, b"ours").unwrap();
        t.ends.put_at(0, LEN - 4, 4).unwrap();
        assert_eq!(bytes_of(&t.far, LEN - 4, 4), b"ours");
    }
}

#[test]
fn a_window_that_was_taken_back_is_out_of_reach() {
    everywhere(|what, t| {
        for dropped in [false, true] {
            let label = 20 + u64::from(dropped);
            let far = t.far.range(0, MIB).unwrap();
            let window = t.pair.b.expose(far, Access::all(), label).unwrap();
            let ends = Ends { local: t.near.clone(), remote: find(&t.pair.a, label) };
            t.near.fill(0, MIB, 5).unwrap();
            ends.put_at(0, 0, MIB).unwrap();
            if dropped {
                drop(window);
                // Where the peer's word is the fence, that comes in a moment.
                until("it is out of reach", LONG, || ends.put_at(0, 0, 8).err());
                until("its place is free", LONG, || {
                    (t.pair.receiver().stats().quarantined_bytes == 0).then_some(())
                });
            } else {
                window.revoke().within(LONG).wait().unwrap();
            }
            t.far.fill(0, MIB, 6).unwrap();
            for len in [8, MIB] {
                let e = ends.put_at(0, 0, len).unwrap_err();
                let gone = matches!(e.kind(), ErrorKind::Revoked | ErrorKind::NotFound);
                assert!(gone, "{what} {dropped}: {e}");
            }
            assert!(bytes_of(&t.far, 0, MIB).iter().all(|b| *b == 6), "{what}: a late byte");
            assert_eq!(t.pair.receiver().stats().quarantined_bytes, 0);
            t.ends.put_at(0, 0, 64).unwrap();
        }
    });
}

#[test]
fn windows_and_plans_end_with_the_life_of_their_peer() {
    for conn in Via::all().into_iter().map(Via::conn) {
        let Two { mut pair, near, far, window, ends } = Two::new(conn, (true, false));
        let batch = ends.prepare_at(Direction::Put, &[]).unwrap();
        drop((far, window, pair.b));
        let dir = &pair.dir;
        let sender = pair.sessions.pop().unwrap();
        drop(pair.sessions);
        until("the death is known", LONG, || {
            let kind = ends.put_at(0, 0, 8).map_err(|e| e.kind());
            (kind == Err(ErrorKind::PeerDead)).then_some(())
        });
        for e in [
            ends.put_at(0, 0, 8).unwrap_err(),
            ends.get_at(0, 0, 8).unwrap_err(),
            ends.start_put_at(0, 0, MIB).unwrap_err(),
            batch.run().unwrap_err(),
            batch.start().unwrap_err(),
            pair.a.buffer().unwrap_err(),
        ] {
            assert_eq!(e.kind(), ErrorKind::PeerDead, "{conn:?}: {e}");
        }
        // Its next life is another one.
        let again = Session::builder(1).uds(dir.path()).tcp("127.0.0.1:0").buffer(4096);
        let again = again.start().unwrap();
        let peer = sender.connect(&dir.address()).rank(1).over(conn).within(LONG).wait().unwrap();
        assert_eq!(ends.put_at(0, 0, 8).unwrap_err().kind(), ErrorKind::PeerDead);
        assert_eq!(batch.run().unwrap_err().kind(), ErrorKind::PeerDead);
        assert_eq!(batch.start().unwrap_err().kind(), ErrorKind::PeerDead);
        near.write_at(0, b"again").unwrap();
        Ends { local: near, remote: peer.buffer().unwrap() }.put_at(0, 0, 5).unwrap();
        assert_eq!(bytes_of(again.buffer(), 0, 5), b"again");
    }
}

/// Memory of the application that tells when it is let go.
struct Watched {
    bytes: Box<[u8]>,
    gone: Arc<AtomicBool>,
}

// SAFETY: the box never moves its bytes and only the drop frees them; nobody else refers to them.
unsafe impl StableBytes for Watched {
    fn as_bytes_ptr(&self) -> (*mut u8, usize) {
        (NonNull::from(&self.bytes[0]).as_ptr(), self.bytes.len())
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.gone.store(true, Ordering::Release);
    }
}

/// What is under way keeps its memory, whoever has dropped buffer and window; then it goes.
#[test]
fn memory_stays_until_what_uses_it_is_over() {
    let dir = TempDir::new();
    let target = Session::builder(1).uds(dir.path()).tcp("127.0.0.1:0").buffer(MIB);
    let target = target.progress(Progress::Manual).start().unwrap();
    let source = Session::builder(0).start().unwrap();
    let peer = std::thread::scope(|s| {
        let dial = s.spawn(|| {
            source.connect(&dir.address()).rank(1).over(ConnType::Tcp).within(LONG).wait().unwrap()
        });
        while !dial.is_finished() {
            target.progress();
        }
        dial.join().unwrap()
    });
    // A get into memory of the application, of which only the get knows afterwards.
    let get = |label: Option<u64>| {
        let gone = Arc::new(AtomicBool::new(false));
        let bytes = vec![3; 4096].into_boxed_slice();
        let region = source.memory().register(Watched { bytes, gone: Arc::clone(&gone) }).unwrap();
        let buffer = region.share().unwrap();
        let ends = Ends { local: buffer.clone(), remote: peer.buffer().unwrap() };
        let op = ends.start_get_at(0, 0, 4096).unwrap();
        let window = label.map(|l| peer.expose(&buffer, Access::READ, l).unwrap());
        (gone, op, window)
    };
    let is = |gone: &AtomicBool| gone.load(Ordering::Acquire);
    let (exposed, op, window) = get(Some(1));
    let (plain, other, _) = get(None);
    assert!(matches!(op.wait_for(Duration::from_millis(600)), Waited::Limit));
    assert!(!is(&exposed) && !is(&plain), "freed under a get");
    for op in [op, other] {
        until("the get is over", LONG, || {
            target.progress();
            has_ended(&op).then_some(())
        });
        assert_eq!(wait(op).unwrap(), 4096);
    }
    until("it is let go", LONG, || is(&plain).then_some(()));
    assert!(!is(&exposed), "freed under a window");
    drop(window);
    until("it is let go", LONG, || is(&exposed).then_some(()));
}

/// Transfers of spans and of shared memory go side by side.
#[test]
fn spans_and_shared_memory_have_a_window_in_common() {
    for conn in transports() {
        let t = Two::new(conn, (false, false));
        let mut span = t.pair.sender().memory().allocate(4096).unwrap().take_all().unwrap();
        span.fill(0x77);
        let op = t.ends.remote.put(MIB, span).start().unwrap();
        t.near.fill(0, 4096, 0x66).unwrap();
        t.ends.put_at(0, MIB + 4096, 4096).unwrap();
        assert_eq!(op.wait().unwrap().bytes, 4096);
        let got = bytes_of(&t.far, MIB, 8192);
        assert!(got[..4096].iter().all(|b| *b == 0x77) && got[4096..].iter().all(|b| *b == 0x66));
    }
}

#[test]
fn what_can_be_done_at_once_is_done_and_nothing_else() {
    for conn in ALL {
        let p = Pair::new(conn, 1 << 16);
        p.sender().buffer().write_at(0, b"at once").unwrap();
        let got = || bytes_of(p.receiver().buffer(), 100, 7);
        let remote = p.a.buffer().unwrap();
        let op = remote.put(100, p.sender().buffer().range(0, 7).unwrap()).start().unwrap();
        // With UCX the buffer is its own: only its lanes of shared memory map that.
        if !hmc_std::config::Environment::read().ucx {
            assert_eq!(remote.is_mapped(), conn == ConnType::Shm, "{conn:?}");
        }
        if remote.is_mapped() {
            assert_eq!(p.sender().stats().peers[0].in_flight, 0, "{conn:?}: it has a slot");
            assert_eq!(got(), b"at once", "{conn:?}: before anybody waits for it");
        }
        assert_eq!(wait(op).unwrap(), 7, "{conn:?}");
        assert_eq!(got(), b"at once", "{conn:?}");
        let e = p.a.start_get_at(0, 1 << 16, 7).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Range, "{conn:?}");
    }
}
