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
use crate::memory::LocalRange;
use crate::ops::list::Piece;
use crate::ops::remote::Remote;
use crate::ops::started::Waited;

const LONG: Duration = Duration::from_secs(20);
const MIB: u64 = 1 << 20;

/// Two sessions of this process, over shared memory.
struct Pair {
    peer: Peer,
    remote: Remote,
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
        let peer =
            source.connect(&Address::Uds(dir.clone())).rank(1).wait().expect("shared memory");
        let remote = peer.buffer().expect("it exposes one");
        let pair = Self { peer, remote, source, _target: target, dir };
        // The first copy finds the pages of the peer's buffer.
        pair.remote.put(0, pair.range(0, 8)).wait().expect("mapped");
        pair
    }

    fn range(&self, at: u64, len: u64) -> LocalRange<'_> {
        self.source.buffer().range(at, len).expect("in range")
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
            pair.remote.put(64, pair.range(0, MIB)).wait().expect("a put");
            pair.remote.get(64, pair.range(0, 8)).wait().expect("a get");
            let op = pair.remote.put(64, pair.range(0, 8)).start().expect("a put");
            assert_eq!(op.wait().expect("it is over").bytes, 8);
            let mut lent = [0; 8];
            pair.remote.get(64, &mut lent).wait().expect("a get of lent bytes");
            let _ = tell.send(());
        });
        let done = told.recv_timeout(LONG);
        drop(held);
        assert_eq!(done, Ok(()), "a copy waits for the lock");
    });
}

#[test]
fn a_list_of_small_copies_into_mapped_memory_is_no_operation() {
    let pair = Pair::new("list", 1);
    let piece = |at| Piece::new(pair.range(at, 64), at + 4096);
    let pieces = [piece(0), piece(128)];
    let plan = pair.remote.put_list(&pieces).prepare().expect("in range");
    // Longer than what is copied at once: an operation, of which each has a new name.
    let operation = || {
        let op = pair.remote.put(0, pair.range(0, 2 * MIB)).start().expect("a slot");
        let name = op.name().map(|name| name.op.generation).expect("it is posted");
        assert_eq!(op.wait().expect("it lands").bytes, 2 * MIB);
        name
    };
    let names = [operation(), operation()];
    let step = names[1].wrapping_sub(names[0]);
    for _ in 0..3 {
        plan.again().wait().expect("it lands");
    }
    let last = operation();
    assert_eq!(last.wrapping_sub(names[1]), step, "the list took names of operations");
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
fn a_wait_that_is_interrupted_ends_its_operation_and_keeps_no_slot() {
    thread_local!(static STOPS: Cell<bool> = const { Cell::new(false) });
    let target = Session::builder(1).tcp("127.0.0.1:0").buffer(MIB).progress(Progress::Manual);
    let target = target.start().expect("a session");
    let source = Session::builder(0).interrupt(|| STOPS.get()).buffer(MIB).start();
    let source = source.expect("a session");
    let address = target.info().listeners.remove(0).address().clone();
    let peer = driven(&target, || source.connect(&address).rank(1).wait()).expect("a connection");
    let remote = peer.buffer().expect("it exposes one");
    let range = |len| source.buffer().range(0, len).expect("in range");
    let op = remote.put(0, range(64 << 10)).start().expect("a slot");
    STOPS.set(true);
    assert!(matches!(op.wait_for(LONG), Waited::Interrupted));
    let stopped = remote.put(0, range(64 << 10)).wait().map(drop);
    let first = op.wait().map(drop);
    STOPS.set(false);
    assert_eq!(stopped.map_err(|e| e.kind()), Err(ErrorKind::Interrupted));
    assert_eq!(first.map_err(|e| e.kind()), Err(ErrorKind::Interrupted));
    assert_eq!(peer.link.data().slots_in_use(), 2, "the target does nothing");
    driven(&target, || remote.put(0, range(8)).wait()).expect("behind both");
    assert_eq!(peer.link.data().slots_in_use(), 0);
}
