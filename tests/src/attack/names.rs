//! Names of one session that are handed to another one of the same process.

use hmc_std::{ConnType, ErrorKind, Session};

use super::{Context, Outcome};
use crate::pair::Pair;

const LONG: std::time::Duration = std::time::Duration::from_secs(20);

/// Joins spans of the first regions of two sessions, which have the same place in their tables.
///
/// # Panics
/// When there is no memory.
pub fn spans(context: &mut Context) -> Outcome {
    let session = || Session::builder(0).buffer(4096).start().expect("a session");
    while context.again(20) {
        let (a, b) = (session(), session());
        let small = a.allocate(4096).expect("memory");
        let large = b.allocate(1 << 20).expect("memory");
        let low = small.take(0, 4096).expect("free");
        let high = large.take(4096, (1 << 20) - 4096).expect("free");
        let (low, high) = match low.join(high) {
            Err(apart) => apart,
            Ok(both) => {
                let len = both.len();
                std::mem::forget(both);
                return context.broken(format!("{len} bytes over a region of 4096"));
            }
        };
        let low_of_large = large.take(0, 4096).expect("free");
        let Err((low, low_of_large)) = low.join(low_of_large) else {
            return context.broken("two spans of one range joined");
        };
        assert_eq!(low_of_large.join(high).expect("neighbours").len(), 1 << 20);
        drop(low);
        assert!(small.take_all().is_ok(), "it came back to its own region");
    }
    context.held("spans of two sessions do not join")
}

/// Gives one session the name of another's operation, by each call that takes one. Both sessions have one link, and on it the
/// same operation by number.
///
/// # Panics
/// When two cannot be connected.
pub fn operations(context: &mut Context) -> Outcome {
    let mut round = 0;
    while context.again(2) {
        let conn = [ConnType::Shm, ConnType::Tcp][round % 2];
        round += 1;
        let (one, other) = (Pair::new(conn, 4096), Pair::new(conn, 4096));
        let to_one = one.sender().peer(1).expect("connected");
        let to_other = other.sender().peer(1).expect("connected");
        // Where windows are mapped, the first operation has a slot and the second is over at once.
        for _ in 0..2 {
            let foreign = to_one.put_nb(0, 0, 64).expect("posted");
            let own = to_other.put_nb(0, 0, 8).expect("posted");
            let s = other.sender();
            let (_, any) = s.wait_any(&[foreign], LONG).expect("an answer");
            let ends = [
                ("wait_any", any.err()),
                ("wait", s.wait(foreign).err()),
                ("wait_within", s.wait_within(foreign, LONG).err()),
                ("test", s.test(foreign).err()),
                ("cancel", s.cancel(foreign).err()),
                ("wait_all", s.wait_all(&[foreign]).err()),
                ("Peer::wait", to_other.wait(foreign).err()),
                ("Peer::test", to_other.test(foreign).err()),
                ("Peer::cancel", to_other.cancel(foreign).err()),
                ("Peer::watch", to_other.watch(foreign).err()),
            ];
            for (call, end) in ends {
                let kind = end.map(|e| e.kind());
                if kind != Some(ErrorKind::Stale) {
                    return context.broken(format!("{call} over {conn} answered {kind:?}"));
                }
            }
            let moved = (s.wait(own).ok(), one.sender().wait(foreign).ok());
            if moved != (Some(8), Some(64)) {
                return context.broken(format!("results were taken: {moved:?}"));
            }
        }
    }
    context.held("each call answers Stale and takes no result")
}
