//! UCX: puts and gets by libucp, tags and control of windows by a stream beside it.
//!
//! The stream is the link's second connection, as for shared memory: it shows the peer's end, and carries the tags of
//! puts once their bytes are there. Everything else goes through [`UcxTransport`], which exists as soon as the peer's card
//! has come. The window's range, rights and epoch are checked here, in the initiator's process; where bytes go as messages
//! ([`hmc_hw::ucx::am`]) the target judges them again, and alone decides. UCX's lanes of shared memory check nothing.

mod bell;
mod leaving;

use std::collections::VecDeque;
use std::sync::Arc;

use hmc_core::limits::MAX_CHUNK_BYTES;
use hmc_core::queue::Transfer;
use hmc_core::range::Extent;
use hmc_core::region::{Epoch, LocalSlice, WindowDesc, WindowId, WindowSlice};
use hmc_core::slots::SlotId;
use hmc_core::time::{Duration, Instant};
use hmc_core::transport::{CancelOutcome, PostErrorKind, Transport};
use hmc_core::types::Caps;
use hmc_core::window::{WindowEntry, WindowTable};
use hmc_core::wire::advert::UcxKey;
use hmc_core::wire::held;
use hmc_core::wire::message::ControlKind;
use hmc_core::work::{Completion, Failure, Opcode, WorkRequest};
use hmc_hw::ucx::am::AmTarget;
use hmc_hw::ucx::memory::Memory;
use hmc_hw::ucx::result::Status;
use hmc_hw::ucx::transport::{MAX_REQUESTS, UcxTransport};

use crate::clock;
use crate::driver::Driver;
use crate::error::{Error, Result};
use crate::memory::Region;
use crate::node::owed::Owed;
use crate::transport::regions::RegionCache;
use crate::transport::stream::{Down, Interest, StreamPort};
use crate::ucx::{Plane, Seat};

pub(crate) use bell::Bell;
use bell::Rope;

/// Bytes of a key that is told to the peer, at the most.
const KEY_BYTES: usize = 4096;
/// Keys that a peer can have.
const PLACES: usize = held::of_message(ControlKind::Endpoint).count();
/// How long a link waits for the greeting of a peer that may send none, having other lanes.
const GREETING: Duration = Duration::from_millis(1000);

#[derive(Debug)]
pub(crate) struct UcxPort {
    /// Registrations of what is exposed to the peer, by the window's place. Before `stream`, which holds the regions.
    exposed: Vec<Option<Arc<Memory>>>,
    ucx: Option<UcxTransport>,
    /// Where the peer's messages come in.
    door: Arc<AmTarget>,
    stream: StreamPort,
    plane: Arc<Plane>,
    /// The worker of this link.
    seat: Arc<Seat>,
    bell: Arc<Bell>,
    /// Keys that came before the peer's card.
    early: Vec<(WindowDesc, u64, Vec<u8>)>,
    /// Tags that the stream has no room for.
    late: VecDeque<WorkRequest>,
    /// Windows that the peer takes back while operations of ours run.
    leaving: Owed,
    /// Windows of ours that the peer has left.
    left: Vec<(WindowId, Epoch)>,
    /// Why the last post was refused, where a kind says too little.
    refusal: Option<Error>,
    /// Since when our own way is open.
    wired: Option<Instant>,
    /// The peer says that it runs on this system.
    near: bool,
    down: bool,
}

impl UcxPort {
    pub(crate) fn new(
        stream: StreamPort,
        plane: Arc<Plane>,
        serial: u32,
        near: bool,
        driver: &Arc<Driver>,
    ) -> Result<Self> {
        let bell = Bell::new(serial, Arc::clone(driver))?;
        let seat = plane.seat(serial, near)?;
        Ok(Self {
            exposed: Vec::new(),
            ucx: None,
            door: seat.worker().new_am_target(Box::new(Rope(Arc::clone(&bell))))?,
            stream,
            plane,
            seat,
            bell,
            early: Vec::new(),
            // Room for all that may be under way: a put allocates nothing.
            late: VecDeque::with_capacity(MAX_REQUESTS),
            leaving: Owed::default(),
            left: Vec::new(),
            wired: None,
            refusal: None,
            near,
            down: false,
        })
    }

    pub(crate) fn stream(&mut self) -> &mut StreamPort {
        &mut self.stream
    }

    pub(crate) fn regions(&mut self) -> &mut RegionCache {
        self.stream.regions()
    }

    pub(crate) fn windows(&mut self) -> &mut WindowTable<Box<[WindowEntry]>> {
        self.stream.windows()
    }

    pub(crate) fn seat(&self) -> &Arc<Seat> {
        &self.seat
    }

    pub(crate) fn bell(&self) -> &Arc<Bell> {
        &self.bell
    }

    /// What the peer needs to come here.
    ///
    /// # Errors
    /// As [`hmc_hw::ucx::worker::Worker::conn_info`].
    pub(crate) fn card(&self) -> Result<Vec<u8>> {
        Ok(self.seat.worker().conn_info(&self.door)?)
    }

    pub(crate) fn bytes_moved(&self) -> (u64, u64) {
        (self.bytes_by_ucx().saturating_add(self.stream.bytes_out), self.stream.bytes_in)
    }

    pub(crate) fn bytes_by_ucx(&self) -> u64 {
        self.ucx.as_ref().map_or(0, UcxTransport::bytes_moved)
    }

    /// The peer's card: what it takes to come to its worker.
    ///
    /// # Errors
    /// `Unavailable` when the two ends have no device in common; `Io`.
    pub(crate) fn learn_card(&mut self, card: &[u8]) -> Result<()> {
        if self.ucx.is_some() || self.down {
            return Ok(());
        }
        let mut ucx = UcxTransport::new(self.seat.worker(), &self.door, card, true)?;
        for (region, base, key) in self.early.drain(..) {
            ucx.add_remote(region, base, &key)?;
        }
        // A window may have been opened before, by the registration that lanes of shared memory map.
        let shares = ucx.shares_memory() || !ucx.uses_am() && self.plane.shares_memory();
        if self.near && shares {
            self.stream.draw_near(ucx.peer_pid());
        }
        self.ucx = Some(ucx);
        Ok(())
    }

    /// The key to one of the peer's windows.
    ///
    /// # Errors
    /// `Io` when UCX cannot read it.
    pub(crate) fn learn_key(&mut self, key: &UcxKey<'_>) -> Result<()> {
        let place = usize::from(key.region.window.index());
        if place >= PLACES || self.early.len() >= PLACES {
            let what = format!("a key to window {place}: a peer has {PLACES} at most");
            return Err(Error::new(crate::error::ErrorKind::Protocol, what));
        }
        match &mut self.ucx {
            Some(ucx) => Ok(ucx.add_remote(key.region, key.base, key.key)?),
            None => {
                self.early.push((key.region, key.base, key.key.to_vec()));
                Ok(())
            }
        }
    }

    /// The transports of the lanes to the peer, once its card has come.
    pub(crate) fn lanes(&self) -> &[String] {
        self.ucx.as_ref().map_or(&[], UcxTransport::lanes)
    }

    /// Whether bytes go as messages both ways, so that each end judges what comes.
    pub(crate) fn is_soft(&self) -> bool {
        self.ucx.as_ref().is_some_and(UcxTransport::uses_am) && self.door.peer_uses_am()
    }

    /// Does a whole small transfer at once, without an operation, where UCX can. `false` when it must be posted.
    #[inline]
    pub(crate) fn transfer_now(
        &mut self,
        opcode: Opcode,
        local: LocalSlice,
        remote: WindowSlice,
    ) -> bool {
        let len = local.span.len();
        let small = len != 0 && len <= MAX_CHUNK_BYTES && !self.down;
        small && self.ucx.as_mut().is_some_and(|ucx| ucx.try_transfer(opcode, local, remote))
    }

    /// Does all small transfers of a list at once, where UCX can. `false` when they must be posted, all of them.
    pub(crate) fn transfer_list_now(&mut self, list: &[Transfer]) -> bool {
        !self.down && self.ucx.as_mut().is_some_and(|ucx| ucx.try_transfer_list(list))
    }

    /// Whether the way to the peer is open.
    pub(crate) fn is_ready(&self) -> bool {
        let Some(ucx) = self.ucx.as_ref().filter(|ucx| ucx.is_wired_up()) else { return false };
        // The peer's greeting tells that it works by messages, too. It comes about when ours is answered, if at all.
        let waited = self.wired.is_some_and(|since| clock::now().since(since) >= GREETING);
        !ucx.uses_am() || self.door.peer_uses_am() || waited
    }

    /// Registers what is exposed. Gives the key, which the peer is to be told before it hears of the window; a window
    /// without bytes has none.
    pub(crate) fn open_window(
        &mut self,
        region: &Region,
        local: LocalSlice,
        exposed: &WindowDesc,
    ) -> Result<Option<Vec<u8>>> {
        if local.span.is_empty() {
            return Ok(None);
        }
        let memory = self.plane.memory_of_window(region, local, self.near)?;
        let packed = memory.pack()?;
        // A registration of the whole region begins before the window.
        let whole = u64::try_from(memory.len()).unwrap_or(0) != local.span.len();
        let place = if whole { local.span } else { Extent::new(local.span.len()).whole() };
        let base = u64::try_from(memory.start().as_ptr().expose_provenance()).unwrap_or(0);
        let mut storage = [0; KEY_BYTES];
        let key = UcxKey::compose(exposed, place.address(base), &packed, &mut storage);
        let blob =
            key.map(|k| hmc_core::wire::advert::EndpointDesc::UcxKey(k).blob().bytes.to_vec());
        let too_long = || Error::new(crate::error::ErrorKind::Full, "UCX's memory key is too long");
        let blob = blob.ok_or_else(too_long)?;
        let at = usize::from(exposed.window.index());
        if at >= self.exposed.len() {
            self.exposed.resize_with(at.saturating_add(1), || None);
        }
        self.door.open(*exposed, Arc::clone(&memory), place);
        if let Some(place) = self.exposed.get_mut(at) {
            *place = Some(memory);
        }
        Ok(Some(blob))
    }

    /// No message of the peer's gets into that window from now on.
    pub(crate) fn shut_window(&mut self, id: WindowId) {
        self.door.close(id);
    }

    /// Nobody reaches that window any more.
    pub(crate) fn close_window(&mut self, id: WindowId) {
        self.door.close(id);
        if let Some(place) = self.exposed.get_mut(usize::from(id.index())) {
            *place = None;
        }
    }

    /// Why its endpoint is of no use any more: what the peer did, or that status.
    fn why(&self, status: Status) -> Down {
        self.door.violation().map_or(Down::Ucx(status), Down::Message)
    }

    pub(crate) fn bring_down(&mut self, why: Down) {
        if self.near && self.ucx.is_none() {
            // It may have our card already.
            self.stream.draw_near(None);
        }
        self.stream.bring_down(why);
        self.down = true;
        if let Some(ucx) = &mut self.ucx {
            ucx.close();
        }
        // The end of the link is the word.
        self.leaving.clear();
        self.say_out();
    }

    /// Tells the peer of a link that is over that nothing of ours is in its memory any more, as soon as that is true.
    fn say_out(&mut self) {
        if self.down && self.is_idle() {
            self.stream.say_out();
        }
    }

    /// Whether nothing is under way.
    pub(crate) fn is_idle(&self) -> bool {
        self.ucx.as_ref().is_none_or(UcxTransport::is_idle)
    }

    /// Whether something was begun with UCX that nobody who sleeps on the worker would be told of.
    pub(crate) fn take_begun(&mut self) -> bool {
        self.ucx.as_mut().is_some_and(UcxTransport::take_posted)
    }

    /// Whether what was posted can wait for company.
    pub(crate) fn can_wait(&self) -> bool {
        self.late.is_empty() && self.ucx.as_ref().is_some_and(UcxTransport::can_coalesce)
    }

    /// Whether nothing of ours is read or written by UCX, nor by the peer through the stream.
    pub(crate) fn is_harmless(&mut self) -> bool {
        let idle = self.ucx.as_mut().is_none_or(|ucx| {
            ucx.advance();
            ucx.is_idle()
        });
        self.say_out();
        idle && self.stream.is_harmless()
    }

    /// Whether the peer cannot reach what it was allowed to any more, either.
    pub(crate) fn is_out_of_reach(&mut self) -> bool {
        let exposed = self.exposed.iter().any(Option::is_some);
        self.is_harmless() && (!exposed || self.peer_has_ended())
    }

    /// Whether the link is over, and nothing of the peer's can arrive any more once the registrations of its windows have
    /// ended too, which they do before their memory is given back.
    ///
    /// UCX's lanes of shared memory copy to addresses that the peer was told: of a peer of this system its word or the end of
    /// its process is needed. Of any other none is, and why its link ended does not matter. It reaches us through our NIC,
    /// which executes an access only if its key is of a memory region that is registered. A window of such a peer has a
    /// region of its own ([`Plane::memory_of_window`]), and without a cache `ucp_mem_unmap` deregisters it in the call: the
    /// NIC refuses what comes from then on. Besides, the queue pair that the peer's end is connected to is in its error
    /// state, or destroyed, once our endpoint is closed by force and the worker has no more to do.
    pub(crate) fn peer_has_ended(&mut self) -> bool {
        if self.down && self.door.peer_uses_am() {
            // It reaches us by messages alone, and the door is shut.
            return true;
        }
        let near = self.stream.is_near();
        let ended = if near { self.stream.peer_has_ended() } else { self.down };
        if !ended {
            return false;
        }
        let harmless = self.is_harmless();
        // What its lanes still hold lands now. UCX may never be done with closing the way to a process that was killed with
        // its queue full (1.13.1); between processes of one host that is no matter.
        let drained = self.seat.drain();
        let over = self.ucx.as_ref().is_none_or(|ucx| ucx.is_closed() || ucx.is_same_host());
        drained && over && harmless
    }

    pub(crate) fn interest(&mut self) -> Interest {
        let mut i = self.stream.interest();
        i.work |= !self.down && self.ucx.as_ref().is_some_and(UcxTransport::has_work);
        i
    }

    pub(crate) fn service(&mut self, attended: bool) -> bool {
        let mut busy = self.stream.service();
        if attended && self.is_idle() {
            // Otherwise the next poll makes progress, and takes what it finds.
            busy |= self.seat.crank();
        }
        // The poll that follows each service makes progress while the two ends meet, and finds an endpoint that has failed.
        if let Some(ucx) = &mut self.ucx {
            busy |= ucx.take_progressed();
            if ucx.is_wired_up() && self.wired.is_none() {
                self.wired = Some(clock::now());
            }
        }
        if let Some(why) = self.stream.down() {
            self.bring_down(why);
        }
        busy
    }

    /// Forgets registrations of regions that are not cached any more.
    #[must_use]
    pub(crate) fn sweep(&mut self) -> Vec<Arc<Memory>> {
        let regions = self.stream.region_cache();
        let swept = |ucx: &mut UcxTransport| ucx.evict_locals(|key| regions.get(key).is_some());
        self.ucx.as_mut().map(swept).unwrap_or_default()
    }

    /// What its owner is to be told of the post that was refused last.
    pub(crate) fn take_refusal(&mut self) -> Option<Error> {
        self.refusal.take()
    }

    /// Sends the tag of a put whose bytes are there. Whether there was room.
    fn send_tag(&mut self, work: &WorkRequest) -> bool {
        let tag = WorkRequest {
            local: LocalSlice { span: work.local.span.split_at_most(0).0, ..work.local },
            remote: WindowSlice { span: work.remote.span.split_at_most(0).0, ..work.remote },
            ..*work
        };
        !matches!(self.stream.submit(&tag, false, work.local.span.len()), Err(PostErrorKind::Busy))
    }
}

impl Transport for UcxPort {
    type Error = PostErrorKind;

    fn caps(&self) -> Caps {
        Caps::PUT | Caps::GET | Caps::NOTIFY
    }

    fn post(&mut self, work: &WorkRequest) -> std::result::Result<(), PostErrorKind> {
        if self.down {
            return Err(PostErrorKind::Disconnected);
        }
        let Some(region) = self.stream.region_cache().resolve(work.local) else {
            return Err(PostErrorKind::UnknownRegion);
        };
        let Some(ucx) = &mut self.ucx else { return Err(PostErrorKind::Busy) };
        if work.local.span.is_empty() {
            // A tag without bytes.
            return self.stream.submit(work, false, 0);
        }
        if !ucx.has_local(work.local.key) {
            match self.plane.memory_of(region) {
                Ok(memory) => ucx.add_local(work.local.key, memory),
                Err(e) => {
                    tracing::warn!(error = %e, "memory cannot be registered with UCX");
                    self.refusal = Some(e);
                    return Err(PostErrorKind::Other);
                }
            }
        }
        ucx.post(work)
    }

    fn poll(&mut self, out: &mut [Completion]) -> usize {
        let mut n = 0;
        if let Some(ucx) = &mut self.ucx {
            n = ucx.poll(out);
            for c in out.iter_mut().take(n) {
                // UCX may find the memory of a process that has just been killed gone before the connection shows its end.
                if matches!(c.result, Err(Failure::Transport(_))) && self.stream.peer_has_ended() {
                    c.result = Err(Failure::PeerDead);
                }
            }
            while let Some(work) = ucx.take_notify() {
                self.late.push_back(work);
            }
            // Whoever hears of an operation's end by a failed endpoint finds the link over.
            if let Some(status) = ucx.failure().filter(|_| !self.down) {
                self.bring_down(self.why(status));
            }
        }
        while let Some(work) = self.late.front().copied() {
            if self.down {
                // The lane has failed it, or will.
                let rest = out.get_mut(n..).unwrap_or_default();
                let Some(place) = rest.first_mut() else { break };
                *place = Completion { op: work.op, result: Err(Failure::PeerDead) };
                n = n.saturating_add(1);
            } else if !self.send_tag(&work) {
                break;
            }
            self.late.pop_front();
        }
        let rest = out.get_mut(n..).unwrap_or_default();
        n.saturating_add(self.stream.poll(rest))
    }

    fn cancel(&mut self, op: SlotId) -> CancelOutcome {
        let stream = self.stream.cancel(op);
        let ucx = self.ucx.as_mut().map_or(CancelOutcome::Withdrawn, |u| u.cancel(op));
        let late = self.late.iter().any(|w| w.op == op && w.opcode != Opcode::Get);
        if late || stream == CancelOutcome::Running || ucx == CancelOutcome::Running {
            CancelOutcome::Running
        } else {
            CancelOutcome::Withdrawn
        }
    }
}
