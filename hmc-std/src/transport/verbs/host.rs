//! What can go wrong with RDMA verbs as errors of a session, and the worker of a link.

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
