//! Statuses of completions: `ibv_wc_status`.
//!
//! Values and texts are those of libibverbs 44.0 to 65.0. A status is a plain number: a later library may return one
//! that is not in any list.

use core::fmt;

use super::sys;

/// The status of a completion: 0 is success.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct WcStatus(pub u32);

/// Class of a status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WcStatusKind {
    /// It succeeded.
    Success,
    /// The peer, or the path to it, does not answer.
    PeerLost,
    /// The target refused the access: it has taken the memory back, or does not allow it.
    Refused,
    /// The target has no receive posted.
    NotReady,
    /// The queue pair had failed before: an earlier completion has the reason.
    Flushed,
    /// This end refused the request: its memory, key or length.
    Local,
    /// The device failed, or the number is not known.
    Failed,
}

/// A status, its name, its text in libibverbs.
const NAMES: [(u32, &str, &str); 24] = [
    (sys::IBV_WC_SUCCESS, "SUCCESS", "success"),
    (sys::IBV_WC_LOC_LEN_ERR, "LOC_LEN_ERR", "local length error"),
    (sys::IBV_WC_LOC_QP_OP_ERR, "LOC_QP_OP_ERR", "local QP operation error"),
    (sys::IBV_WC_LOC_EEC_OP_ERR, "LOC_EEC_OP_ERR", "local EE context operation error"),
    (sys::IBV_WC_LOC_PROT_ERR, "LOC_PROT_ERR", "local protection error"),
    (sys::IBV_WC_WR_FLUSH_ERR, "WR_FLUSH_ERR", "Work Request Flushed Error"),
    (sys::IBV_WC_MW_BIND_ERR, "MW_BIND_ERR", "memory management operation error"),
    (sys::IBV_WC_BAD_RESP_ERR, "BAD_RESP_ERR", "bad response error"),
    (sys::IBV_WC_LOC_ACCESS_ERR, "LOC_ACCESS_ERR", "local access error"),
    (sys::IBV_WC_REM_INV_REQ_ERR, "REM_INV_REQ_ERR", "remote invalid request error"),
    (sys::IBV_WC_REM_ACCESS_ERR, "REM_ACCESS_ERR", "remote access error"),
    (sys::IBV_WC_REM_OP_ERR, "REM_OP_ERR", "remote operation error"),
    (sys::IBV_WC_RETRY_EXC_ERR, "RETRY_EXC_ERR", "transport retry counter exceeded"),
    (sys::IBV_WC_RNR_RETRY_EXC_ERR, "RNR_RETRY_EXC_ERR", "RNR retry counter exceeded"),
    (sys::IBV_WC_LOC_RDD_VIOL_ERR, "LOC_RDD_VIOL_ERR", "local RDD violation error"),
    (sys::IBV_WC_REM_INV_RD_REQ_ERR, "REM_INV_RD_REQ_ERR", "remote invalid RD request"),
    (sys::IBV_WC_REM_ABORT_ERR, "REM_ABORT_ERR", "aborted error"),
    (sys::IBV_WC_INV_EECN_ERR, "INV_EECN_ERR", "invalid EE context number"),
    (sys::IBV_WC_INV_EEC_STATE_ERR, "INV_EEC_STATE_ERR", "invalid EE context state"),
    (sys::IBV_WC_FATAL_ERR, "FATAL_ERR", "fatal error"),
    (sys::IBV_WC_RESP_TIMEOUT_ERR, "RESP_TIMEOUT_ERR", "response timeout error"),
    (sys::IBV_WC_GENERAL_ERR, "GENERAL_ERR", "general error"),
    (sys::IBV_WC_TM_ERR, "TM_ERR", "TM error"),
    (sys::IBV_WC_TM_RNDV_INCOMPLETE, "TM_RNDV_INCOMPLETE", "TM software rendezvous"),
];

impl WcStatus {
    /// It succeeded.
    pub const SUCCESS: Self = Self(sys::IBV_WC_SUCCESS);
    /// Flushed because the queue pair is in the error state.
    pub const FLUSHED: Self = Self(sys::IBV_WC_WR_FLUSH_ERR);

    /// Returns the name without `IBV_WC_`, or `None` for an unknown number.
    #[must_use]
    pub fn name(self) -> Option<&'static str> {
        NAMES.iter().find(|(number, ..)| *number == self.0).map(|(_, name, _)| *name)
    }

    /// Returns the text of `ibv_wc_status_str`, or `None` for an unknown number.
    #[must_use]
    pub fn text(self) -> Option<&'static str> {
        NAMES.iter().find(|(number, ..)| *number == self.0).map(|(.., text)| *text)
    }

    /// Returns its class.
    #[must_use]
    pub const fn kind(self) -> WcStatusKind {
        match self.0 {
            sys::IBV_WC_SUCCESS => WcStatusKind::Success,
            sys::IBV_WC_RETRY_EXC_ERR
            | sys::IBV_WC_RESP_TIMEOUT_ERR
            | sys::IBV_WC_REM_ABORT_ERR => WcStatusKind::PeerLost,
            sys::IBV_WC_REM_ACCESS_ERR | sys::IBV_WC_REM_INV_REQ_ERR => WcStatusKind::Refused,
            sys::IBV_WC_RNR_RETRY_EXC_ERR => WcStatusKind::NotReady,
            sys::IBV_WC_WR_FLUSH_ERR => WcStatusKind::Flushed,
            sys::IBV_WC_LOC_LEN_ERR
            | sys::IBV_WC_LOC_QP_OP_ERR
            | sys::IBV_WC_LOC_PROT_ERR
            | sys::IBV_WC_MW_BIND_ERR
            | sys::IBV_WC_LOC_ACCESS_ERR => WcStatusKind::Local,
            _ => WcStatusKind::Failed,
        }
    }

    /// Returns what the reader of an error can do about it, or `None` if no user of HMC meets the status.
    #[must_use]
    pub const fn remedy(self) -> Option<&'static str> {
        Some(match self.0 {
            sys::IBV_WC_LOC_LEN_ERR => {
                "a message is longer than the receive that it met, or than the port allows: compare the versions of HMC \
                 at both ends"
            }
            sys::IBV_WC_LOC_QP_OP_ERR | sys::IBV_WC_LOC_PROT_ERR | sys::IBV_WC_LOC_ACCESS_ERR => {
                "this end's memory is not registered with the device, or was unmapped or freed under a transfer: keep \
                 memory mapped as long as it is registered"
            }
            sys::IBV_WC_WR_FLUSH_ERR => {
                "the connection had failed or was closed before: the first error of this peer has the reason"
            }
            sys::IBV_WC_MW_BIND_ERR => {
                "a memory window could not be bound: the device refused it, or its memory is not registered any more"
            }
            sys::IBV_WC_REM_INV_REQ_ERR => {
                "the peer's device refused the kind or length of the request: compare the versions of HMC, and of the \
                 drivers, at both ends"
            }
            sys::IBV_WC_REM_ACCESS_ERR => {
                "the target does not allow the access: its window was revoked, has other rights, or its memory was \
                 released; ask the peer for a new window"
            }
            sys::IBV_WC_REM_OP_ERR | sys::IBV_WC_BAD_RESP_ERR => {
                "the peer's device failed: see its kernel log (`dmesg`), then connect again"
            }
            sys::IBV_WC_RETRY_EXC_ERR
            | sys::IBV_WC_RESP_TIMEOUT_ERR
            | sys::IBV_WC_REM_ABORT_ERR => {
                "the peer does not answer: see whether its process runs, whether both ports are up (`ibv_devinfo`), and \
                 whether the network passes RoCE (UDP port 4791, same MTU), then connect again"
            }
            sys::IBV_WC_RNR_RETRY_EXC_ERR => {
                "the peer takes no messages: its process is stopped or overloaded; look at it, then connect again"
            }
            sys::IBV_WC_FATAL_ERR | sys::IBV_WC_GENERAL_ERR => {
                "the device failed: see the kernel log (`dmesg`), and reset the device or its port"
            }
            _ => return None,
        })
    }
}

impl fmt::Display for WcStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.text(), self.name()) {
            (Some(text), Some(name)) => write!(f, "{text} ({name}, completion status {})", self.0)?,
            _ => write!(f, "unknown completion status {}", self.0)?,
        }
        self.remedy().map_or(Ok(()), |remedy| write!(f, ": {remedy}"))
    }
}

impl fmt::Debug for WcStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WcStatus({}: {})", self.0, self.name().unwrap_or("unknown"))
    }
}

impl core::error::Error for WcStatus {}

#[cfg(test)]
mod tests {
    use super::{NAMES, WcStatus, WcStatusKind};

    #[test]
    fn numbers_are_in_order_and_have_names_and_texts() {
        for (at, (number, name, text)) in (0_u32..).zip(NAMES) {
            let status = WcStatus(at);
            assert_eq!((number, status.name(), status.text()), (at, Some(name), Some(text)));
            let shown = status.to_string();
            assert!(
                shown.starts_with(&format!("{text} ({name}, completion status {at})")),
                "{shown}"
            );
        }
        for unknown in [24, 25, 1000, u32::MAX] {
            let status = WcStatus(unknown);
            assert_eq!((status.name(), status.text(), status.remedy()), (None, None, None));
            assert_eq!(status.kind(), WcStatusKind::Failed);
            assert_eq!(status.to_string(), format!("unknown completion status {unknown}"));
            assert_eq!(format!("{status:?}"), format!("WcStatus({unknown}: unknown)"));
        }
    }

    #[test]
    fn classes_are_those_of_the_specification() {
        use WcStatusKind::{Failed, Flushed, Local, NotReady, PeerLost, Refused, Success};
        let kinds = [
            Success, Local, Local, Failed, Local, Flushed, Local, Failed, Local, Refused, Refused,
            Failed, PeerLost, NotReady, Failed, Failed, PeerLost, Failed, Failed, Failed, PeerLost,
            Failed, Failed, Failed,
        ];
        for (number, kind) in (0_u32..).zip(kinds) {
            assert_eq!(WcStatus(number).kind(), kind, "{:?}", WcStatus(number));
        }
    }

    #[test]
    fn each_status_that_a_user_can_meet_has_a_remedy() {
        for number in [1, 2, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 16, 19, 20, 21] {
            let status = WcStatus(number);
            let remedy = status.remedy().unwrap();
            assert!(status.to_string().ends_with(&format!("): {remedy}")), "{status}");
        }
        for kind_of_success in [WcStatus::SUCCESS, WcStatus(22), WcStatus(23)] {
            assert_eq!(kind_of_success.remedy(), None);
        }
    }
}
