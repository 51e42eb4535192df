//! What is under way to one peer: requests, the flushes that make puts visible, keys to the peer's windows.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use hmc_core::kinds::Access;
use hmc_core::region::{LocalSlice, RegionKey, RemoteRegion, RemoteSlice, WindowId};
use hmc_core::slots::OpId;
use hmc_core::span::{Side, Span};
use hmc_core::window::WindowFault;
use hmc_core::work::{CompleteWhen, Completion, Failure, Opcode, WorkRequest};

use super::mapped::Mapped;
use super::trips::Trips;
use super::{CLOSE, FIRST_FLUSH, FIRST_SEND, FLUSHES, GREETING, MAX_REQUESTS};
use crate::ucx::board::Board;
use crate::ucx::endpoint::{Endpoint, Key, told};
use crate::ucx::memory::Memory;
use crate::ucx::result::{Answer, Kind, Status};
use crate::ucx::soft::Door;
use crate::ucx::sys;
use crate::ucx::worker::Crank;

#[derive(Debug)]
pub(super) struct Local {
    pub(super) key: RegionKey,
    pub(super) memory: Arc<Memory>,
}

#[derive(Debug)]
pub(super) struct Remote {
    pub(super) region: RemoteRegion,
    /// Where the window begins in the peer's address space.
    pub(super) base: u64,
    pub(super) key: Key,
    /// Where it lies in this process, if a lane maps it.
    pub(super) mapped: Option<Mapped>,
    /// The peer takes it back: nothing new is posted, and the key goes with the last operation.
    pub(super) leaving: bool,
    /// Operations that use the key.
    pub(super) users: u32,
}

impl Remote {
    /// Judges an access to this window.
    #[inline]
    pub(super) fn judged(&self, opcode: Opcode, r: RemoteSlice) -> Result<Span, Failure> {
        let fault = |f| Err(Failure::Window(f));
        if self.region.epoch != r.epoch {
            return fault(WindowFault::StaleEpoch);
        }
        if self.leaving {
            return fault(WindowFault::Revoked);
        }
        let needed = if opcode == Opcode::Get { Access::READ } else { Access::WRITE };
        if !self.region.access.contains(needed) {
            return fault(WindowFault::Access);
        }
        match self.region.extent.span(Side::Remote, r.span.offset(), r.span.len()) {
            Ok(span) => Ok(span),
            Err(e) => fault(WindowFault::OutOfWindow(e)),
        }
    }
}

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flush {
    /// It needs none: a get, or the local memory is all that matters.
    Needless,
    /// None was begun yet.
    Wanted,
    /// One that covers it is under way.
    Flying,
    /// The bytes are there.
    Passed,
}

/// A request under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flight {
    pub(super) work: WorkRequest,
    pub(super) flush: Flush,
    /// UCX gave the request back.
    pub(super) returned: bool,
    pub(super) failure: Option<Failure>,
}

#[derive(Debug, Default)]
pub(super) struct Group {
    pub(super) members: Vec<u16>,
    pub(super) flying: bool,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) board: Arc<Board>,
    /// Where the peer's messages come in.
    pub(super) door: Arc<Door>,
    /// Set where operations go as messages.
    pub(super) trips: Option<Trips>,
    pub(super) endpoint: Option<Endpoint>,
    /// The key to the peer's porch.
    pub(super) porch: Option<Key>,
    /// The first put is under way.
    pub(super) greeting: bool,
    pub(super) names_memory: bool,
    pub(super) locals: Vec<Option<Local>>,
    pub(super) remotes: Vec<Option<Remote>>,
    pub(super) queue: VecDeque<WorkRequest>,
    pub(super) flights: Box<[Option<Flight>]>,
    pub(super) free: Vec<u16>,
    pub(super) unflushed: Vec<u16>,
    pub(super) groups: [Group; FLUSHES],
    /// How many of them are under way.
    pub(super) flying: usize,
    pub(super) done: VecDeque<Completion>,
    /// Tags of puts whose bytes are there, to be sent by the owner; only if it wanted them.
    pub(super) notices: VecDeque<WorkRequest>,
    pub(super) sends_tags: bool,
    /// The first flush was begun.
    pub(super) greeted: bool,
    /// A flush has passed: both ends know each other.
    pub(super) wired: bool,
    /// The peer is gone.
    pub(super) down: bool,
    pub(super) bytes: u64,
    /// Something was begun with UCX: whoever sleeps on the worker has to ask anew to be told.
    pub(super) begun: bool,
}

/// What a request needs to be told.
pub(super) struct Order {
    pub(super) here: *mut u8,
    pub(super) len: usize,
    pub(super) there: u64,
    pub(super) memory: sys::ucp_mem_h,
    pub(super) memory_type: sys::ucs_memory_type_t,
    pub(super) key: sys::ucp_rkey_h,
}

impl State {
    #[inline]
    pub(super) fn local(&self, key: RegionKey) -> Option<&Local> {
        self.locals.get(usize::from(key.index))?.as_ref().filter(|l| l.key == key)
    }

    #[inline]
    pub(super) fn remote(&self, window: WindowId) -> Option<&Remote> {
        self.remotes
            .get(usize::from(window.index()))?
            .as_ref()
            .filter(|r| r.region.window == window)
    }

    /// Whether a flush could be begun now, and puts want it.
    pub(super) fn can_flush(&self) -> bool {
        !self.unflushed.is_empty() && self.flying < FLUSHES
    }

    /// Whether a flush or the first put is under way.
    pub(super) fn is_flushing(&self) -> bool {
        self.greeting || self.flying != 0
    }

    /// Whether there is nothing that progress could end, and nothing to be told: where lanes reach memory by themselves.
    #[inline]
    pub(super) fn is_resting(&self) -> bool {
        let settled = self.wired && !self.down && self.trips.is_none();
        let all_back = self.free.len() == MAX_REQUESTS && self.queue.is_empty();
        settled && all_back && !self.is_flushing() && !self.board.has_news()
    }

    /// Whether nothing is under way, and the endpoint is either open or closed for good.
    pub(super) fn is_quiet(&self) -> bool {
        let closed = || self.endpoint.is_none() && self.board.closed.load(Ordering::Acquire);
        let sends = || self.trips.as_ref().is_some_and(|t| !t.is_quiet());
        let all_back = self.free.len() == MAX_REQUESTS && !self.is_flushing();
        all_back && (!self.down || closed()) && !sends() && self.door.is_quiet()
    }

    #[inline]
    pub(super) fn here(&self, local: LocalSlice) -> Result<(*mut u8, usize, &Memory), Failure> {
        let place = self.local(local.key).ok_or(Failure::UnknownRegion)?;
        let (offset, end) = (to_usize(local.span.offset())?, to_usize(local.span.end())?);
        if end > place.memory.len() {
            return Err(Failure::UnknownRegion);
        }
        let start = place.memory.start().as_ptr().wrapping_add(offset);
        Ok((start, end.wrapping_sub(offset), &place.memory))
    }

    /// Judges an access as the peer would, whose lanes of shared memory do not.
    #[inline]
    pub(super) fn judged(
        &self,
        opcode: Opcode,
        r: RemoteSlice,
    ) -> Result<(&Remote, Span), Failure> {
        let unknown = Failure::Window(WindowFault::Unknown);
        let remote = self.remote(r.window).ok_or(unknown)?;
        Ok((remote, remote.judged(opcode, r)?))
    }

    pub(super) fn order(&self, work: &WorkRequest) -> Result<Order, Failure> {
        let (here, len, memory) = self.here(work.local)?;
        let (remote, span) = self.judged(work.opcode, work.remote)?;
        let (there, key) = (remote.base.wrapping_add(span.offset()), remote.key.handle());
        let memory_type = memory.memory_type();
        Ok(Order { here, len, there, memory: memory.handle(), memory_type, key })
    }

    #[inline]
    pub(super) fn finish(&mut self, op: OpId, result: Result<u64, Failure>) {
        self.done.push_back(Completion { op, result });
    }

    /// Hands a request to UCX.
    pub(super) fn launch(&mut self, crank: &Crank<'_>, work: &WorkRequest) {
        let (Some(endpoint), false) = (&self.endpoint, self.down) else {
            return self.finish(work.op, Err(Failure::PeerDead));
        };
        let order = match self.order(work) {
            Ok(order) => order,
            Err(why) => return self.finish(work.op, Err(why)),
        };
        if self.trips.is_some() && order.memory_type != sys::UCS_MEMORY_TYPE_HOST {
            // A message is written and read by processors.
            return self.finish(work.op, Err(Failure::Unsupported));
        }
        if order.len == 0 && self.trips.is_some() {
            return self.arrived(work);
        }
        // There is one: no more are accepted than there are.
        let Some(record) = self.free.pop() else {
            return self.finish(work.op, Err(Failure::Transport(i32::from(Status::NO_RESOURCE.0))));
        };
        if self.trips.is_some() {
            self.enter(record, work, Flush::Needless, false);
            return self.depart(crank, record, work);
        }
        let mut param = told(&self.board, u32::from(record));
        param.op_attr_mask |= sys::UCP_OP_ATTR_FIELD_MEMORY_TYPE;
        param.memory_type = order.memory_type;
        if self.names_memory {
            param.op_attr_mask |= sys::UCP_OP_ATTR_FIELD_MEMH;
            param.memh = order.memory;
        }
        let (api, to) = (crank.api(), endpoint.handle());
        self.begun = true;
        let answer = if work.opcode == Opcode::Get {
            // SAFETY: the range was proven against registered memory, which `locals` holds until nothing is under way;
            // the caller of the operation keeps others away from it. The crank is held.
            unsafe {
                (api.ucp_get_nbx)(to, order.here.cast(), order.len, order.there, order.key, &param)
            }
        } else {
            // SAFETY: as above; the bytes are only read.
            unsafe {
                (api.ucp_put_nbx)(to, order.here.cast(), order.len, order.there, order.key, &param)
            }
        };
        let visible = match work.opcode {
            Opcode::Get => false,
            Opcode::Put => work.when == CompleteWhen::Visible,
            // The tag says that the bytes are there.
            Opcode::PutNotify { .. } => true,
        };
        let returned = match Answer::of(answer) {
            Ok(Answer::Done) => true,
            Ok(Answer::Request(_)) => false,
            Err(status) => {
                self.free.push(record);
                return self.finish(work.op, Err(failure_of(status)));
            }
        };
        if returned && !visible {
            self.free.push(record);
            return self.arrived(work);
        }
        self.enter(record, work, if visible { Flush::Wanted } else { Flush::Needless }, returned);
        if visible {
            self.unflushed.push(record);
        }
    }

    /// Notes an operation that is under way from now on.
    fn enter(&mut self, record: u16, work: &WorkRequest, flush: Flush, returned: bool) {
        let window = work.remote.window.index();
        if let Some(Some(remote)) = self.remotes.get_mut(usize::from(window)) {
            remote.users = remote.users.saturating_add(1);
        }
        if let Some(place) = self.flights.get_mut(usize::from(record)) {
            *place = Some(Flight { work: *work, flush, returned, failure: None });
        }
    }

    /// Begins a flush for all puts that want one, if one may be begun. The first one is begun without any: it passes
    /// when both ends know each other.
    pub(super) fn flush(&mut self, crank: &Crank<'_>) {
        let nothing = self.unflushed.is_empty() && self.greeted;
        if nothing || self.trips.is_some() || self.board.failure().is_some() {
            return;
        }
        let Some(endpoint) = &self.endpoint else { return };
        let Some(at) = self.groups.iter().position(|g| !g.flying) else { return };
        let number = u16::try_from(at).unwrap_or(0);
        let param = told(&self.board, u32::from(FIRST_FLUSH.saturating_add(number)));
        // SAFETY: the crank is held, the endpoint lives.
        let answer = unsafe { (crank.api().ucp_ep_flush_nbx)(endpoint.handle(), &param) };
        (self.greeted, self.begun) = (true, true);
        let Some(group) = self.groups.get_mut(at) else { return };
        std::mem::swap(&mut group.members, &mut self.unflushed);
        for member in &group.members {
            if let Some(Some(flight)) = self.flights.get_mut(usize::from(*member)) {
                flight.flush = Flush::Flying;
            }
        }
        let answer = Answer::of(answer);
        match answer {
            Ok(Answer::Request(_)) => {
                group.flying = true;
                // As many as groups at the most.
                self.flying = self.flying.saturating_add(1);
            }
            Ok(Answer::Done) => self.flushed(at, Status::OK),
            Err(status) => self.flushed(at, status),
        }
    }

    /// A flush has ended: its puts are visible, or failed.
    pub(super) fn flushed(&mut self, at: usize, status: Status) {
        if status != Status::OK && !self.down {
            return self.unflush(at, status);
        }
        self.wired |= status == Status::OK;
        let Some(group) = self.groups.get_mut(at) else { return };
        self.flying = self.flying.saturating_sub(usize::from(std::mem::take(&mut group.flying)));
        let mut members = std::mem::take(&mut group.members);
        for member in members.drain(..) {
            if let Some(Some(flight)) = self.flights.get_mut(usize::from(member)) {
                flight.flush = Flush::Passed;
                if status != Status::OK {
                    flight.failure = flight.failure.or(Some(failure_of(status)));
                }
            }
            self.settle(member);
        }
        if let Some(group) = self.groups.get_mut(at) {
            group.members = members;
        }
    }

    /// A flush has failed, and nobody can tell any more when bytes of its puts stop arriving: the endpoint is of no use,
    /// and they end when it is brought down.
    fn unflush(&mut self, at: usize, status: Status) {
        self.board.fail(status);
        let Some(group) = self.groups.get_mut(at) else { return };
        self.flying = self.flying.saturating_sub(usize::from(std::mem::take(&mut group.flying)));
        let mut members = std::mem::take(&mut group.members);
        for member in members.drain(..) {
            if let Some(Some(flight)) = self.flights.get_mut(usize::from(member)) {
                flight.flush = Flush::Wanted;
            }
            self.unflushed.push(member);
            // It may have failed by itself.
            self.settle(member);
        }
        if let Some(group) = self.groups.get_mut(at) {
            group.members = members;
        }
    }

    /// Ends a flight that waits for nothing any more.
    pub(super) fn settle(&mut self, record: u16) {
        let Some(place) = self.flights.get_mut(usize::from(record)) else { return };
        let Some(flight) = *place else { return };
        let waits = match flight.flush {
            // Its group names the record: that is not free before.
            Flush::Flying => true,
            Flush::Wanted => flight.failure.is_none(),
            Flush::Needless | Flush::Passed => false,
        };
        if !flight.returned || waits {
            return;
        }
        *place = None;
        if flight.flush == Flush::Wanted {
            self.unflushed.retain(|r| *r != record);
        }
        self.free.push(record);
        let work = flight.work;
        if let Some(Some(remote)) = self.remotes.get_mut(usize::from(work.remote.window.index())) {
            remote.users = remote.users.saturating_sub(1);
        }
        match flight.failure {
            Some(_) if self.down => self.finish(work.op, Err(Failure::PeerDead)),
            Some(why) => self.finish(work.op, Err(why)),
            None => self.arrived(&work),
        }
    }

    /// The bytes of a request are in place.
    #[inline]
    pub(super) fn arrived(&mut self, work: &WorkRequest) {
        let len = work.local.span.len();
        self.bytes = self.bytes.saturating_add(len);
        if let Opcode::PutNotify { .. } = work.opcode {
            // Its tag follows, by the owner's way.
            self.notices.push_back(*work);
            return;
        }
        self.finish(work.op, Ok(len));
    }

    /// Takes what the callbacks have left.
    pub(super) fn collect(&mut self, crank: &Crank<'_>) {
        if !self.board.has_news() {
            return;
        }
        if self.board.mail.swap(false, Ordering::AcqRel) {
            self.read_mail();
        }
        let board = Arc::clone(&self.board);
        // The crank is held: nobody marks it between this and the taking. Of a failure others have to hear, too.
        if board.failure().is_none() {
            board.unmark();
        }
        board.take(|record, status| {
            let record = u16::try_from(record).unwrap_or(CLOSE);
            if let Some(at) = record.checked_sub(FIRST_SEND) {
                self.message_returned(usize::from(at), status);
            } else if record == GREETING {
                self.greeting = false;
                if status != Status::OK {
                    self.board.fail(status);
                }
            } else if record == CLOSE {
                self.board.closed.store(true, Ordering::Release);
            } else if let Some(at) = record.checked_sub(FIRST_FLUSH) {
                self.flushed(usize::from(at), status);
            } else {
                if let Some(Some(flight)) = self.flights.get_mut(usize::from(record)) {
                    flight.returned = true;
                    if status != Status::OK {
                        flight.failure = flight.failure.or(Some(failure_of(status)));
                    }
                }
                self.settle(record);
            }
        });
        self.pump(crank);
        self.part(crank);
    }

    pub(super) fn forget_keys(&mut self, crank: &Crank<'_>) {
        let keys = self.remotes.drain(..).flatten().map(|remote| remote.key);
        for key in keys.chain(self.porch.take()) {
            key.destroy(crank);
        }
    }
}

fn to_usize(n: u64) -> Result<usize, Failure> {
    usize::try_from(n).map_err(|_| Failure::UnknownRegion)
}

/// Requests of an endpoint that fails may end before its error handler has told of it.
pub(super) fn failure_of(status: Status) -> Failure {
    match status.kind() {
        Kind::PeerLost => Failure::PeerDead,
        _ => Failure::Transport(i32::from(status.0)),
    }
}
