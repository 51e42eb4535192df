//! Puts and gets to one peer: the core's border over UCP.
//!
//! A put is done when its bytes can be read at the target, and UCP says so by a flush. One flush serves all puts before
//! it: [`UcxTransport::poll`] begins one for what was posted since the last, at most four under way. Requests are owned
//! by their records until UCX gives them back; nothing here withdraws one that runs.
//!
//! Where a lane of shared memory maps the peer's memory, bytes are copied without UCX (`mapped`). Where no lane reaches memory by itself, the same operations go as messages ([`super::soft`]).
//!
//! Calls need the worker's crank. Who finds it taken leaves the work in a queue, and whoever polls next posts it.

mod ends;
mod mapped;
mod state;
mod trips;

use std::collections::VecDeque;
use std::sync::Arc;

use hmc_core::kinds::Caps;
use hmc_core::region::{RegionKey, RemoteRegion, WindowId};
use hmc_core::slots::OpId;
use hmc_core::transport::{CancelOutcome, ErrorKind, Transport};
use hmc_core::work::{Completion, Opcode, WorkRequest};

use super::card::Card;
use super::context::Failed;
use super::endpoint::Endpoint;
use super::library::Version;
use super::memory::Memory;
use super::result::Status;
use super::soft::{self, Door};
use super::worker::{Crank, Worker};
use state::{Group, Local, Remote, State};
use trips::Trips;

/// Requests that may be under way to one peer, with those that wait for the crank.
pub const MAX_REQUESTS: usize = 256;
/// Flushes under way at a time: more would only be behind each other.
const FLUSHES: usize = 4;
/// Messages of the software path under way at a time.
const SENDS: u16 = 8;
/// Records: one for each request, for each flush, for the endpoint's close, for the first put, and for each message.
pub(super) const RECORDS: u32 = 256 + 4 + 2 + 8;
const FIRST_FLUSH: u16 = 256;
const CLOSE: u16 = FIRST_FLUSH + 4;
const GREETING: u16 = CLOSE + 1;
const FIRST_SEND: u16 = GREETING + 1;
const _: () = assert!(MAX_REQUESTS == 256 && FLUSHES == 4 && SENDS == 8);

/// The release whose requests name the registration of their memory.
const NAMES_MEMORY: Version = Version { major: 1, minor: 13, release: 0 };

/// Transports between processes of one host, by the beginnings of their names.
const LOCAL: [&str; 6] = ["posix", "sysv", "xpmem", "cma", "knem", "self"];

/// Moves bytes to and from the windows of one peer over UCX.
#[derive(Debug)]
pub struct UcxTransport {
    worker: Arc<Worker>,
    state: State,
    lanes: Vec<String>,
    /// UCX had something to do since the last question.
    stirred: bool,
}

/// What the requests of a transport that is gone still use.
#[derive(Debug)]
pub(super) struct Orphan {
    state: State,
}

impl Orphan {
    /// Whether all requests have come back.
    pub(super) fn is_over(&mut self, crank: &Crank<'_>) -> bool {
        self.state.collect(crank);
        self.state.part(crank);
        self.state.done.clear();
        let over = self.state.is_quiet();
        if over {
            self.state.forget_keys(crank);
        }
        over
    }
}

impl UcxTransport {
    /// The way to the worker of that card ([`Worker::card`]), whose messages come in by `door`.
    ///
    /// With `sends_tags` the owner sends the tags of puts whose bytes are there, which [`UcxTransport::take_notice`] hands
    /// out, and completes those operations itself. Without it a put with a tag is refused.
    ///
    /// The card comes from the peer, and UCX does not check what is in it: take it from an authenticated channel only.
    ///
    /// # Errors
    /// [`Failed`]: `UNREACHABLE` when the two ends have no device in common.
    pub fn new(
        worker: &Arc<Worker>,
        door: &Arc<Door>,
        card: &[u8],
        sends_tags: bool,
    ) -> Result<Self, Failed> {
        let card = Card::read(card).ok_or_else(|| Failed {
            call: "reading a worker's card",
            status: Status::INVALID_PARAM,
            what: format!("{} bytes", card.len()),
        })?;
        let ours = worker.porch()?;
        let board = Arc::clone(&door.board);
        let crank = worker.crank();
        let endpoint = Endpoint::new(&crank, &card, &board)?;
        let lanes = endpoint.lanes(&crank);
        let trips = soft::is_wanted(&lanes).then(|| Trips::new(card.door));
        let porch = endpoint.unpack(&crank, card.key);
        let group = || Group { members: Vec::with_capacity(MAX_REQUESTS), flying: false };
        let state = State {
            board,
            door: Arc::clone(door),
            trips,
            endpoint: Some(endpoint),
            porch: None,
            greeting: false,
            names_memory: worker.context().library().version() >= NAMES_MEMORY,
            locals: Vec::new(),
            remotes: Vec::new(),
            queue: VecDeque::with_capacity(MAX_REQUESTS),
            flights: vec![None; MAX_REQUESTS].into(),
            free: (0..FIRST_FLUSH).rev().collect(),
            unflushed: Vec::with_capacity(MAX_REQUESTS),
            groups: [group(), group(), group(), group()],
            flying: 0,
            done: VecDeque::with_capacity(MAX_REQUESTS),
            notices: VecDeque::with_capacity(MAX_REQUESTS),
            sends_tags,
            greeted: false,
            wired: false,
            down: false,
            bytes: 0,
            begun: true,
        };
        // From here on `Drop`, which takes the crank, closes the endpoint.
        let worker = Arc::clone(worker);
        let mut transport = Self { worker, state, lanes, stirred: false };
        let state = &mut transport.state;
        let greeted = porch.map(|key| {
            if state.trips.is_some() {
                key.destroy(&crank);
                state.greet_softly(&crank);
            } else {
                // Where the two ends differ in what they can do, the peer may send messages.
                state.tell_way(card.door);
                state.greet(&crank, ours, card.porch, key);
            }
        });
        drop(crank);
        greeted.map(|()| transport)
    }

    /// The transports of its lanes (`tcp`, `rc_mlx5`); none when UCX does not tell.
    #[must_use]
    pub fn lanes(&self) -> &[String] {
        &self.lanes
    }

    /// Whether its operations go as messages, which the target judges.
    #[must_use]
    pub fn is_soft(&self) -> bool {
        self.state.trips.is_some()
    }

    /// The worker that serves it.
    #[must_use]
    pub fn worker(&self) -> &Arc<Worker> {
        &self.worker
    }

    /// Makes memory of this process known under its key. Allocates when a new index appears.
    pub fn learn_local(&mut self, key: RegionKey, memory: Arc<Memory>) {
        put_at(&mut self.state.locals, key.index, Local { key, memory });
    }

    /// Whether the memory of that key is known.
    #[must_use]
    pub fn knows_local(&self, key: RegionKey) -> bool {
        self.state.local(key).is_some()
    }

    /// Lets go of memory that nothing uses any more, by the judgement of `keep`. What is under way is not looked at:
    /// call it when nothing is.
    pub fn sweep_locals(&mut self, mut keep: impl FnMut(RegionKey) -> bool) {
        if !self.state.is_quiet() {
            return;
        }
        for place in &mut self.state.locals {
            if place.as_ref().is_some_and(|l| !keep(l.key)) {
                *place = None;
            }
        }
    }

    /// The peer described a window: where it begins in its address space, and the key to it.
    ///
    /// # Errors
    /// [`Failed`]: the key cannot be used here.
    pub fn learn_remote(
        &mut self,
        region: RemoteRegion,
        base: u64,
        key: &[u8],
    ) -> Result<(), Failed> {
        let crank = self.worker.crank();
        let Some(endpoint) = &self.state.endpoint else { return Ok(()) };
        let at = usize::from(region.window.index());
        if self.state.remotes.get(at).and_then(Option::as_ref).is_some_and(|r| r.users != 0) {
            return Err(Failed {
                call: "reading a memory key",
                status: Status::BUSY,
                what: format!("window {at} is in use under another key"),
            });
        }
        let key = endpoint.unpack(&crank, key)?;
        let mapped = mapped::mapped(&crank, &key, base);
        let remote = Remote { region, base, key, mapped, leaving: false, users: 0 };
        if let Some(old) = put_at(&mut self.state.remotes, region.window.index(), remote) {
            // Its owner gave the place to another window, so the fence of the old one has passed.
            old.key.destroy(&crank);
        }
        Ok(())
    }

    /// The peer takes a window back. Returns whether nothing of ours uses it any more; if not, ask
    /// [`UcxTransport::has_left`] after some progress.
    pub fn leave_remote(&mut self, window: WindowId) -> bool {
        let place = self.state.remotes.get_mut(usize::from(window.index()));
        if let Some(remote) = place.and_then(Option::as_mut).filter(|r| r.region.window == window) {
            remote.leaving = true;
        }
        self.has_left(window)
    }

    /// Whether no operation uses that window any more.
    #[must_use]
    pub fn has_left(&self, window: WindowId) -> bool {
        let waits = self.state.queue.iter().any(|w| w.remote.window == window);
        !waits && self.state.remote(window).is_none_or(|r| r.users == 0)
    }

    /// Why the endpoint failed, if it did: bring it down then.
    #[must_use]
    pub fn failure(&self) -> Option<Status> {
        self.state.board.failure()
    }

    /// Bytes of payload that operations of this end have moved.
    #[must_use]
    pub fn bytes_moved(&self) -> u64 {
        self.state.bytes
    }

    /// Whether some work waits for the crank, or for a flush.
    #[must_use]
    pub fn has_work(&self) -> bool {
        let state = &self.state;
        let sends = state.trips.as_ref().is_some_and(Trips::can_send);
        !state.queue.is_empty() || state.can_flush() || sends || state.board.has_news()
    }

    /// A put whose bytes are there and whose tag is to be sent now.
    pub fn take_notice(&mut self) -> Option<WorkRequest> {
        self.state.notices.pop_front()
    }

    /// Whether both ends know each other: before that nothing moves, and with UCX 1.13 a peer that goes may take this
    /// process along.
    #[must_use]
    pub fn is_wired(&self) -> bool {
        self.state.wired
    }

    /// Whether the endpoint was closed, and UCX has nothing of it any more.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.state.endpoint.is_none() && self.state.is_quiet()
    }

    /// Whether no operation is under way and nothing of its memory is in use. A message that UCX still has is a copy.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        let all_back = self.state.free.len() == MAX_REQUESTS;
        all_back && (self.is_soft() || !self.state.is_flushing())
    }

    /// Whether all lanes are between processes of one host: what a process that has ended left there has come once the
    /// worker finds nothing more.
    #[must_use]
    pub fn is_local(&self) -> bool {
        let local = |lane: &String| LOCAL.iter().any(|name| lane.starts_with(name));
        !self.lanes.is_empty() && self.lanes.iter().all(local)
    }

    /// Moves on what is under way, without taking completions: posts what waited for the crank, begins a flush, lets UCX
    /// work. Nothing of it when another thread has the crank: it will ring.
    #[inline]
    pub fn advance(&mut self) {
        let state = &mut self.state;
        let Some(crank) = self.worker.try_crank() else { return };
        while let Some(work) = state.queue.pop_front() {
            state.launch(&crank, &work);
        }
        state.flush(&crank);
        state.pump(&crank);
        if !state.is_quiet() || !state.wired {
            self.stirred |= crank.progress();
            state.collect(&crank);
        }
        state.part(&crank);
    }

    /// Whether UCX had something to do in a call of [`UcxTransport::advance`] since the last question.
    pub fn take_stirred(&mut self) -> bool {
        std::mem::take(&mut self.stirred)
    }

    /// Whether something was begun with UCX since the last question: it tells a sleeper of nothing that was begun after he
    /// asked to be told.
    pub fn take_begun(&mut self) -> bool {
        std::mem::take(&mut self.state.begun)
    }

    /// Whether what was posted can wait for the next turn, and share a message with what comes until then. A first one is
    /// on its way already.
    #[must_use]
    pub fn can_wait(&self) -> bool {
        let state = &self.state;
        let ended = !state.done.is_empty() || !state.notices.is_empty();
        self.is_soft() && !ended && !state.board.has_news()
    }

    /// The peer is gone: closes the endpoint without a word, as soon as that can be done. What runs ends as `PeerDead` when UCX gives its request back,
    /// which [`UcxTransport::is_idle`] tells; until then its memory may still be read and written.
    pub fn bring_down(&mut self) {
        let crank = self.worker.crank();
        self.state.bring_down(&crank);
    }
}

/// Puts a value at an index, making room; gives back what was there.
fn put_at<T>(places: &mut Vec<Option<T>>, index: u16, value: T) -> Option<T> {
    let at = usize::from(index);
    if at >= places.len() {
        places.resize_with(at.saturating_add(1), || None);
    }
    places.get_mut(at).and_then(|place| place.replace(value))
}

impl Transport for UcxTransport {
    type Error = ErrorKind;

    fn caps(&self) -> Caps {
        Caps::PUT | Caps::GET
    }

    #[inline]
    fn post(&mut self, work: &WorkRequest) -> Result<(), ErrorKind> {
        let state = &mut self.state;
        if state.down {
            return Err(ErrorKind::Disconnected);
        }
        if matches!(work.opcode, Opcode::PutNotify { .. }) && !state.sends_tags {
            return Err(ErrorKind::Unsupported);
        }
        // Room for what has ended.
        let waiting = state.done.len().saturating_add(state.notices.len());
        if waiting.saturating_add(state.queue.len()) >= state.free.len() {
            return Err(ErrorKind::Busy);
        }
        if state.queue.is_empty()
            && let Some(moved) = state.copy_mapped(work.opcode, work.local, work.remote)
        {
            match moved {
                Ok(_) => state.arrived(work),
                Err(why) => state.finish(work.op, Err(why)),
            }
            return Ok(());
        }
        if state.local(work.local.key).is_none() {
            return Err(ErrorKind::UnknownRegion);
        }
        match self.worker.try_crank() {
            Some(crank) if state.queue.is_empty() => state.launch(&crank, work),
            _ => state.queue.push_back(*work),
        }
        Ok(())
    }

    #[inline]
    fn poll(&mut self, out: &mut [Completion]) -> usize {
        if !self.state.is_resting() {
            self.advance();
        }
        let mut n: usize = 0;
        for place in out {
            let Some(c) = self.state.done.pop_front() else { break };
            *place = c;
            n = n.saturating_add(1);
        }
        n
    }

    fn cancel(&mut self, op: OpId) -> CancelOutcome {
        let state = &mut self.state;
        state.queue.retain(|w| w.op != op);
        let ended = state.done.iter().any(|c| c.op == op);
        let ended = ended || state.notices.iter().any(|w| w.op == op);
        let runs = state.flights.iter().flatten().any(|f| f.work.op == op);
        if runs || ended { CancelOutcome::Running } else { CancelOutcome::Withdrawn }
    }
}

impl Drop for UcxTransport {
    fn drop(&mut self) {
        let crank = self.worker.crank();
        self.state.bring_down(&crank);
        if self.state.is_quiet() {
            self.state.forget_keys(&crank);
            return;
        }
        // What is under way keeps what it uses.
        let fresh = State {
            board: Arc::clone(&self.state.board),
            door: Arc::clone(&self.state.door),
            trips: None,
            endpoint: None,
            porch: None,
            greeting: false,
            names_memory: false,
            locals: Vec::new(),
            remotes: Vec::new(),
            queue: VecDeque::new(),
            flights: Box::default(),
            free: Vec::new(),
            unflushed: Vec::new(),
            groups: Default::default(),
            flying: 0,
            done: VecDeque::new(),
            notices: VecDeque::new(),
            sends_tags: false,
            greeted: true,
            wired: false,
            down: true,
            bytes: 0,
            begun: false,
        };
        let state = std::mem::replace(&mut self.state, fresh);
        drop(crank);
        self.worker.adopt(Orphan { state });
    }
}
