//! The data half of a link: the core's work queue over a port, and what its operations hold.

mod ended;
mod now;
pub(crate) mod pieces;
pub(crate) mod unasked;

use std::collections::VecDeque;
use std::sync::Arc;

use hmc_core::queue::{QueueError, Transfer, WorkQueue};
use hmc_core::region::{Epoch, WindowDesc, WindowId};
use hmc_core::slots::{Slot, SlotId, Stale};
use hmc_core::time::{Duration, Instant};
use hmc_core::transport::PostErrorKind;
use hmc_core::window::WindowState;
use hmc_core::wire::advert::{RegionAdvert, WindowBacking, WindowRole};
use hmc_core::wire::held;
use hmc_core::wire::message::ControlKind;
use hmc_core::work::{Failure, Opcode};

use hmc_hw::ucx::memory::Memory;
use hmc_mem::slot::SlotWord;

use super::aftermath::{Aftermath, Hold};
use crate::driver::{Registered, Wanted};
use crate::memory::{Region, Span};
use crate::transport::Port;
use crate::transport::regions::RegionCache;
use crate::transport::stream::Down;
use crate::wakers::Notice;
use unasked::Unasked;

/// A window that this end exposed or knows, by the user's label.
#[derive(Clone, Copy, Debug)]
struct Named {
    label: u64,
    region: WindowDesc,
}

/// How long after the end of one connection of a process its other ends take to show.
const SHOWN_WITHIN: Duration = Duration::from_millis(20);

/// Gives the word of an operation that is over and freed to the slot's next one.
fn retire(word: &SlotWord, op: SlotId) {
    let _ = word.finish(op.generation, false);
    let _ = word.retire(op.generation);
}

pub(crate) struct DataState {
    queue: WorkQueue<Port, Box<[Slot]>>,
    holds: Box<[Hold]>,
    unasked: Unasked,
    /// One word an operation, shared with those who wait: they look at it without the lock.
    words: Arc<[SlotWord]>,
    feeding: VecDeque<SlotId>,
    attached: bool,
    /// Whether it was complete at the last look.
    complete: bool,
    opened: bool,
    attended: bool,
    wants_default: bool,
    default: Option<WindowDesc>,
    default_mappable: bool,
    named: Vec<Named>,
    registered: Registered,
    puts: u64,
    gets: u64,
}

impl DataState {
    /// `attached` says whether the port is the final one; `wants_default` whether a link is only
    /// ready when the peer told its default window.
    pub(crate) fn new(port: Port, slots: usize, attached: bool, wants_default: bool) -> Self {
        Self {
            queue: WorkQueue::new(port, vec![Slot::FREE; slots].into_boxed_slice()),
            holds: std::iter::repeat_with(Hold::default).take(slots).collect(),
            unasked: Unasked::default(),
            words: std::iter::repeat_with(SlotWord::new).take(slots).collect(),
            feeding: VecDeque::with_capacity(slots),
            attached,
            complete: false,
            opened: false,
            attended: false,
            wants_default,
            default: None,
            default_mappable: false,
            named: Vec::new(),
            registered: Registered::default(),
            puts: 0,
            gets: 0,
        }
    }

    pub(crate) fn port(&mut self) -> &mut Port {
        self.queue.transport_mut()
    }

    /// To look at. What is posted goes through [`DataState::post`] and its kin, with what it holds.
    pub(crate) fn queue(&self) -> &WorkQueue<Port, Box<[Slot]>> {
        &self.queue
    }

    /// Withdraws an operation.
    pub(crate) fn cancel(&mut self, op: SlotId) -> Result<(), Stale> {
        self.queue.cancel(op).or_else(|stale| self.test(op).map(drop).map_err(|_| stale))
    }

    pub(crate) fn words(&self) -> Arc<[SlotWord]> {
        Arc::clone(&self.words)
    }

    fn arm(&self, op: SlotId) {
        if let Some(word) = self.words.get(usize::from(op.index)) {
            let armed = word.arm(op.generation);
            debug_assert!(armed, "the word of the slot's last operation was retired");
        }
    }

    pub(crate) fn set_port(&mut self, port: Port) {
        *self.queue.transport_mut() = port;
        self.attached = true;
    }

    pub(crate) fn is_attended(&self) -> bool {
        self.attended
    }

    pub(crate) fn attend(&mut self, on: bool) {
        self.attended = on;
    }

    /// Whether the stream stopped reading because the inbox was full.
    pub(crate) fn is_paused(&mut self) -> bool {
        self.port().stream().is_some_and(|s| s.is_paused())
    }

    pub(crate) fn registration(&mut self, wanted: Wanted) -> Option<&mut Registered> {
        self.registered.differs(wanted).then_some(&mut self.registered)
    }

    /// Whether what was missing has come since the last call.
    pub(crate) fn take_opened(&mut self) -> bool {
        std::mem::take(&mut self.opened)
    }

    /// Whether operations can be posted with full effect.
    pub(crate) fn is_complete(&self) -> bool {
        if !self.attached {
            return false;
        }
        let Some(default) = &self.default else {
            return !self.wants_default;
        };
        match self.queue.transport() {
            Port::Shm(p) if self.default_mappable => {
                p.is_ready() && p.is_settled(default.window, default.epoch)
            }
            Port::Shm(p) => p.is_ready(),
            Port::Ucx(p) => p.is_ready(),
            Port::Loopback(_) | Port::Tcp(_) | Port::None => true,
        }
    }

    pub(crate) fn default_remote(&self) -> Option<WindowDesc> {
        self.default
    }

    /// The peer described one of its windows.
    pub(crate) fn learn_remote(&mut self, advert: &RegionAdvert) {
        match advert.role {
            WindowRole::Default => {
                self.default = Some(advert.region);
                self.default_mappable = matches!(advert.backing, WindowBacking::Memfd { .. });
            }
            WindowRole::Named(label) => {
                self.named.retain(|n| n.label != label);
                if self.named.len() < held::of_message(ControlKind::Advert).count() {
                    self.named.push(Named { label, region: advert.region });
                }
            }
        }
    }

    /// The peer's window of that label.
    pub(crate) fn named_remote(&self, label: u64) -> Option<WindowDesc> {
        self.named.iter().find(|n| n.label == label).map(|n| n.region)
    }

    /// The peer takes a window back. Whether nothing of ours uses it.
    pub(crate) fn forget_remote(&mut self, window: WindowId, epoch: Epoch) -> bool {
        let is_it = |r: &WindowDesc| r.window == window && r.epoch == epoch;
        self.named.retain(|n| !is_it(&n.region));
        if self.default.as_ref().is_some_and(is_it) {
            self.default = None;
        }
        self.port().forget_remote(window, epoch)
    }

    /// Bytes of our memory that the peer may touch or may still touch.
    pub(crate) fn exposed_bytes(&mut self) -> (u64, u64) {
        let mut exposed: u64 = 0;
        let mut held: u64 = 0;
        if let Some(w) = self.port().windows() {
            for e in w.in_use() {
                let len = e.local().span.len();
                match e.state() {
                    WindowState::Quarantined => held = held.saturating_add(len),
                    WindowState::Free | WindowState::Exposed | WindowState::Revoking => {
                        exposed = exposed.saturating_add(len);
                    }
                }
            }
        }
        (exposed, held)
    }

    /// Makes a region known to the port.
    pub(crate) fn learn(&mut self, region: &Region) {
        if let Some(regions) = self.port().regions() {
            regions.learn(region);
        }
    }

    /// Posts one transfer that holds `hold` until its fence.
    pub(crate) fn post(
        &mut self,
        t: &Transfer,
        deadline: Instant,
        hold: Hold,
    ) -> Result<SlotId, (QueueError<PostErrorKind>, Hold)> {
        if let Some(region) = &hold.region {
            self.learn(region);
        }
        let posted = self.with_room(|queue| queue.post(t, deadline));
        match posted {
            Ok(op) => {
                self.arm(op);
                if let Some(place) = self.holds.get_mut(usize::from(op.index)) {
                    *place = hold;
                }
                Ok(op)
            }
            Err(e) => Err((e, hold)),
        }
    }

    /// Counts an operation that was begun. Under the lock, so no atomic is needed.
    #[inline]
    pub(crate) fn count(&mut self, code: Opcode) {
        let counter = if code == Opcode::Get { &mut self.gets } else { &mut self.puts };
        *counter = counter.saturating_add(1);
    }

    /// Gives an operation that was just posted its span to hold.
    pub(crate) fn keep_span(&mut self, op: SlotId, span: Option<Span>) {
        if let Some(hold) = self.holds.get_mut(usize::from(op.index)) {
            hold.span = span;
        }
    }

    /// Posts a list of transfers as one operation.
    pub(crate) fn post_list(
        &mut self,
        list: &Arc<[Transfer]>,
        deadline: Instant,
        hold: Hold,
    ) -> Result<SlotId, (QueueError<PostErrorKind>, Hold)> {
        if let Some(region) = &hold.region {
            self.learn(region);
        }
        let parts = u32::try_from(list.len()).unwrap_or(u32::MAX);
        let begun = self.with_room(|queue| queue.begin_batch(parts, deadline));
        match begun {
            Ok(op) => {
                self.arm(op);
                if let Some(place) = self.holds.get_mut(usize::from(op.index)) {
                    *place = Hold { list: Some(Arc::clone(list)), ..hold };
                }
                self.feeding.push_back(op);
                self.feed();
                Ok(op)
            }
            Err(e) => Err((e, hold)),
        }
    }

    /// Hands the rest of batches to the transport, as far as it takes them.
    fn feed(&mut self) {
        while let Some(op) = self.feeding.front().copied() {
            let Some(hold) = self.holds.get_mut(usize::from(op.index)) else {
                return;
            };
            let Some(list) = &hold.list else {
                self.feeding.pop_front();
                continue;
            };
            let rest = list.get(hold.fed..).unwrap_or_default();
            match self.queue.feed(op, rest) {
                Ok(0) if !rest.is_empty() => {
                    // Completions may make room at once (copies by this thread).
                    if self.queue.progress() == 0 {
                        return;
                    }
                }
                Ok(n) if n < rest.len() => hold.fed = hold.fed.saturating_add(n),
                // All handed over, or the batch has failed: its slot knows.
                Ok(_) | Err(_) => {
                    self.feeding.pop_front();
                }
            }
        }
    }

    /// Whether what was just posted needs no progress now, and gains by waiting for the next turn.
    pub(crate) fn can_wait(&mut self) -> bool {
        self.feeding.is_empty() && matches!(self.port(), Port::Ucx(port) if port.can_wait())
    }

    /// Progress without receiving: copies, sends, completions.
    pub(crate) fn pump(&mut self, after: &mut Aftermath) {
        self.queue.progress();
        if !self.feeding.is_empty() {
            self.feed();
            self.queue.progress();
        }
        if !self.complete && self.is_complete() {
            self.complete = true;
            self.opened = true;
        }
        self.drain(after);
    }

    /// Receives, executes, makes progress. Returns whether anything happened.
    pub(crate) fn turn(&mut self, now: Instant, after: &mut Aftermath) -> bool {
        let attended = self.attended;
        let busy = self.port().service(attended);
        after.came |= busy;
        if now >= self.queue.next_deadline() {
            self.queue.expire(now);
        }
        self.pump(after);
        if let Some(s) = self.port().stream() {
            after.delivered |= s.take_delivered();
        }
        // Copies of our own end without anything received.
        busy || after.finished
    }

    /// Beats through shared memory, if the port can; says whether the peer did.
    pub(crate) fn beat(&mut self) -> Option<bool> {
        match self.port() {
            Port::Shm(p) => p.beat(),
            Port::Loopback(_) | Port::Tcp(_) | Port::Ucx(_) | Port::None => None,
        }
    }

    /// Whether the peer's process has left a mark of its end in memory that is shared.
    pub(crate) fn is_marked(&self) -> bool {
        match self.queue.transport() {
            Port::Shm(p) => p.is_marked(),
            Port::Loopback(_) | Port::Tcp(_) | Port::Ucx(_) | Port::None => false,
        }
    }

    /// Forgets regions that nobody else uses any more. What is given back is to be dropped without a lock.
    #[must_use]
    pub(crate) fn sweep(&mut self) -> (Vec<Region>, Vec<Arc<Memory>>) {
        let regions = self.port().regions().map(RegionCache::sweep).unwrap_or_default();
        let memories = match self.port() {
            Port::Ucx(p) => p.sweep(),
            Port::Loopback(_) | Port::Shm(_) | Port::Tcp(_) | Port::None => Vec::new(),
        };
        (regions, memories)
    }

    pub(crate) fn expire(&mut self, now: Instant, after: &mut Aftermath) {
        if now >= self.queue.next_deadline() {
            self.queue.expire(now);
            self.pump(after);
        }
    }

    /// Takes note of the operations that have ended, until [`Aftermath::is_full`].
    pub(super) fn drain(&mut self, after: &mut Aftermath) {
        while let Some(event) = self.queue.next_event() {
            let outcome = self.queue.outcome(event.op).ok().flatten();
            let waits = outcome.is_some();
            after.peer_dead |= outcome.is_some_and(|o| o.result == Err(Failure::PeerDead));
            if let Some(word) = self.words.get(usize::from(event.op.index)) {
                let ok = outcome.is_some_and(|o| o.result.is_ok());
                if event.done {
                    let _ = word.finish(event.op.generation, ok);
                    after.finished = true;
                }
                if event.fenced.is_some() && !waits {
                    // Nobody will take it: the slot is free with this event.
                    retire(word, event.op);
                }
            }
            let Some(hold) = self.holds.get_mut(usize::from(event.op.index)) else {
                continue;
            };
            if event.fenced.is_some() {
                // The span waits for whoever takes the outcome; the rest goes now.
                let mut freed = std::mem::take(hold);
                if waits {
                    hold.span = freed.span.take();
                }
                after.keep(freed);
            } else if event.done {
                let waker = hold.waker.take();
                after.keep(Hold { waker, ..Hold::default() });
            }
            if after.is_full() {
                return;
            }
        }
    }

    /// Registers who is to be woken when the operation ends. Gives back a waker to drop.
    pub(crate) fn set_waker(&mut self, op: SlotId, waker: Notice) -> Option<Notice> {
        let hold = self.holds.get_mut(usize::from(op.index))?;
        hold.waker.replace(waker)
    }

    /// Takes off who was to be woken when the operation ends, if it still runs.
    pub(crate) fn take_waker(&mut self, op: SlotId) -> Option<Notice> {
        self.queue.test(op).ok()?;
        self.holds.get_mut(usize::from(op.index))?.waker.take()
    }

    /// The link is over: everything ends. Copies that the peer does itself, in our address space, may still run: their
    /// memory stays held. After `eof` on the control connection its process has ended, as a rule, and shows that soon.
    pub(crate) fn die(&mut self, eof: bool, after: &mut Aftermath) {
        let why = if eof { Down::Eof } else { Down::Silent };
        if eof
            && self.queue.in_flight() != 0
            && let Some(s) = self.port().stream()
        {
            let _ = s.life().ends_within(SHOWN_WITHIN);
        }
        self.port().bring_down(why);
        self.feeding.clear();
        while self.queue.progress() > 0 {}
        let fenced = self.is_harmless();
        self.queue.fail_all(Failure::PeerDead, fenced);
        self.drain(after);
    }

    /// Nothing of a link that is over is in the peer's reach any more.
    pub(super) fn fenced(&mut self, after: &mut Aftermath) {
        self.queue.fail_all(Failure::PeerDead, true);
        self.drain(after);
    }

    /// What operations hold that have not passed their fence, and what is exposed, by size and reason.
    pub(super) fn unfenced_bytes(&mut self, each: &mut dyn FnMut(u64, &'static str)) {
        let reason = match self.queue.transport() {
            Port::Ucx(_) => "UCX has not ended an operation of this memory",
            _ => "the peer may be copying from or into this memory by itself",
        };
        for hold in &self.holds {
            if let Some(region) = &hold.region {
                each(region.len(), reason);
            }
        }
        if matches!(self.port(), Port::Ucx(_)) {
            let (exposed, _) = self.exposed_bytes();
            if exposed != 0 {
                each(exposed, "the peer's UCX may be reading or writing this memory");
            }
        }
    }

    /// Whether the peer cannot be in the middle of a copy in our address space.
    pub(crate) fn is_harmless(&mut self) -> bool {
        self.port().is_harmless()
    }

    /// Whether nothing of ours is in the reach of the peer of a link that is over.
    pub(crate) fn is_out_of_reach(&mut self) -> bool {
        self.port().is_out_of_reach()
    }

    /// Whether there is something to do that no socket will tell of.
    pub(crate) fn has_work(&mut self) -> bool {
        self.port().interest().work
    }
}
