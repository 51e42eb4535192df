//! A transport that takes one operation and repeats itself: neither a poll nor the end of a link waits for its last completion.

use std::sync::Arc;

use hmc_core::queue::{QueueError, Transfer};
use hmc_core::range::{Extent, Side};
use hmc_core::region::{Epoch, WindowId, WindowSlice};
use hmc_core::slots::SlotId;
use hmc_core::time::Instant;
use hmc_core::transport::{
    CancelOutcome, DataCloseReason, DataPlane, Interest, Notes, PeerWindows, PostErrorKind,
    Progress, Registration, Target, Transport,
};
use hmc_core::types::{Caps, ConnType};
use hmc_core::window::{WindowEntry, WindowTable};
use hmc_core::work::{CompleteWhen, Completion, Opcode, WorkRequest};
use hmc_mem::os::mapped_window::MappedWindow;

use super::{FIRST_RECORDS, OpQueue};
use crate::base::error::Error;
use crate::link::op_resources::OpResources;
use crate::memory::{Region, RegionTable};
use crate::transport::data_plane::AnyDataPlane;
use crate::transport::gate::Gate;
use crate::transport::released::Released;
use crate::transport::stream::PeerLife;
use crate::transport::worker::Worker;

/// A transport that has space for one operation, and completes the last one time and again.
#[derive(Debug)]
struct Repeating {
    windows: WindowTable<Box<[WindowEntry]>>,
    last: Option<SlotId>,
}

impl Transport for Repeating {
    type Error = PostErrorKind;

    fn caps(&self) -> Caps {
        Caps::all()
    }

    fn post(&mut self, work: &WorkRequest) -> Result<(), PostErrorKind> {
        match self.last {
            None => self.last = Some(work.op),
            Some(_) => return Err(PostErrorKind::Busy),
        }
        Ok(())
    }

    fn poll(&mut self, out: &mut [Completion]) -> usize {
        let Some(op) = self.last else { return 0 };
        out.fill(Completion { op, result: Ok(8) });
        out.len()
    }

    fn cancel(&mut self, _op: SlotId) -> CancelOutcome {
        CancelOutcome::Running
    }
}

impl Registration for Repeating {
    type Memory = Region;
    type Released = Released;

    fn add_memory(&mut self, _memory: &Region) {}

    fn release_memory(&mut self, _all: bool) {}

    fn take_released(&mut self) -> Released {
        Released::default()
    }
}

impl Target for Repeating {
    type Windows = Box<[WindowEntry]>;
    type Gate = Gate;
    type Fault = Error;

    fn windows(&mut self) -> &mut WindowTable<Box<[WindowEntry]>> {
        &mut self.windows
    }
}

impl PeerWindows for Repeating {
    type Mapped = Arc<MappedWindow>;

    fn remove_window(&mut self, _id: WindowId, _epoch: Epoch) -> bool {
        true
    }
}

impl Progress for Repeating {
    type Worker = Worker;

    fn poll_peer(&mut self, _claimed: bool) -> bool {
        false
    }

    fn interest(&mut self) -> Interest {
        Interest::default()
    }
}

impl Notes for Repeating {}

impl DataPlane for Repeating {
    type PeerLife = PeerLife;

    fn kind(&self) -> Option<ConnType> {
        Some(ConnType::Custom("repeating"))
    }

    fn close_reason(&self) -> Option<DataCloseReason> {
        None
    }

    fn close(&mut self, _why: DataCloseReason) {}

    fn peer_life(&self) -> PeerLife {
        PeerLife::default()
    }

    fn peer_has_ended(&mut self) -> bool {
        true
    }

    fn are_requests_fenced(&mut self) -> bool {
        true
    }

    fn uses_memory_of(&mut self, _op: SlotId) -> bool {
        false
    }

    fn bytes_moved(&self) -> (u64, u64) {
        (0, 0)
    }

    fn checks_accesses(&self) -> bool {
        false
    }

    fn trust(&self) -> &'static str {
        "for a test"
    }
}

/// A link of so many operations over a transport that takes one of them, and a put.
fn one_put(slots: usize) -> (OpQueue, Region, Transfer) {
    let region = Arc::new(RegionTable::default()).allocate(8).expect("memory");
    let plane = Repeating { windows: WindowTable::new(Box::new([])), last: None };
    let queue = OpQueue::new(AnyDataPlane::new(plane), slots);
    let span = Extent::new(8).span(Side::Remote, 0, 8).expect("it fits");
    let remote = WindowSlice { window: WindowId(1), epoch: Epoch(1), span, expected: None };
    let local = region.slice(0, 8).expect("it fits");
    let t = Transfer { opcode: Opcode::Put, when: CompleteWhen::Visible, local, remote };
    (queue, region, t)
}

/// A link begins with few records, has more when they are used, and never more than its limit.
#[test]
fn records_grow_to_the_limit() {
    let limit = 2 * FIRST_RECORDS + 3;
    let (mut queue, region, t) = one_put(limit);
    assert_eq!(queue.queue.slots().capacity(), FIRST_RECORDS);
    let post = |queue: &mut OpQueue| {
        queue.post(&t, Instant::NEVER, &mut OpResources::region(region.clone()))
    };
    let ops: Vec<_> = (0..limit).map(|_| post(&mut queue).expect("there is a slot")).collect();
    assert!(matches!(post(&mut queue), Err(QueueError::Full { limit: full }) if full == limit));
    let running = |op: &SlotId| queue.outcome(*op) == Ok(None);
    assert!(ops.iter().all(running) && queue.in_flight() == limit);
    let armed =
        queue.words().iter().zip(&ops).filter(|(word, op)| word.is_pending(op.generation)).count();
    assert_eq!(armed, limit);
}

/// Neither a poll nor the end of a link waits for the last of completions that belong to no operation.
#[test]
fn a_transport_that_repeats_itself_holds_nobody() {
    let (mut queue, region, t) = one_put(4);
    let mut post = || {
        let mut hold = OpResources::region(region.clone());
        queue.post(&t, Instant::NEVER, &mut hold).expect("there is a slot")
    };
    let (first, second) = (post(), post());
    assert!(queue.has_waiting(), "the transport is full");
    queue.progress();
    assert!(queue.outcome(first).is_ok_and(|o| o.is_some()));
    assert_eq!(queue.outcome(second), Ok(None));
    queue.collect();
}
