//! The data plane of a link without payload: its peer uses the C++ HMC's protocol, or the data plane is not open
//! yet.

use std::sync::Arc;

use hmc_core::region::{Epoch, WindowId};
use hmc_core::slots::SlotId;
use hmc_core::transport::{
    CancelOutcome, DataCloseReason, DataPlane, Interest, Notes, PeerWindows, PostErrorKind,
    Progress, Registration, Target, Transport,
};
use hmc_core::types::{Caps, ConnType};
use hmc_core::window::{WindowEntry, WindowTable};
use hmc_core::work::{Completion, WorkRequest};
use hmc_mem::os::mapped_window::MappedWindow;

use crate::base::error::Error;
use crate::memory::Region;
use crate::transport::gate::Gate;
use crate::transport::released::Released;
use crate::transport::stream::PeerLife;
use crate::transport::worker::Worker;

/// No data plane.
#[derive(Debug)]
pub(crate) struct ControlOnly {
    windows: WindowTable<Box<[WindowEntry]>>,
}

impl ControlOnly {
    pub(crate) fn new() -> Self {
        Self { windows: WindowTable::new(Box::new([])) }
    }
}

impl Transport for ControlOnly {
    type Error = PostErrorKind;

    fn caps(&self) -> Caps {
        Caps::empty()
    }

    fn post(&mut self, _work: &WorkRequest) -> Result<(), PostErrorKind> {
        Err(PostErrorKind::Unsupported)
    }

    fn poll(&mut self, _out: &mut [Completion]) -> usize {
        0
    }

    fn cancel(&mut self, _op: SlotId) -> CancelOutcome {
        CancelOutcome::Withdrawn
    }
}

impl Registration for ControlOnly {
    type Memory = Region;
    type Released = Released;

    fn add_memory(&mut self, _memory: &Region) {}

    fn release_memory(&mut self, _all: bool) {}

    fn take_released(&mut self) -> Released {
        Released::default()
    }
}

impl Target for ControlOnly {
    type Windows = Box<[WindowEntry]>;
    type Gate = Gate;
    type Fault = Error;

    fn windows(&mut self) -> &mut WindowTable<Box<[WindowEntry]>> {
        &mut self.windows
    }
}

impl PeerWindows for ControlOnly {
    type Mapped = Arc<MappedWindow>;

    fn remove_window(&mut self, _id: WindowId, _epoch: Epoch) -> bool {
        true
    }
}

impl Progress for ControlOnly {
    type Worker = Worker;

    fn poll_peer(&mut self, _claimed: bool) -> bool {
        false
    }

    fn interest(&mut self) -> Interest {
        Interest::default()
    }
}

impl Notes for ControlOnly {}

impl DataPlane for ControlOnly {
    type PeerLife = PeerLife;

    fn kind(&self) -> Option<ConnType> {
        None
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
        "no memory is exposed"
    }
}

#[cfg(test)]
mod tests {
    use hmc_core::range::Extent;
    use hmc_core::region::{Epoch, LocalSlice, RegionKey, WindowId, WindowSlice};
    use hmc_core::slots::SlotId;
    use hmc_core::transport::{
        CancelOutcome, DataCloseReason, DataPlane as _, Interest, PeerWindows as _, PostErrorKind,
        Progress as _, Target as _, Transport as _,
    };
    use hmc_core::types::Caps;
    use hmc_core::work::{CompleteWhen, Opcode, WorkRequest};

    use super::ControlOnly;

    #[test]
    fn it_moves_nothing_exposes_nothing_and_holds_nothing_back() {
        let mut plane = ControlOnly::new();
        let op = SlotId { index: 0, generation: 1 };
        assert_eq!((plane.caps(), plane.poll(&mut [])), (Caps::empty(), 0));
        assert_eq!(plane.cancel(op), CancelOutcome::Withdrawn);
        let span = Extent::new(8).whole();
        let local = LocalSlice { key: RegionKey { index: 0, generation: 1 }, span };
        let remote = WindowSlice { window: WindowId(1), epoch: Epoch(1), span, expected: None };
        let (opcode, when) = (Opcode::Put, CompleteWhen::Visible);
        let put = WorkRequest { op, opcode, when, local, remote };
        assert_eq!(plane.post(&put), Err(PostErrorKind::Unsupported));
        assert!(!plane.poll_peer(true) && plane.interest() == Interest::default());
        assert!(plane.remove_window(WindowId(1), Epoch(1)));
        assert_eq!(plane.windows().in_use().count(), 0);
        assert!(plane.peer_has_ended() && plane.are_requests_fenced() && plane.is_fenced());
        assert!(!plane.uses_memory_of(op) && !plane.checks_accesses());
        assert_eq!(plane.trust(), "no memory is exposed");
        plane.close(DataCloseReason::Silent);
        assert_eq!((plane.kind(), plane.close_reason(), plane.bytes_moved()), (None, None, (0, 0)));
    }
}
