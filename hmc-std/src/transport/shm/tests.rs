//! Two data planes over one socket pair: what is copied at once, in pieces, or not at all.

mod chunks;

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use hmc_core::limits::MAX_GATHER_REQUESTS;
use hmc_core::region::{Epoch, WindowDesc, WindowId};
use hmc_core::slots::SlotId;
use hmc_core::transport::{
    CancelOutcome, DataCloseReason, DataPlane as _, Fence, PeerWindows as _, PostErrorKind,
    Progress as _, Registration as _, Target as _, Transport as _,
};
use hmc_core::types::{Access, MemoryKind, Rank};
use hmc_core::window::{WindowFault, WindowTransition};
use hmc_core::wire::hello::Features;
use hmc_core::work::{CompleteWhen, Completion, Failure, Opcode, WorkRequest};
use hmc_mem::gate::WindowGate;
use hmc_mem::os::memfd::Mapping;
use hmc_mem::os::words::{GATES, gate_at, gates_of};

use super::mapped::word_epoch;
use super::{MAX_REQUESTS, ShmDataPlane};
use crate::memory::{HeapBytes, Region, RegionTable};
use crate::node::inbox::{Inbox, Message, SharedInbox, Wanted};
use crate::transport::stream::{StreamDataPlane, StreamSetup};

/// One byte more than is copied in one piece.
const LONG: u64 = (1 << 20) + 1;

fn inbox() -> SharedInbox {
    Arc::new(Mutex::new(Inbox::new(16, 4096)))
}

fn plane(socket: UnixStream, inbox: &SharedInbox) -> ShmDataPlane {
    socket.set_nonblocking(true).expect("a socket");
    let stream = StreamDataPlane::new(StreamSetup {
        socket: Arc::new(OwnedFd::from(socket).into()),
        peer: Rank(1),
        local: true,
        near: true,
        pid: Some(std::process::id()),
        cma: true,
        batched_acks: true,
        generations: true,
        gathers: true,
        windows: 16,
        inbox: Arc::clone(inbox),
    });
    ShmDataPlane::new(stream, None, Features::GATES).expect("pages")
}

/// Two ends that have each other's pages.
struct Pair {
    near: ShmDataPlane,
    far: ShmDataPlane,
    /// Of `far`.
    inbox: SharedInbox,
    table: Arc<RegionTable>,
}

impl Pair {
    fn new() -> Self {
        let (a, b) = UnixStream::pair().expect("a pair");
        let (ours, inbox) = (inbox(), inbox());
        let mut pair =
            Self { near: plane(a, &ours), far: plane(b, &inbox), inbox, table: Arc::default() };
        pair.settle();
        assert!(pair.near.is_ready() && pair.far.is_ready());
        pair
    }

    /// Delivers what both ends have sent.
    fn settle(&mut self) {
        self.near.stream.flush();
        self.far.stream.flush();
        while self.near.poll_peer(true) | self.far.poll_peer(true) {}
    }

    /// A region that `near` may use.
    fn source(&mut self, len: u64) -> Region {
        let region = self.table.allocate(len).expect("memory");
        self.near.add_memory(&region);
        region
    }

    /// A window of `far` over that region, as [`crate::transport::data_plane::AnyDataPlane::expose`] makes it.
    fn expose(&mut self, region: &Region, access: Access) -> WindowDesc {
        if access.contains(Access::WRITE) {
            region.note_writable();
        }
        self.far.add_memory(region);
        let whole = region.slice(0, region.len()).expect("all of it");
        let window = self.far.windows().expose(whole, MemoryKind::Cpu, access, 7).expect("a place");
        self.far.open_window(region, whole, &window).expect("a descriptor");
        window
    }

    /// A window over a new region, mapped by `near`.
    fn target(&mut self, len: u64) -> (Region, WindowDesc) {
        let region = self.table.allocate(len).expect("memory");
        let window = self.expose(&region, Access::all());
        self.settle();
        assert!(self.near.mapped_window(window.window).is_some());
        (region, window)
    }
}

fn work(index: u16, opcode: Opcode, from: &Region, window: &WindowDesc, len: u64) -> WorkRequest {
    WorkRequest {
        op: SlotId { index, generation: 1 },
        opcode,
        when: CompleteWhen::Visible,
        local: from.slice(0, len).expect("in range"),
        remote: window.slice(0, len).expect("in range"),
    }
}

/// Copies at most so many pieces.
fn copy_pieces(plane: &mut ShmDataPlane, at_most: usize) {
    for _ in 0..at_most {
        if !plane.copy_piece() {
            return;
        }
    }
}

/// Copies all that there is. At most so many completions, each with the index of its operation.
fn poll(plane: &mut ShmDataPlane, space: usize) -> Vec<(u16, Result<u64, Failure>)> {
    let op = SlotId { index: u16::MAX, generation: 1 };
    let mut out = vec![Completion { op, result: Ok(0) }; space];
    copy_pieces(plane, usize::MAX);
    let n = plane.poll(&mut out);
    out.iter().take(n).map(|c| (c.op.index, c.result)).collect()
}

fn gate(page: &Mapping, number: u8, id: WindowId) -> WindowGate<'_> {
    let at = gate_at(number, id.index()).expect("a gate");
    WindowGate::new(page.bytes().word(at).expect("a word"))
}

fn fill(region: &Region, byte: u8) {
    let bytes = vec![byte; usize::try_from(region.len()).expect("small")];
    region.bytes().write_at(region.local().extent.whole(), &bytes).expect("in range");
}

/// Whether the first `n` bytes of a region are ones and all others are zeros.
fn ones(region: &Region, n: u64) -> bool {
    let [all, n] = [region.len(), n].map(|n| usize::try_from(n).expect("small"));
    let mut bytes = vec![9; all];
    region.bytes().read_at(region.local().extent.whole(), &mut bytes).expect("in range");
    bytes == [vec![1; n], vec![0; all.saturating_sub(n)]].concat()
}

#[test]
fn a_long_transfer_is_copied_piece_by_piece() {
    let mut pair = Pair::new();
    let source = pair.source(LONG);
    fill(&source, 1);
    let (target, window) = pair.target(LONG);
    assert!(!pair.near.interest().work && !pair.near.copy_piece());
    let put = work(0, Opcode::Put, &source, &window, LONG);
    pair.near.post(&put).expect("space");
    assert!(ones(&target, 0));
    assert!(pair.near.interest().work, "it waits for nothing");
    copy_pieces(&mut pair.near, 1);
    assert!(ones(&target, LONG - 1));
    assert_eq!(pair.near.bytes_moved(), (LONG - 1, 0));
    assert!(pair.near.interest().work);
    assert_eq!(poll(&mut pair.near, 1), [(0, Ok(LONG))]);
    assert!(ones(&target, LONG));
    assert_eq!(pair.near.bytes_moved(), (LONG, 0));
    assert!(!pair.near.interest().work);
}

#[test]
fn short_transfers_wait_behind_a_long_one_and_are_polled_in_order() {
    let mut pair = Pair::new();
    let source = pair.source(LONG);
    fill(&source, 1);
    let (target, window) = pair.target(LONG);
    for (index, len) in [(0, 1), (1, 2), (2, LONG), (3, 3)] {
        pair.near.post(&work(index, Opcode::Put, &source, &window, len)).expect("space");
    }
    assert!(ones(&target, 1), "the first is copied in the call");
    assert_eq!(poll(&mut pair.near, 3), [(0, Ok(1)), (1, Ok(2)), (2, Ok(LONG))]);
    assert_eq!(poll(&mut pair.near, 3), [(3, Ok(3))]);
    assert_eq!(poll(&mut pair.near, 3), []);
}

#[test]
fn a_port_is_busy_once_its_tables_are_full() {
    let mut pair = Pair::new();
    let source = pair.source(LONG);
    let (_target, window) = pair.target(LONG);
    let busy = Err(PostErrorKind::Busy);
    for len in [8, LONG] {
        let put = |index| work(index, Opcode::Put, &source, &window, len);
        let count = u16::try_from(MAX_REQUESTS).expect("small");
        for index in 0..count {
            assert_eq!(pair.near.post(&put(index)), Ok(()), "{len} bytes, {index}");
        }
        assert_eq!(pair.near.post(&put(count)), busy, "{len} bytes");
        let mut done = 0;
        while done < count {
            done += u16::try_from(poll(&mut pair.near, MAX_REQUESTS).len()).expect("small");
        }
        assert_eq!(pair.near.post(&put(0)), Ok(()));
        while poll(&mut pair.near, 1).is_empty() {}
    }
}

#[test]
fn a_closed_window_refuses_the_peer_until_it_is_opened_again() {
    let mut pair = Pair::new();
    let source = pair.source(64);
    fill(&source, 1);
    let (target, window) = pair.target(64);
    let (id, epoch) = (window.window, window.epoch);
    let put = |pair: &mut Pair| {
        pair.near.post(&work(0, Opcode::Put, &source, &window, 64)).expect("space");
        poll(&mut pair.near, 1)
    };
    assert!(!pair.far.reopen(id, epoch, (0, 64)), "it is open");
    assert!(matches!(pair.far.revoke(id, epoch), Ok(Fence::Passed)));
    assert!(!pair.far.reopen(id, epoch, (0, 64)), "it is being revoked");
    pair.far.windows().apply(id, epoch, WindowTransition::Close).expect("it is revoked");
    assert_eq!(put(&mut pair), [(0, Err(Failure::Window(WindowFault::Revoked)))]);
    assert!(ones(&target, 0));
    assert!(pair.far.reopen(id, epoch, (0, 64)));
    assert_eq!(put(&mut pair), [(0, Ok(64))]);
    assert!(ones(&target, 64));
    // Requests reach the part that was opened, and nothing else of the window.
    assert!(matches!(pair.far.revoke(id, epoch), Ok(Fence::Passed)));
    pair.far.windows().apply(id, epoch, WindowTransition::Close).expect("it is revoked");
    assert!(!pair.far.reopen(id, epoch, (8, 57)), "beyond the window");
    assert!(pair.far.reopen(id, epoch, (8, 16)));
    let reached = |pair: &mut Pair, at, len| {
        pair.far.windows().check(id, epoch, at, len, Access::WRITE).map(|slice| slice.span.len())
    };
    assert_eq!(reached(&mut pair, 8, 16), Ok(16));
    for (at, len) in [(7, 1), (7, 17), (8, 17), (24, 1), (0, 64)] {
        assert_eq!(reached(&mut pair, at, len), Err(WindowFault::Revoked), "{len} bytes at {at}");
    }
    // Whoever is inside keeps the fence from passing.
    let page = Arc::clone(&pair.far.page);
    for number in [0, GATES - 1] {
        let gate = gate(&page, number, id);
        gate.enter(word_epoch(epoch)).expect("it is open");
        assert!(matches!(pair.far.revoke(id, epoch), Ok(Fence::Gate(_))), "inside gate {number}");
        gate.exit();
        pair.far.windows().apply(id, epoch, WindowTransition::Close).expect("it is revoked");
        assert!(pair.far.reopen(id, epoch, (0, 64)));
    }
}

/// An initiator that was refused counts until it has subtracted its entry, which takes long if its thread is preempted.
#[test]
fn a_window_is_opened_again_under_an_entry_that_was_refused() {
    let mut pair = Pair::new();
    let (_, WindowDesc { window: id, epoch, .. }) = pair.target(64);
    assert!(matches!(pair.far.revoke(id, epoch), Ok(Fence::Passed)));
    pair.far.windows().apply(id, epoch, WindowTransition::Close).expect("it is revoked");
    let page = Arc::clone(&pair.far.page);
    let word = page.bytes().word(gate_at(GATES - 1, id.index()).expect("a gate")).expect("a word");
    let entry = 1 << 32;
    word.atomic().fetch_add(entry, Ordering::AcqRel);
    assert!(pair.far.reopen(id, epoch, (0, 64)));
    word.atomic().fetch_sub(entry, Ordering::AcqRel);
    assert_eq!(WindowGate::new(word).active(), 0);
}

/// The tag follows as an empty put: the bytes went through memory.
#[test]
fn a_tag_comes_after_the_bytes_and_brings_none() {
    let mut pair = Pair::new();
    let source = pair.source(LONG);
    fill(&source, 1);
    let (target, window) = pair.target(LONG);
    for (tag, len) in [(5, 64), (6, LONG)] {
        let put = work(0, Opcode::PutNotify { tag }, &source, &window, len);
        pair.near.post(&put).expect("space");
        assert_eq!(poll(&mut pair.near, 1), []);
        assert!(ones(&target, len));
        let notified = |pair: &Pair| pair.inbox.lock().expect("nobody panics").take(Wanted::Any);
        assert_eq!((notified(&pair), pair.far.take_delivered()), (None, false));
        pair.settle();
        assert_eq!(notified(&pair), Some(Message::Notify(tag)));
        assert!(pair.far.take_delivered() && !pair.far.take_delivered(), "told once");
        assert_eq!(poll(&mut pair.near, 1), [(0, Ok(len))]);
        assert_eq!(pair.far.bytes_moved(), (0, 0));
    }
}

#[test]
fn a_tag_waits_for_space_in_the_stream() {
    let mut pair = Pair::new();
    let source = pair.source(64);
    let (_target, window) = pair.target(64);
    let count = u16::try_from(MAX_GATHER_REQUESTS).expect("small");
    for index in 0..count {
        let put = work(index, Opcode::Put, &source, &window, 0);
        pair.near.stream.submit(&put, false, 0).expect("space");
    }
    let put = work(count, Opcode::PutNotify { tag: 1 }, &source, &window, 64);
    pair.near.post(&put).expect("space");
    assert_eq!(poll(&mut pair.near, 1), []);
    assert!(pair.near.interest().work, "it is to be tried again");
    let mut done = Vec::new();
    while done.len() < MAX_GATHER_REQUESTS + 1 {
        pair.settle();
        done.extend(poll(&mut pair.near, MAX_GATHER_REQUESTS));
    }
    assert_eq!(done.last(), Some(&(count, Ok(64))));
}

#[test]
fn what_is_queued_can_be_withdrawn_and_what_is_done_is_reported() {
    let mut pair = Pair::new();
    let source = pair.source(LONG);
    let (_target, window) = pair.target(LONG);
    let op = |index| SlotId { index, generation: 1 };
    let put = |index, len| work(index, Opcode::Put, &source, &window, len);
    let post = |pair: &mut Pair, puts: &[(u16, u64)]| {
        for (index, len) in puts {
            pair.near.post(&put(*index, *len)).expect("space");
        }
    };
    post(&mut pair, &[(0, LONG), (1, LONG)]);
    assert_eq!(pair.near.cancel(op(0)), CancelOutcome::Withdrawn);
    assert_eq!(pair.near.cancel(op(7)), CancelOutcome::Withdrawn, "nothing of it is here");
    assert_eq!(poll(&mut pair.near, 4), [(1, Ok(LONG))], "the other goes on");
    post(&mut pair, &[(2, 8)]);
    assert_eq!(pair.near.cancel(op(2)), CancelOutcome::Running);
    assert_eq!(poll(&mut pair.near, 4), [(2, Ok(8))]);
    // Parts of one operation: one is done, two are queued.
    post(&mut pair, &[(3, 8), (3, LONG), (3, LONG), (4, LONG)]);
    assert_eq!(pair.near.cancel(op(3)), CancelOutcome::Running);
    let withdrawn = Err(Failure::Cancelled);
    let all = [(3, Ok(8)), (3, withdrawn), (3, withdrawn), (4, Ok(LONG))];
    assert_eq!(poll(&mut pair.near, 8), all);
}

/// The kernel forbids writing for a whole memfd, permanently.
#[test]
fn pages_are_offered_as_far_as_the_rights_of_windows_allow() {
    let mut pair = Pair::new();
    let allocated = |pair: &Pair| pair.table.allocate(64).expect("memory");
    let (read, write) = (Access::READ, Access::all());
    let offered = |pair: &mut Pair, region: &Region, access| {
        let window = pair.expose(region, access);
        let offered = pair.far.stream.offers_pages(window.window, window.epoch);
        pair.settle();
        assert_eq!(pair.near.mapped_window(window.window).is_some(), offered);
        offered
    };
    let region = allocated(&pair);
    assert!(offered(&mut pair, &region, write));
    assert!(offered(&mut pair, &region, write));
    assert!(!offered(&mut pair, &region, read), "the peer may have pages that it can write");
    let region = allocated(&pair);
    assert!(offered(&mut pair, &region, read));
    assert!(offered(&mut pair, &region, read));
    assert!(!offered(&mut pair, &region, write), "its pages cannot be written any more");
    let adopted = pair.table.adopt(Box::new(HeapBytes::from(vec![0; 64]))).expect("memory");
    assert!(!offered(&mut pair, &adopted, write));
    let empty = pair.table.allocate(0).expect("nothing");
    assert!(!offered(&mut pair, &empty, write));
}

#[test]
fn all_gates_are_closed_before_the_page_is_sent() {
    let plane = plane(UnixStream::pair().expect("a pair").0, &inbox());
    for id in (0..=u8::MAX).map(|index| WindowId(index.into())) {
        let is_open = |number| gate(&plane.page, number, id).is_open(0);
        assert!(!(0..gates_of(id.index())).any(is_open), "{id:?}");
    }
}

#[test]
fn a_window_without_a_copy_under_way_needs_no_fence() {
    for number in 0..GATES {
        let mut pair = Pair::new();
        let (_target, window) = pair.target(64);
        let page = Arc::clone(&pair.far.page);
        let gate = gate(&page, number, window.window);
        assert!(pair.far.close_window(window.window).is_none(), "nobody is inside");
        pair.far.gates(window.window).open(word_epoch(window.epoch)).expect("an epoch");
        gate.enter(word_epoch(window.epoch)).expect("open");
        let fence = pair.far.close_window(window.window).expect("the peer is inside");
        assert!(!fence.wait(std::time::Duration::ZERO), "by gate {number}");
        pair.near.close(DataCloseReason::Silent);
        assert!(pair.far.close_window(window.window).is_none(), "the peer is out of all windows");
        gate.exit();
        assert!(fence.wait(std::time::Duration::ZERO));
    }
}

#[test]
fn only_the_window_that_the_peer_takes_back_is_forgotten() {
    let mut pair = Pair::new();
    let (_target, window) = pair.target(64);
    let (id, epoch) = (window.window, window.epoch);
    for (other, of) in [(WindowId(id.0 ^ (1 << 20)), epoch), (id, Epoch(epoch.0 + 1))] {
        pair.near.remove_window(other, of);
        assert!(pair.near.is_settled(id, epoch), "{other:?} {of:?}");
        assert!(!pair.near.is_settled(other, of), "{other:?} {of:?}");
    }
    pair.near.remove_window(id, epoch);
    assert!(!pair.near.is_settled(id, epoch));
}

/// Both ends of a link that is over: nothing is copied, and all that was asked is answered.
#[test]
fn the_end_of_a_link_fails_what_is_queued_and_closes_all_windows() {
    let mut pair = Pair::new();
    let source = pair.source(LONG);
    let (target, window) = pair.target(LONG);
    let put = work(0, Opcode::Put, &source, &window, LONG);
    pair.near.post(&put).expect("space");
    pair.near.close(DataCloseReason::Silent);
    assert!(!pair.near.is_ready());
    assert_eq!(poll(&mut pair.near, 2), [(0, Err(Failure::PeerDead))]);
    assert_eq!(pair.near.post(&put), Err(PostErrorKind::Disconnected));
    assert!(pair.near.mapped(window.window, window.epoch).is_none());
    assert!(ones(&target, 0));
    let page = Arc::clone(&pair.far.page);
    let is_open = |number| gate(&page, number, window.window).is_open(word_epoch(window.epoch));
    assert!((0..GATES).all(is_open));
    pair.far.close(DataCloseReason::Eof);
    assert!(!(0..GATES).any(is_open));
}

#[test]
fn a_peer_is_heard_while_it_beats() {
    let (a, b) = UnixStream::pair().expect("a pair");
    let (mut near, mut far) = (plane(a, &inbox()), plane(b, &inbox()));
    assert_eq!(near.heartbeat(), None, "its page has not come");
    assert!(!near.is_ready());
    while near.poll_peer(true) | far.poll_peer(true) {}
    assert_eq!(near.heartbeat(), Some(false));
    assert_eq!(far.heartbeat(), Some(true));
    assert_eq!(far.heartbeat(), Some(false), "nothing new");
    assert_eq!(near.heartbeat(), Some(true), "twice");
    assert_eq!(near.heartbeat(), Some(false));
    assert!(!near.is_peer_marked());
}
