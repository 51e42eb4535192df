//! More operations than a session has slots: a new one waits until another has completed, and the results of completed ones
//! stay.

#![allow(clippy::indexing_slicing, clippy::unwrap_used, reason = "tests may panic")]

use std::future::{Future as _, IntoFuture as _};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use hmc_std::{Access, ErrorKind, Op, Peer, Session, Waited, Window};
use hmc_testkit::buffers::{
    BufferMessages as _, BufferTransfers as _, Copy, Direction, Ends, has_ended, wait,
};
use hmc_tests::env::{TempDir, Via, until};

const LONG: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_millis(200);
const LEN: u64 = 64 << 10;
/// Many times the slots.
const MANY: u64 = 1000;

fn pair(via: Via) -> (Session, Session, Peer, TempDir) {
    let dir = TempDir::new();
    let start = |rank| {
        let b = Session::builder(rank).uds(dir.path()).tcp("127.0.0.1:0").buffer(LEN);
        b.slots(4).start().expect("a session")
    };
    let (a, b) = (start(0), start(1));
    let peer =
        a.connect(&dir.address()).rank(1).over(via.conn()).within(LONG).wait().expect("connected");
    (a, b, peer, dir)
}

/// Both ends of transfers that need slots: where the peer's buffer is mapped, memory that is not, since small copies into mapped
/// memory are over when they are started.
fn ends(via: Via, a: &Session, b: &Session, peer: &Peer) -> (Ends, Option<Window<hmc_std::Span>>) {
    if via != Via::Shm {
        return (peer.ends().expect("it exposes a buffer"), None);
    }
    let bytes = vec![0; usize::try_from(LEN).unwrap()];
    let span = b
        .memory()
        .register(hmc_std::memory::HeapBytes::from(bytes))
        .unwrap()
        .take_all()
        .expect("free");
    let back = b.accept(0).within(LONG).wait().expect("connected");
    let window = back.expose(span, Access::all(), 1).map_err(|(e, _)| e).expect("exposed");
    let remote = peer.window(1).within(LONG).wait().expect("exposed");
    (Ends { local: a.buffer().clone(), remote }, Some(window))
}

#[test]
fn one_thread_begins_many_and_waits_for_them_afterwards() {
    for via in Via::all() {
        let (a, b, peer, _dir) = pair(via);
        let (ends, _window) = ends(via, &a, &b, &peer);
        let ops: Vec<Op> =
            (0..MANY).map(|_| ends.start_put_at(0, 0, LEN).expect("space")).collect();
        for op in ops.into_iter().rev() {
            until("it has ended", LONG, || has_ended(&op).then_some(()));
            // Too late, and it changes nothing.
            op.cancel();
            assert!(matches!(op.wait_for(LONG), Waited::Ended(Ok(LEN))), "{via:?}");
            assert_eq!(wait(op).unwrap(), LEN, "{via:?}");
        }
        // Lists, spans and messages get slots too.
        let copy = Copy { local_offset: 0, remote_offset: 0, len: 8 };
        let list = ends.prepare_at(Direction::Put, &[copy; 3]).expect("in range");
        let ops: Vec<Op> = (0..20).map(|_| list.start().expect("space")).collect();
        for op in ops {
            assert_eq!(wait(op).unwrap(), 24);
        }
    }
}

#[test]
fn messages_find_slots_beside_operations_without_a_waiter() {
    for via in Via::all() {
        let (a, b, peer, _dir) = pair(via);
        let (ends, _window) = ends(via, &a, &b, &peer);
        let ops: Vec<Op> = (0..4).map(|_| ends.start_put_at(0, 0, LEN).expect("space")).collect();
        let got = std::thread::scope(|scope| {
            let got = scope.spawn(|| {
                let mut out = vec![0; 1 << 20];
                b.accept(0)
                    .within(LONG)
                    .wait()
                    .unwrap()
                    .recv_data(&mut out)
                    .wait()
                    .map(|d| d.bytes)
                    .map(|n| (n, out[777]))
            });
            peer.send_data(&vec![5; 1 << 20]).wait().expect("sent");
            got.join().unwrap().expect("received")
        });
        assert_eq!(got, (1 << 20, 5));
        assert!(ops.into_iter().all(|op| wait(op).is_ok_and(|n| n == LEN)));
    }
}

/// Outcomes without a waiter are kept up to a limit. Beyond it no operation starts, and a query of one frees a slot.
#[test]
fn operations_that_nobody_waits_for_are_limited() {
    const KEPT: usize = 1 << 16;
    for via in Via::all() {
        let (a, b, peer, _dir) = pair(via);
        let (ends, _window) = ends(via, &a, &b, &peer);
        let mut ops: Vec<Op> = Vec::new();
        let e = loop {
            match ends.start_put_at(0, 0, 8) {
                Ok(op) => ops.push(op),
                Err(e) => break e,
            }
            assert!(ops.len() <= KEPT + 4, "{via:?}: no limit");
        };
        assert_eq!(e.kind(), ErrorKind::Full, "{via:?}: {e}");
        assert!(e.to_string().contains("65536 have ended that nobody waited for"), "{e}");
        assert!(ops.len() >= KEPT, "{via:?}: {}", ops.len());
        if via == Via::Tcp {
            // Nor does a part of a message, which says why. One that goes with its offer needs none.
            let other = b.accept(0).within(LONG).wait().expect("connected");
            let receive = other.start_recv_at(0, 4096).expect("a receive");
            peer.send_data(&[5; 4096]).within(LONG).wait().expect("it goes with its offer");
            assert_eq!(receive.wait().expect("received").bytes, 4096);
            let receive = other.start_recv_at(0, 4097).expect("nothing else is received");
            let e = peer.send_data(&[5; 4097]).within(SHORT).wait().expect_err("no slot");
            assert_eq!(e.kind(), ErrorKind::DeadlineExceeded, "{e}");
            assert!(e.to_string().contains("have ended that nobody waited for"), "{e}");
            drop(receive);
        }
        if via == Via::Shm {
            // What is over when it is started needs no slot.
            assert_eq!(wait(peer.start_put_at(0, 0, 8).expect("no slot")).unwrap(), 8);
        }
        for op in ops.drain(..10) {
            assert_eq!(wait(op).expect("its result is kept"), 8, "{via:?}");
        }
        drop(ends.start_put_at(0, 0, 8).expect("space again"));
    }
}

/// Wakes a thread.
struct Unpark(std::thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

#[test]
fn futures_are_pending_while_no_slot_is_free() {
    for via in Via::all() {
        let (a, b, peer, _dir) = pair(via);
        let (ends, _window) = ends(via, &a, &b, &peer);
        let make = |_| Box::pin(ends.remote.put(0, &ends.local).into_future());
        let mut futures: Vec<_> = (0..MANY).map(make).collect();
        let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
        let start = Instant::now();
        while !futures.is_empty() {
            futures.retain_mut(|f| match f.as_mut().poll(&mut Context::from_waker(&waker)) {
                Poll::Pending => true,
                Poll::Ready(r) => {
                    assert_eq!(r.expect("put").bytes, LEN);
                    false
                }
            });
            assert!(start.elapsed() < LONG, "{} futures are left", futures.len());
            if !futures.is_empty() {
                std::thread::park_timeout(LONG);
            }
        }
    }
}
