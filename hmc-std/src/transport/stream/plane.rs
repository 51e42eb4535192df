//! A stream as a link's data plane.

use std::fmt::{self, Write};
use std::sync::Arc;

use hmc_core::blocks::WindowBlocks;
use hmc_core::region::{Epoch, WindowDesc, WindowId};
use hmc_core::slots::SlotId;
use hmc_core::transport::{
    DataCloseReason, DataPlane, Fence, Interest, Notes, PeerWindows, Progress, Readiness,
    Registration, Target,
};
use hmc_core::types::ConnType;
use hmc_core::window::{WindowEntry, WindowFault, WindowTable, WindowTransition};
use hmc_core::wire::data::{DataFlags, DataFrame};
use hmc_core::work::{Failure, Opcode};
use hmc_mem::os::mapped_window::MappedWindow;

use super::requests::Phase;
use super::{PeerLife, StreamDataPlane};
use crate::base::error::Error;
use crate::memory::Region;
use crate::transport::gate::Gate;
use crate::transport::released::Released;
use crate::transport::worker::Worker;

impl Registration for StreamDataPlane {
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

impl Target for StreamDataPlane {
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
        if self.has_generations {
            self.tables.add(table, blocks, window);
        }
        self.has_generations
    }

    fn offers_pages(&self, id: WindowId, epoch: Epoch) -> bool {
        let is_it = |f: &DataFrame| f.window == id && f.epoch == epoch;
        let offers = self.tx.offers.iter().map(|o| &o.frame);
        offers.into_iter().any(|f| is_it(f) && !f.flags.contains(DataFlags::EXPECT))
    }

    /// From here on no byte of the window is read or written by this stream. A frame under way continues into nothing and its
    /// operation fails with `Revoked`.
    fn revoke(&mut self, id: WindowId, epoch: Epoch) -> Result<Fence<Gate>, WindowFault> {
        self.refuse_window(id, epoch)?;
        Ok(Fence::Passed)
    }

    fn reopen(&mut self, id: WindowId, epoch: Epoch, (offset, len): (u64, u64)) -> bool {
        self.windows.serve(id, epoch, offset, len).is_ok()
            && self.windows.apply(id, epoch, WindowTransition::Reopen).is_ok()
    }

    fn count_puts(&mut self, id: WindowId, epoch: Epoch, len: u64) {
        self.target.count_puts(id, epoch, len);
    }

    fn are_all_put(&self, id: WindowId, epoch: Epoch) -> bool {
        self.target.are_all_put(id, epoch)
    }

    fn take_all_put(&mut self) -> bool {
        std::mem::take(&mut self.target.all_put)
    }

    fn forget_window(&mut self, id: WindowId, epoch: Epoch) {
        self.tables.remove(id, epoch);
    }
}

impl PeerWindows for StreamDataPlane {
    type Mapped = Arc<MappedWindow>;

    fn remove_window(&mut self, _id: WindowId, _epoch: Epoch) -> bool {
        true
    }
}

impl Progress for StreamDataPlane {
    type Worker = Worker;

    fn poll_peer(&mut self, _claimed: bool) -> bool {
        self.poll_peer_while(&|| true)
    }

    fn flush(&mut self) {
        self.send_queued();
    }

    fn interest(&mut self) -> Interest {
        if self.down.is_some() {
            return Interest::default();
        }
        // Copies that were refused free the places of their tags: what lies here can go on then.
        let goes_on = self.rx.paused && self.inbox_has_space();
        let paused = self.rx.paused && !goes_on;
        Interest {
            connection: Readiness { read: !paused, write: self.has_output(), end: paused },
            work: self.target.has_jobs() || goes_on,
        }
    }

    fn is_paused(&self) -> bool {
        self.rx.paused
    }

    fn take_delivered(&mut self) -> bool {
        std::mem::take(&mut self.delivered)
    }
}

impl Notes for StreamDataPlane {}

impl DataPlane for StreamDataPlane {
    type PeerLife = PeerLife;

    fn kind(&self) -> Option<ConnType> {
        Some(ConnType::Tcp)
    }

    fn close_reason(&self) -> Option<DataCloseReason> {
        self.down
    }

    /// Every unanswered request fails with `PeerDead`. If something else reaches the memory of a peer that is near, its owner calls
    /// [`Self::say_out`] as soon as that is over.
    fn close(&mut self, why: DataCloseReason) {
        if self.down.is_some() {
            return;
        }
        self.down = Some(why);
        let out = self.life.has_ended();
        if !self.near {
            // Both directions: whoever is parked on the descriptor wakes.
            self.socket.shutdown();
        } else if self.local {
            self.say_out();
        }
        self.rx.drop_body();
        self.tx.clear();
        self.target.clear();
        for seq in self.requests.seqs() {
            let by_peer =
                self.requests.get_mut(seq).is_some_and(|r| r.by_ref && r.phase == Phase::Sent);
            if by_peer && !out {
                // The peer may be copying at this very moment.
                self.unanswered = true;
            } else {
                self.answer(seq, Err(Failure::PeerDead));
            }
        }
    }

    fn peer_life(&self) -> PeerLife {
        self.life.clone()
    }

    /// Its process has ended, or it has ended its direction of this stream. It does that under the lock under which it makes its
    /// copies, and once a transport beside it has ended all that it began, so that none of them is under way; and the kernel closes the stream of
    /// a process after the last of its threads. The end of the control connection says neither.
    fn peer_has_ended(&mut self) -> bool {
        if self.near { self.life.has_ended() } else { self.down == Some(DataCloseReason::Eof) }
    }

    /// The peer's process cannot be in the middle of a copy in this address space. Windows need no more than the lock under which
    /// the data plane was closed.
    fn are_requests_fenced(&mut self) -> bool {
        !self.unanswered || self.life.has_ended()
    }

    fn are_puts_answered(&mut self) -> bool {
        self.requests.are_puts_answered()
    }

    fn uses_memory_of(&mut self, op: SlotId) -> bool {
        let mut uses = false;
        for seq in self.requests.seqs() {
            let sending = self.tx.body_of(seq);
            if let Some(r) = self.requests.get_mut(seq).filter(|r| r.work.op == op && !r.mute) {
                uses |= match r.phase {
                    Phase::Queued | Phase::Finished => false,
                    Phase::Sending => true,
                    Phase::Sent => sending || r.by_ref || r.work.opcode == Opcode::Get,
                };
            }
        }
        uses
    }

    fn bytes_moved(&self) -> (u64, u64) {
        (self.bytes_out, self.bytes_in)
    }

    fn checks_accesses(&self) -> bool {
        true
    }

    fn trust(&self) -> &'static str {
        "the target checks window, range and epoch of every frame"
    }

    fn describe_close(&self, why: DataCloseReason, out: &mut dyn Write) -> fmt::Result {
        match (why, self.malformed) {
            (DataCloseReason::System(number), _) => {
                write!(out, "{}", std::io::Error::from_raw_os_error(number))
            }
            (DataCloseReason::Protocol(what), Some(e)) => {
                write!(out, "it broke the protocol: {what}: {e}")
            }
            _ => write!(out, "{why}"),
        }
    }
}
