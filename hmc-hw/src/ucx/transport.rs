//! Puts and gets to one peer: the core's border over UCP.
//!
//! A put is done when its bytes can be read at the target, and UCP says so by a flush. One flush serves all puts before
//! it: [`UcxTransport::poll`] begins one for what was posted since the last, at most four under way. Requests are owned
//! by their records until UCX gives them back; nothing here withdraws one that runs.
//!
//! Where a lane of shared memory maps the peer's memory, bytes are copied without UCX (`peer/direct`). Memory that no
//! lane reaches by itself is reached over the AM path ([`super::am`]).
//!
//! Calls are made under the worker's progress lock. If it is taken, a posted request is queued, and the next poll submits it
//! to UCX.

use std::sync::Arc;

use hmc_core::kinds::Caps;
use hmc_core::lane::Transfer;
use hmc_core::region::{LocalSlice, RegionKey, RemoteRegion, RemoteSlice, WindowId};
use hmc_core::slots::OpId;
use hmc_core::transport::{CancelOutcome, ErrorKind, Transport};
use hmc_core::work::{Completion, Opcode, WorkRequest};

use super::am::{AmTarget, Reach};
use super::conn_info::ConnInfo;
use super::context::UcxError;
use super::endpoint::Endpoint;
use super::library::Version;
use super::memory::Memory;
use super::peer::am_initiator::AmInitiator;
use super::peer::mapped;
use super::peer::memory_table::{LocalEntry, MemoryTable, RemoteEntry};
use super::peer::orphan::Orphan;
use super::peer::requests::RequestTable;
use super::peer::state::PeerState;
use super::process::Process;
pub use super::records::MAX_REQUESTS;
use super::result::Status;
use super::worker::{Worker, WorkerGuard};

/// The release whose requests name the registration of their memory.
const NAMES_MEMORY: Version = Version { major: 1, minor: 13, release: 0 };

/// Transports between processes of one host, by the beginnings of their names.
const LOCAL: [&str; 6] = ["posix", "sysv", "xpmem", "cma", "knem", "self"];

#[expect(clippy::ptr_arg, reason = "what iterators over names give")]
fn is_local(lane: &String) -> bool {
    LOCAL.iter().any(|name| lane.starts_with(name))
}

/// Moves bytes to and from the windows of one peer over UCX.
#[derive(Debug)]
pub struct UcxTransport {
    worker: Arc<Worker>,
    state: PeerState,
    lanes: Vec<String>,
    /// The peer's process, as its connection info says.
    peer: Process,
    /// UCX had something to do since the last question.
    stirred: bool,
}

impl UcxTransport {
    /// Opens an endpoint to the worker of that connection info ([`Worker::conn_info`]). `target` receives the peer's
    /// messages.
    ///
    /// With `sends_tags` the owner sends the tags of puts whose bytes are there, which [`UcxTransport::take_notify`] hands
    /// out, and completes those operations itself. Without it a put with a tag is refused.
    ///
    /// UCX does not check connection info, which comes from the peer: take it from an authenticated channel only.
    ///
    /// # Errors
    /// [`UcxError`]: `UNREACHABLE` when the two ends have no device in common.
    pub fn new(
        worker: &Arc<Worker>,
        target: &Arc<AmTarget>,
        info: &[u8],
        sends_tags: bool,
    ) -> Result<Self, UcxError> {
        let info = ConnInfo::read(info).ok_or_else(|| UcxError {
            call: "reading a worker's connection info",
            status: Status::INVALID_PARAM,
            what: format!("{} bytes", info.len()),
        })?;
        let ours = worker.wireup_page()?;
        let queue = Arc::clone(&target.queue);
        let guard = worker.lock();
        let endpoint = Endpoint::new(&guard, &info, &queue)?;
        let lanes = endpoint.lanes(&guard);
        let reach = Reach::of(&lanes);
        let am = (reach != Reach::Memory).then(|| AmInitiator::new(info.target));
        let wireup_key = endpoint.unpack(&guard, info.key);
        let state = PeerState {
            queue,
            target: Arc::clone(target),
            am,
            reach,
            endpoint: Some(endpoint),
            wireup_key: None,
            wireup_in_flight: false,
            names_memory: worker.context().library().version() >= NAMES_MEMORY,
            memory: MemoryTable::default(),
            requests: RequestTable::new(),
            sends_tags,
            first_flush_begun: false,
            is_wired_up: false,
            down: false,
            posted_since_arm: true,
        };
        // From here on `Drop`, which takes the progress lock, closes the endpoint.
        let worker = Arc::clone(worker);
        let mut transport = Self { worker, state, lanes, peer: info.owner, stirred: false };
        let state = &mut transport.state;
        let sent = wireup_key.map(|key| {
            if reach == Reach::Messages {
                key.destroy(&guard);
                state.send_am_wireup(&guard);
            } else {
                // Where the two ends differ in what they can do, the peer may send messages.
                state.set_reply_path(info.target);
                state.send_wireup(&guard, ours, info.wireup_page, key);
            }
        });
        drop(guard);
        sent.map(|()| transport)
    }

    /// The transports of its lanes (`tcp`, `rc_mlx5`); none when UCX does not tell.
    #[must_use]
    pub fn lanes(&self) -> &[String] {
        &self.lanes
    }

    /// Whether all its operations go as messages, which the target judges.
    #[must_use]
    pub fn is_soft(&self) -> bool {
        self.state.reach == Reach::Messages
    }

    /// Whether operations may go as messages, which the peer answers by a way of its own.
    #[must_use]
    pub fn sends_messages(&self) -> bool {
        self.state.am.is_some()
    }

    /// Whether the peer, if it is a process of this host, reaches our memory by itself, as far as the lanes tell: those of
    /// both ends are the same.
    #[must_use]
    pub fn shares_memory(&self) -> bool {
        !self.is_soft() && (self.lanes.is_empty() || self.lanes.iter().any(is_local))
    }

    /// The number of the peer's process, as it says itself; `None` where numbers of that process mean nothing here.
    #[must_use]
    pub fn peer_number(&self) -> Option<u32> {
        self.peer.is_known().then_some(self.peer.number)
    }

    /// The worker that serves it.
    #[must_use]
    pub fn worker(&self) -> &Arc<Worker> {
        &self.worker
    }

    /// Makes memory of this process known under its key. Allocates when a new index appears.
    pub fn learn_local(&mut self, key: RegionKey, memory: Arc<Memory>) {
        put_at(&mut self.state.memory.locals, key.index, LocalEntry::new(key, memory));
    }

    /// Whether the memory of that key is known.
    #[must_use]
    pub fn knows_local(&self, key: RegionKey) -> bool {
        self.state.memory.local(key).is_some()
    }

    /// Lets go of memory that nothing uses any more, by the judgement of `keep`: none while an operation is under way.
    /// A message that UCX still has is a copy.
    #[must_use]
    pub fn sweep_locals(&mut self, mut keep: impl FnMut(RegionKey) -> bool) -> Vec<Arc<Memory>> {
        let mut swept = Vec::new();
        if !self.state.uses_memory() {
            for place in &mut self.state.memory.locals {
                if place.as_ref().is_some_and(|l| !keep(l.key)) {
                    swept.extend(place.take().map(|local| local.memory));
                }
            }
        }
        swept
    }

    /// The peer described a window: where it begins in its address space, and the key to it.
    ///
    /// # Errors
    /// [`UcxError`]: the key cannot be used here.
    pub fn learn_remote(
        &mut self,
        region: RemoteRegion,
        base: u64,
        key: &[u8],
    ) -> Result<(), UcxError> {
        let guard = self.worker.lock();
        let Some(endpoint) = &self.state.endpoint else { return Ok(()) };
        let at = usize::from(region.window.index());
        let old = self.state.memory.remotes.get(at).and_then(Option::as_ref);
        // Messages name the window and use no key. Their target fences a window at once, and may expose another at its index
        // before it has answered those that are under way.
        let uses_keys = self.state.am.is_none();
        if uses_keys && old.is_some_and(|r| self.state.uses_window(r.region.window)) {
            return Err(UcxError {
                call: "reading a memory key",
                status: Status::BUSY,
                what: format!("window {at} is in use under another key"),
            });
        }
        let key = endpoint.unpack(&guard, key)?;
        let mapped = mapped::mapped(&guard, &key, base);
        let remote = RemoteEntry { region, base, key, mapped, leaving: false };
        if let Some(old) = put_at(&mut self.state.memory.remotes, region.window.index(), remote) {
            // Its owner gave the place to another window, so the fence of the old one has passed.
            old.key.destroy(&guard);
        }
        Ok(())
    }

    /// The peer takes a window back. Returns whether nothing of ours uses it any more; if not, ask
    /// [`UcxTransport::has_left`] after some progress.
    pub fn leave_remote(&mut self, window: WindowId) -> bool {
        let place = self.state.memory.remotes.get_mut(usize::from(window.index()));
        if let Some(remote) = place.and_then(Option::as_mut).filter(|r| r.region.window == window) {
            remote.leaving = true;
        }
        self.has_left(window)
    }

    /// Whether no operation uses that window any more.
    #[must_use]
    pub fn has_left(&self, window: WindowId) -> bool {
        !self.state.uses_window(window)
    }

    /// Why the endpoint failed, if it did: bring it down then.
    #[must_use]
    pub fn failure(&self) -> Option<Status> {
        self.state.queue.failure()
    }

    /// Bytes of payload that operations of this end have moved.
    #[must_use]
    pub fn bytes_moved(&self) -> u64 {
        self.state.requests.bytes()
    }

    /// Whether some work waits for the progress lock, or for a flush.
    #[must_use]
    pub fn has_work(&self) -> bool {
        let state = &self.state;
        let sends = state.am.as_ref().is_some_and(AmInitiator::can_send);
        state.requests.has_queued() || state.can_flush() || sends || state.queue.has_completions()
    }

    /// A put whose bytes are there and whose tag is to be sent now.
    pub fn take_notify(&mut self) -> Option<WorkRequest> {
        self.state.requests.take_notify()
    }

    /// Returns `true` if the path is open in both directions. Before that nothing moves, and with UCX 1.13 the exit of
    /// the peer may end this process.
    #[must_use]
    pub fn is_wired_up(&self) -> bool {
        self.state.is_wired_up
    }

    /// Returns `true` if the endpoint is closed and UCX has completed all of its requests.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.state.endpoint.is_none() && self.state.is_idle()
    }

    /// Whether no operation is under way and nothing of its memory is in use. A message that UCX still has is a copy.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        let all_back = self.state.requests.len() == 0;
        all_back && (self.is_soft() || !self.state.is_flushing())
    }

    /// Whether all lanes are between processes of one host: what a process that has ended left there has come once the
    /// worker finds nothing more.
    #[must_use]
    pub fn is_local(&self) -> bool {
        !self.lanes.is_empty() && self.lanes.iter().all(is_local)
    }

    /// Moves on what is under way, without taking completions: submits queued requests, begins a flush, lets UCX work.
    /// Does nothing if another thread holds the progress lock: that thread notifies this one.
    #[inline]
    pub fn advance(&mut self) {
        let state = &mut self.state;
        let Some(guard) = self.worker.try_lock() else { return };
        state.submit_queued(&guard);
        state.flush(&guard);
        state.progress_am(&guard);
        let plain = state.reach != Reach::Messages && state.is_wired_up && !state.down;
        if if plain { state.has_requests() } else { !state.is_idle() || !state.is_wired_up } {
            self.stirred |= guard.progress_for(&state.queue);
            state.drain_completions(&guard);
        }
        state.close_endpoint(&guard);
    }

    /// Whether UCX had something to do in a call of [`UcxTransport::advance`] since the last question.
    pub fn take_stirred(&mut self) -> bool {
        std::mem::take(&mut self.stirred)
    }

    /// Whether something was begun with UCX since the last question: it tells a sleeper of nothing that was begun after he
    /// asked to be told.
    pub fn take_begun(&mut self) -> bool {
        std::mem::take(&mut self.state.posted_since_arm)
    }

    /// Whether what was posted can wait for the next poll, and share a message with what comes until then. A first one is
    /// on its way already.
    #[must_use]
    pub fn can_wait(&self) -> bool {
        let state = &self.state;
        let ended = state.requests.has_any_done();
        self.is_soft() && !ended && !state.queue.has_completions()
    }

    /// The peer is gone: closes the endpoint without a word, as soon as that can be done. What runs ends as `PeerDead`
    /// when UCX gives its request back, which [`UcxTransport::is_idle`] tells; until then its memory may still be read
    /// and written.
    pub fn bring_down(&mut self) {
        let guard = self.worker.lock();
        self.state.end(&guard);
    }
}

impl PeerState {
    /// Closes the endpoint and ends what has ended by that.
    fn end(&mut self, guard: &WorkerGuard<'_>) {
        self.bring_down(guard);
        guard.progress();
        self.drain_completions(guard);
    }
}

impl UcxTransport {
    /// Puts or gets here and now, where the window is mapped: when it answers `true`, the transfer is over, and a put is
    /// visible to the peer. `false` when it must be posted, be it to fail.
    #[inline]
    pub fn transfer_now(&mut self, opcode: Opcode, local: LocalSlice, remote: RemoteSlice) -> bool {
        let silent = !self.state.down && !matches!(opcode, Opcode::PutNotify { .. });
        let done = silent && self.state.copy_mapped(opcode, local, remote);
        if done {
            self.state.requests.count_bytes(local.span.len());
        }
        done
    }

    /// As [`UcxTransport::transfer_now`], for all transfers of a list. `false` when it must be posted, all of it: some may
    /// have been done, and are done again.
    pub fn transfer_list_now(&mut self, list: &[Transfer]) -> bool {
        self.state.copy_list_mapped(list)
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
        if !state.requests.has_queued()
            && state.requests.has_room()
            && state.copy_mapped(work.opcode, work.local, work.remote)
        {
            state.requests.insert_done(work, Ok(work.local.span.len()));
            return Ok(());
        }
        if !state.requests.insert(work) {
            return Err(ErrorKind::Busy);
        }
        if state.am.is_some()
            && let Some(guard) = self.worker.try_lock()
        {
            // The first goes at once; those after it may wait for company.
            state.submit_queued(&guard);
        }
        Ok(())
    }

    #[inline]
    fn poll(&mut self, out: &mut [Completion]) -> usize {
        if self.state.needs_progress() {
            self.advance();
        }
        self.state.requests.take_done(out)
    }

    fn cancel(&mut self, op: OpId) -> CancelOutcome {
        let state = &mut self.state;
        state.requests.cancel_queued(op);
        let ended = state.requests.has_done(op);
        let runs = state.requests.iter().any(|f| f.work.op == op);
        if runs || ended { CancelOutcome::Running } else { CancelOutcome::Withdrawn }
    }
}

impl Drop for UcxTransport {
    fn drop(&mut self) {
        let guard = self.worker.lock();
        self.state.end(&guard);
        if self.state.is_idle() {
            self.state.destroy_keys(&guard);
            return;
        }
        // What is under way keeps what it uses. The rest is dropped with this, and not under the progress lock.
        let used = self.state.uses_memory();
        let memory = &mut self.state.memory;
        let locals = if used { Vec::new() } else { std::mem::take(&mut memory.locals) };
        let fresh = PeerState {
            queue: Arc::clone(&self.state.queue),
            target: Arc::clone(&self.state.target),
            am: None,
            reach: self.state.reach,
            endpoint: None,
            wireup_key: None,
            wireup_in_flight: false,
            names_memory: false,
            memory: MemoryTable { locals, remotes: Vec::new() },
            requests: RequestTable::none(),
            sends_tags: false,
            first_flush_begun: true,
            is_wired_up: false,
            down: true,
            posted_since_arm: false,
        };
        let state = std::mem::replace(&mut self.state, fresh);
        drop(guard);
        self.worker.keep_orphan(Orphan { state });
    }
}
