//! The short way: a transfer that is over when its call returns, without an operation.
//!
//! Lanes of shared memory copy inside the call, and the flush after a put has nothing to wait for. Whether lanes do so is
//! learned from the last transfer that was posted: where it ended later, this is not tried. Should it turn out otherwise,
//! what was begun becomes the operation that is posted next for the same bytes.

use hmc_core::region::{LocalSlice, RemoteSlice};
use hmc_core::slots::OpId;
use hmc_core::work::{CompleteWhen, Failure, Opcode, WorkRequest};

use super::state::{Flight, Flush, State};
use super::{FIRST_FLUSH, UcxTransport};
use crate::ucx::endpoint::told;
use crate::ucx::result::Answer;
use crate::ucx::sys;
use crate::ucx::worker::Crank;

/// An operation that is none of the lane's: if nobody takes its flight over, its completion is counted as stale.
const NOBODY: OpId = OpId { index: u16::MAX, generation: 0 };

/// What is known of this way.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Promptness {
    /// The last put that was posted, and its flush, ended inside their calls.
    pub(super) puts: bool,
    /// The last get did.
    pub(super) gets: bool,
    /// What was begun and did not end.
    begun: Option<u16>,
}

impl UcxTransport {
    /// Puts or gets here and now: when it answers `Some(Ok)`, the bytes are in place, visible to the peer, and nothing is
    /// under way. `None` when the transfer must be posted: do so, also when some of it was begun.
    #[inline]
    pub fn transfer_now(
        &mut self,
        opcode: Opcode,
        local: LocalSlice,
        remote: RemoteSlice,
    ) -> Option<Result<u64, Failure>> {
        let state = &mut self.state;
        let prompt = match opcode {
            Opcode::Put => state.prompt.puts,
            Opcode::Get => state.prompt.gets,
            Opcode::PutNotify { .. } => false,
        };
        if !prompt || state.down {
            return None;
        }
        let crank = self.worker.try_crank()?;
        state.transfer_now(&crank, opcode, local, remote)
    }
}

impl State {
    #[inline]
    fn transfer_now(
        &mut self,
        crank: &Crank<'_>,
        opcode: Opcode,
        local: LocalSlice,
        remote: RemoteSlice,
    ) -> Option<Result<u64, Failure>> {
        let endpoint = self.endpoint.as_ref()?.handle();
        // Memory that is not known yet is registered on the long way.
        let (here, len, memory) = self.here(local).ok()?;
        let (there, key) = match self.there(opcode, remote) {
            Ok(there) => there,
            Err(why) => return Some(Err(why)),
        };
        let record = *self.free.last()?;
        let group = self.groups.iter().position(|g| !g.flying)?;
        let mut param = told(&self.board, u32::from(record));
        param.op_attr_mask |= sys::UCP_OP_ATTR_FIELD_MEMORY_TYPE;
        param.memory_type = sys::UCS_MEMORY_TYPE_HOST;
        if self.names_memory {
            param.op_attr_mask |= sys::UCP_OP_ATTR_FIELD_MEMH;
            param.memh = memory;
        }
        let api = crank.api();
        let is_get = opcode == Opcode::Get;
        let answer = if is_get {
            // SAFETY: the range was proven against registered memory, which `locals` holds until nothing is under way; the
            // caller keeps others away from it. The crank is held.
            unsafe { (api.ucp_get_nbx)(endpoint, here.cast(), len, there, key, &param) }
        } else {
            // SAFETY: as above; the bytes are only read.
            unsafe { (api.ucp_put_nbx)(endpoint, here.cast(), len, there, key, &param) }
        };
        let work = WorkRequest { op: NOBODY, opcode, when: CompleteWhen::Visible, local, remote };
        match Answer::of(answer) {
            Ok(Answer::Done) => {}
            Ok(Answer::Request(_)) => {
                let flush = if is_get { Flush::Needless } else { Flush::Wanted };
                self.leave(record, Flight { work, flush, returned: false, failure: None });
                if !is_get {
                    self.unflushed.push(record);
                }
                return None;
            }
            // The long way says what is wrong.
            Err(_) => return self.give_up(),
        }
        if !is_get {
            let number = FIRST_FLUSH.saturating_add(u16::try_from(group).unwrap_or(0));
            let param = told(&self.board, u32::from(number));
            // SAFETY: the crank is held, the endpoint lives.
            let answer = unsafe { (api.ucp_ep_flush_nbx)(endpoint, &param) };
            match Answer::of(answer) {
                Ok(Answer::Done) => {}
                Ok(Answer::Request(_)) => {
                    let flush = Flush::Flying;
                    self.leave(record, Flight { work, flush, returned: true, failure: None });
                    if let Some(group) = self.groups.get_mut(group) {
                        group.flying = true;
                        group.members.push(record);
                    }
                    return None;
                }
                Err(_) => return self.give_up(),
            }
        }
        self.bytes = self.bytes.saturating_add(local.span.len());
        Some(Ok(local.span.len()))
    }

    #[cold]
    fn give_up(&mut self) -> Option<Result<u64, Failure>> {
        self.prompt = Promptness::default();
        None
    }

    /// A transfer did not end inside its call: it keeps its record, and what it uses, until it does.
    #[cold]
    fn leave(&mut self, record: u16, flight: Flight) {
        self.prompt = Promptness { begun: Some(record), ..Promptness::default() };
        self.free.pop();
        let window = usize::from(flight.work.remote.window.index());
        if let Some(Some(remote)) = self.remotes.get_mut(window) {
            remote.users = remote.users.saturating_add(1);
        }
        if let Some(place) = self.flights.get_mut(usize::from(record)) {
            *place = Some(flight);
        }
    }

    /// Makes what was begun for the same bytes the flight of an operation. Whether there was such.
    #[inline]
    pub(super) fn take_over(&mut self, work: &WorkRequest) -> bool {
        let Some(record) = self.prompt.begun.take() else { return false };
        let Some(Some(flight)) = self.flights.get_mut(usize::from(record)) else { return false };
        let begun = flight.work;
        let same = begun.op == NOBODY
            && begun.opcode == work.opcode
            && begun.local == work.local
            && begun.remote == work.remote;
        if same {
            flight.work.op = work.op;
        }
        same
    }
}
