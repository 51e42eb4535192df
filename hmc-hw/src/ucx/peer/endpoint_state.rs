//! Wireup and close of the endpoint to a peer.

use hmc_core::range::Extent;
use hmc_core::work::Failure;

use super::state::PeerState;
use crate::ucx::am::{AmPath, Reach};
use crate::ucx::endpoint::{Key, params_with_callback};
use crate::ucx::memory::Memory;
use crate::ucx::records::{CLOSE, WIREUP};
use crate::ucx::result::NbxResult;
use crate::ucx::sys;
use crate::ucx::ucp_worker::LockedWorker;

impl PeerState {
    /// Sets the path of replies to the peer's messages.
    pub(in crate::ucx) fn set_reply_path(&self, target: u64) {
        if let Some(endpoint) = &self.endpoint {
            self.target.set_reply_path(AmPath { endpoint: endpoint.handle(), target });
        }
    }

    /// Puts a word into the peer's wireup page. The flush after it shows that the path is open. Without any operation
    /// UCX would not open it, and UCX 1.13 ends the process if its peer exits meanwhile.
    pub(in crate::ucx) fn send_wireup(
        &mut self,
        guard: &LockedWorker<'_>,
        ours: &Memory,
        theirs: u64,
        key: Key,
    ) {
        let Some(endpoint) = &self.endpoint else { return };
        let mut param = params_with_callback(&self.queue, u32::from(WIREUP));
        param.op_attr_mask |= sys::UCP_OP_ATTR_FIELD_MEMORY_TYPE;
        param.memory_type = sys::UCS_MEMORY_TYPE_HOST;
        let word = Extent::new(16).whole().split_at_most(8).1.pointer(ours.start().as_ptr());
        // SAFETY: the second word of our own wireup page, which the worker owns and no code writes; the progress lock
        // is held.
        let result = unsafe {
            (guard.api().ucp_put_nbx)(
                endpoint.handle(),
                word.cast(),
                8,
                theirs,
                key.handle(),
                &param,
            )
        };
        self.wireup_key = Some(key);
        match NbxResult::of(result) {
            Ok(NbxResult::Done) => {}
            Ok(NbxResult::Request(_)) => self.wireup_in_flight = true,
            Err(status) => self.queue.fail(status),
        }
    }

    /// Closes the endpoint of a peer that is gone, by force. Not while messages to the peer are in flight and the
    /// endpoint has not failed: if the path is cut, UCX then uses memory that it has freed
    /// (`uct_tcp_iface_handle_events`, 1.13.1 and 1.22.0). The kernel may report much later that the peer is gone;
    /// requests in flight own what they use.
    #[inline]
    pub(in crate::ucx) fn close_endpoint(&mut self, guard: &LockedWorker<'_>) {
        if !self.down {
            return;
        }
        let sends = self.am.as_ref().is_some_and(|t| !t.is_idle() || !self.target.is_idle());
        if sends && self.reach == Reach::Messages && self.queue.failure().is_none() {
            return;
        }
        if let Some(endpoint) = self.endpoint.take() {
            endpoint.close(guard, &self.queue, u32::from(CLOSE));
        }
        self.end_lost_flushes(guard);
    }

    pub(in crate::ucx) fn close(&mut self, guard: &LockedWorker<'_>) {
        self.down = true;
        self.fail_queued();
        self.fail_am_ops();
        self.close_endpoint(guard);
        // No flush will be begun for these puts.
        let mut unflushed = self.requests.take_unflushed();
        while let Some(record) = self.requests.pop(&mut unflushed) {
            self.release(record, Failure::PeerDead);
        }
    }
}
