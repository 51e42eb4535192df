//! Why a data plane ended.

use hmc_core::wire::cursor::WireError;
use hmc_hw::ucx::am::Violation;
use hmc_hw::ucx::result::Status;
use rustix::io::Errno;

/// Why a stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Down {
    /// The peer closed it, or its process died.
    Eof,
    /// It fell silent, or we ended the link; its process may still run.
    Silent,
    /// The system reported an error.
    Io(Errno),
    /// The peer broke the protocol.
    Protocol(&'static str),
    /// The peer sent a data frame that is none.
    Malformed(WireError),
    /// The peer broke the rules of the messages over UCX.
    Message(Violation),
    /// UCX gave the peer up.
    Ucx(Status),
    /// There was no descriptor left here for what the link cannot do without.
    NoDescriptor,
}

impl std::fmt::Display for Down {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Eof => f.write_str("it closed the connection"),
            Self::Silent => f.write_str("the link ended"),
            Self::Io(e) => write!(f, "{}", std::io::Error::from(*e)),
            Self::Protocol(what) => write!(f, "it broke the protocol: {what}"),
            Self::Malformed(e) => write!(f, "it broke the protocol: a malformed data frame: {e}"),
            Self::Message(what) => write!(f, "it broke the protocol: {what}"),
            Self::Ucx(status) => write!(f, "UCX gave it up: {status}"),
            Self::NoDescriptor => f.write_str(
                "no descriptor was left here for what it passed; raise the limit of open files (ulimit -n)",
            ),
        }
    }
}
