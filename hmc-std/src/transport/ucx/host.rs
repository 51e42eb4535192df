//! Services of the session for UCX, and of UCX for the session.

use std::sync::Arc;

use hmc_hw::ucx::context::UcxError;
use hmc_hw::ucx::fault::UcxFault;
use hmc_hw::ucx::memory::Memory;
use hmc_hw::ucx::result::StatusKind;
use hmc_mem::error::MemError;

use crate::base::error::{Error, ErrorKind};
use crate::memory::StableBytes;
use crate::transport::session_host::not_watched;

impl From<UcxError> for Error {
    fn from(e: UcxError) -> Self {
        let kind = match e.status.kind() {
            StatusKind::Resources => ErrorKind::NoSpace,
            StatusKind::Unreachable | StatusKind::Unsupported => ErrorKind::Unavailable,
            StatusKind::PeerLost => ErrorKind::PeerDead,
            StatusKind::TimedOut => ErrorKind::DeadlineExceeded,
            _ => ErrorKind::Io,
        };
        Self::new(kind, format!("UCX: {e}"))
    }
}

impl From<UcxFault> for Error {
    fn from(fault: UcxFault) -> Self {
        match fault {
            UcxFault::Ucx(e) => e.into(),
            UcxFault::Watch(e) => not_watched(e),
            UcxFault::Memory(e) => MemError::from(e).into(),
            UcxFault::TooLong(_) => Self::new(ErrorKind::Full, fault.to_string()),
            UcxFault::UnknownWindow { .. } => Self::new(ErrorKind::Protocol, fault.to_string()),
            _ => Self::new(ErrorKind::Io, fault.to_string()),
        }
    }
}

/// Bytes that UCX allocated.
#[derive(Debug)]
pub(super) struct UcxBytes(pub(super) Arc<Memory>);

// SAFETY: memory of UCX's that was zeroed and does not move while its registration lives, which this value holds; it is reached
// through the one region that is made of it.
unsafe impl StableBytes for UcxBytes {
    fn as_bytes_ptr(&self) -> (*mut u8, usize) {
        (self.0.start().as_ptr(), self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use hmc_core::range::{Extent, Side};
    use hmc_hw::host::WatchError;
    use hmc_hw::ucx::context::UcxError;
    use hmc_hw::ucx::fault::UcxFault;
    use hmc_hw::ucx::result::Status;
    use hmc_mem::shared::SharedError;

    use crate::base::error::{Error, ErrorKind};

    /// The numbers are those of `ucs_status_t` in ucs/type/status.h.
    #[test]
    fn an_error_of_ucx_has_the_kind_that_says_what_to_do() {
        for (status, kind) in [
            (-4, ErrorKind::NoSpace),
            (-6, ErrorKind::Unavailable),
            (-22, ErrorKind::Unavailable),
            (-25, ErrorKind::PeerDead),
            (-80, ErrorKind::PeerDead),
            (-20, ErrorKind::DeadlineExceeded),
            (-3, ErrorKind::Io),
            (-5, ErrorKind::Io),
        ] {
            let e = UcxError { call: "ucp_put_nbx", status: Status(status), what: String::new() };
            let (direct, wrapped) = (Error::from(e.clone()), Error::from(UcxFault::Ucx(e)));
            assert_eq!((direct.kind(), wrapped.kind()), (kind, kind), "{status}: {direct}");
            assert!(direct.to_string().contains("ucp_put_nbx"), "{direct}");
        }
    }

    #[test]
    fn a_fault_of_ucx_has_the_kind_of_its_cause() {
        let outside = Extent::new(8).span(Side::Local, 4, 5).expect_err("it ends at 9");
        let unknown = UcxFault::UnknownWindow { index: 9, limit: 8 };
        for (fault, kind) in [
            (UcxFault::TooLong("worker address"), ErrorKind::Full),
            (UcxFault::Watch(WatchError(28)), ErrorKind::NoSpace),
            (unknown, ErrorKind::Protocol),
            (UcxFault::Memory(SharedError::Range(outside)), ErrorKind::Range),
        ] {
            let said = fault.to_string();
            assert_eq!(Error::from(fault).kind(), kind, "{said}");
        }
    }
}
