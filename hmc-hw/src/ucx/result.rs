//! Results of UCX calls: a status of one byte, or a pointer that may hold one.
//!
//! Source: `ucs/type/status.h` and `ucp/api/ucp.h` of UCX 1.22.0; the numbers and texts of 1.13.1 are the same. A
//! status is a plain number here and never a Rust enum, because a newer library may return a status that is not in
//! any list.
//!
//! Pure functions: no call into the library is made from here.

use super::sys;
use core::ffi::c_void;
use core::fmt;
use core::ptr::NonNull;

/// `ucs_status_t`: 0 is success, 1 is under way, -1 to -100 are errors.
///
/// One byte, as in C (a packed enum): the upper bits of the register that it comes in are undefined.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Status(pub i8);

/// Class of a status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StatusKind {
    /// No path leads to the peer.
    Unreachable,
    /// The peer or the connection to it is gone; the endpoint has failed.
    PeerLost,
    /// Memory, or another resource that has a limit, is used up.
    Resources,
    /// This library cannot do it: as it was built, as it is configured, or at all.
    Unsupported,
    /// It timed out.
    TimedOut,
    /// An I/O error, or an unknown number.
    Failed,
}

impl Status {
    /// Done (`UCS_OK`).
    pub const OK: Self = Self(sys::UCS_OK);
    /// Nothing left in a queue (`UCS_ERR_NO_RESOURCE`).
    pub const NO_RESOURCE: Self = Self(sys::UCS_ERR_NO_RESOURCE);
    /// I/O error (`UCS_ERR_IO_ERROR`).
    pub const IO_ERROR: Self = Self(sys::UCS_ERR_IO_ERROR);
    /// Memory is used up (`UCS_ERR_NO_MEMORY`).
    pub const NO_MEMORY: Self = Self(sys::UCS_ERR_NO_MEMORY);
    /// An argument was wrong (`UCS_ERR_INVALID_PARAM`).
    pub const INVALID_PARAM: Self = Self(sys::UCS_ERR_INVALID_PARAM);
    /// No transport leads there (`UCS_ERR_UNREACHABLE`).
    pub const UNREACHABLE: Self = Self(sys::UCS_ERR_UNREACHABLE);
    /// No device of that name, or none that is up (`UCS_ERR_NO_DEVICE`).
    pub const NO_DEVICE: Self = Self(sys::UCS_ERR_NO_DEVICE);
    /// Progress has to be made first (`UCS_ERR_BUSY`), as `ucp_worker_arm` returns.
    pub const BUSY: Self = Self(sys::UCS_ERR_BUSY);
    /// Withdrawn (`UCS_ERR_CANCELED`).
    pub const CANCELED: Self = Self(sys::UCS_ERR_CANCELED);
    /// Not with this library (`UCS_ERR_UNSUPPORTED`).
    pub const UNSUPPORTED: Self = Self(sys::UCS_ERR_UNSUPPORTED);
    /// The peer or the path to it broke (`UCS_ERR_CONNECTION_RESET`).
    pub const CONNECTION_RESET: Self = Self(sys::UCS_ERR_CONNECTION_RESET);
    /// The peer does not respond (`UCS_ERR_ENDPOINT_TIMEOUT`).
    pub const ENDPOINT_TIMEOUT: Self = Self(sys::UCS_ERR_ENDPOINT_TIMEOUT);

    /// The text of `ucs_status_string` for it; none for a number that the library has no text for.
    #[must_use]
    pub const fn name(self) -> Option<&'static str> {
        Some(match self.0 {
            sys::UCS_INPROGRESS => "Operation in progress",
            sys::UCS_OK => "Success",
            sys::UCS_ERR_NO_MESSAGE => "No pending message",
            sys::UCS_ERR_NO_RESOURCE => "No resources are available to initiate the operation",
            sys::UCS_ERR_IO_ERROR => "Input/output error",
            sys::UCS_ERR_NO_MEMORY => "Out of memory",
            sys::UCS_ERR_INVALID_PARAM => "Invalid parameter",
            sys::UCS_ERR_UNREACHABLE => "Destination is unreachable",
            sys::UCS_ERR_INVALID_ADDR => "Address not valid",
            sys::UCS_ERR_NOT_IMPLEMENTED => "Function not implemented",
            sys::UCS_ERR_MESSAGE_TRUNCATED => "Message truncated",
            sys::UCS_ERR_NO_PROGRESS => "No progress",
            sys::UCS_ERR_BUFFER_TOO_SMALL => "Provided buffer is too small",
            sys::UCS_ERR_NO_ELEM => "No such element",
            sys::UCS_ERR_SOME_CONNECTS_FAILED => {
                "Failed to connect some of the requested endpoints"
            }
            sys::UCS_ERR_NO_DEVICE => "No such device",
            sys::UCS_ERR_BUSY => "Device is busy",
            sys::UCS_ERR_CANCELED => "Request canceled",
            sys::UCS_ERR_SHMEM_SEGMENT => "Shared memory error",
            sys::UCS_ERR_ALREADY_EXISTS => "Element already exists",
            sys::UCS_ERR_OUT_OF_RANGE => "Index out of range",
            sys::UCS_ERR_TIMED_OUT => "Operation timed out",
            sys::UCS_ERR_EXCEEDS_LIMIT => "User-defined limit was reached",
            sys::UCS_ERR_UNSUPPORTED => "Unsupported operation",
            sys::UCS_ERR_REJECTED => "Operation rejected by remote peer",
            sys::UCS_ERR_NOT_CONNECTED => "Endpoint is not connected",
            sys::UCS_ERR_CONNECTION_RESET => "Connection reset by remote peer",
            sys::UCS_ERR_ENDPOINT_TIMEOUT => "Endpoint timeout",
            _ => return None,
        })
    }

    /// Returns the class of the status.
    #[must_use]
    pub const fn kind(self) -> StatusKind {
        match self.0 {
            sys::UCS_ERR_UNREACHABLE
            | sys::UCS_ERR_SOME_CONNECTS_FAILED
            | sys::UCS_ERR_NO_DEVICE => StatusKind::Unreachable,
            sys::UCS_ERR_NO_MEMORY | sys::UCS_ERR_SHMEM_SEGMENT | sys::UCS_ERR_EXCEEDS_LIMIT => {
                StatusKind::Resources
            }
            sys::UCS_ERR_NOT_IMPLEMENTED | sys::UCS_ERR_UNSUPPORTED => StatusKind::Unsupported,
            sys::UCS_ERR_TIMED_OUT => StatusKind::TimedOut,
            sys::UCS_ERR_REJECTED
            | sys::UCS_ERR_NOT_CONNECTED
            | sys::UCS_ERR_CONNECTION_RESET
            | sys::UCS_ERR_LAST_LINK_FAILURE..=sys::UCS_ERR_FIRST_LINK_FAILURE
            | sys::UCS_ERR_LAST_ENDPOINT_FAILURE..=sys::UCS_ERR_FIRST_ENDPOINT_FAILURE => {
                StatusKind::PeerLost
            }
            _ => StatusKind::Failed,
        }
    }

    /// Returns what the reader of an error can do about it, or `None` if the text is complete.
    #[must_use]
    pub const fn remedy(self) -> Option<&'static str> {
        Some(match self {
            Self::UNREACHABLE => {
                "both ends need a transport in common: compare `ucx_info -d` of both hosts, unset \
                 UCX_TLS and UCX_NET_DEVICES or name there what both have"
            }
            Self::NO_DEVICE => {
                "no network device that is up matches UCX_NET_DEVICES: look at `ucx_info -d`, \
                 correct or unset the variable, bring the device up"
            }
            Self::NO_MEMORY => {
                "free memory, or raise the limits of locked memory (`ulimit -l`) and of /dev/shm"
            }
            Self::CONNECTION_RESET => {
                "the peer's process ended or the path to it broke: look at the peer's log, then \
                 connect again"
            }
            Self::ENDPOINT_TIMEOUT => {
                "the peer answers no more: see whether it runs and whether the network path is up, \
                 then connect again"
            }
            Self::UNSUPPORTED => {
                "this UCX cannot do it, as it was built or as it is configured: compare \
                 `ucx_info -d` and `ucx_info -b`, unset UCX_ variables"
            }
            Self::CANCELED => {
                "it was withdrawn by its caller or with its endpoint; the target may hold old, new \
                 or mixed bytes"
            }
            _ => return None,
        })
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "{name} (UCX status {})", self.0)?,
            None => write!(f, "Unknown error {}", self.0)?,
        }
        self.remedy().map_or(Ok(()), |remedy| write!(f, ": {remedy}"))
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Status({}: {})", self.0, self.name().unwrap_or("unknown"))
    }
}

impl core::error::Error for Status {}

/// Result of a non-blocking call (`ucs_status_ptr_t`) that is not an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NbxResult {
    /// The call completed at once. UCX does not call the callback, and there is nothing to free.
    Done,
    /// The request is in flight. The caller owns it until `ucp_request_free`.
    Request(NonNull<c_void>),
}

impl NbxResult {
    /// Decodes a `ucs_status_ptr_t`: null is "done", the top hundred addresses are errors
    /// (`UCS_PTR_IS_ERR`), everything else is a request.
    pub(crate) fn of(pointer: sys::ucs_status_ptr_t) -> Result<Self, Status> {
        let Some(request) = NonNull::new(pointer) else {
            return Ok(Self::Done);
        };
        // The address of an error is the status, sign-extended: as a signed number it is -1 to -100.
        match i8::try_from(pointer.addr().cast_signed()) {
            Ok(status @ sys::UCS_ERR_LAST..0) => Err(Status(status)),
            _ => Ok(Self::Request(request)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{NbxResult, Status, StatusKind};
    use core::ffi::c_void;
    use core::ptr::{NonNull, without_provenance_mut};

    /// A `ucs_status_ptr_t` with that address, counted from the top where negative.
    fn pointer(address: isize) -> *mut c_void {
        without_provenance_mut(address.cast_unsigned())
    }

    fn request(address: isize) -> Result<NbxResult, Status> {
        Ok(NbxResult::Request(NonNull::new(pointer(address)).unwrap()))
    }

    #[test]
    fn null_is_done() {
        assert_eq!(NbxResult::of(core::ptr::null_mut()), Ok(NbxResult::Done));
    }

    #[test]
    fn the_top_hundred_addresses_are_errors() {
        for status in -100_i8..=-1 {
            assert_eq!(NbxResult::of(pointer(isize::from(status))), Err(Status(status)));
        }
    }

    #[test]
    fn all_other_addresses_are_requests() {
        // One below the errors, and the last that a byte could hold; then the ends of the halves of
        // the address space; then a pointer whose low byte looks like a status.
        for address in
            [-101, -127, -128, -129, -256, isize::MIN, isize::MAX, 1, 8, 0x7fff_ffff_fffa]
        {
            assert_eq!(NbxResult::of(pointer(address)), request(address), "{address:#x}");
        }
    }

    /// The numbers and texts of `ucs_status_t` (ucs/type/status.h and status.c, 1.13.1 and 1.22.0).
    #[test]
    fn each_status_has_ucx_s_text_and_a_class() {
        use StatusKind::{Failed, PeerLost, Resources, TimedOut, Unreachable, Unsupported};
        let known = [
            (1, "Operation in progress", Failed),
            (0, "Success", Failed),
            (-1, "No pending message", Failed),
            (-2, "No resources are available to initiate the operation", Failed),
            (-3, "Input/output error", Failed),
            (-4, "Out of memory", Resources),
            (-5, "Invalid parameter", Failed),
            (-6, "Destination is unreachable", Unreachable),
            (-7, "Address not valid", Failed),
            (-8, "Function not implemented", Unsupported),
            (-9, "Message truncated", Failed),
            (-10, "No progress", Failed),
            (-11, "Provided buffer is too small", Failed),
            (-12, "No such element", Failed),
            (-13, "Failed to connect some of the requested endpoints", Unreachable),
            (-14, "No such device", Unreachable),
            (-15, "Device is busy", Failed),
            (-16, "Request canceled", Failed),
            (-17, "Shared memory error", Resources),
            (-18, "Element already exists", Failed),
            (-19, "Index out of range", Failed),
            (-20, "Operation timed out", TimedOut),
            (-21, "User-defined limit was reached", Resources),
            (-22, "Unsupported operation", Unsupported),
            (-23, "Operation rejected by remote peer", PeerLost),
            (-24, "Endpoint is not connected", PeerLost),
            (-25, "Connection reset by remote peer", PeerLost),
            (-80, "Endpoint timeout", PeerLost),
        ];
        for (number, name, kind) in known {
            let status = Status(number);
            assert_eq!((status.name(), status.kind()), (Some(name), kind), "{number}");
            assert_eq!(format!("{status:?}"), format!("Status({number}: {name})"));
        }
        let named = (i8::MIN..=i8::MAX).filter(|n| Status(*n).name().is_some()).count();
        assert_eq!(named, known.len(), "no other number has a text");
        assert_eq!(format!("{:?}", Status(-98)), "Status(-98: unknown)");
    }

    #[test]
    fn what_has_no_name_is_a_failure_or_a_lost_peer() {
        for status in (i8::MIN..=i8::MAX).map(Status).filter(|status| status.name().is_none()) {
            let kind = status.kind();
            assert!(matches!(kind, StatusKind::Failed | StatusKind::PeerLost), "{status}");
        }
    }

    #[test]
    fn the_ranges_of_links_and_endpoints_are_lost_peers() {
        for (status, lost) in
            [(-22, false), (-23, true), (-25, true), (-26, false), (-39, false), (-40, true)]
        {
            assert_eq!(Status(status).kind() == StatusKind::PeerLost, lost, "{status}");
        }
        for (status, lost) in [(-59, true), (-60, true), (-80, true), (-89, true), (-90, false)] {
            assert_eq!(Status(status).kind() == StatusKind::PeerLost, lost, "{status}");
        }
        assert_eq!(Status(-100).kind(), StatusKind::Failed);
        assert_eq!(Status(i8::MIN).kind(), StatusKind::Failed);
        assert_eq!(Status(i8::MAX).kind(), StatusKind::Failed);
    }

    #[test]
    fn an_error_says_what_it_is_its_number_and_what_to_do() {
        for status in [
            Status::UNREACHABLE,
            Status::NO_DEVICE,
            Status::NO_MEMORY,
            Status::CONNECTION_RESET,
            Status::ENDPOINT_TIMEOUT,
            Status::UNSUPPORTED,
            Status::CANCELED,
        ] {
            let text = status.to_string();
            assert!(text.starts_with(status.name().unwrap()), "{text}");
            assert!(text.contains(&format!("status {}", status.0)), "{text}");
            assert!(text.ends_with(status.remedy().unwrap()), "{text}");
        }
        assert_eq!(Status::IO_ERROR.to_string(), "Input/output error (UCX status -3)");
        // As ucs_status_string says it.
        assert_eq!(Status(-98).to_string(), "Unknown error -98");
    }
}
