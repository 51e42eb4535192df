//! What one session named is nothing to another of the same process, whose own things of that number stay untouched.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

use hmc_std::{Access, ConnType, Copy, Direction, ErrorKind, OpId};
use hmc_tests::attack::{Context, names};
use hmc_tests::pair::Pair;

const ACTOR: &str = env!("CARGO_BIN_EXE_actor");

/// The first region of each session has the same place in its table.
#[test]
fn spans_of_two_sessions_do_not_join() {
    names::spans(&mut Context::rounds(ACTOR, 1)).expect_held();
}

/// Both clients have one link, and on it the same operation, by number.
#[test]
fn an_operation_of_another_session_is_neither_found_nor_taken() {
    names::operations(&mut Context::rounds(ACTOR, 2)).expect_held();
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
