//! The software path: puts and gets as active messages, which the target's own code judges and executes.
//!
//! Where an endpoint has no lane that reaches memory by itself (TCP, UD), UCX makes puts and gets out of messages too,
//! but its target checks nothing, answers each piece of some kilobytes, and ends its process when an answer finds the
//! initiator gone (`ucp_rma_sw_send_cmpl` and `ucp_request_send`, rma_sw.c and ucp_request.inl, 1.13.1 and 1.22.0). Here
//! the target looks the window up as it does for our own streams, answers once for each operation, several in one
//! message, and a send that fails is a status like any other.
//!
//! Lanes of shared memory reach what they map and nothing else: what they do not map goes this way, too. UCX's own answers
//! there end the process that closes the endpoint of a killed initiator (`ucp_request_send_state_ff` of an answer that waits
//! in the initiator's full queue, 1.13.1), and its flush is lost.
//!
//! A message is the core's data frame behind the number of the receiver's [`Door`]:
//!
//! | kind | bytes that follow |
//! |---|---|
//! | `Write` | payload for `offset` of the window; `total` is the operation's. With `total` 0: a greeting. Then more such frames, each with its payload |
//! | `Read` | none |
//! | `ReadData` | payload for `offset` of the operation |
//! | `Ack`, `Nack` | more such frames |
//!
//! Pieces may come in any order: both ends count bytes. `seq` is the record of the operation at its initiator with a
//! count of its uses above it.

mod answers;
mod door;
mod hall;
mod violation;

use hmc_core::span::Span;
use hmc_core::wire::data::{DATA_FRAME_BYTES, DataFrame};
use hmc_mem::shared::SharedBytes;

pub use door::Door;
pub(super) use door::{Landing, Way, view};
pub(super) use hall::Hall;
pub use violation::Violation;

use super::result::{Answer, Status};
use super::sys;
use super::worker::Crank;

/// The number of the active message (`id` in ucp.h) of all that is sent here.
const MESSAGE: u32 = 0;
/// Bytes of a message before what follows.
const HEAD_BYTES: usize = 8 + DATA_FRAME_BYTES;
/// Payload of one message. With its heads it fits a segment that a TCP lane sends (`settings`) and receives
/// (`UCX_TCP_RX_SEG_SIZE`), 64 KiB.
pub(super) const PIECE: u64 = 60 << 10;

/// Bytes of a message in which small puts share.
const TOGETHER: usize = 8 << 10;

/// The head of a message: to which door, and what.
fn head(door: u64, frame: &DataFrame) -> [u8; HEAD_BYTES] {
    let mut bytes = [0; HEAD_BYTES];
    if let Some((number, rest)) = bytes.split_first_chunk_mut::<8>() {
        *number = door.to_le_bytes();
        rest.copy_from_slice(&frame.emit());
    }
    bytes
}

/// Reads a head; `None` when it is none.
fn read_head(bytes: &[u8]) -> Option<(u64, DataFrame)> {
    let (door, rest) = bytes.split_first_chunk::<8>()?;
    let frame = DataFrame::parse(rest.try_into().ok()?).ok()?;
    Some((u64::from_le_bytes(*door), frame))
}

/// A message that may be under way, with all its bytes: nothing of a caller's is used once it is sent, so that an
/// operation can end, and a window be closed, while UCX still has it.
#[derive(Debug)]
pub(super) struct Parcel {
    head: Box<[u8; HEAD_BYTES]>,
    bytes: Vec<u8>,
    busy: bool,
}

impl Parcel {
    pub(super) fn new() -> Self {
        Self { head: Box::new([0; HEAD_BYTES]), bytes: Vec::new(), busy: false }
    }

    /// Whether UCX has it.
    pub(super) fn is_busy(&self) -> bool {
        self.busy
    }

    /// UCX gave it back.
    pub(super) fn returned(&mut self) {
        self.busy = false;
    }

    /// Puts the bytes of `span` in, instead of what is in it. Not while it is busy.
    pub(super) fn load(&mut self, from: &SharedBytes<'_>, span: Span) -> Option<()> {
        let len = usize::try_from(span.len()).ok()?;
        self.bytes.resize(len, 0);
        from.read_at(span, &mut self.bytes).ok()
    }

    /// Puts a frame behind those that are in it. Not while it is busy.
    pub(super) fn add(&mut self, frame: &DataFrame) {
        self.bytes.extend_from_slice(&frame.emit());
    }

    /// Whether one more frame with that many bytes belongs in: together they are one segment of TCP, even one of the length
    /// that UCX gives it by itself (`UCX_TCP_TX_SEG_SIZE`, 8 KiB).
    pub(super) fn has_room(&self, more: u64) -> bool {
        let used = self.bytes.len().saturating_add(2 * HEAD_BYTES);
        usize::try_from(more).is_ok_and(|more| used.saturating_add(more) <= TOGETHER)
    }

    /// Puts a frame with all bytes of a view behind what is in it. Not while it is busy.
    pub(super) fn add_with(&mut self, frame: &DataFrame, from: &SharedBytes<'_>) -> Option<()> {
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
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
    }

    /// Sends it to the door of that number. `param` says whom to tell of its end, which [`Parcel::returned`] must be told
    /// of when the answer is a request.
    pub(super) fn send(
        &mut self,
        crank: &Crank<'_>,
        way: Way,
        frame: &DataFrame,
        mut param: sys::ucp_request_param_t,
    ) -> Result<Answer, Status> {
        *self.head = head(way.door, frame);
        param.op_attr_mask |= sys::UCP_OP_ATTR_FIELD_FLAGS | sys::UCP_OP_ATTR_FIELD_MEMORY_TYPE;
        // Without rendezvous, which would have the peer read from here by UCX's own means.
        param.flags = sys::UCP_AM_SEND_FLAG_EAGER;
        param.memory_type = sys::UCS_MEMORY_TYPE_HOST;
        // SAFETY: the crank is held and the endpoint lives. Both ranges lie on the heap and stay as they are until the send
        // has ended: whoever changes them looks at `busy` first.
        let answer = unsafe {
            (crank.api().ucp_am_send_nbx)(
                way.endpoint,
                MESSAGE,
                self.head.as_ptr().cast(),
                HEAD_BYTES,
                self.bytes.as_ptr().cast(),
                self.bytes.len(),
                &param,
            )
        };
        let answer = Answer::of(answer);
        self.busy = matches!(answer, Ok(Answer::Request(_)));
        answer
    }
}

/// Transports without puts and gets of their own, by the beginnings of their names (`ucx_info -d`), and those that only
/// help others: between processes of one host, or with the memory of devices.
const MESSAGES_ONLY: [&str; 9] =
    ["tcp", "ud", "srd", "cma", "knem", "cuda", "rocm", "ze_", "gdr_copy"];

/// Transports that map memory of a peer, and reach nothing that they do not map.
const MAPPING: [&str; 4] = ["posix", "sysv", "xpmem", "self"];

/// What an endpoint's lanes do for puts and gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// They only send messages.
    Messages,
    /// They map what UCX allocated; of the rest UCX would make messages.
    Mapping,
    /// They reach all memory by themselves, or UCX does not tell.
    Memory,
}

impl Reach {
    /// Of those lanes.
    pub(super) fn of(lanes: &[String]) -> Self {
        let all_of = |names: &[&[&str]]| {
            let is_one = |lane: &String| names.concat().iter().any(|name| lane.starts_with(name));
            !lanes.is_empty() && lanes.iter().all(is_one)
        };
        if all_of(&[&MESSAGES_ONLY]) {
            Self::Messages
        } else if all_of(&[&MESSAGES_ONLY, &MAPPING]) {
            Self::Mapping
        } else {
            Self::Memory
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{HEAD_BYTES, Reach, head, read_head};
    use hmc_core::wire::data::{DataFrame, DataKind};

    #[test]
    fn messages_are_for_what_no_lane_reaches() {
        let reach =
            |lanes: &[&str]| Reach::of(&lanes.iter().map(|l| (*l).into()).collect::<Vec<_>>());
        assert_eq!(reach(&["tcp/lo", "cma/memory"]), Reach::Messages);
        assert_eq!(reach(&["posix/memory", "cma/memory"]), Reach::Mapping);
        assert_eq!(reach(&["sysv/memory", "tcp/lo"]), Reach::Mapping);
        assert_eq!(reach(&["rc_mlx5/mlx5_0:1", "posix/memory"]), Reach::Memory);
        assert_eq!(reach(&[]), Reach::Memory, "UCX does not tell");
    }

    #[test]
    fn a_head_is_read_whole_or_not_at_all() {
        let mut frame = DataFrame::new(DataKind::Write, 7);
        (frame.len, frame.total, frame.offset) = (5, 9, 4);
        let bytes = head(0x1122_3344_5566_7788, &frame);
        assert_eq!(read_head(&bytes), Some((0x1122_3344_5566_7788, frame)));
        for len in 0..HEAD_BYTES {
            assert_eq!(read_head(&bytes[..len]), None, "{len} bytes");
        }
        assert_eq!(read_head(&[&bytes[..], b"x"].concat()), None);
        let mut wrong = bytes;
        wrong[8] = 99;
        assert_eq!(read_head(&wrong), None);
    }
}
