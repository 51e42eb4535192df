//! A transport's object for one link.

use core::fmt::{self, Write};

use super::initiator::Transport;
use super::notes::Notes;
use super::peer_windows::PeerWindows;
use super::progress::Progress;
use crate::types::ConnType;
use crate::work::SlotId;

/// Why a data plane ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DataCloseReason {
    /// The peer closed it, or its process has ended.
    Eof,
    /// The peer fell silent, or this end closed the link; the peer's process may still run.
    Silent,
    /// The system reported this error number.
    System(i32),
    /// The peer broke the protocol.
    Protocol(&'static str),
    /// The transport's library or device gave the peer up, with this status.
    Failed(i32),
    /// No descriptor was left for what the link cannot do without.
    NoDescriptor,
    /// Pages of the peer that the link cannot do without could not be mapped.
    NotMapped,
}

impl fmt::Display for DataCloseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Eof => f.write_str("it closed the connection"),
            Self::Silent => f.write_str("the link ended"),
            Self::System(number) => write!(f, "system error {number}"),
            Self::Protocol(what) => write!(f, "it broke the protocol: {what}"),
            Self::Failed(status) => write!(f, "the transport gave it up: status {status}"),
            Self::NoDescriptor => f.write_str(
                "no descriptor was left here for what it passed; raise the limit of open files (ulimit -n)",
            ),
            Self::NotMapped => f.write_str("a page that it passed could not be mapped here"),
        }
    }
}

/// All that a transport is to one link: initiator, target, and the state of the connection. Every method is called under the
/// link's lock, returns within the time of one copy of 1 MiB, and neither sleeps nor allocates unless it says so.
pub trait DataPlane: Transport + Notes + PeerWindows + Progress {
    /// What tells the host that the peer's process has ended.
    type PeerLife;

    /// The transport; `None` if the link moves no payload.
    fn kind(&self) -> Option<ConnType>;

    /// Why it has ended, if it has. It never starts again.
    fn close_reason(&self) -> Option<DataCloseReason>;

    /// Ends it; a second call changes nothing. Every accepted request completes, except those whose memory the peer or a device may
    /// still access.
    fn close(&mut self, why: DataCloseReason);

    /// What tells that the peer's process has ended.
    fn peer_life(&self) -> Self::PeerLife;

    /// Whether the peer's process has left the mark of its end in memory that it shares.
    fn is_peer_marked(&self) -> bool {
        false
    }

    /// Copies the next piece, of at most 1 MiB, of a long request into or out of memory that this end reaches by itself. Returns
    /// whether there was one. [`Transport::poll`] copies none of them: whoever makes progress calls this, as often as it has time.
    fn copy_piece(&mut self) -> bool {
        false
    }

    /// Whether the peer cannot access memory of this end any more by itself: its process has ended, or it said so. The data plane
    /// may make progress for that.
    fn peer_has_ended(&mut self) -> bool;

    /// Whether neither the peer nor a device accesses memory of this end's requests any more, all of which have completed or were
    /// let go of.
    fn are_requests_fenced(&mut self) -> bool;

    /// Whether requests of operation `op`, whose result may be known, can still read or write memory of this end.
    fn uses_memory_of(&mut self, op: SlotId) -> bool;

    /// Returns `true` if the target has answered every put that completed before its bytes were visible there
    /// ([`CompleteWhen::Local`](crate::work::CompleteWhen::Local)). An orderly end of the link waits for that.
    fn are_puts_answered(&mut self) -> bool {
        true
    }

    /// As [`Self::are_requests_fenced`], of a data plane that is down, and of windows as well.
    fn is_fenced(&mut self) -> bool {
        self.are_requests_fenced()
    }

    /// Bytes of payload that were moved: by requests of this end, and by the peer's.
    fn bytes_moved(&self) -> (u64, u64);

    /// Of the former, those that a vendor's library or device moved.
    fn bytes_offloaded(&self) -> u64 {
        0
    }

    /// Whether this end itself checks every access of the peer, so that a revoked window is out of reach at once.
    fn checks_accesses(&self) -> bool;

    /// Which end checks accesses to exposed memory, and the consequences.
    fn trust(&self) -> &'static str;

    /// What the peer may still do to memory of requests that have not passed their fence.
    fn unfenced_reason(&self) -> &'static str {
        "the peer may be copying from or into this memory by itself"
    }

    /// As [`Self::unfenced_reason`], of windows. `None`: they need no fence once the data plane is down.
    fn unfenced_window_reason(&self) -> Option<&'static str> {
        None
    }

    /// Lists the paths that requests may take, as the transport names them.
    fn lanes(&self, each: &mut dyn FnMut(&str)) {
        let _ = each;
    }

    /// Lists what moves bytes by a slower path than the transport's own, and why.
    fn degraded(&self, each: &mut dyn FnMut(fmt::Arguments<'_>)) {
        let _ = each;
    }

    /// Writes why it ended, in words.
    ///
    /// # Errors
    /// What `out` returns.
    fn describe_close(&self, why: DataCloseReason, out: &mut dyn Write) -> fmt::Result {
        write!(out, "{why}")
    }

    /// Returns what is to be said of the post that was refused last, once, where its kind says too little.
    fn take_refusal(&mut self) -> Option<Self::Fault> {
        None
    }
}
