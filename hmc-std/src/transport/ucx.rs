//! UCX: puts and gets by libucp, tags and control of windows by a stream beside it.
//!
//! The stream is the link's second connection, as for shared memory: it shows the peer's end, and carries the tags of
//! puts once their bytes are there. Everything else goes through [`UcxTransport`], which exists as soon as the peer's card
//! has come. The window's range, rights and epoch are checked here, in the initiator's process; where bytes go as messages
//! ([`hmc_hw::ucx::am`]) the target judges them again, and alone decides. UCX's lanes of shared memory check nothing.

mod plane;
pub(crate) mod session;

use std::collections::VecDeque;
use std::sync::Arc;

use hmc_core::region::{Epoch, LocalSlice, WindowDesc, WindowId, WindowSlice};
use hmc_core::slots::SlotId;
use hmc_core::time::{Duration, Instant};
use hmc_core::transport::{
    CancelOutcome, DataCloseReason, DataPlane as _, PostErrorKind, Transport,
};
use hmc_core::types::Caps;
use hmc_core::wire::advert::UcxKey;
use hmc_core::wire::held;
use hmc_core::wire::message::ControlKind;
use hmc_core::work::{Completion, Failure, Opcode, WorkRequest};
use hmc_hw::host::Event;
use hmc_hw::ucx::am::AmTarget;
use hmc_hw::ucx::domain::UcxDomain;
use hmc_hw::ucx::memory::Memory;
use hmc_hw::ucx::result::Status;
use hmc_hw::ucx::session_worker::UcxWorker;
use hmc_hw::ucx::transport::{MAX_REQUESTS, UcxTransport};

use crate::driver::Driver;
use crate::error::{Error, Result};
use crate::node::owed::Owed;
use crate::transport::link_waker::LinkWaker;
use crate::transport::released::Released;
use crate::transport::stream::StreamDataPlane;
use crate::transport::worker::{SharedWorker, Worker};

/// Keys that a peer can have.
const PLACES: usize = held::of_message(ControlKind::Endpoint).count();
/// How long a link waits for the greeting of a peer that may send none, having other lanes.
const GREETING: Duration = Duration::from_millis(1000);

/// Tells a link's waiter of completions.
struct NotifyLink(Arc<LinkWaker>);

impl hmc_hw::ucx::Notify for NotifyLink {
    fn notify(&self) {
        self.0.notify();
    }
}

impl SharedWorker for UcxWorker {
    fn claim(&self) {
        Self::claim(self);
    }

    fn release(&self) {
        Self::release(self);
    }

    fn can_sleep(&self) -> bool {
        Self::can_sleep(self)
    }

    fn must_poll(&self) -> bool {
        Self::must_poll(self)
    }

    fn resume(&self) {
        Self::resume(self);
    }
}

#[derive(Debug)]
pub(crate) struct UcxDataPlane {
    /// Registrations of what is exposed to the peer, by the window's place. Before `stream`, which holds the regions.
    exposed: Vec<Option<Arc<Memory>>>,
    ucx: Option<UcxTransport>,
    /// Where the peer's messages come in.
    door: Arc<AmTarget>,
    stream: StreamDataPlane,
    domain: Arc<UcxDomain>,
    /// The worker of this link.
    seat: Arc<UcxWorker>,
    /// The same, as a waiter uses it.
    worker: Worker,
    released: Released,
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

impl UcxDataPlane {
    pub(crate) fn new(
        stream: StreamDataPlane,
        domain: Arc<UcxDomain>,
        serial: u32,
        near: bool,
        driver: &Arc<Driver>,
    ) -> Result<Self> {
        let waker = LinkWaker::new(serial, Arc::clone(driver))?;
        let seat = domain.worker(serial, near)?;
        let shared: Arc<dyn SharedWorker> = Arc::<UcxWorker>::clone(&seat);
        Ok(Self {
            exposed: Vec::new(),
            ucx: None,
            door: seat.worker().new_am_target(Box::new(NotifyLink(Arc::clone(&waker))))?,
            stream,
            domain,
            worker: Worker { shared, waker },
            seat,
            released: Released::default(),
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
        let shares = ucx.shares_memory() || !ucx.uses_am() && self.domain.shares_memory();
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

    /// Whether bytes go as messages both ways, so that each end judges what comes.
    pub(crate) fn is_soft(&self) -> bool {
        self.ucx.as_ref().is_some_and(UcxTransport::uses_am) && self.door.peer_uses_am()
    }

    /// Why its endpoint is of no use any more: what the peer did, or that status.
    fn why(&self, status: Status) -> DataCloseReason {
        match self.door.violation() {
            Some(violation) => DataCloseReason::Protocol(violation.what()),
            None => DataCloseReason::Failed(i32::from(status.0)),
        }
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

impl Transport for UcxDataPlane {
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
            match self.domain.memory_of(region) {
                Ok(memory) => ucx.add_local(work.local.key, memory),
                Err(e) => {
                    self.domain.host().report(Event::NotRegistered(&e));
                    self.refusal = Some(e.into());
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
                self.close(self.why(status));
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
