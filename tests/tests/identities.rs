//! What one session named is nothing to another of the same process, whose own things of that number stay untouched.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

use std::time::Duration;

use hmc_std::{Access, ConnType, ErrorKind, Failed, Piece, Span};
use hmc_tests::attack::{Context, names};
use hmc_tests::pair::Pair;

const ACTOR: &str = env!("CARGO_BIN_EXE_actor");

/// The first region of each session has the same place in its table.
#[test]
fn spans_of_two_sessions_do_not_join() {
    names::spans(&mut Context::rounds(ACTOR, 1)).expect_held();
}

/// Memory of one session is refused by the other, wherever it can be handed in, and no byte of it goes anywhere.
#[test]
fn memory_of_another_session_is_refused() {
    for conn in [ConnType::Shm, ConnType::Tcp] {
        let (one, other) = (Pair::new(conn, 4096), Pair::new(conn, 4096));
        one.sender().buffer().fill(0, 4096, 1).unwrap();
        other.sender().buffer().fill(0, 4096, 2).unwrap();
        let to_other = other.sender().peer(1).unwrap();
        let window = to_other.buffer().unwrap();
        let region = one.sender().memory().allocate(64).unwrap();
        let span = || region.take_all().unwrap();
        let wrong = |what: &str, kind: ErrorKind| {
            assert_eq!(kind, ErrorKind::InvalidConfig, "{what} over {conn}");
        };
        // A refusal gives the span back at once.
        let refused = |what: &str, failed: Failed<Span>| {
            wrong(what, failed.kind());
            drop(failed.reclaim().within(Duration::ZERO).wait().expect("it was never under way"));
        };
        refused("put", window.put(0, span()).wait().unwrap_err());
        refused("start a put", window.put(0, span()).start().unwrap_err());
        refused("get", window.get(0, span()).wait().unwrap_err());
        refused("start a get", window.get(0, span()).start().unwrap_err());
        let foreign = one.sender().buffer().range(0, 8).unwrap();
        wrong("put of a range", window.put(0, foreign).wait().unwrap_err().kind());
        wrong("start of it", window.put(0, foreign).start().unwrap_err().kind());
        wrong("its notification", window.put(0, foreign).notify(1).start().unwrap_err().kind());
        wrong("get of a range", window.get(0, foreign).wait().unwrap_err().kind());
        let own = Piece::new(other.sender().buffer().range(0, 8).unwrap(), 8);
        let list = [own, Piece::new(foreign, 0)];
        wrong("put_list", window.put_list(&list).wait().unwrap_err().kind());
        wrong("get_list", window.get_list(&list).prepare().unwrap_err().kind());
        wrong("expose", to_other.expose(span(), Access::all(), 1).unwrap_err().0.kind());
        let shared = to_other.expose(one.sender().buffer().range(0, 64).unwrap(), Access::all(), 1);
        wrong("expose of shared memory", shared.unwrap_err().kind());
        wrong("send_span", to_other.send_data(span()).start().unwrap_err().kind());
        wrong("recv_span", to_other.recv_data(span()).start().unwrap_err().kind());
        let mut bytes = [9; 16];
        other.receiver().buffer().read_at(0, &mut bytes).unwrap();
        assert_eq!(bytes, [0; 16], "nothing was written");
        one.sender().buffer().read_at(0, &mut bytes).unwrap();
        assert_eq!(bytes, [1; 16], "nothing was read");
    }
}
