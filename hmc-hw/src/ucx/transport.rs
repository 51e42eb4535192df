//! Puts and gets to one peer: the `Transport` of hmc-core over UCP.
//!
//! A put is complete when its bytes can be read at the target, which a flush of UCP proves. One flush covers all puts
//! before it: [`UcxTransport::poll`] begins one for the puts that were posted since the last, at most four in flight.
//! Records own their requests until UCX completes them. A request in flight is never cancelled.
//!
//! Where a lane of shared memory maps the peer's memory, bytes are copied without UCX (`peer/direct`). Memory that no
//! lane reaches by itself is reached over the AM path ([`super::am`]).
//!
//! Calls are made under the worker's progress lock. If it is taken, a posted request is queued, and the next poll
//! submits it to UCX.

use std::sync::Arc;

use hmc_core::queue::Transfer;
use hmc_core::region::{LocalSlice, RegionKey, WindowDesc, WindowId, WindowSlice};
use hmc_core::slots::SlotId;
use hmc_core::transport::{CancelOutcome, PostErrorKind, Transport};
use hmc_core::types::Caps;
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

/// The first release whose request parameters name the registration of their memory.
const NAMES_MEMORY: Version = Version { major: 1, minor: 13, release: 0 };

/// Prefixes of the names of transports between processes of one host.
const SAME_HOST: [&str; 6] = ["posix", "sysv", "xpmem", "cma", "knem", "self"];

#[expect(clippy::ptr_arg, reason = "what iterators over names give")]
fn is_same_host(lane: &String) -> bool {
    SAME_HOST.iter().any(|name| lane.starts_with(name))
}

/// Moves bytes to and from the windows of one peer over UCX.
#[derive(Debug)]
pub struct UcxTransport {
    worker: Arc<Worker>,
    state: PeerState,
    lanes: Vec<String>,
    /// The peer's process, as its connection info says.
    peer: Process,
    /// UCX has made progress since the last [`UcxTransport::take_progressed`].
    progressed: bool,
}

impl UcxTransport {
    /// Opens an endpoint to the worker of that connection info ([`Worker::conn_info`]). `target` receives the peer's
    /// messages.
    ///
    /// With `sends_tags` the owner sends the tags of finished puts, which [`UcxTransport::take_notify`] returns, and
    /// completes those operations itself. Without it a put with a tag is refused.
    ///
    /// UCX does not check connection info, which comes from the peer: take it from an authenticated channel only.
    ///
    /// # Errors
    /// [`UcxError`]: `UNREACHABLE` if the two ends have no device in common.
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
        let mut transport = Self { worker, state, lanes, peer: info.owner, progressed: false };
        let state = &mut transport.state;
        let sent = wireup_key.map(|key| {
            if reach == Reach::Messages {
                key.destroy(&guard);
                state.send_am_wireup(&guard);
            } else {
                // The peer may have other lanes, and may send messages.
                state.set_reply_path(info.target);
                state.send_wireup(&guard, ours, info.wireup_page, key);
            }
        });
        drop(guard);
        sent.map(|()| transport)
    }

    /// Returns the transports of its lanes (`tcp`, `rc_mlx5`); none if UCX does not print them.
    #[must_use]
    pub fn lanes(&self) -> &[String] {
        &self.lanes
    }

    /// Returns `true` if all operations use the AM path, on which the target validates them.
    #[must_use]
    pub fn uses_am(&self) -> bool {
        self.state.reach == Reach::Messages
    }

    /// Returns `true` if operations may use the AM path, whose replies need an endpoint of the peer.
    #[must_use]
    pub fn may_use_am(&self) -> bool {
        self.state.am.is_some()
    }

    /// Returns `true` if a peer on the same host may access memory of this process by itself. Both ends have the same
    /// lanes.
    #[must_use]
    pub fn shares_memory(&self) -> bool {
        !self.uses_am() && (self.lanes.is_empty() || self.lanes.iter().any(is_same_host))
    }

    /// Returns the pid that the peer has sent, or `None` if the peer is in another pid namespace.
    #[must_use]
    pub fn peer_pid(&self) -> Option<u32> {
        self.peer.is_known().then_some(self.peer.pid)
    }

    /// Returns its worker.
    #[must_use]
    pub fn worker(&self) -> &Arc<Worker> {
        &self.worker
    }

    /// Adds memory of this process under its key. Allocates for a new index.
    pub fn add_local(&mut self, key: RegionKey, memory: Arc<Memory>) {
        put_at(&mut self.state.memory.locals, key.index, LocalEntry::new(key, memory));
    }

    /// Returns `true` if the table has the memory of that key.
    #[must_use]
    pub fn has_local(&self, key: RegionKey) -> bool {
        self.state.memory.local(key).is_some()
    }

    /// Removes memory for which `keep` returns `false`, unless an operation is in flight. A message that UCX still has
    /// is a copy.
    #[must_use]
    pub fn evict_locals(&mut self, mut keep: impl FnMut(RegionKey) -> bool) -> Vec<Arc<Memory>> {
        let mut evicted = Vec::new();
        if !self.state.uses_memory() {
            for entry in &mut self.state.memory.locals {
                if entry.as_ref().is_some_and(|l| !keep(l.key)) {
                    evicted.extend(entry.take().map(|local| local.memory));
                }
            }
        }
        evicted
    }

    /// Adds a window that the peer has described: its address in the peer's process, and the key to it.
    ///
    /// # Errors
    /// [`UcxError`] if the key cannot be unpacked.
    pub fn add_remote(
        &mut self,
        region: WindowDesc,
        base: u64,
        key: &[u8],
    ) -> Result<(), UcxError> {
        let guard = self.worker.lock();
        let Some(endpoint) = &self.state.endpoint else { return Ok(()) };
        let at = usize::from(region.window.index());
        let old = self.state.memory.remotes.get(at).and_then(Option::as_ref);
        // Messages name the window and use no key. Their target fences a window at once, and may expose another one at
        // its index before it has replied to those in flight.
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
            // The peer exposed another window at this index, so the old one is fenced.
            old.key.destroy(&guard);
        }
        Ok(())
    }

    /// Removes a window that the peer revokes. Returns `true` if no operation uses it. Otherwise the caller makes
    /// progress and checks [`UcxTransport::is_window_unused`] again.
    pub fn remove_window(&mut self, window: WindowId) -> bool {
        let entry = self.state.memory.remotes.get_mut(usize::from(window.index()));
        if let Some(remote) = entry.and_then(Option::as_mut).filter(|r| r.region.window == window) {
            remote.leaving = true;
        }
        self.is_window_unused(window)
    }

    /// Returns `true` if no operation uses that window.
    #[must_use]
    pub fn is_window_unused(&self, window: WindowId) -> bool {
        !self.state.uses_window(window)
    }

    /// Returns the status with which the endpoint failed, if it did. The caller closes the transport then.
    #[must_use]
    pub fn failure(&self) -> Option<Status> {
        self.state.queue.failure()
    }

    /// Returns the bytes of payload that operations of this end have moved.
    #[must_use]
    pub fn bytes_moved(&self) -> u64 {
        self.state.requests.bytes()
    }

    /// Returns `true` if requests wait for the progress lock or for a flush.
    #[must_use]
    pub fn has_work(&self) -> bool {
        let state = &self.state;
        let sends = state.am.as_ref().is_some_and(AmInitiator::can_send);
        state.requests.has_queued() || state.can_flush() || sends || state.queue.has_completions()
    }

    /// Takes a finished put whose tag is to be sent now.
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

    /// Returns `true` if no operation is in flight and none of its memory is in use. A message that UCX still has is a
    /// copy.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        let all_back = self.state.requests.len() == 0;
        all_back && (self.uses_am() || !self.state.is_flushing())
    }

    /// Returns `true` if all lanes are between processes of one host: everything that a process sent before it exited
    /// has arrived once the worker finds nothing more.
    #[must_use]
    pub fn is_same_host(&self) -> bool {
        !self.lanes.is_empty() && self.lanes.iter().all(is_same_host)
    }

    /// Makes progress without taking completions: submits queued requests, begins a flush, lets UCX work.
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
            self.progressed |= guard.progress_for(&state.queue);
            state.drain_completions(&guard);
        }
        state.close_endpoint(&guard);
    }

    /// Returns `true` if a call of [`UcxTransport::advance`] has made progress since the last call of this.
    pub fn take_progressed(&mut self) -> bool {
        std::mem::take(&mut self.progressed)
    }

    /// Returns `true` if a request was submitted to UCX since the last call of this. An armed worker does not wake a
    /// thread for requests that were submitted later.
    pub fn take_posted(&mut self) -> bool {
        std::mem::take(&mut self.state.posted_since_arm)
    }

    /// Returns `true` if posted operations can wait for the next poll, so that several share a message. The first one
    /// is in flight already.
    #[must_use]
    pub fn can_coalesce(&self) -> bool {
        let state = &self.state;
        let ended = state.requests.has_any_done();
        self.uses_am() && !ended && !state.queue.has_completions()
    }

    /// Closes the endpoint by force, as soon as possible: the peer is gone. Operations in flight complete as `PeerDead`
    /// when UCX completes their requests, which [`UcxTransport::is_idle`] shows. Until then UCX may still access their
    /// memory.
    pub fn close(&mut self) {
        let guard = self.worker.lock();
        self.state.close_and_drain(&guard);
    }
}

impl PeerState {
    /// Closes the endpoint and takes the completions that this causes.
    fn close_and_drain(&mut self, guard: &WorkerGuard<'_>) {
        self.close(guard);
        guard.progress();
        self.drain_completions(guard);
    }
}

impl UcxTransport {
    /// Copies at once if the window is mapped. If it returns `true`, the transfer is complete, and a put is visible to
    /// the peer. If it returns `false`, the caller posts the transfer, even if it fails.
    #[inline]
    pub fn try_transfer(&mut self, opcode: Opcode, local: LocalSlice, remote: WindowSlice) -> bool {
        let silent = !self.state.down && !matches!(opcode, Opcode::PutNotify { .. });
        let done = silent && self.state.copy_mapped(opcode, local, remote);
        if done {
            self.state.requests.count_bytes(local.span.len());
        }
        done
    }

    /// As [`UcxTransport::try_transfer`], for all transfers of a list. If it returns `false`, the caller posts the
    /// whole list: some transfers may have been copied, and are repeated.
    pub fn try_transfer_list(&mut self, list: &[Transfer]) -> bool {
        self.state.copy_list_mapped(list)
    }
}

/// Sets the entry of an index, and returns the previous value. Grows the table if necessary.
fn put_at<T>(table: &mut Vec<Option<T>>, index: u16, value: T) -> Option<T> {
    let at = usize::from(index);
    if at >= table.len() {
        table.resize_with(at.saturating_add(1), || None);
    }
    table.get_mut(at).and_then(|entry| entry.replace(value))
}

impl Transport for UcxTransport {
    type Error = PostErrorKind;

    fn caps(&self) -> Caps {
        Caps::PUT | Caps::GET
    }

    #[inline]
    fn post(&mut self, work: &WorkRequest) -> Result<(), PostErrorKind> {
        let state = &mut self.state;
        if state.down {
            return Err(PostErrorKind::Disconnected);
        }
        if matches!(work.opcode, Opcode::PutNotify { .. }) && !state.sends_tags {
            return Err(PostErrorKind::Unsupported);
        }
        if !state.requests.has_queued()
            && state.requests.has_free_record()
            && state.copy_mapped(work.opcode, work.local, work.remote)
        {
            state.requests.insert_done(work, Ok(work.local.span.len()));
            return Ok(());
        }
        if !state.requests.insert(work) {
            return Err(PostErrorKind::Busy);
        }
        if state.am.is_some()
            && let Some(guard) = self.worker.try_lock()
        {
            // The first is sent at once; later ones may wait for others.
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

    fn cancel(&mut self, op: SlotId) -> CancelOutcome {
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
        self.state.close_and_drain(&guard);
        if self.state.is_idle() {
            self.state.destroy_keys(&guard);
            return;
        }
        // Requests in flight own what they use. The rest is dropped with this, and not under the progress lock.
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
