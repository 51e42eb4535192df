//! The layer over a data plane that does what a test says, with a stream whose other end is the test.

mod beside;
mod delegated;
pub(crate) mod scripted;

use std::io::{ErrorKind as Io, Read as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};

use hmc_core::limits::{MAX_ENDPOINT_BYTES, MAX_GATHER_REQUESTS};
use hmc_core::region::{Epoch, WindowId, WindowSlice};
use hmc_core::slots::SlotId;
use hmc_core::transport::{
    CancelOutcome, DataCloseReason, DataPlane as _, Fence, Note, Notes as _, PeerAccess,
    PeerWindows as _, PostErrorKind, Registration as _, Target as _, Transport as _,
};
use hmc_core::types::{Access, Caps, MemoryKind, Rank};
use hmc_core::work::{CompleteWhen, Completion, Failure, Opcode, Transfer, WorkRequest};
use hmc_mem::registered::Registered as _;

use self::scripted::Scripted;
use super::WithStream;
use crate::memory::{Region, RegionTable};
use crate::node::inbox::{Inbox, SharedInbox};
use crate::transport::stream::{StreamDataPlane, StreamSetup};

const TAGGED: Opcode = Opcode::PutNotify { tag: 7 };

struct Bench {
    layer: WithStream<Scripted>,
    peer: UnixStream,
    region: Region,
    inbox: SharedInbox,
}

impl Bench {
    /// A link whose peer is this process. `by_socket`: it was reached by a local one.
    fn new(access: PeerAccess, near: bool, by_socket: bool) -> Self {
        let (ours, peer) = UnixStream::pair().expect("a pair");
        for socket in [&ours, &peer] {
            socket.set_nonblocking(true).expect("a socket");
        }
        let inbox = Arc::new(Mutex::new(Inbox::new(16, 4096)));
        let stream = StreamDataPlane::new(StreamSetup {
            socket: Arc::new(OwnedFd::from(ours).into()),
            peer: Rank(1),
            local: false,
            near: by_socket,
            pid: None,
            cma: false,
            batched_acks: true,
            generations: true,
            gathers: true,
            windows: 8,
            inbox: Arc::clone(&inbox),
        });
        let mut layer = WithStream::new(Scripted::default(), stream, None, near);
        let region = Arc::new(RegionTable::default()).allocate(64).expect("memory");
        layer.add_memory(&region);
        layer.plane.told = access;
        layer.receive_note(Note { kind: 0, bytes: &[] }).expect("a note");
        Self { layer, peer, region, inbox }
    }

    fn work(&self, index: u16, opcode: Opcode, len: u64) -> WorkRequest {
        let local = self.region.slice(0, len).expect("a part");
        let remote =
            WindowSlice { window: WindowId(1), epoch: Epoch(1), span: local.span, expected: None };
        let op = SlotId { index, generation: 1 };
        WorkRequest { op, opcode, when: CompleteWhen::Visible, local, remote }
    }

    fn poll(&mut self) -> Vec<(u16, Result<u64, Failure>)> {
        let op = SlotId { index: u16::MAX, generation: 1 };
        let mut out = [Completion { op, result: Ok(0) }; 4];
        let n = self.layer.poll(&mut out);
        out.iter().take(n).map(|c| (c.op.index, c.result)).collect()
    }

    /// Bytes that the peer receives, and whether this end's direction has ended.
    fn received(&self) -> (usize, bool) {
        let mut bytes = Vec::new();
        match (&self.peer).read_to_end(&mut bytes) {
            Ok(_) => (bytes.len(), true),
            Err(e) if e.kind() == Io::WouldBlock => (bytes.len(), false),
            Err(e) => panic!("{e}"),
        }
    }
}

#[test]
fn a_tag_is_sent_when_the_bytes_are_there() {
    let mut bench = Bench::new(PeerAccess::Remote, false, false);
    assert_eq!(bench.layer.caps(), Caps::PUT | Caps::GET | Caps::NOTIFY | Caps::GENERATIONS);
    let put = bench.work(3, TAGGED, 64);
    assert_eq!(bench.layer.post(&put), Ok(()));
    assert_eq!((bench.poll(), bench.received()), (vec![], (0, false)));
    assert_eq!(bench.layer.plane.posted, [put]);
    bench.layer.plane.notifies.push_back(put);
    assert_eq!(bench.poll(), [], "the peer has not acknowledged the tag");
    let (tag, ended) = bench.received();
    assert!(tag != 0 && !ended);
    assert_eq!(bench.layer.cancel(put.op), CancelOutcome::Running);
    // One without bytes is the stream's alone.
    let none = bench.work(4, TAGGED, 0);
    assert_eq!(bench.layer.post(&none), Ok(()));
    assert_eq!((bench.poll(), bench.received()), (vec![], (tag, false)));
    assert_eq!(bench.layer.plane.posted.len(), 1);
}

#[test]
fn nothing_is_sent_before_the_counterparts_note_has_come() {
    let mut bench = Bench::new(PeerAccess::Unknown, false, false);
    let none = bench.work(0, TAGGED, 0);
    assert_eq!(bench.layer.post(&none), Err(PostErrorKind::Busy));
    bench.layer.close(DataCloseReason::Silent);
    assert_eq!(bench.layer.post(&none), Err(PostErrorKind::Disconnected));
}

/// The puts are done, and their tags fail with the link.
#[test]
fn tags_that_find_no_space_wait_and_fail_with_the_link() {
    let mut bench = Bench::new(PeerAccess::Remote, false, false);
    let many = u16::try_from(MAX_GATHER_REQUESTS).expect("small");
    for index in 0..many.saturating_add(1) {
        let put = bench.work(index, TAGGED, 64);
        bench.layer.plane.notifies.push_back(put);
    }
    assert_eq!((bench.poll(), bench.layer.late.len()), (vec![], 1));
    let last = bench.work(many, TAGGED, 64);
    assert_eq!(bench.layer.cancel(last.op), CancelOutcome::Running, "its bytes are there");
    bench.layer.close(DataCloseReason::Silent);
    assert_eq!(bench.poll().first(), Some(&(many, Err(Failure::PeerDead))));
    assert!(bench.layer.late.is_empty());
}

#[test]
fn a_data_plane_that_has_failed_ends_the_link_in_the_same_poll() {
    for why in [DataCloseReason::Failed(-3), DataCloseReason::System(5)] {
        let mut bench = Bench::new(PeerAccess::Remote, false, false);
        let (op, result) = (SlotId { index: 2, generation: 1 }, Err(Failure::Transport(-3)));
        bench.layer.plane.done.push_back(Completion { op, result });
        bench.layer.plane.failed = Some(why);
        assert_eq!(bench.poll(), [(2, result)]);
        assert_eq!(bench.layer.close_reason(), Some(why));
        assert_eq!(bench.layer.plane.closed, Some(why));
        let mut words = String::new();
        bench.layer.describe_close(why, &mut words).expect("a string");
        assert_eq!(words, "scripted", "{why:?}");
    }
}

/// An error of the stream's socket.
#[test]
fn a_system_error_of_the_stream_is_described_by_the_stream() {
    let mut bench = Bench::new(PeerAccess::Remote, false, false);
    bench.layer.close(DataCloseReason::System(13));
    let mut words = String::new();
    bench.layer.describe_close(DataCloseReason::System(13), &mut words).expect("a string");
    assert_eq!(words, "Permission denied (os error 13)");
}

/// The memory of a killed process may be gone before its connection ends.
#[test]
fn a_failure_is_the_peers_death_if_its_process_has_ended() {
    let mut bench = Bench::new(PeerAccess::Process(None), true, true);
    let (op, result) = (SlotId { index: 2, generation: 1 }, Err(Failure::Transport(-3)));
    for (ends, seen) in [(false, result), (true, Err(Failure::PeerDead))] {
        if ends {
            bench.peer.shutdown(std::net::Shutdown::Write).expect("connected");
        }
        bench.layer.plane.done.push_back(Completion { op, result });
        assert_eq!(bench.poll(), [(2, seen)]);
    }
}

/// Of a peer that copies by itself its end, or its word, is needed, and it is told that of this end when nothing is under way.
#[test]
fn the_end_of_a_peer_that_copies_by_itself_is_waited_for() {
    use PeerAccess::{Process, Remote, Unknown};
    for (access, near, by_socket, waits) in [
        (Process(None), true, true, true),
        (Process(None), true, false, true),
        (Unknown, true, false, true),
        (Unknown, false, false, false),
        (Process(None), false, false, false),
        (Remote, true, false, false),
        (Remote, true, true, true),
    ] {
        let case = format!("{access:?} near {near} by_socket {by_socket}");
        let mut bench = Bench::new(access, near, by_socket);
        bench.layer.plane.has_windows = true;
        assert!(!bench.layer.peer_has_ended() && !bench.layer.is_fenced(), "{case}");
        bench.layer.plane.is_idle = false;
        bench.layer.close(DataCloseReason::Silent);
        assert!(!bench.layer.peer_has_ended() && !bench.layer.is_fenced(), "{case}: under way");
        assert_eq!(bench.received().1, !waits, "{case}: not said while something is under way");
        bench.layer.plane.is_idle = true;
        assert_eq!(bench.layer.is_fenced(), !waits, "{case}");
        assert!(bench.received().1, "{case}: said");
        bench.peer.shutdown(std::net::Shutdown::Write).expect("connected");
        bench.layer.plane.is_drained = false;
        assert!(!bench.layer.peer_has_ended(), "{case}: not all has arrived");
        bench.layer.plane.is_drained = true;
        assert!(bench.layer.peer_has_ended() && bench.layer.is_fenced(), "{case}");
    }
    let mut bench = Bench::new(Process(None), true, true);
    bench.layer.close(DataCloseReason::Silent);
    bench.layer.plane.has_windows = true;
    assert!(!bench.layer.is_fenced());
    bench.layer.plane.has_windows = false;
    assert!(bench.layer.is_fenced() && !bench.layer.peer_has_ended(), "nothing is exposed");
    bench.layer.plane.is_shut = true;
    assert!(bench.layer.peer_has_ended(), "it reaches nothing");
}

#[test]
fn the_layer_has_the_table_of_windows() {
    let mut bench = Bench::new(PeerAccess::Remote, false, false);
    let local = bench.region.slice(0, 64).expect("all of it");
    let table = bench.layer.windows();
    let window = table.expose(local, MemoryKind::Cpu, Access::all(), 1 << 20).expect("a place");
    let (id, epoch) = (window.window, window.epoch);
    let mut buf = [0; MAX_ENDPOINT_BYTES];
    let note = bench.layer.open(&bench.region, local, &window, &mut buf).expect("open");
    assert_eq!(note, Some(Note { kind: 9, bytes: &[1] }));
    assert!(bench.layer.revoke(id, Epoch(77)).is_err());
    assert!(matches!(bench.layer.revoke(id, epoch), Ok(Fence::PeerAck)));
    bench.layer.free_window(id, epoch);
    assert_eq!(bench.layer.plane.windows_seen, ["open", "close", "forget"]);
    assert_eq!(bench.layer.windows().in_use().count(), 0);
}

/// The stream beside it has moved no payload.
#[test]
fn copies_in_the_call_and_bytes_are_the_data_planes() {
    let mut bench = Bench::new(PeerAccess::Remote, false, false);
    let put = bench.work(0, Opcode::Put, 64);
    let when = CompleteWhen::Visible;
    let transfer = Transfer { opcode: Opcode::Put, when, local: put.local, remote: put.remote };
    for copies in [false, true] {
        bench.layer.plane.copies = copies;
        assert_eq!(bench.layer.try_transfer(Opcode::Put, put.local, put.remote), copies);
        assert!(!bench.layer.try_transfer(Opcode::Get, put.local, put.remote));
        assert_eq!(bench.layer.try_transfer_list(&[transfer, transfer]), copies);
        assert!(!bench.layer.try_transfer_list(&[transfer]));
    }
    assert_eq!(bench.layer.bytes_moved(), (0, 0));
    bench.layer.plane.moved = (7, 9);
    assert_eq!((bench.layer.bytes_moved(), bench.layer.bytes_offloaded()), ((7, 9), 7));
}

/// Both tables count as caches, and what both release is dropped together.
#[test]
fn memory_is_known_to_both_and_released_by_both() {
    let mut bench = Bench::new(PeerAccess::Remote, false, false);
    let region = Arc::new(RegionTable::default()).allocate(64).expect("memory");
    for _ in 0..2 {
        bench.layer.add_memory(&region);
    }
    assert_eq!(bench.layer.plane.added, 2, "the other region was added before");
    bench.layer.release_memory(false);
    assert!(bench.layer.plane.known.get(region.key()).is_some());
    let weak = region.clone();
    drop(region);
    assert!(!weak.is_only_cached(), "the test has a handle");
    let key = weak.key();
    drop(weak);
    bench.layer.release_memory(false);
    let stream = bench.layer.stream.region_cache().get(key).is_none();
    assert!(stream && bench.layer.plane.known.get(key).is_none());
    drop(bench.layer.take_released());
}
