//! The error type of this crate: peer, operation, quantities, limit, and remedy.

mod kind;
mod limit;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use hmc_core::range::RangeError;
use hmc_core::types::{Rank, Status};
use hmc_core::window::{StaleGeneration, WindowFault};
use hmc_core::work::Failure;
use hmc_mem::error::MemError;
use hmc_mem::shared::SharedError;

use super::op_name::OpName;

pub use kind::{Blame, ErrorKind};
pub use limit::Limit;

#[derive(Clone, Debug)]
struct Inner {
    kind: ErrorKind,
    what: String,
    remedy: Option<Cow<'static, str>>,
    peer: Option<Rank>,
    op: Option<OpName>,
    range: Option<RangeError>,
    limit: Option<Limit>,
    source: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

/// An error of HMC: a kind, a sentence that describes the failure, and its values. One pointer in size.
///
/// A program should decide by [`Error::kind`] or [`Error::blame`], and read numbers from [`Error::range`] and [`Error::limit`], never
/// from the text. The text is one line: the peer, the failure with its values, and the remedy if the case has a particular one.
#[derive(Clone, Debug)]
pub struct Error(Box<Inner>);

/// `Result` with [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// Makes an error of `kind`; `what` is a clause that names the values. For transports of an application
    /// ([`crate::transport`]) and libraries over this crate.
    #[cold]
    pub fn new(kind: ErrorKind, what: impl Into<String>) -> Self {
        Self(Box::new(Inner {
            kind,
            what: what.into(),
            remedy: None,
            peer: None,
            op: None,
            range: None,
            limit: None,
            source: None,
        }))
    }

    /// An error of `kind`: `limit` was met. Its numbers are the text.
    #[cold]
    pub(crate) fn limited(kind: ErrorKind, limit: Limit) -> Self {
        Self::new(kind, limit.to_string()).with_limit(limit)
    }

    /// The same error, with the numbers of the limit that was met.
    #[must_use]
    pub(crate) fn with_limit(mut self, limit: Limit) -> Self {
        self.0.limit = Some(limit);
        self
    }

    /// The same error, with what to do about it in this case: a clause without a full stop.
    #[must_use]
    pub(crate) fn with_remedy(mut self, remedy: impl Into<Cow<'static, str>>) -> Self {
        self.0.remedy = Some(remedy.into());
        self
    }

    /// Returns the error with `peer` as its peer.
    #[must_use]
    pub fn with_peer(mut self, peer: Rank) -> Self {
        self.0.peer = Some(peer);
        self
    }

    /// Returns the error with an operation, and that operation's peer.
    #[must_use]
    pub fn with_op(mut self, op: OpName) -> Self {
        self.0.op = Some(op);
        self.0.peer = Some(op.peer);
        self
    }

    /// The same error, about no peer in particular.
    #[must_use]
    pub(crate) fn without_peer(mut self) -> Self {
        self.0.peer = None;
        self
    }

    /// The same error, caused by `source`.
    #[must_use]
    pub(crate) fn with_source(
        mut self,
        source: impl std::error::Error + Send + Sync + 'static,
    ) -> Self {
        self.0.source = Some(Arc::new(source));
        self
    }

    /// The same error, met while doing `what`.
    #[must_use]
    pub(crate) fn during(mut self, what: impl fmt::Display) -> Self {
        self.0.what = format!("{what}: {}", self.0.what);
        self
    }

    /// The same error, and what was met before it.
    #[must_use]
    pub(crate) fn after(mut self, what: impl fmt::Display) -> Self {
        self.0.what = format!("{}; {what}", self.0.what);
        self
    }

    /// Returns the kind of the error; [`ErrorKind`] lists all kinds.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Returns who can remove the cause of the error.
    #[must_use]
    pub fn blame(&self) -> Blame {
        self.0.kind.blame()
    }

    /// Returns what to do about the error: a clause without a full stop. It is the remedy of this case, which the text contains, or
    /// that of the kind ([`ErrorKind::remedy`]), which the text does not contain.
    #[must_use]
    pub fn remedy(&self) -> &str {
        self.0.remedy.as_deref().unwrap_or(self.0.kind.remedy())
    }

    /// The status code of the C++ HMC.
    #[must_use]
    pub fn status(&self) -> Status {
        self.0.kind.status()
    }

    /// Returns the peer that the error is about.
    #[must_use]
    pub fn peer(&self) -> Option<Rank> {
        self.0.peer
    }

    /// Returns the operation that the error is about, if it was posted.
    #[must_use]
    pub fn op(&self) -> Option<OpName> {
        self.0.op
    }

    /// Returns the side, offset, length and limit of a range that was out of bounds, in bytes.
    #[must_use]
    pub fn range(&self) -> Option<RangeError> {
        self.0.range
    }

    /// Returns the block whose generation differed from the one that a transfer expected, with both generations.
    #[must_use]
    pub fn stale_block(&self) -> Option<StaleGeneration> {
        match self.0.source.as_deref()?.downcast_ref::<Failure>()? {
            Failure::Window(WindowFault::StaleGeneration(stale)) => Some(*stale),
            _ => None,
        }
    }

    /// Returns the limit that was reached, with its name and numbers; `None` if there is none or its numbers are unknown.
    #[must_use]
    pub fn limit(&self) -> Option<Limit> {
        self.0.limit
    }

    /// An error of the operating system while doing `what`.
    #[cold]
    pub(crate) fn io(what: impl fmt::Display, errno: rustix::io::Errno) -> Self {
        use rustix::io::Errno;
        let (kind, remedy) = match errno {
            Errno::MFILE | Errno::NFILE => {
                (ErrorKind::SystemLimit, "raise the limit of open files (ulimit -n)")
            }
            Errno::NOMEM => (ErrorKind::NoSpace, "free memory or use less"),
            // Of files: memory that is short is an error of hmc-mem.
            Errno::NOSPC => (ErrorKind::NoSpace, "free space on that file system"),
            Errno::CONNREFUSED => (ErrorKind::Unavailable, "is the peer listening there?"),
            Errno::NOENT => (ErrorKind::Unavailable, "does the path exist?"),
            Errno::HOSTUNREACH | Errno::NETUNREACH => {
                (ErrorKind::Unavailable, "check the address and the route to it")
            }
            Errno::TIMEDOUT => (ErrorKind::DeadlineExceeded, ""),
            Errno::ADDRINUSE => (ErrorKind::InvalidConfig, "another process listens there"),
            Errno::ADDRNOTAVAIL => {
                (ErrorKind::InvalidConfig, "this machine does not have that address")
            }
            Errno::ACCESS | Errno::PERM => (ErrorKind::Io, "check the permissions"),
            Errno::PIPE | Errno::CONNRESET => (ErrorKind::PeerDead, ""),
            _ => (ErrorKind::Io, ""),
        };
        let text = std::io::Error::from(errno);
        let mut e = Self::new(kind, format!("{what}: {text}")).with_source(text);
        if !remedy.is_empty() {
            e = e.with_remedy(remedy);
        }
        e.0.limit = if errno == Errno::MFILE { open_files() } else { None };
        e
    }

    /// A deadline passed while doing `what`.
    #[cold]
    pub(crate) fn deadline(what: impl fmt::Display) -> Self {
        Self::new(ErrorKind::DeadlineExceeded, format!("{what}: the deadline passed"))
            .with_remedy("wait longer or look at the peer")
    }

    /// The caller's interrupt hook ended a wait for `what`.
    #[cold]
    pub(crate) fn interrupted(what: impl fmt::Display) -> Self {
        Self::new(ErrorKind::Interrupted, format!("{what}: the interrupt hook ended the wait"))
    }

    /// The peer is gone, because of `why`.
    #[cold]
    pub(crate) fn peer_dead(peer: Rank, why: impl fmt::Display) -> Self {
        Self::new(ErrorKind::PeerDead, format!("the peer is gone: {why}")).with_peer(peer)
    }

    /// `what` exceeds its limit.
    #[cold]
    pub(crate) fn out_of_range(what: impl fmt::Display, range: RangeError) -> Self {
        let mut e = Self::new(ErrorKind::Range, format!("{what}: {range}"));
        e.0.range = Some(range);
        e
    }

    #[cold]
    pub(crate) fn config(what: impl Into<String>) -> Self {
        Self::new(ErrorKind::InvalidConfig, what)
    }
}

/// The limit of this process's open files, which all are in use.
fn open_files() -> Option<Limit> {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current?;
    Some(Limit::one_more("open files (ulimit -n)", limit))
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(peer) = self.0.peer {
            write!(f, "rank {peer}: ")?;
        }
        f.write_str(&self.0.what)?;
        if let Some(remedy) = &self.0.remedy {
            write!(f, "; {remedy}")?;
        }
        if let Some(op) = self.0.op {
            write!(f, " ({op})")?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_deref().map(|e| -> &(dyn std::error::Error + 'static) { e })
    }
}

impl From<RangeError> for Error {
    #[cold]
    fn from(range: RangeError) -> Self {
        let mut e = Self::new(ErrorKind::Range, range.to_string());
        e.0.range = Some(range);
        e
    }
}

impl From<Failure> for Error {
    #[cold]
    fn from(failure: Failure) -> Self {
        let kind = match failure {
            Failure::Window(WindowFault::OutOfWindow(range)) => return range.into(),
            Failure::Window(WindowFault::Unknown) => ErrorKind::NotFound,
            Failure::Window(WindowFault::StaleEpoch | WindowFault::StaleGeneration(_)) => {
                ErrorKind::StaleEpoch
            }
            Failure::Window(WindowFault::Revoked) => ErrorKind::Revoked,
            Failure::Window(WindowFault::Access) => ErrorKind::Access,
            Failure::PeerDead => ErrorKind::PeerDead,
            Failure::DeadlineExceeded => ErrorKind::DeadlineExceeded,
            Failure::Cancelled => ErrorKind::Cancelled,
            Failure::UnknownRegion => ErrorKind::NotFound,
            Failure::Unsupported => ErrorKind::Unsupported,
            _ => ErrorKind::Io,
        };
        let e = Self::new(kind, failure.to_string()).with_source(failure);
        match failure {
            Failure::Window(WindowFault::StaleGeneration(_)) => {
                e.with_remedy("the block was used again: get a new reference from its owner")
            }
            _ => e,
        }
    }
}

impl From<MemError> for Error {
    #[cold]
    fn from(e: MemError) -> Self {
        let kind = match &e {
            MemError::Shared(SharedError::Range(range)) => return (*range).into(),
            MemError::Shared(_) => ErrorKind::InvalidConfig,
            MemError::NoSpace { .. } | MemError::TooLong { .. } => ErrorKind::NoSpace,
            MemError::MemlockLimit { .. } | MemError::NoFds { .. } => ErrorKind::SystemLimit,
            _ => ErrorKind::Io,
        };
        let limit = match e {
            MemError::NoSpace { need, have, limit } => Some(Limit::new(limit.name(), need, have)),
            MemError::TooLong { len, limit } => {
                Some(Limit::new("bytes that can be mapped", len, limit))
            }
            MemError::MemlockLimit { need, have } => {
                Some(Limit::new("bytes of locked memory (ulimit -l)", need, have))
            }
            MemError::NoFds { limit } => Some(Limit::one_more("open files (ulimit -n)", limit)),
            _ => None,
        };
        let text = e.to_string();
        let what = text.strip_suffix(e.remedy()).and_then(|text| text.strip_suffix("; "));
        let mut error = Self::new(kind, what.unwrap_or(&text)).with_remedy(e.remedy());
        error.0.limit = limit;
        error.with_source(e)
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use hmc_core::range::{Extent, RangeError, Side};
    use hmc_core::types::Rank;
    use hmc_core::window::{StaleGeneration, WindowFault};
    use hmc_core::work::Failure;
    use hmc_mem::error::{MemError, MemLimit};
    use hmc_mem::shared::SharedError;
    use rustix::io::Errno;

    use super::{Error, ErrorKind, Limit, Result};

    fn out_of_range() -> RangeError {
        Extent::new(8).span(Side::Remote, 4, 5).expect_err("it ends at 9")
    }

    #[test]
    fn errors_of_the_system_report_a_remedy() {
        let table = [
            (Errno::MFILE, ErrorKind::SystemLimit, "raise the limit of open files (ulimit -n)"),
            (Errno::NFILE, ErrorKind::SystemLimit, "raise the limit of open files (ulimit -n)"),
            (Errno::NOMEM, ErrorKind::NoSpace, "free memory or use less"),
            (Errno::NOSPC, ErrorKind::NoSpace, "free space on that file system"),
            (Errno::CONNREFUSED, ErrorKind::Unavailable, "is the peer listening there?"),
            (Errno::NOENT, ErrorKind::Unavailable, "does the path exist?"),
            (Errno::HOSTUNREACH, ErrorKind::Unavailable, "check the address and the route to it"),
            (Errno::NETUNREACH, ErrorKind::Unavailable, "check the address and the route to it"),
            (Errno::TIMEDOUT, ErrorKind::DeadlineExceeded, ""),
            (Errno::ADDRINUSE, ErrorKind::InvalidConfig, "another process listens there"),
            (Errno::ADDRNOTAVAIL, ErrorKind::InvalidConfig, "does not have that address"),
            (Errno::ACCESS, ErrorKind::Io, "check the permissions"),
            (Errno::PERM, ErrorKind::Io, "check the permissions"),
            (Errno::PIPE, ErrorKind::PeerDead, ""),
            (Errno::CONNRESET, ErrorKind::PeerDead, ""),
            (Errno::IO, ErrorKind::Io, ""),
        ];
        for (errno, kind, remedy) in table {
            let e = Error::io("doing it", errno);
            assert_eq!((e.kind(), e.peer()), (kind, None), "{errno:?}");
            let (text, cause) = (e.to_string(), std::io::Error::from(errno).to_string());
            assert!(text.starts_with(&format!("doing it: {cause}")), "{text}");
            assert!(text.ends_with(remedy), "`{remedy}` is not at the end of: {text}");
            assert!(e.remedy().ends_with(remedy), "`{remedy}` is not in {}", e.remedy());
            let limit = e.limit().map(|l| (l.name, l.need - l.have));
            assert_eq!(limit, (errno == Errno::MFILE).then_some(("open files (ulimit -n)", 1)));
            let source = e.source().and_then(|s| s.downcast_ref::<std::io::Error>());
            assert_eq!(source.and_then(std::io::Error::raw_os_error), Some(errno.raw_os_error()));
        }
    }

    #[test]
    fn failures_of_operations_keep_their_kind_and_their_numbers() {
        let window = |fault| Failure::Window(fault);
        let stale = StaleGeneration { block: 1, expected: 2, found: 3 };
        let table = [
            (window(WindowFault::OutOfWindow(out_of_range())), ErrorKind::Range),
            (window(WindowFault::Unknown), ErrorKind::NotFound),
            (window(WindowFault::StaleEpoch), ErrorKind::StaleEpoch),
            (window(WindowFault::StaleGeneration(stale)), ErrorKind::StaleEpoch),
            (window(WindowFault::Revoked), ErrorKind::Revoked),
            (window(WindowFault::Access), ErrorKind::Access),
            (Failure::PeerDead, ErrorKind::PeerDead),
            (Failure::DeadlineExceeded, ErrorKind::DeadlineExceeded),
            (Failure::Cancelled, ErrorKind::Cancelled),
            (Failure::UnknownRegion, ErrorKind::NotFound),
            (Failure::Unsupported, ErrorKind::Unsupported),
            (Failure::Transport(5), ErrorKind::Io),
        ];
        for (failure, kind) in table {
            let e = Error::from(failure);
            assert_eq!(e.kind(), kind, "{failure:?}");
            assert_eq!(e.range().is_some(), kind == ErrorKind::Range, "{failure:?}");
            let is_stale = failure == window(WindowFault::StaleGeneration(stale));
            assert_eq!(e.stale_block(), is_stale.then_some(stale), "{failure:?}");
            assert!(!e.to_string().is_empty(), "{failure:?}");
        }
        assert_eq!(Error::from(out_of_range()).range(), Some(out_of_range()));
    }

    #[test]
    fn failures_of_memory_report_a_remedy() {
        let limit = MemLimit::Cgroup;
        let table = [
            (MemError::Shared(SharedError::Range(out_of_range())), ErrorKind::Range),
            (MemError::Shared(SharedError::ReadOnly), ErrorKind::InvalidConfig),
            (MemError::NoSpace { need: 9, have: 8, limit }, ErrorKind::NoSpace),
            (MemError::TooLong { len: 9, limit: 8 }, ErrorKind::NoSpace),
            (MemError::MemlockLimit { need: 9, have: 8 }, ErrorKind::SystemLimit),
            (MemError::NoFds { limit: 8 }, ErrorKind::SystemLimit),
            (MemError::NotExportable, ErrorKind::Io),
            (MemError::NotSealed { have: 1, need: 3 }, ErrorKind::Io),
        ];
        for (failure, kind) in table {
            let e = Error::from(failure);
            assert_eq!(e.kind(), kind, "{failure:?}");
            // A range speaks for itself: its numbers are the remedy.
            let says = kind == ErrorKind::Range || e.to_string().contains(failure.remedy());
            assert!(says, "`{}` is not in: {e}", failure.remedy());
            assert_eq!(
                e.to_string().matches(failure.remedy()).count(),
                usize::from(e.range().is_none()),
                "{e}"
            );
            let is_limit = matches!(kind, ErrorKind::NoSpace | ErrorKind::SystemLimit);
            let needs = e.limit().map(|l| (l.need, l.have));
            assert_eq!(needs, is_limit.then_some((9, 8)), "{failure:?}");
        }
    }

    #[test]
    fn a_limit_is_text_and_fields_and_an_error_one_pointer() {
        let limit = Limit::one_more("registered regions", 4);
        let e = Error::limited(ErrorKind::Full, limit);
        assert_eq!(e.to_string(), "5 registered regions, the limit is 4");
        assert_eq!((e.limit(), e.remedy()), (Some(limit), ErrorKind::Full.remedy()));
        let e = e.with_remedy("drop some").with_peer(Rank(1));
        assert_eq!(e.to_string(), "rank 1: 5 registered regions, the limit is 4; drop some");
        assert_eq!((e.limit(), e.remedy()), (Some(limit), "drop some"));
        assert_eq!(size_of::<Error>(), size_of::<usize>());
        assert_eq!(size_of::<Result<()>>(), size_of::<usize>());
    }

    #[test]
    fn an_error_names_the_peer_and_the_call() {
        let e = Error::deadline("connecting").with_peer(Rank(3));
        assert_eq!((e.kind(), e.peer()), (ErrorKind::DeadlineExceeded, Some(Rank(3))));
        let said = "rank 3: connecting: the deadline passed; wait longer or look at the peer";
        assert_eq!(e.to_string(), said);
        let e = e.during("a barrier").after("no shm");
        assert!(e.to_string().starts_with("rank 3: a barrier: connecting"), "{e}");
        assert!(e.to_string().contains("passed; no shm; wait longer"), "{e}");
        assert_eq!(e.without_peer().peer(), None);
        let e = Error::peer_dead(Rank(4), "it fell silent");
        assert_eq!(e.to_string(), "rank 4: the peer is gone: it fell silent");
        let e = Error::interrupted("waiting");
        assert_eq!(
            (e.kind(), e.to_string().as_str()),
            (ErrorKind::Interrupted, "waiting: the interrupt hook ended the wait")
        );
    }
}
