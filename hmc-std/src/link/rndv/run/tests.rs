//! The rendezvous state of two ends over hosts that copy in memory: no link, no socket, no thread, no clock.

mod counted;
mod eager;
mod kept;
mod short;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use hmc_core::range::Extent;
use hmc_core::region::{Epoch, LocalSlice, WindowDesc, WindowId, WindowSlice};
use hmc_core::rndv::{AbortReason, RndvError, RndvMsg};
use hmc_core::slots::SlotId;
use hmc_core::time::Instant;
use hmc_core::types::{Access, MemoryKind, Rank};
use hmc_core::work::Failure;
use hmc_mem::shared::SharedBytes;

use crate::base::error::{Error, ErrorKind};
use crate::link::rndv::actions::RndvActions;
use crate::link::rndv::handle::MessageHandle;
use crate::link::rndv::host::{Host, NoteOutcome};
use crate::link::rndv::note::Note;
use crate::link::rndv::state::{BounceBuffers, MessageBuffer, PostedRecv, RndvState};
use crate::memory::{Region, RegionTable};
use crate::transport::data_plane::Fence;

const NOW: Instant = Instant::from_nanos(7);
const LATER: Instant = Instant::from_nanos(8);

/// A link of a test.
#[derive(Default)]
struct Fake {
    /// The memory behind the windows of the peer.
    windows: Rc<RefCell<Vec<Region>>>,
    /// Notes that were sent.
    sent: Vec<Note>,
    /// Puts under way.
    puts: Vec<SlotId>,
    /// The end of each put; `None` while they run.
    end: Option<Result<(), Failure>>,
    /// Puts that it takes at a time.
    space: usize,
    /// Whether the peer's memory is mapped.
    mapped: bool,
    cancelled: Vec<SlotId>,
    /// The peer is inside windows that are taken back.
    inside: bool,
    /// Windows that were opened again and are not closed.
    open: Vec<WindowId>,
    /// Windows cannot be opened again.
    is_stuck: bool,
    /// Both ends count the bytes of direct messages.
    counts: bool,
    /// Windows of which it counts the bytes, and how many they are to be.
    counted: Vec<(WindowId, u64)>,
    /// Windows into which all of them were put.
    all_put: Vec<WindowId>,
    outgoing: Option<NoteOutcome>,
    next: u32,
}

impl Fake {
    fn copy(&self, bytes: &SharedBytes<'_>, to: WindowSlice) -> bool {
        let windows = self.windows.borrow();
        let region = usize::try_from(to.window.0).ok().and_then(|at| windows.get(at));
        let region = region.expect("a window of the peer");
        let whole = bytes.extent().whole();
        bytes.copy_to(whole, &region.bytes(), to.span).expect("it fits");
        true
    }
}

impl Host for Fake {
    fn post(
        &mut self,
        region: &Region,
        local: LocalSlice,
        remote: WindowSlice,
    ) -> Result<Option<SlotId>, Failure> {
        if self.puts.len() >= self.space {
            return Ok(None);
        }
        self.copy(&region.bytes().part(local.span).expect("in it"), remote);
        let op = SlotId { index: 0, generation: self.next };
        self.next = self.next.wrapping_add(1);
        self.puts.push(op);
        Ok(Some(op))
    }

    fn write_now(&mut self, bytes: &SharedBytes<'_>, target: WindowSlice) -> bool {
        self.mapped && self.copy(bytes, target)
    }

    fn take_end(&mut self, op: SlotId) -> Option<Result<(), Failure>> {
        let end = self.end?;
        self.puts.retain(|put| *put != op);
        Some(end)
    }

    fn cancel(&mut self, ops: impl Iterator<Item = SlotId>) {
        self.cancelled.extend(ops);
    }

    fn revoke(&mut self, _: &WindowDesc) -> Option<Fence> {
        self.inside.then_some(Fence::PeerAck)
    }

    fn close(&mut self, window: &WindowDesc) -> Option<Fence> {
        self.open.retain(|w| *w != window.window);
        self.inside.then_some(Fence::PeerAck)
    }

    fn reopen(&mut self, window: &WindowDesc, _: (u64, u64)) -> bool {
        if !self.is_stuck {
            self.open.push(window.window);
        }
        !self.is_stuck
    }

    fn counts_puts(&self) -> bool {
        self.counts
    }

    fn count_puts(&mut self, window: &WindowDesc, len: u64) {
        self.counted.push((window.window, len));
    }

    fn are_all_put(&mut self, window: &WindowDesc) -> bool {
        self.all_put.contains(&window.window)
    }

    fn has_passed(&mut self, _: &Fence, _: &WindowDesc) -> bool {
        !self.inside
    }

    fn send(&mut self, notes: &mut VecDeque<Note>) -> NoteOutcome {
        let outcome = self.outgoing.unwrap_or(NoteOutcome::Sent);
        if outcome == NoteOutcome::Sent {
            self.sent.extend(notes.pop_front());
        }
        outcome
    }

    fn peer(&self) -> Rank {
        Rank(5)
    }

    fn gone(&self) -> Error {
        Error::peer_dead(self.peer(), "it is gone")
    }

    fn full_inbox(&self) -> &'static str {
        " (full)"
    }

    fn full_outcomes(&self) -> &'static str {
        " (many)"
    }
}

/// One end: its messages, and its link.
#[derive(Default)]
struct End {
    state: RndvState,
    host: Fake,
    regions: Arc<RegionTable>,
    /// The memory behind the windows of this end.
    exposed: Rc<RefCell<Vec<Region>>>,
}

impl End {
    fn poll_at(&mut self, now: Instant, is_dead: bool) -> RndvActions {
        let mut after = RndvActions::default();
        self.state.poll(&mut self.host, now, is_dead, &mut after);
        after
    }

    fn poll(&mut self) -> RndvActions {
        self.poll_at(NOW, false)
    }

    fn expose(&self, region: &Region) -> WindowDesc {
        let mut exposed = self.exposed.borrow_mut();
        let window = WindowId(u64::try_from(exposed.len()).expect("small"));
        exposed.push(region.clone());
        let (epoch, extent) = (Epoch(1), Extent::new(region.len()));
        WindowDesc { window, epoch, extent, access: Access::all(), kind: MemoryKind::Cpu }
    }

    fn region(&self, bytes: &[u8]) -> Region {
        let len = u64::try_from(bytes.len()).expect("small");
        let region = self.regions.allocate(len).expect("memory");
        region
            .bytes()
            .write_at(region.slice(0, len).expect("all of it").span, bytes)
            .expect("fits");
        region
    }

    fn send(&mut self, bytes: &[u8]) -> Arc<MessageHandle> {
        let owned = whole(&self.region(bytes));
        let len = u64::try_from(bytes.len()).expect("small");
        self.state.send(owned, len, LATER).map_err(|_| ()).expect("space")
    }

    /// Waits for a message of up to so many bytes: through halves of 4 KiB, or straight into the memory.
    fn receive(&mut self, space: usize, staged: bool) -> (Arc<MessageHandle>, Region) {
        let region = self.region(&vec![0; space]);
        let place = if staged {
            let halves = self.region(&[0; 8192]);
            Ok(BounceBuffers { remote: self.expose(&halves), region: halves })
        } else {
            Err(self.expose(&region))
        };
        let want = PostedRecv::new(whole(&region), region.len(), place, LATER);
        (self.state.receive(want), region)
    }
}

fn whole(region: &Region) -> MessageBuffer {
    let range = region.slice(0, region.len()).expect("all of it").span;
    MessageBuffer::Registered { region: region.clone(), range, span: None }
}

/// Two ends whose links lead to each other. Puts end at once.
fn two() -> (End, End) {
    let end = |windows: &Rc<RefCell<Vec<Region>>>| {
        let windows = Rc::clone(windows);
        let host = Fake { windows, space: 8, end: Some(Ok(())), ..Fake::default() };
        End { host, ..End::default() }
    };
    let mut near = end(&Rc::default());
    let far = end(&near.exposed);
    near.host.windows = Rc::clone(&far.exposed);
    (near, far)
}

/// Polls until neither end has anything to send.
fn run_until_idle(near: &mut End, far: &mut End) {
    loop {
        for end in [&mut *near, &mut *far] {
            // A poll finds the ends of what the one before it posted.
            for after in [end.poll(), end.poll()] {
                assert!(after.broken.is_none(), "{:?}", after.broken);
            }
        }
        if near.host.sent.is_empty() && far.host.sent.is_empty() {
            return;
        }
        far.state.received.append(&mut near.host.sent);
        near.state.received.append(&mut far.host.sent);
    }
}

fn bytes_of(region: &Region) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(region.len()).expect("small")];
    let all = region.slice(0, region.len()).expect("all of it");
    region.bytes().read_at(all.span, &mut bytes).expect("it is there");
    bytes
}

fn result(handle: &MessageHandle) -> Option<Result<u64, ErrorKind>> {
    handle.take().map(|(r, _)| r.map_err(|e| e.kind()))
}

fn pattern(len: usize) -> Vec<u8> {
    (0..=250).cycle().take(len).collect()
}

#[test]
fn a_message_comes_through_halves_or_straight_whoever_is_first() {
    for (len, staged, sender_first) in
        [(0, true, true), (1, true, false), (10_000, true, true), (10_000, false, false)]
    {
        let (mut near, mut far) = two();
        let message = pattern(len);
        let mut received = None;
        let mut sent = None;
        for step in [sender_first, !sender_first] {
            if step {
                sent = Some(near.send(&message));
            } else {
                received = Some(far.receive(10_000, staged));
            }
            run_until_idle(&mut near, &mut far);
        }
        let ((received, region), sent) = received.zip(sent).expect("both");
        let len = u64::try_from(len).expect("small");
        assert_eq!((result(&sent), result(&received)), (Some(Ok(len)), Some(Ok(len))));
        assert!(bytes_of(&region).starts_with(&message), "{len} bytes, staged {staged}");
        assert!(near.state.is_empty() && far.state.is_empty());
        // Halves serve again, a window of the message's own does not.
        assert_eq!(far.state.spare.len(), usize::from(staged));
    }
}

#[test]
fn puts_and_notes_wait_for_space() {
    let (mut near, mut far) = two();
    let (received, region) = far.receive(10_000, true);
    (near.host.space, near.host.outgoing) = (0, Some(NoteOutcome::Later));
    let sent = near.send(&pattern(10_000));
    run_until_idle(&mut near, &mut far);
    assert!(!near.state.is_idle() && far.state.inbound.is_empty(), "the offer was not sent");
    near.host.outgoing = None;
    run_until_idle(&mut near, &mut far);
    assert_eq!(far.state.inbound.len(), 1);
    assert!(near.host.puts.is_empty() && result(&sent).is_none());
    near.host.space = 1;
    run_until_idle(&mut near, &mut far);
    assert_eq!((result(&sent), result(&received)), (Some(Ok(10_000)), Some(Ok(10_000))));
    assert_eq!(bytes_of(&region), pattern(10_000));
    // Nothing more is sent once the control connection has ended.
    near.host.outgoing = Some(NoteOutcome::Over);
    near.send(&[1]);
    near.poll();
    assert!(near.state.outgoing.is_empty() && near.host.sent.is_empty());
}

#[test]
fn a_send_in_vain_ends_at_its_deadline_and_reports_what_may_block_it() {
    let mut end = two().0;
    let sent = end.send(&pattern(10_000));
    end.poll();
    assert!(result(&sent).is_none(), "it is not late");
    end.poll_at(LATER, false);
    let why = sent.take().expect("it is late").0.expect_err("nobody receives it");
    assert_eq!((why.kind(), why.peer()), (ErrorKind::DeadlineExceeded, Some(Rank(5))));
    assert!(why.to_string().contains("(many)"), "{why}");
}

#[test]
fn a_receive_in_vain_ends_at_its_time_and_keeps_its_memory_until_the_peer_is_out() {
    for staged in [true, false] {
        let mut end = two().0;
        let (handle, _region) = end.receive(8, staged);
        end.host.inside = true;
        end.poll();
        assert!(result(&handle).is_none(), "it is not late");
        let after = end.poll_at(LATER, false);
        let (why, _) = handle.take().expect("it is late");
        let why = why.expect_err("nothing came");
        assert_eq!((why.kind(), why.peer()), (ErrorKind::DeadlineExceeded, Some(Rank(5))));
        assert!(why.to_string().contains("(full)"), "{why}");
        // Of halves that no message named to the peer.
        assert_eq!(
            (after.revoked.len(), end.state.fencing_recvs.len()),
            if staged { (0, 0) } else { (1, 1) }
        );
        assert_eq!((end.state.holds(), after.over.2.len()), (!staged, usize::from(staged)));
        end.host.inside = false;
        let after = end.poll();
        assert_eq!((end.state.is_empty(), after.over.2.len()), (true, usize::from(!staged)));
    }
}

#[test]
fn a_send_that_is_cancelled_withdraws_its_puts_and_holds_its_memory_until_they_end() {
    let (mut near, mut far) = two();
    let (received, _region) = far.receive(10_000, true);
    near.host.end = None;
    let sent = near.send(&pattern(10_000));
    run_until_idle(&mut near, &mut far);
    assert_eq!(near.host.puts.len(), 2, "both halves are being filled");
    near.state.end(&sent, RndvError::Here(AbortReason::Cancelled));
    run_until_idle(&mut near, &mut far);
    assert_eq!(result(&sent), Some(Err(ErrorKind::Cancelled)));
    assert!(near.host.cancelled == near.host.puts && near.state.holds());
    assert!(result(&received).is_some_and(|r| r.is_err()), "the peer was notified");
    near.host.end = Some(Err(Failure::Cancelled));
    let after = near.poll();
    assert!(near.state.is_empty() && after.over.0.len() == 1);
    assert!(far.state.is_empty());
}

#[test]
fn the_death_of_a_peer_ends_all_and_keeps_no_halves() {
    let (mut near, mut far) = two();
    let (idle, _region) = near.receive(8, false);
    near.host.end = None;
    let sent = near.send(&pattern(10));
    let _received = far.receive(10, true);
    run_until_idle(&mut near, &mut far);
    assert_eq!(near.host.puts.len(), 1);
    near.poll_at(NOW, true);
    let ends = [result(&sent), result(&idle)];
    assert_eq!(ends, [Some(Err(ErrorKind::PeerDead)); 2]);
    assert!(near.state.holds(), "a put may still read");
    near.host.end = Some(Err(Failure::PeerDead));
    near.poll_at(NOW, true);
    assert!(near.state.is_empty());
    let (_late, _region) = near.receive(8, true);
    near.poll_at(NOW, true);
    assert!(near.state.is_empty() && near.state.spare.is_empty());
}

#[test]
fn borrowed_bytes_are_copied_by_their_callers_alone() {
    for mapped in [false, true] {
        let (mut near, mut far) = two();
        near.host.mapped = mapped;
        let mut message = pattern(10_000);
        let bounce = MessageBuffer::Borrowed(Some(near.region(&[0; 8192])));
        let sent = near.state.send(bounce, 10_000, LATER).map_err(|_| ()).expect("space");
        let halves = far.region(&[0; 8192]);
        let place = Ok(BounceBuffers { remote: far.expose(&halves), region: halves });
        let received =
            far.state.receive(PostedRecv::new(MessageBuffer::Borrowed(None), 10_000, place, LATER));
        let mut got = vec![0; 10_000];
        for _ in 0..3 {
            run_until_idle(&mut near, &mut far);
            assert!(near.state.needs_borrowed_copy() && !far.state.needs_borrowed_copy());
            near.state.copy_from_borrowed(
                &mut near.host,
                &sent,
                &SharedBytes::of_mut(&mut message),
            );
            assert_eq!(near.host.puts.is_empty(), mapped);
            run_until_idle(&mut near, &mut far);
            while far.state.needs_borrowed_copy() {
                far.state
                    .copy_to_borrowed(&received, &SharedBytes::of_mut(&mut got))
                    .expect("a half");
                run_until_idle(&mut near, &mut far);
            }
            if !near.state.needs_borrowed_copy() {
                break;
            }
        }
        assert_eq!((result(&sent), result(&received)), (Some(Ok(10_000)), Some(Ok(10_000))));
        assert_eq!(got, pattern(10_000), "mapped {mapped}");
        assert_eq!((near.state.bounces.len(), far.state.spare.len()), (1, 1), "they serve again");
    }
}

#[test]
fn an_unexpected_note_breaks_the_protocol() {
    let (mut near, mut far) = two();
    near.send(&[1]);
    run_until_idle(&mut near, &mut far);
    let id = near.state.outbound.first().expect("it is offered").machine.id();
    near.state.received.push(RndvMsg::Credit { id, seq: 0 }.into());
    assert!(near.poll().broken.is_some());
}
