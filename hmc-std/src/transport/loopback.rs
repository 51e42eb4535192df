//! A session's link to itself: copies between its own regions, with the same checks as for other peers.

use std::collections::VecDeque;
use std::sync::Arc;

use hmc_core::blocks::WindowBlocks;
use hmc_core::region::{Epoch, LocalSlice, WindowDesc, WindowId, WindowSlice};
use hmc_core::slots::SlotId;
use hmc_core::transport::{
    CancelOutcome, DataCloseReason, DataPlane, Interest, Notes, PeerWindows, PostErrorKind,
    Progress, Registration, Target, Transport,
};
use hmc_core::types::{Access, Caps, ConnType};
use hmc_core::window::{WindowEntry, WindowFault, WindowTable};
use hmc_core::work::{Completion, Failure, Opcode, WorkRequest};
use hmc_mem::os::mapped_window::MappedWindow;

use crate::base::error::Error;
use crate::memory::Region;
use crate::node::inbox::{Message, SharedInbox};
use crate::transport::gate::Gate;
use crate::transport::generation_tables::{GenerationTables, When};
use crate::transport::pieces::Pieces;
use crate::transport::regions::RegionCache;
use crate::transport::released::Released;
use crate::transport::stream::{MAX_REQUESTS, PeerLife};
use crate::transport::worker::Worker;

#[derive(Debug)]
pub(crate) struct LoopbackDataPlane {
    regions: RegionCache,
    released: Released,
    windows: WindowTable<Box<[WindowEntry]>>,
    tables: GenerationTables,
    pieces: Pieces,
    done: VecDeque<Completion>,
    inbox: SharedInbox,
    bytes: u64,
    is_closed: bool,
}

impl LoopbackDataPlane {
    pub(crate) fn new(windows: usize, inbox: SharedInbox) -> Self {
        Self {
            regions: RegionCache::default(),
            released: Released::default(),
            windows: WindowTable::new(vec![WindowEntry::FREE; windows].into()),
            tables: GenerationTables::default(),
            pieces: Pieces::default(),
            done: VecDeque::with_capacity(MAX_REQUESTS),
            inbox,
            bytes: 0,
            is_closed: false,
        }
    }

    /// Copies between two ranges of equal length; checks the window's range.
    fn copy_between(
        &self,
        opcode: Opcode,
        local: LocalSlice,
        remote: WindowSlice,
    ) -> Result<(), Failure> {
        let ours = self.regions.resolve(local).ok_or(Failure::UnknownRegion)?;
        let access = if opcode == Opcode::Get { Access::READ } else { Access::WRITE };
        let theirs = self
            .windows
            .check(remote.window, remote.epoch, remote.span.offset(), remote.span.len(), access)
            .map_err(Failure::Window)?;
        let target = self.regions.resolve(theirs);
        let target = target.ok_or(Failure::Window(WindowFault::Revoked))?;
        self.compare(When::Before, remote)?;
        let (a, b) = (ours.bytes(), target.bytes());
        let copied = if opcode == Opcode::Get {
            b.copy_to(theirs.span, &a, local.span)
        } else {
            a.copy_to(local.span, &b, theirs.span)
        };
        copied.map_err(|_| Failure::UnknownRegion)?;
        self.compare(if opcode == Opcode::Get { When::Read } else { When::Written }, remote)
    }

    /// Compares the generations of the blocks of a range with the expected one, if there is one.
    fn compare(&self, when: When, r: WindowSlice) -> Result<(), Failure> {
        let Some(expected) = r.expected else { return Ok(()) };
        let range = (r.span.offset(), r.span.len());
        self.tables.check(when, (r.window, r.epoch), range, expected)
    }

    /// Ends the transfers whose bytes are in place, as far as the inbox has space for their tags.
    fn conclude_copied(&mut self) {
        while let Some(work) = self.pieces.copied() {
            if let Opcode::PutNotify { tag } = work.opcode
                && let Ok(mut inbox) = self.inbox.lock()
            {
                if !inbox.admits(1, 0) {
                    return;
                }
                inbox.push(Message::Notify(tag));
            }
            self.pieces.pop();
            self.done.push_back(Completion { op: work.op, result: Ok(work.local.span.len()) });
        }
    }
}

impl Transport for LoopbackDataPlane {
    type Error = PostErrorKind;

    fn caps(&self) -> Caps {
        Caps::all()
    }

    fn post(&mut self, work: &WorkRequest) -> Result<(), PostErrorKind> {
        if self.regions.get(work.local.key).is_none() {
            return Err(PostErrorKind::UnknownRegion);
        }
        let full_inbox = matches!(work.opcode, Opcode::PutNotify { .. })
            && !self.inbox.lock().is_ok_and(|mut i| i.admits(1, 0));
        if self.is_closed {
            return Err(PostErrorKind::Disconnected);
        }
        if self.done.len() >= MAX_REQUESTS || self.pieces.len() >= MAX_REQUESTS || full_inbox {
            return Err(PostErrorKind::Busy);
        }
        let is_first = self.pieces.is_empty();
        self.pieces.push(work);
        // The first piece is copied in the call; a short transfer has no other.
        if is_first {
            self.copy_piece();
        }
        Ok(())
    }

    fn poll(&mut self, out: &mut [Completion]) -> usize {
        self.conclude_copied();
        let mut n: usize = 0;
        for place in out {
            let Some(c) = self.done.pop_front() else {
                break;
            };
            *place = c;
            n = n.saturating_add(1);
        }
        n
    }

    fn cancel(&mut self, op: SlotId) -> CancelOutcome {
        let withdrawn = self.pieces.cancel(op);
        if !self.done.iter().any(|c| c.op == op) {
            return CancelOutcome::Withdrawn;
        }
        // Others of the operation have completed, and so does each that was withdrawn beside them.
        let result = Err(Failure::Cancelled);
        self.done.extend((0..withdrawn).map(|_| Completion { op, result }));
        CancelOutcome::Running
    }
}

impl Registration for LoopbackDataPlane {
    type Memory = Region;
    type Released = Released;

    fn add_memory(&mut self, memory: &Region) {
        self.regions.add(memory);
    }

    fn release_memory(&mut self, all: bool) {
        self.regions.release(all, &mut self.released);
    }

    fn take_released(&mut self) -> Released {
        std::mem::take(&mut self.released)
    }
}

impl Target for LoopbackDataPlane {
    type Windows = Box<[WindowEntry]>;
    type Gate = Gate;
    type Fault = Error;

    fn windows(&mut self) -> &mut WindowTable<Box<[WindowEntry]>> {
        &mut self.windows
    }

    fn add_generations(
        &mut self,
        table: &Region,
        blocks: WindowBlocks,
        window: &WindowDesc,
    ) -> bool {
        self.tables.add(table, blocks, window);
        true
    }

    fn forget_window(&mut self, id: WindowId, epoch: Epoch) {
        self.tables.remove(id, epoch);
    }
}

impl PeerWindows for LoopbackDataPlane {
    type Mapped = Arc<MappedWindow>;

    fn remove_window(&mut self, _id: WindowId, _epoch: Epoch) -> bool {
        true
    }
}

impl Progress for LoopbackDataPlane {
    type Worker = Worker;

    fn poll_peer(&mut self, _claimed: bool) -> bool {
        false
    }

    fn interest(&mut self) -> Interest {
        Interest { work: !self.pieces.is_empty(), ..Interest::default() }
    }
}

impl Notes for LoopbackDataPlane {}

impl DataPlane for LoopbackDataPlane {
    type PeerLife = PeerLife;

    fn kind(&self) -> Option<ConnType> {
        Some(ConnType::Loopback)
    }

    /// It never ends by itself.
    fn close_reason(&self) -> Option<DataCloseReason> {
        None
    }

    fn close(&mut self, _why: DataCloseReason) {
        self.is_closed = true;
        let result = Err(Failure::PeerDead);
        self.pieces.close(|op| self.done.push_back(Completion { op, result }));
    }

    fn copy_piece(&mut self) -> bool {
        let Some((work, local, remote)) = self.pieces.next() else { return false };
        let result = self.copy_between(work.opcode, local, remote);
        self.pieces.advance(result);
        match result {
            Ok(()) => self.bytes = self.bytes.saturating_add(local.span.len()),
            Err(why) => self.done.push_back(Completion { op: work.op, result: Err(why) }),
        }
        self.conclude_copied();
        true
    }

    fn peer_life(&self) -> PeerLife {
        PeerLife::default()
    }

    fn peer_has_ended(&mut self) -> bool {
        true
    }

    fn are_requests_fenced(&mut self) -> bool {
        true
    }

    fn uses_memory_of(&mut self, op: SlotId) -> bool {
        self.pieces.has(op)
    }

    fn bytes_moved(&self) -> (u64, u64) {
        (self.bytes, self.bytes)
    }

    fn checks_accesses(&self) -> bool {
        true
    }

    fn trust(&self) -> &'static str {
        "this process"
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use hmc_core::region::{LocalSlice, WindowDesc};
    use hmc_core::types::MemoryKind;
    use hmc_core::work::CompleteWhen;

    use super::*;
    use crate::memory::{Region, RegionTable};
    use crate::node::inbox::{Inbox, Wanted};

    struct Bench {
        plane: LoopbackDataPlane,
        source: Region,
        window: WindowDesc,
        inbox: SharedInbox,
    }

    /// A data plane with a window over another region, and an inbox for one message.
    fn bench() -> Bench {
        bench_of(64)
    }

    fn bench_of(len: u64) -> Bench {
        let table = Arc::new(RegionTable::default());
        let [source, target] = [(); 2].map(|()| table.allocate(len).expect("memory"));
        let inbox = Arc::new(Mutex::new(Inbox::new(1, 64)));
        let mut plane = LoopbackDataPlane::new(4, Arc::clone(&inbox));
        plane.add_memory(&source);
        plane.add_memory(&target);
        let whole = target.slice(0, len).expect("all of it");
        let window = plane.windows().expose(whole, MemoryKind::Cpu, Access::all(), 7);
        Bench { plane, source, window: window.expect("a place"), inbox }
    }

    impl Bench {
        fn post(&mut self, index: u16, opcode: Opcode) -> Result<(), PostErrorKind> {
            self.post_len(index, opcode, 8)
        }

        fn post_len(&mut self, index: u16, opcode: Opcode, len: u64) -> Result<(), PostErrorKind> {
            let work = WorkRequest {
                op: SlotId { index, generation: 1 },
                opcode,
                when: CompleteWhen::Visible,
                local: self.source.slice(0, len).expect("in range"),
                remote: self.window.slice(0, len).expect("in range"),
            };
            self.plane.post(&work)
        }

        fn poll(&mut self, space: usize) -> Vec<(u16, Result<u64, Failure>)> {
            let op = SlotId { index: u16::MAX, generation: 1 };
            let mut out = vec![Completion { op, result: Ok(0) }; space];
            self.plane.copy_piece();
            let n = self.plane.poll(&mut out);
            out.iter().take(n).map(|c| (c.op.index, c.result)).collect()
        }
    }

    #[test]
    fn only_a_put_with_a_tag_waits_for_the_inbox() {
        let mut bench = bench();
        let tagged = |tag| Opcode::PutNotify { tag };
        assert_eq!(bench.post(0, tagged(5)), Ok(()));
        assert_eq!(bench.post(1, tagged(6)), Err(PostErrorKind::Busy));
        assert_eq!(bench.post(2, Opcode::Put), Ok(()));
        assert_eq!(bench.post(3, Opcode::Get), Ok(()));
        let take = |b: &Bench| b.inbox.lock().expect("nobody panics").take(Wanted::Any);
        assert_eq!((take(&bench), take(&bench)), (Some(Message::Notify(5)), None));
        assert_eq!(bench.post(4, tagged(7)), Ok(()));
        assert_eq!(bench.poll(2), [(0, Ok(8)), (2, Ok(8))]);
        assert_eq!(bench.poll(2), [(3, Ok(8)), (4, Ok(8))]);
        assert_eq!(bench.poll(2), []);
        assert_eq!(bench.plane.bytes, 32);
    }

    #[test]
    fn completions_that_wait_are_bounded_and_cannot_be_withdrawn() {
        let mut bench = bench();
        let count = u16::try_from(MAX_REQUESTS).expect("small");
        for index in 0..count {
            assert_eq!(bench.post(index, Opcode::Put), Ok(()), "{index}");
        }
        assert_eq!(bench.post(count, Opcode::Put), Err(PostErrorKind::Busy));
        let op = |index| SlotId { index, generation: 1 };
        assert_eq!(bench.plane.cancel(op(0)), CancelOutcome::Running);
        assert_eq!(bench.plane.cancel(op(count)), CancelOutcome::Withdrawn);
        assert_eq!(bench.poll(1), [(0, Ok(8))]);
        assert_eq!(bench.plane.cancel(op(0)), CancelOutcome::Withdrawn);
        assert_eq!(bench.post(count, Opcode::Put), Ok(()));
    }

    #[test]
    fn a_long_transfer_is_copied_piece_by_piece_and_can_be_withdrawn() {
        const PIECE: u64 = 1 << 20;
        const LONG: u64 = 2 * PIECE + 1;
        let op = |index| SlotId { index, generation: 1 };
        let mut bench = bench_of(LONG);
        assert_eq!(bench.post_len(0, Opcode::Put, LONG), Ok(()));
        assert_eq!((bench.plane.bytes, bench.plane.interest().work), (PIECE, true));
        assert_eq!(bench.post_len(1, Opcode::PutNotify { tag: 5 }, LONG), Ok(()));
        assert_eq!(bench.post(2, Opcode::Get), Ok(()));
        assert_eq!(bench.plane.cancel(op(2)), CancelOutcome::Withdrawn);
        assert!(bench.plane.uses_memory_of(op(1)) && !bench.plane.uses_memory_of(op(2)));
        assert_eq!((bench.poll(4), bench.plane.bytes), (vec![], 2 * PIECE));
        assert_eq!((bench.poll(4), bench.plane.bytes), (vec![(0, Ok(LONG))], LONG));
        assert_eq!(bench.plane.cancel(op(1)), CancelOutcome::Withdrawn, "it waited");
        assert!(!bench.plane.interest().work);
        assert_eq!(bench.post_len(3, Opcode::Get, LONG), Ok(()));
        bench.plane.close(DataCloseReason::Silent);
        assert_eq!(bench.poll(4), [(3, Err(Failure::PeerDead))]);
        assert_eq!(bench.post(4, Opcode::Put), Err(PostErrorKind::Disconnected));
        assert_eq!(bench.inbox.lock().expect("nobody panics").take(Wanted::Any), None);
    }

    #[test]
    fn a_copy_needs_the_right_of_its_direction() {
        for (access, put, get) in [
            (Access::WRITE, Ok(8), Err(Failure::Window(WindowFault::Access))),
            (Access::READ, Err(Failure::Window(WindowFault::Access)), Ok(8)),
        ] {
            let mut bench = bench();
            let key = bench.source.local().key;
            let whole = LocalSlice { key, span: bench.source.local().extent.whole() };
            let window = bench.plane.windows().expose(whole, MemoryKind::Cpu, access, 9);
            bench.window = window.expect("a place");
            for opcode in [Opcode::Put, Opcode::Get] {
                assert_eq!(bench.post(0, opcode), Ok(()));
            }
            assert_eq!(bench.poll(2), [(0, put), (0, get)], "{access:?}");
        }
    }

    #[test]
    fn a_copy_of_memory_that_is_not_known_is_refused() {
        let mut bench = bench();
        bench.plane.release_memory(true);
        assert_eq!(bench.post(0, Opcode::Put), Err(PostErrorKind::UnknownRegion));
        bench.plane.add_memory(&bench.source);
        assert_eq!(bench.post(0, Opcode::Put), Ok(()));
        let gone = Failure::Window(WindowFault::Revoked);
        assert_eq!(bench.poll(1), [(0, Err(gone))], "its target is not known");
        assert!(format!("{:?}", bench.plane.take_released()).contains("count: 1"));
        assert!(format!("{:?}", bench.plane.take_released()).contains("count: 0"));
    }

    /// The process ends with both its ends: nothing is waited for.
    #[test]
    fn a_link_to_itself_has_no_peer_that_ends_and_holds_nothing_back() {
        let Bench { mut plane, window, .. } = bench();
        let op = SlotId { index: 0, generation: 1 };
        let all = Caps::all();
        assert_eq!((plane.caps(), plane.kind()), (all, Some(ConnType::Loopback)));
        assert!(!plane.poll_peer(true) && plane.interest() == Interest::default());
        plane.close(DataCloseReason::Silent);
        assert_eq!(plane.close_reason(), None);
        assert!(plane.peer_has_ended() && plane.are_requests_fenced() && plane.is_fenced());
        assert!(!plane.uses_memory_of(op) && plane.remove_window(window.window, window.epoch));
        assert!(plane.checks_accesses() && !plane.peer_life().has_ended());
        assert_eq!((plane.trust(), plane.bytes_moved()), ("this process", (0, 0)));
    }
}
