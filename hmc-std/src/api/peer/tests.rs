//! Small copies into memory that is mapped here: they take neither a lock of the link nor an operation.

use std::cell::Cell;
use std::path::PathBuf;
use std::sync::mpsc::{TryRecvError, channel};
use std::time::Duration;

use super::Peer;
use crate::api::session::Session;
use crate::base::address::Address;
use crate::base::config::Progress;
use crate::base::error::ErrorKind;
use crate::base::op_id::OpId;
use crate::ops::batch::{Copy, Direction};

const LONG: Duration = Duration::from_secs(20);
const MIB: u64 = 1 << 20;

/// Two sessions of this process, over shared memory.
struct Pair {
    peer: Peer,
    source: Session,
    /// Held, so that it listens.
    _target: Session,
    dir: PathBuf,
}

impl Pair {
    /// The source has so many slots for operations.
    fn new(name: &str, slots: usize) -> Self {
        let dir = std::env::temp_dir().join(format!("hmc-peer-{name}-{}", std::process::id()));
        let target = Session::builder(1).uds(&dir).buffer(4 * MIB).start().expect("a session");
        let source = Session::builder(0).slots(slots).buffer(4 * MIB).start().expect("a session");
        let peer = source.connect(1, &Address::Uds(dir.clone())).expect("shared memory");
        // The first copy finds the pages of the peer's buffer.
        peer.put(0, 0, 8).expect("mapped");
        Self { peer, source, _target: target, dir }
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// Whoever moves long messages has that lock for milliseconds.
#[test]
fn small_copies_into_mapped_memory_take_no_lock_of_the_link() {
    let pair = Pair::new("lock", 8);
    let held = pair.peer.link.data();
    let (tell, told) = channel();
    std::thread::scope(|s| {
        s.spawn(|| {
            pair.peer.put(0, 64, MIB).expect("a put");
            pair.peer.get(0, 64, 8).expect("a get");
            let _named = pair.peer.put_nb(0, 64, 8).expect("a put with a name");
            let _ = tell.send(());
        });
        let done = told.recv_timeout(LONG);
        drop(held);
        assert_eq!(done, Ok(()), "a copy waits for the lock");
    });
}

#[test]
fn a_batch_of_small_copies_into_mapped_memory_is_no_operation() {
    let pair = Pair::new("batch", 1);
    let copy = |at| Copy { local_offset: at, remote_offset: at + 4096, len: 64 };
    let batch = pair.peer.prepare(Direction::Put, &[copy(0), copy(128)]).expect("in range");
    // Longer than what is copied at once: an operation, of which each has a new name.
    let operation = || -> OpId {
        let op = pair.peer.put_nb(0, 0, 2 * MIB).expect("a slot");
        assert_eq!(pair.peer.wait(op).expect("it lands"), 2 * MIB);
        op
    };
    let names = [operation(), operation()].map(|op| op.op.generation);
    let step = names[1].wrapping_sub(names[0]);
    for _ in 0..3 {
        pair.peer.run_batch(&batch).expect("it lands");
    }
    let last = operation().op.generation;
    assert_eq!(last.wrapping_sub(names[1]), step, "the batch took names of operations");
    let puts = pair.source.stats().peers.first().map(|p| p.puts);
    assert_eq!(puts, Some(7), "three lists, three operations and the first copy");
}

/// Calls while another thread drives `session`.
fn driven<R>(session: &Session, call: impl FnOnce() -> R) -> R {
    let (over, ended) = channel::<()>();
    std::thread::scope(|s| {
        s.spawn(move || {
            // The sender goes with the call, even if that panics.
            while ended.try_recv() == Err(TryRecvError::Empty) {
                session.progress();
                std::thread::yield_now();
            }
        });
        let _over = over;
        call()
    })
}

#[test]
fn a_pipeline_that_is_interrupted_keeps_no_slot() {
    thread_local!(static STOPS: Cell<bool> = const { Cell::new(false) });
    let target = Session::builder(1).tcp("127.0.0.1:0").buffer(MIB).progress(Progress::Manual);
    let target = target.start().expect("a session");
    let source = Session::builder(0).interrupt(|| STOPS.get()).buffer(MIB).start();
    let source = source.expect("a session");
    let address = Address::Tcp(target.tcp_addr().expect("it listens"));
    let peer = driven(&target, || source.connect(1, &address)).expect("a connection");
    STOPS.set(true);
    let copy = Copy { local_offset: 0, remote_offset: 0, len: 64 << 10 };
    let stopped = peer.put_pipeline(copy, 4096, 8);
    STOPS.set(false);
    assert_eq!(stopped.map_err(|e| e.kind()), Err(ErrorKind::Interrupted));
    assert_eq!(peer.link.data().slots_in_use(), 8, "the target does nothing");
    driven(&target, || peer.put(0, 0, 8)).expect("behind the pieces");
    assert_eq!(peer.link.data().slots_in_use(), 0);
}
