//! Errors of RDMA verbs as errors of a session, and the worker of a link.

use hmc_hw::verbs::error::VerbsError;
use hmc_hw::verbs::fault::VerbsFault;
use hmc_hw::verbs::library::LoadError;
use hmc_hw::verbs::select::SelectError;
use hmc_mem::error::MemError;
use rustix::io::Errno;

use crate::base::error::{Error, ErrorKind};
use crate::transport::session_host::not_watched;

impl From<VerbsError> for Error {
    fn from(e: VerbsError) -> Self {
        let kind = match Errno::from_raw_os_error(e.errno) {
            Errno::NOMEM | Errno::AGAIN | Errno::MFILE | Errno::NFILE => ErrorKind::NoSpace,
            Errno::NODEV | Errno::OPNOTSUPP | Errno::ACCESS | Errno::PERM => ErrorKind::Unavailable,
            _ => ErrorKind::Io,
        };
        Self::new(kind, format!("RDMA verbs: {e}"))
    }
}

impl From<LoadError> for Error {
    fn from(e: LoadError) -> Self {
        Self::new(ErrorKind::Unavailable, format!("no RDMA verbs: {e}"))
    }
}

impl From<SelectError> for Error {
    fn from(e: SelectError) -> Self {
        Self::new(ErrorKind::Unavailable, format!("no RDMA verbs: {e}"))
    }
}

impl From<VerbsFault> for Error {
    fn from(fault: VerbsFault) -> Self {
        let kind = match fault {
            VerbsFault::Call(e) => return e.into(),
            VerbsFault::Watch(e) => return not_watched(e),
            VerbsFault::Port(e) => return e.into(),
            VerbsFault::Memory(e) => return MemError::from(e).into(),
            VerbsFault::Unreachable(..) | VerbsFault::Device { .. } => ErrorKind::Unavailable,
            VerbsFault::TooLong => ErrorKind::Full,
            _ => ErrorKind::Protocol,
        };
        Self::new(kind, format!("RDMA verbs: {fault}"))
    }
}

#[cfg(test)]
mod tests {
    use hmc_hw::verbs::port::LinkLayer;
    use hmc_hw::verbs::reach::Unreachable;

    use super::*;

    #[test]
    fn a_fault_has_the_kind_of_what_went_wrong() {
        let call = |errno: Errno| {
            VerbsFault::Call(VerbsError::new("making a queue", "mlx5_0", errno.raw_os_error()))
        };
        let fabrics = Unreachable::Link(LinkLayer::Ethernet, LinkLayer::InfiniBand);
        for (fault, kind, words) in [
            (call(Errno::NOMEM), ErrorKind::NoSpace, "making a queue"),
            (call(Errno::NODEV), ErrorKind::Unavailable, "mlx5_0"),
            (call(Errno::INVAL), ErrorKind::Io, "making a queue"),
            (
                VerbsFault::Unreachable("mlx5_0:1".to_owned(), fabrics),
                ErrorKind::Unavailable,
                "InfiniBand",
            ),
            (VerbsFault::TooLong, ErrorKind::Full, "RDMA verbs"),
            (VerbsFault::UnknownWindow { index: 9, limit: 8 }, ErrorKind::Protocol, "RDMA verbs"),
        ] {
            let e = Error::from(fault);
            assert_eq!(e.kind(), kind, "{e}");
            assert!(e.to_string().contains(words), "{e}");
        }
    }
}
