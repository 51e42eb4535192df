//! The state of the connection: progress, notes, and its end.

use std::fmt;
use std::sync::Arc;

use hmc_core::region::{Epoch, WindowId};
use hmc_core::transport::{
    DataCloseReason, DataPlane, Interest, NeedsStream as _, Note, Notes, Progress,
};
use hmc_core::types::ConnType;
use hmc_core::wire::cursor::Writer;
use hmc_core::work::SlotId;
use hmc_mem::registered::Registered;

use super::pieces::{shorts, uses_window};
use super::{MAX_COMPLETIONS, VerbsDataPlane};
use crate::verbs::chain::FlushWord;
use crate::verbs::conn_info::{
    ConnInfo, ENDPOINT_VERBS, ENDPOINT_VERBS_CONNECTED, ENDPOINT_VERBS_KEY, WindowKey,
};
use crate::verbs::fault::VerbsFault;
use crate::verbs::lane::{LANE_DEPTH, Lane, LaneFailure};
use crate::verbs::link_nic::LinkNic;
use crate::verbs::link_worker::LinkWorker;
use crate::verbs::objects::PathTo;
use crate::verbs::pairing::{Spread, pairs};
use crate::verbs::path::{ACK_TIMEOUT, address_of};
use crate::verbs::reach::reach;
use crate::verbs::status::WcStatus;
use crate::verbs::tags::MAX_RECEIVED;
use crate::verbs::window_scheme::WindowScheme;

impl<M: Registered> VerbsDataPlane<M> {
    /// What the peer needs to connect to this end.
    fn conn_info(&self) -> ConnInfo {
        let nics = self.nics.iter().zip(self.domain.nics());
        ConnInfo {
            flush_address: self.domain.flush_source().address(),
            nics: nics.map(|(nic, of_domain)| nic.info(of_domain)).collect(),
            lanes: self.lanes.iter().map(Lane::info).collect(),
            tags: MAX_RECEIVED,
        }
    }

    /// The peer's conn info has come: connects the queue pairs. Each end gives up those that the other one has no partner for, and the
    /// NICs that the other one has not.
    fn connect(&mut self, info: &ConnInfo) -> Result<(), VerbsFault> {
        if self.is_connected || self.closed.is_some() {
            return Ok(());
        }
        for (nic, theirs) in self.nics.iter().zip(&info.nics) {
            let unreachable = |why| VerbsFault::Unreachable(nic.name(), why);
            reach(&nic.port.end(), &theirs.end).map_err(unreachable)?;
        }
        let ours = Spread { nics: self.nics.len(), lanes: self.lanes.len() };
        let theirs = Spread { nics: info.nics.len(), lanes: info.lanes.len() };
        let (kept, partners): (Vec<_>, Vec<_>) = pairs(ours, theirs).into_iter().unzip();
        let mut index = 0..;
        self.lanes.retain(|_| index.next().is_some_and(|index: usize| kept.contains(&index)));
        self.end_surplus_windows(&kept, info.nics.len());
        self.nics.truncate(info.nics.len());
        for ((lane, partner), index) in self.lanes.iter_mut().zip(partners).zip(0..) {
            let (Some(nic), Some(of_domain)) =
                (self.nics.get(lane.nic()), self.domain.nics().get(lane.nic()))
            else {
                continue;
            };
            let (Some(to), Some(theirs)) = (info.nics.get(lane.nic()), info.lanes.get(partner))
            else {
                continue;
            };
            let path = PathTo {
                address: address_of(&nic.port, to.end.gid, to.lid),
                qp_num: theirs.qp_num,
                their_psn: theirs.psn,
                our_psn: 0,
                mtu: to.mtu.min(nic.port.mtu()).0,
                max_rd_atomic: of_domain.gets().min(to.max_gets),
                max_dest_rd_atomic: of_domain.gets_of_peer(),
                timeout: ACK_TIMEOUT,
            };
            let flush = FlushWord {
                address: self.domain.flush_sink().address(),
                lkey: nic.flush.sink.lkey(),
                remote_address: info.flush_address,
                rkey: to.flush_key,
            };
            lane.connect(index, &path, flush)?;
        }
        self.tags.set_announced(info.tags);
        self.begin_receiving()?;
        self.worker.arm_for_peer();
        (self.is_connected, self.owes_word) = (true, true);
        self.update_service();
        self.bind_windows();
        Ok(())
    }

    /// The name of the NIC of that index.
    fn nic_name(&self, index: usize) -> String {
        self.nics.get(index).map_or_else(String::new, LinkNic::name)
    }
}

impl<M: Registered> Progress for VerbsDataPlane<M> {
    type Worker = Arc<LinkWorker>;

    fn is_ready(&self) -> bool {
        self.serves()
    }

    /// The NIC serves the peer. What this end has to do is to take tags, to close windows whose time is over, and to end requests that use
    /// windows which the peer revokes.
    fn poll_peer(&mut self, _claimed: bool) -> bool {
        let has_ended = !self.lanes.is_empty() && self.worker.ended_by().is_some();
        let has_own = self.remotes.has_releases() || self.exposed.is_binding();
        // Else whoever asks for completions takes what has come with them.
        let only_receives = self.is_connected && self.requests.is_idle();
        let mut any = (has_own || has_ended || only_receives || self.tags.is_paused())
            && self.advance_with(only_receives);
        if self.exposed.has_revoked() {
            any |= self.end_revoked();
        }
        any
    }

    fn interest(&mut self) -> Interest {
        let work = self.closed.is_none() && self.has_work();
        Interest { work, ..Interest::default() }
    }

    fn is_paused(&self) -> bool {
        self.tags.is_paused()
    }

    fn take_delivered(&mut self) -> bool {
        self.tags.take_delivered()
    }

    /// In a forked child they are the parent's.
    fn deliver_rest(&mut self) {
        if self.is_inherited() {
            return;
        }
        // As often as it takes for all that the queue has space for; a peer that goes on sending is not waited for.
        let most = self.lanes.len().saturating_add(1).saturating_mul(LANE_DEPTH / MAX_COMPLETIONS);
        let _ = (0..most).all(|_| self.advance_with(true));
        self.tags.deliver(true);
    }

    fn worker(&self) -> Option<Arc<LinkWorker>> {
        Some(Arc::clone(&self.worker))
    }

    fn take_posted(&mut self) -> bool {
        if self.is_put_off {
            self.submit_unattended();
        }
        std::mem::take(&mut self.has_posted)
    }

    /// Short accesses for which no notification is requested are posted by [`Progress::take_posted`], and share a flush.
    fn can_coalesce(&self) -> bool {
        self.serves() && !self.requests.has_any_done() && self.worker.is_unattended()
    }
}

impl<M: Registered> Notes for VerbsDataPlane<M> {
    /// How to connect to this end.
    fn greeting<'a>(&mut self, buf: &'a mut [u8]) -> Result<Option<Note<'a>>, VerbsFault> {
        let mut out = Writer::new(buf);
        self.conn_info().emit(&mut out)?;
        let len = usize::try_from(out.written()).unwrap_or(0);
        let bytes = buf.get(..len).ok_or(VerbsFault::TooLong)?;
        Ok(Some(Note { kind: ENDPOINT_VERBS, bytes }))
    }

    /// How to connect to the peer, or the key to one of its windows.
    fn receive_note(&mut self, note: Note<'_>) -> Result<(), VerbsFault> {
        match note.kind {
            ENDPOINT_VERBS => self.connect(&ConnInfo::parse(note.bytes)?),
            // The link is over: it has no queue pairs any more.
            ENDPOINT_VERBS_KEY if self.failure.is_some() || self.closed.is_some() => Ok(()),
            ENDPOINT_VERBS_KEY => self.remotes.add(WindowKey::parse(note.bytes)?, self.lanes.len()),
            ENDPOINT_VERBS_CONNECTED => {
                self.is_peer_connected = true;
                self.update_service();
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// That this end serves requests, once it does, and keys that were not valid yet when their windows were exposed.
    fn next_note<'a>(&mut self, buf: &'a mut [u8]) -> Option<Note<'a>> {
        if std::mem::take(&mut self.owes_word) {
            let bytes = buf.get(..0)?;
            return Some(Note { kind: ENDPOINT_VERBS_CONNECTED, bytes });
        }
        let key = self.exposed.take_keys()?;
        let mut out = Writer::new(buf);
        // Windows have no more keys than a note has space for.
        key.emit(&mut out).ok()?;
        let len = usize::try_from(out.written()).unwrap_or(0);
        Some(Note { kind: ENDPOINT_VERBS_KEY, bytes: buf.get(..len)? })
    }

    fn has_notes(&self) -> bool {
        self.exposed.owes_keys()
    }

    fn has_releases(&self) -> bool {
        self.remotes.has_releases()
    }

    fn next_release(&mut self) -> Option<(WindowId, Epoch)> {
        let (requests, lanes) = (&self.requests, &self.lanes);
        self.remotes.take_release(|id| uses_window(requests, lanes, id))
    }

    /// The end of the registration, or of the memory windows, is the fence: the NIC refuses what comes later.
    fn receive_release(&mut self, id: WindowId, epoch: Epoch) {
        self.exposed.release(id, epoch);
        self.end_revoked();
    }
}

impl<M: Registered> DataPlane for VerbsDataPlane<M> {
    type PeerLife = ();

    fn kind(&self) -> Option<ConnType> {
        Some(ConnType::Rdma)
    }

    #[inline]
    fn close_reason(&self) -> Option<DataCloseReason> {
        if self.closed.is_some() {
            return self.closed;
        }
        self.failure.as_deref().map(|failure| match failure {
            LaneFailure::Completion { status, .. } => {
                DataCloseReason::Failed(i32::try_from(*status).unwrap_or(i32::MAX))
            }
            LaneFailure::Call(e) => DataCloseReason::System(e.errno),
            LaneFailure::Peer(what) => DataCloseReason::Protocol(what),
            LaneFailure::Event(_, event) => {
                DataCloseReason::Failed(i32::try_from(event.0).unwrap_or(i32::MAX))
            }
        })
    }

    fn close(&mut self, why: DataCloseReason) {
        if self.closed.is_some() {
            return;
        }
        // What has completed is done, and what has come is delivered. In a forked child both are the parent's.
        let is_ours = !self.is_inherited();
        if is_ours {
            let _ = self.advance_with(true);
        }
        self.closed = Some(why);
        self.update_service();
        self.end_requests();
        if is_ours {
            self.tags.deliver(true);
        }
        self.remotes.clear();
        let windows = self.exposed.take_all();
        self.end_entrances(windows);
    }

    fn peer_life(&self) {}

    /// Its NIC reaches nothing here once the queue pairs are destroyed.
    fn peer_has_ended(&mut self) -> bool {
        self.is_shut()
    }

    fn are_requests_fenced(&mut self) -> bool {
        let _ = self.advance();
        self.requests.is_idle() && !self.is_unfenced()
    }

    fn uses_memory_of(&mut self, op: SlotId) -> bool {
        let is_moving = || shorts(&self.lanes).any(|parts| parts.op == op);
        self.is_unfenced() || self.requests.uses_memory_of(op) || is_moving()
    }

    fn bytes_moved(&self) -> (u64, u64) {
        (self.requests.bytes(), 0)
    }

    fn bytes_offloaded(&self) -> u64 {
        self.requests.bytes()
    }

    /// The NIC checks it, and closes a revoked window at its fence.
    fn checks_accesses(&self) -> bool {
        false
    }

    fn trust(&self) -> &'static str {
        match self.domain.window_scheme() {
            WindowScheme::Type2b => {
                "the target's NIC checks key, range and rights of each access: what is exposed to this peer is bound to its queue \
                 pairs alone"
            }
            WindowScheme::DomainPerPeer(_) => {
                "the target's NIC checks key, range and rights of each access: what is exposed to this peer is registered for its \
                 queue pairs alone"
            }
        }
    }

    fn unfenced_reason(&self) -> &'static str {
        "the NIC may still move bytes of a request"
    }

    fn unfenced_window_reason(&self) -> Option<&'static str> {
        Some("the NIC may still let the peer in")
    }

    fn lanes(&self, each: &mut dyn FnMut(&str)) {
        for (index, nic) in self.nics.iter().enumerate() {
            let count = self.lanes.iter().filter(|lane| lane.nic() == index).count();
            each(&format!("rc over {} (queue pairs: {count})", nic.port));
        }
        let (used, all) = (self.nics.len(), self.domain.nics().len());
        let fewer = if used < all { ", as many as the peer has" } else { "" };
        let chosen = self.domain.options().chosen;
        each(&format!("NICs: {used} of {all}{fewer} ({chosen})"));
        each(&self.domain.describe_windows());
    }

    fn describe_close(&self, why: DataCloseReason, out: &mut dyn fmt::Write) -> fmt::Result {
        match (why, self.failure.as_deref()) {
            (DataCloseReason::Failed(_), Some(LaneFailure::Completion { nic, status, vendor })) => {
                let (name, status) = (self.nic_name(*nic), WcStatus(*status));
                write!(out, "the NIC {name} gave it up: {status} (vendor code {vendor})")
            }
            (DataCloseReason::System(_), Some(LaneFailure::Call(e))) => write!(out, "{e}"),
            (DataCloseReason::Failed(_), Some(LaneFailure::Event(nic, event))) => {
                write!(out, "the NIC {} ended it: {event}", self.nic_name(*nic))
            }
            _ => write!(out, "{why}"),
        }
    }

    fn take_refusal(&mut self) -> Option<VerbsFault> {
        self.refusal.take()
    }
}
