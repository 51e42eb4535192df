//! The short way: a put that is over when its call returns, without an operation.
//!
//! Lanes of shared memory copy inside the call, and the flush after it has nothing to wait for. Whether lanes do so is learned
//! from the last put that was posted: where it ended later, this is not tried. Should it turn out otherwise, the same bytes are
//! put once more on the long way, whose flush passes after both: UCX owns what this put began, and nobody waits for it.
//! Gets have no such flush behind them, so they have no short way.

use hmc_core::region::{LocalSlice, RemoteSlice};
use hmc_core::slots::OpId;
use hmc_core::work::{CompleteWhen, Failure, Opcode, WorkRequest};

use super::state::{Flight, Flush, State};
use super::{FIRST_FLUSH, UcxTransport};
use crate::ucx::endpoint::told;
use crate::ucx::result::Answer;
use crate::ucx::sys;
use crate::ucx::worker::Crank;

/// An operation that is none of the lane's: its completion is counted as stale and changes nothing.
const NOBODY: OpId = OpId { index: u16::MAX, generation: 0 };

impl UcxTransport {
    /// Puts here and now: when it answers `Some(Ok)`, the target can read the bytes and nothing is under way. `None` when the
    /// put must be posted; its bytes may have been copied already, which a second copy of the same bytes does not change.
    #[inline]
    pub fn put_now(
        &mut self,
        local: LocalSlice,
        remote: RemoteSlice,
    ) -> Option<Result<u64, Failure>> {
        let state = &mut self.state;
        if !state.prompt || state.down {
            return None;
        }
        let crank = self.worker.try_crank()?;
        state.put_now(&crank, local, remote)
    }
}

impl State {
    #[inline]
    fn put_now(
        &mut self,
        crank: &Crank<'_>,
        local: LocalSlice,
        remote: RemoteSlice,
    ) -> Option<Result<u64, Failure>> {
        let endpoint = self.endpoint.as_ref()?.handle();
        // Memory that is not known yet is registered on the long way.
        let (here, len, memory) = self.here(local).ok()?;
        let (there, key) = match self.there(Opcode::Put, remote) {
            Ok(there) => there,
            Err(why) => return Some(Err(why)),
        };
        let record = *self.free.last()?;
        let mut param = told(&self.board, u32::from(record));
        param.op_attr_mask |= sys::UCP_OP_ATTR_FIELD_MEMORY_TYPE;
        param.memory_type = sys::UCS_MEMORY_TYPE_HOST;
        if self.names_memory {
            param.op_attr_mask |= sys::UCP_OP_ATTR_FIELD_MEMH;
            param.memh = memory;
        }
        // SAFETY: the range was proven against registered memory, which `locals` holds; the caller keeps others away from it.
        // The crank is held.
        let answer =
            unsafe { (crank.api().ucp_put_nbx)(endpoint, here.cast(), len, there, key, &param) };
        match Answer::of(answer) {
            Ok(Answer::Done) => {}
            Ok(Answer::Request(_)) => {
                self.disown(record, local, remote);
                return None;
            }
            // It says what is wrong where it matters: on the long way.
            Err(_) => {
                self.prompt = false;
                return None;
            }
        }
        let at = self.groups.iter().position(|g| !g.flying)?;
        let flush = FIRST_FLUSH.saturating_add(u16::try_from(at).unwrap_or(0));
        let param = told(&self.board, u32::from(flush));
        // SAFETY: the crank is held, the endpoint lives.
        let answer = unsafe { (crank.api().ucp_ep_flush_nbx)(endpoint, &param) };
        match Answer::of(answer) {
            Ok(Answer::Done) => {
                let bytes = local.span.len();
                self.bytes = self.bytes.saturating_add(bytes);
                Some(Ok(bytes))
            }
            Ok(Answer::Request(_)) => {
                // It has no members: nobody waits for it.
                if let Some(group) = self.groups.get_mut(at) {
                    group.flying = true;
                }
                self.prompt = false;
                None
            }
            Err(_) => {
                self.prompt = false;
                None
            }
        }
    }

    /// The put did not end inside its call: it keeps its record, and what it uses, until it does.
    #[cold]
    fn disown(&mut self, record: u16, local: LocalSlice, remote: RemoteSlice) {
        self.prompt = false;
        self.free.pop();
        let work = WorkRequest {
            op: NOBODY,
            opcode: Opcode::Put,
            when: CompleteWhen::Visible,
            local,
            remote,
        };
        let window = usize::from(remote.window.index());
        if let Some(Some(place)) = self.remotes.get_mut(window) {
            place.users = place.users.saturating_add(1);
        }
        if let Some(place) = self.flights.get_mut(usize::from(record)) {
            *place = Some(Flight { work, flush: Flush::Needless, returned: false, failure: None });
        }
    }
}
