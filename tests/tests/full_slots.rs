//! More operations than a session has slots: a new one waits until another has completed, and the ids of completed ones stay
//! valid.

#![allow(clippy::indexing_slicing, clippy::unwrap_used, reason = "tests may panic")]

use std::future::Future as _;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use hmc_std::{ErrorKind, OpId, Peer, Session};
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
    let peer = a.connect_with(1, &dir.address(), via.conn(), LONG).expect("connected");
    (a, b, peer, dir)
}

#[test]
fn one_thread_begins_many_and_waits_for_them_afterwards() {
    for via in Via::all() {
        let (_a, _b, peer, _dir) = pair(via);
        let ops: Vec<OpId> = (0..MANY).map(|_| peer.put_nb(0, 0, LEN).expect("space")).collect();
        for op in ops.iter().rev() {
            until("it has ended", LONG, || peer.test(*op).unwrap().then_some(()));
            peer.cancel(*op).expect("it has ended, and its name is good");
            assert_eq!(peer.wait_within(*op, LONG).unwrap(), LEN, "{via:?}");
            assert_eq!(peer.wait(*op).unwrap_err().kind(), ErrorKind::Stale);
        }
        // Lists, spans and messages get slots too.
        let copy = hmc_std::Copy { local_offset: 0, remote_offset: 0, len: 8 };
        let ops: Vec<OpId> = (0..20).map(|_| peer.put_batch(&[copy; 3]).expect("space")).collect();
        for op in ops {
            assert_eq!(peer.wait(op).unwrap(), 24);
        }
    }
}

#[test]
fn messages_find_slots_beside_operations_without_a_waiter() {
    for via in Via::all() {
        let (_a, b, peer, _dir) = pair(via);
        let ops: Vec<OpId> = (0..4).map(|_| peer.put_nb(0, 0, LEN).expect("space")).collect();
        let got = std::thread::scope(|scope| {
            let got = scope.spawn(|| {
                let mut out = vec![0; 1 << 20];
                b.wait_peer(0, LONG).unwrap().recv_data(&mut out).map(|n| (n, out[777]))
            });
            peer.send_data(&vec![5; 1 << 20]).expect("sent");
            got.join().unwrap().expect("received")
        });
        assert_eq!(got, (1 << 20, 5));
        assert!(ops.iter().all(|op| peer.wait(*op).is_ok_and(|n| n == LEN)));
    }
}

/// Outcomes without a waiter are kept up to a limit. Beyond it no operation starts, and a query of one frees a slot.
#[test]
fn operations_that_nobody_waits_for_are_limited() {
    const KEPT: usize = 1 << 16;
    for via in Via::all() {
        let (_a, b, peer, _dir) = pair(via);
        let mut ops: Vec<OpId> = Vec::new();
        let e = loop {
            match peer.put_nb(0, 0, 8) {
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
            let other = b.wait_peer(0, LONG).expect("connected");
            let receive = other.recv_data_nb(0, 4096).expect("a receive");
            peer.send_data_within(&[5; 4096], LONG).expect("it goes with its offer");
            assert_eq!(receive.wait(LONG).expect("received").0, 4096);
            let receive = other.recv_data_nb(0, 4097).expect("nothing else is received");
            let e = peer.send_data_within(&[5; 4097], SHORT).expect_err("no slot");
            assert_eq!(e.kind(), ErrorKind::DeadlineExceeded, "{e}");
            assert!(e.to_string().contains("have ended that nobody waited for"), "{e}");
            drop(receive);
        }
        for op in ops.drain(..10) {
            assert_eq!(peer.wait(op).expect("its name is good"), 8, "{via:?}");
        }
        peer.put_nb(0, 0, 8).expect("space again");
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
        let (_a, _b, peer, _dir) = pair(via);
        let make = |_| Box::pin(peer.put_async(0, 0, LEN).expect("nothing is waited for"));
        let mut futures: Vec<_> = (0..MANY).map(make).collect();
        let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
        let start = Instant::now();
        while !futures.is_empty() {
            futures.retain_mut(|f| match f.as_mut().poll(&mut Context::from_waker(&waker)) {
                Poll::Pending => true,
                Poll::Ready(r) => {
                    assert_eq!(r.expect("put"), LEN);
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
