//! What one session named is nothing to another of the same process, whose own things of that number stay untouched.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

use std::time::Duration;

use hmc_std::{Access, ConnType, Copy, Direction, ErrorKind, OpId, Session};
use hmc_tests::pair::Pair;

const LONG: Duration = Duration::from_secs(20);

/// Two sessions that each count from the start.
fn two() -> (Session, Session) {
    let one = || Session::builder(0).buffer(4096).start().unwrap();
    (one(), one())
}

/// The first region of each session has the same place in its table.
#[test]
fn spans_of_two_sessions_do_not_join() {
    let (a, b) = two();
    let (small, large) = (a.allocate(4096).unwrap(), b.allocate(1 << 20).unwrap());
    let low = small.take(0, 4096).unwrap();
    let high = large.take(4096, (1 << 20) - 4096).unwrap();
    let (low, high) = low.join(high).expect_err("they are of two regions");
    let low_of_large = large.take(0, 4096).unwrap();
    let (low, low_of_large) = low.join(low_of_large).expect_err("they are of two regions");
    assert_eq!(low_of_large.join(high).unwrap().len(), 1 << 20);
    drop(low);
    assert!(small.take_all().is_ok(), "it came back to its own region");
}

/// Both clients have one link, and on it the same operation, by number.
#[test]
fn an_operation_of_another_session_is_neither_found_nor_taken() {
    for conn in [ConnType::Shm, ConnType::Tcp] {
        let (one, other) = (Pair::new(conn, 4096), Pair::new(conn, 4096));
        let (of_one, of_other) = (one.b.clone(), other.b.clone());
        let (to_one, to_other) = (one.sender().peer(1).unwrap(), other.sender().peer(1).unwrap());
        let foreign = to_one.put_nb(0, 0, 64).unwrap();
        let own = to_other.put_nb(0, 0, 8).unwrap();
        let stale = |what: &str, got: Option<ErrorKind>| {
            assert_eq!(got, Some(ErrorKind::Stale), "{what} over {conn}");
        };
        let s = other.sender();
        stale("wait", s.wait(foreign).err().map(|e| e.kind()));
        stale("wait_within", s.wait_within(foreign, LONG).err().map(|e| e.kind()));
        stale("test", s.test(foreign).err().map(|e| e.kind()));
        stale("cancel", s.cancel(foreign).err().map(|e| e.kind()));
        stale("wait_all", s.wait_all(&[foreign]).err().map(|e| e.kind()));
        let (at, any) = s.wait_any(&[foreign], LONG).unwrap();
        assert_eq!(at, 0);
        stale("wait_any", any.err().map(|e| e.kind()));
        stale("Peer::wait", to_other.wait(foreign).err().map(|e| e.kind()));
        stale("Peer::test", to_other.test(foreign).err().map(|e| e.kind()));
        stale("Peer::cancel", to_other.cancel(foreign).err().map(|e| e.kind()));
        stale("Peer::watch", to_other.watch(foreign).err().map(|e| e.kind()));
        assert_eq!(s.wait(own).unwrap(), 8, "nobody took its result");
        assert_eq!(one.sender().wait(foreign).unwrap(), 64, "nobody took its result");
        drop((of_one, of_other));
    }
}

/// What was prepared with one session cannot be posted with another, nor does a window of one lead anywhere in the other.
#[test]
fn windows_and_lists_of_another_session_are_stale() {
    for conn in [ConnType::Shm, ConnType::Tcp] {
        let (one, other) = (Pair::new(conn, 4096), Pair::new(conn, 4096));
        let (to_one, to_other) = (one.sender().peer(1).unwrap(), other.sender().peer(1).unwrap());
        one.sender().buffer().fill(0, 4096, 1).unwrap();
        other.sender().buffer().fill(0, 4096, 2).unwrap();
        let copy = Copy { local_offset: 0, remote_offset: 0, len: 8 };
        let list = to_one.prepare(Direction::Put, &[copy]).unwrap();
        let stale = |what: &str, kind: ErrorKind| {
            assert_eq!(kind, ErrorKind::Stale, "{what} over {conn}");
        };
        stale("post_batch", to_other.post_batch(&list).unwrap_err().kind());
        stale("run_batch", to_other.run_batch(&list).unwrap_err().kind());
        let window = to_one.remote_buffer().unwrap();
        stale("between", to_other.between(other.sender().buffer(), &window).unwrap_err().kind());
        let span = other.sender().allocate(64).unwrap().take_all().unwrap();
        stale("put_span", to_other.put_span(span, &window, 0).unwrap_err().error.kind());
        let mut byte = [9];
        other.receiver().buffer().read_at(0, &mut byte).unwrap();
        assert_eq!(byte, [0], "nothing was written");
    }
}

/// Memory of one session is refused by the other, wherever it can be handed in.
#[test]
fn memory_of_another_session_is_refused() {
    let (one, other) = (Pair::new(ConnType::Shm, 4096), Pair::new(ConnType::Shm, 4096));
    let to_other = other.sender().peer(1).unwrap();
    let window = to_other.remote_buffer().unwrap();
    let region = one.sender().allocate(64).unwrap();
    let span = || region.take_all().unwrap();
    let wrong = |what: &str, kind: ErrorKind| {
        assert_eq!(kind, ErrorKind::InvalidConfig, "{what}");
    };
    wrong("put_span", to_other.put_span(span(), &window, 0).unwrap_err().error.kind());
    wrong("get_span", to_other.get_span(span(), &window, 0).unwrap_err().error.kind());
    wrong("expose", to_other.expose(span(), Access::all(), 1).unwrap_err().0.kind());
    wrong("between", to_other.between(one.sender().buffer(), &window).unwrap_err().kind());
    let shared = to_other.expose_buffer(one.sender().buffer(), 0, 64, Access::all(), 1);
    wrong("expose_buffer", shared.unwrap_err().kind());
    wrong("share", other.sender().share(region.clone()).unwrap_err().kind());
    wrong("send_span", to_other.send_data_span(span()).unwrap_err().error.kind());
    wrong("recv_span", to_other.recv_data_span(span()).unwrap_err().error.kind());
}

/// A session that is gone leaves no name that a later one would take for its own.
#[test]
fn a_name_outlives_its_session_without_a_second_meaning() {
    let mut old: Option<OpId> = None;
    for _ in 0..3 {
        let pair = Pair::new(ConnType::Shm, 4096);
        let peer = pair.sender().peer(1).unwrap();
        let op = peer.put_nb(0, 0, 8).unwrap();
        if let Some(old) = old.replace(op) {
            assert_eq!(pair.sender().wait(old).unwrap_err().kind(), ErrorKind::Stale);
        }
        assert_eq!(pair.sender().wait(op).unwrap(), 8);
    }
}
