//! An active message to a peer, with a copy of its bytes.

use hmc_core::range::ByteRange;
use hmc_core::wire::data::DataFrame;
use hmc_mem::shared::SharedBytes;

use super::header::{AM_ID, HEADER_BYTES, header};
use super::path::AmPath;
use crate::ucx::result::{NbxResult, Status};
use crate::ucx::sys;
use crate::ucx::ucp_worker::LockedWorker;

/// Payload of one message. With its headers it fits a segment that a TCP lane sends (`settings`) and receives
/// (`UCX_TCP_RX_SEG_SIZE`), 64 KiB.
pub(in crate::ucx) const FRAGMENT: u64 = 60 << 10;

/// Bytes of a message that small puts share.
const COALESCE_BYTES: usize = 8 << 10;

/// A message that may be in flight. It owns all its bytes, so that an operation can complete and a window can be closed
/// while UCX still has the message.
#[derive(Debug)]
pub(in crate::ucx) struct AmMessage {
    header: Box<[u8; HEADER_BYTES]>,
    bytes: Vec<u8>,
    busy: bool,
}

impl AmMessage {
    pub(in crate::ucx) fn new() -> Self {
        Self { header: Box::new([0; HEADER_BYTES]), bytes: Vec::new(), busy: false }
    }

    /// Returns `true` if UCX has the message.
    pub(in crate::ucx) fn is_busy(&self) -> bool {
        self.busy
    }

    /// Called when UCX has completed the send.
    pub(in crate::ucx) fn completed(&mut self) {
        self.busy = false;
    }

    /// Replaces the payload by the bytes of `span`. Not while the message is busy.
    pub(in crate::ucx) fn load(&mut self, from: &SharedBytes<'_>, span: ByteRange) -> Option<()> {
        let len = usize::try_from(span.len()).ok()?;
        self.bytes.resize(len, 0);
        from.read_at(span, &mut self.bytes).ok()
    }

    /// Appends a frame. Not while the message is busy.
    pub(in crate::ucx) fn add(&mut self, frame: &DataFrame) {
        self.bytes.extend_from_slice(&frame.emit());
    }

    /// Returns `true` if one more frame with that many bytes is to be appended: together they are one segment of TCP,
    /// even one of UCX's own default length (`UCX_TCP_TX_SEG_SIZE`, 8 KiB).
    pub(in crate::ucx) fn can_append(&self, more: u64) -> bool {
        let used = self.bytes.len().saturating_add(2 * HEADER_BYTES);
        usize::try_from(more).is_ok_and(|more| used.saturating_add(more) <= COALESCE_BYTES)
    }

    /// Appends a frame with all bytes of a view. Not while the message is busy.
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

    /// Removes the payload.
    pub(in crate::ucx) fn clear(&mut self) {
        self.bytes.clear();
    }

    /// Sends the message. `param` has the completion callback. If the result is a request, the caller calls
    /// [`AmMessage::completed`] when it completes.
    pub(in crate::ucx) fn send(
        &mut self,
        guard: &LockedWorker<'_>,
        path: AmPath,
        frame: &DataFrame,
        mut param: sys::ucp_request_param_t,
    ) -> Result<NbxResult, Status> {
        *self.header = header(path.target, frame);
        param.op_attr_mask |= sys::UCP_OP_ATTR_FIELD_FLAGS | sys::UCP_OP_ATTR_FIELD_MEMORY_TYPE;
        // Without rendezvous, which would have the peer read from here by UCX's own means.
        param.flags = sys::UCP_AM_SEND_FLAG_EAGER;
        param.memory_type = sys::UCS_MEMORY_TYPE_HOST;
        // SAFETY: the progress lock is held and the endpoint lives. Both ranges lie on the heap and stay as they are
        // until the send has completed: code that changes them checks `busy` first.
        let result = unsafe {
            (guard.api().ucp_am_send_nbx)(
                path.endpoint,
                AM_ID,
                self.header.as_ptr().cast(),
                HEADER_BYTES,
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

#[cfg(test)]
mod tests {
    use hmc_core::range::{Extent, Side};
    use hmc_core::wire::data::{DATA_FRAME_BYTES, DataFrame, DataKind};
    use hmc_mem::shared::SharedBytes;

    use super::AmMessage;

    /// The segment also has the header of the message, and that of the next put.
    #[test]
    fn small_puts_share_a_message_up_to_a_segment_of_tcp() {
        let mut message = AmMessage::new();
        let space = 8 * 1024 - 2 * 64;
        assert!(message.can_append(space) && !message.can_append(space + 1));
        message.add(&DataFrame::new(DataKind::Ack, 1));
        let space = space - u64::try_from(DATA_FRAME_BYTES).unwrap();
        assert!(message.can_append(space) && !message.can_append(space + 1));
        assert!(!message.can_append(u64::MAX));
        message.clear();
        assert!(message.bytes.is_empty() && !message.is_busy());
    }

    #[test]
    fn a_message_has_copies_of_bytes_and_of_frames_in_order() {
        let mut own = *b"some bytes";
        let view = SharedBytes::of_mut(&mut own);
        let span = |at, len| Extent::new(20).span(Side::Local, at, len).unwrap();
        let mut message = AmMessage::new();
        assert_eq!(message.load(&view, span(0, 10)), Some(()));
        assert_eq!(message.load(&view, span(5, 5)), Some(()), "instead of those before");
        assert_eq!(message.bytes, b"bytes");
        let frame = DataFrame::new(DataKind::Write, 7);
        message.add(&frame);
        assert_eq!(message.add_with(&frame, &view), Some(()));
        let emitted = frame.emit();
        let all = [&b"bytes"[..], &emitted, &emitted, b"some bytes"].concat();
        assert_eq!(message.bytes, all);
        assert_eq!(message.load(&view, span(5, 6)), None, "it is shorter");
    }
}
