//! A NIC's end as the data plane of a link.

use std::convert::Infallible;

use hmc_core::region::{Epoch, WindowId};
use hmc_core::slots::SlotId;
use hmc_core::transport::{DataCloseReason, DataPlane, Interest, Note, Notes, Progress};
use hmc_core::types::ConnType;
use hmc_core::window::WindowState;
use hmc_core::wire::advert::ENDPOINT_CUSTOM;

use super::fault::NicFault;
use super::peer_process::PeerProcess;
use super::wire::Wire;
use super::{POLL_NS, Queue, SimNic};
use crate::fabric::timed::Fabric;
use crate::fault::Faults;

/// The kind of the note that has the address of an end: four bytes.
const NOTE_ADDRESS: u8 = ENDPOINT_CUSTOM;

impl Notes for SimNic {
    /// The address of this end. At zero latency the two ends need none.
    fn greeting<'a>(&mut self, buf: &'a mut [u8]) -> Result<Option<Note<'a>>, NicFault> {
        let Wire::Net(_, port) = self.wire() else {
            return Ok(None);
        };
        let Some(bytes) = buf.first_chunk_mut() else {
            return Ok(None);
        };
        *bytes = Fabric::address(port).to_le_bytes();
        Ok(Some(Note { kind: NOTE_ADDRESS, bytes }))
    }

    fn receive_note(&mut self, note: Note<'_>) -> Result<(), NicFault> {
        match &self.wire() {
            Wire::Net(fabric, port) if note.kind == NOTE_ADDRESS => {
                let address = note.bytes.try_into().map(u32::from_le_bytes).ok();
                let is_known =
                    address.is_some_and(|at| fabric.borrow_mut().receive_address(*port, at));
                if is_known { Ok(()) } else { Err(NicFault::OtherPeer) }
            }
            _ => Ok(()),
        }
    }

    fn has_releases(&self) -> bool {
        !self.host.releases.is_empty()
    }

    fn next_release(&mut self) -> Option<(WindowId, Epoch)> {
        let wire = self.wire();
        let at = self.host.releases.iter().position(|window| !wire.uses_window(*window))?;
        Some(self.host.releases.remove(at))
    }
}

impl Progress for SimNic {
    type Worker = Infallible;

    fn is_ready(&self) -> bool {
        match &self.wire() {
            Wire::ZeroLatency(..) => !self.is_down(),
            Wire::Net(fabric, port) => {
                let mut fabric = fabric.borrow_mut();
                fabric.port(*port).queue == Queue::Ready && fabric.is_up(*port)
            }
        }
    }

    /// Lets virtual time pass, as [`Transport::poll`](hmc_core::transport::Transport::poll) does.
    fn poll_peer(&mut self, _claimed: bool) -> bool {
        let Wire::Net(fabric, port) = &self.wire() else {
            return false;
        };
        let mut fabric = fabric.borrow_mut();
        let count = |fabric: &mut Fabric| {
            let tags = fabric.port(*port).inbox.len();
            (fabric.counts.pieces, fabric.counts.completions, tags)
        };
        let before = count(&mut fabric);
        fabric.advance(POLL_NS);
        count(&mut fabric) != before
    }

    /// Virtual time passes only in calls: as long as something takes time, there is work to do.
    fn interest(&mut self) -> Interest {
        let work = match &self.wire() {
            Wire::ZeroLatency(fabric, side) => fabric.borrow_mut().end(*side).has_completions(),
            Wire::Net(fabric, port) => {
                let mut fabric = fabric.borrow_mut();
                let peer = fabric.port(*port).peer;
                let comes = !fabric.port(peer).in_flight.is_empty();
                let here = fabric.port(*port);
                let is_done = here.done.len() != 0;
                comes || is_done || !here.in_flight.is_empty() || !here.closing.is_empty()
            }
        };
        Interest { work, ..Interest::default() }
    }

    fn is_paused(&self) -> bool {
        self.wire().tags().1
    }

    fn take_delivered(&mut self) -> bool {
        let (tags, _) = self.wire().tags();
        tags > self.host.tags_seen.replace(tags)
    }
}

impl DataPlane for SimNic {
    type PeerLife = PeerProcess;

    fn kind(&self) -> Option<ConnType> {
        Some(ConnType::Custom("simulated NIC"))
    }

    fn close_reason(&self) -> Option<DataCloseReason> {
        let failed = || match self.queue() {
            Queue::Error | Queue::Destroyed => Some(DataCloseReason::Failed(Faults::FLUSHED)),
            Queue::Init | Queue::Ready => None,
        };
        let ended = || self.wire().has_peer_ended().then_some(DataCloseReason::Eof);
        self.host.down.or_else(ended).or_else(failed)
    }

    /// Requests move no further byte and complete as time passes. The peer's move bytes until the fences of the windows.
    fn close(&mut self, why: DataCloseReason) {
        if self.host.down.is_some() {
            return;
        }
        self.host.down = Some(why);
        match &self.wire() {
            Wire::ZeroLatency(fabric, side) => fabric.borrow_mut().kill(*side),
            Wire::Net(fabric, port) => fabric.borrow_mut().close(*port),
        }
    }

    fn peer_life(&self) -> PeerProcess {
        PeerProcess::new(self.wire())
    }

    fn peer_has_ended(&mut self) -> bool {
        self.wire().has_peer_ended()
    }

    fn are_requests_fenced(&mut self) -> bool {
        !self.wire().any(|_| true)
    }

    fn uses_memory_of(&mut self, op: SlotId) -> bool {
        self.wire().any(|work| work.op == op)
    }

    fn is_fenced(&mut self) -> bool {
        let are_windows_fenced = match &self.wire() {
            Wire::ZeroLatency(..) => self.is_down(),
            Wire::Net(fabric, port) => {
                let mut fabric = fabric.borrow_mut();
                let windows = &fabric.port(*port).windows;
                windows.in_use().all(|entry| entry.state() != WindowState::Exposed)
            }
        };
        are_windows_fenced && self.are_requests_fenced()
    }

    /// At zero latency nothing is counted: benchmarks measure that path.
    fn bytes_moved(&self) -> (u64, u64) {
        match &self.wire() {
            Wire::ZeroLatency(..) => (0, 0),
            Wire::Net(fabric, port) => {
                let mut fabric = fabric.borrow_mut();
                let peer = fabric.port(*port).peer;
                (fabric.port(*port).moved, fabric.port(peer).moved)
            }
        }
    }

    /// The NIC moves all of them.
    fn bytes_offloaded(&self) -> u64 {
        self.bytes_moved().0
    }

    /// The NIC checks them, and refuses those to a revoked window only from its fence on.
    fn checks_accesses(&self) -> bool {
        matches!(self.wire(), Wire::ZeroLatency(..))
    }

    fn trust(&self) -> &'static str {
        "the target's NIC checks each access against its windows"
    }

    fn unfenced_reason(&self) -> &'static str {
        "the NIC may still move bytes of a request"
    }

    fn unfenced_window_reason(&self) -> Option<&'static str> {
        Some("the NIC has not acknowledged the revocation")
    }

    fn lanes(&self, each: &mut dyn FnMut(&str)) {
        each("simulated NIC");
    }
}
