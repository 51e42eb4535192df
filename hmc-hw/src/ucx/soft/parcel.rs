//! A message on its way to a peer, with a copy of its bytes.

use hmc_core::span::Span;
use hmc_core::wire::data::DataFrame;
use hmc_mem::shared::SharedBytes;

use super::head::{HEAD_BYTES, MESSAGE, head};
use super::way::Way;
use crate::ucx::result::{NbxResult, Status};
use crate::ucx::sys;
use crate::ucx::ucp_worker::LockedWorker;

/// Payload of one message. With its heads it fits a segment that a TCP lane sends (`settings`) and receives
/// (`UCX_TCP_RX_SEG_SIZE`), 64 KiB.
pub(in crate::ucx) const PIECE: u64 = 60 << 10;

/// Bytes of a message in which small puts share.
const TOGETHER: usize = 8 << 10;

/// A message that may be under way, with all its bytes: nothing of a caller's is used once it is sent, so that an
/// operation can end, and a window be closed, while UCX still has it.
#[derive(Debug)]
pub(in crate::ucx) struct Parcel {
    head: Box<[u8; HEAD_BYTES]>,
    bytes: Vec<u8>,
    busy: bool,
}

impl Parcel {
    pub(in crate::ucx) fn new() -> Self {
        Self { head: Box::new([0; HEAD_BYTES]), bytes: Vec::new(), busy: false }
    }

    /// Whether UCX has it.
    pub(in crate::ucx) fn is_busy(&self) -> bool {
        self.busy
    }

    /// UCX gave it back.
    pub(in crate::ucx) fn returned(&mut self) {
        self.busy = false;
    }

    /// Puts the bytes of `span` in, instead of what is in it. Not while it is busy.
    pub(in crate::ucx) fn load(&mut self, from: &SharedBytes<'_>, span: Span) -> Option<()> {
        let len = usize::try_from(span.len()).ok()?;
        self.bytes.resize(len, 0);
        from.read_at(span, &mut self.bytes).ok()
    }

    /// Puts a frame behind those that are in it. Not while it is busy.
    pub(in crate::ucx) fn add(&mut self, frame: &DataFrame) {
        self.bytes.extend_from_slice(&frame.emit());
    }

    /// Whether one more frame with that many bytes belongs in: together they are one segment of TCP, even one of the length
    /// that UCX gives it by itself (`UCX_TCP_TX_SEG_SIZE`, 8 KiB).
    pub(in crate::ucx) fn has_room(&self, more: u64) -> bool {
        let used = self.bytes.len().saturating_add(2 * HEAD_BYTES);
        usize::try_from(more).is_ok_and(|more| used.saturating_add(more) <= TOGETHER)
    }

    /// Puts a frame with all bytes of a view behind what is in it. Not while it is busy.
    pub(in crate::ucx) fn add_with(
        &mut self,
        frame: &DataFrame,
        from: &SharedBytes<'_>,
    ) -> Option<()> {
        let whole = from.extent().whole();
        let len = usize::try_from(whole.len()).ok()?;
        let before = self.bytes.len();
        self.add(frame);
        let start = self.bytes.len();
        self.bytes.resize(start.saturating_add(len), 0);
        let read = self.bytes.get_mut(start..).map(|to| from.read_at(whole, to));
        if !matches!(read, Some(Ok(()))) {
            self.bytes.truncate(before);
            return None;
        }
        Some(())
    }

    /// Takes everything out.
    pub(in crate::ucx) fn clear(&mut self) {
        self.bytes.clear();
    }

    /// Sends it to the door of that number. `param` says whom to tell of its end, which [`Parcel::returned`] must be told
    /// of when the answer is a request.
    pub(in crate::ucx) fn send(
        &mut self,
        guard: &LockedWorker<'_>,
        way: Way,
        frame: &DataFrame,
        mut param: sys::ucp_request_param_t,
    ) -> Result<NbxResult, Status> {
        *self.head = head(way.door, frame);
        param.op_attr_mask |= sys::UCP_OP_ATTR_FIELD_FLAGS | sys::UCP_OP_ATTR_FIELD_MEMORY_TYPE;
        // Without rendezvous, which would have the peer read from here by UCX's own means.
        param.flags = sys::UCP_AM_SEND_FLAG_EAGER;
        param.memory_type = sys::UCS_MEMORY_TYPE_HOST;
        // SAFETY: the progress lock is held and the endpoint lives. Both ranges lie on the heap and stay as they are
        // until the send has ended: whoever changes them looks at `busy` first.
        let result = unsafe {
            (guard.api().ucp_am_send_nbx)(
                way.endpoint,
                MESSAGE,
                self.head.as_ptr().cast(),
                HEAD_BYTES,
                self.bytes.as_ptr().cast(),
                self.bytes.len(),
                &param,
            )
        };
        let result = NbxResult::of(result);
        self.busy = matches!(result, Ok(NbxResult::Request(_)));
        result
    }
}
