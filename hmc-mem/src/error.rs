//! Errors of memory: [`MemError`] names the value, the limit and the remedy.
//!
//! Misuse of one view of shared bytes has its own small type, [`crate::shared::SharedError`].

use crate::shared::SharedError;

/// The limit that left too little memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MemLimit {
    /// `MemAvailable` of `/proc/meminfo`.
    MemAvailable,
    /// A control group's limit (`memory.max`, or `memory.limit_in_bytes` of v1).
    Cgroup,
    /// The kernel refused while it committed the pages (ENOSPC, ENOMEM).
    Kernel,
    /// The limit of this process's address space (`RLIMIT_AS`).
    AddressSpace,
}

impl MemLimit {
    /// Returns the name that the system's documentation has for the limit.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::MemAvailable => "MemAvailable",
            Self::Cgroup => "the control group's memory limit",
            Self::Kernel => "the kernel's commit",
            Self::AddressSpace => "the limit of address space",
        }
    }
}

/// Why memory could not be allocated, mapped, shared or accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MemError {
    /// There is not enough memory. Checked before pages are taken; nothing was taken.
    NoSpace {
        /// Bytes asked for.
        need: u64,
        /// Bytes there are.
        have: u64,
        /// What limits them.
        limit: MemLimit,
    },
    /// Longer than this machine can address.
    TooLong {
        /// Bytes asked for.
        len: u64,
        /// The most there can be.
        limit: u64,
    },
    /// A peer's descriptor lacks the seals that keep its pages from vanishing.
    NotSealed {
        /// The seals it has (`F_GET_SEALS`).
        have: u32,
        /// The seals it needs.
        need: u32,
    },
    /// A peer's memory is smaller than it claims.
    ShortFile {
        /// Bytes claimed: offset and length together.
        claim: u64,
        /// Bytes there are.
        size: u64,
    },
    /// A peer's memory has pages that were never committed: to touch them could fail.
    Sparse {
        /// Bytes that should be committed.
        claim: u64,
        /// Bytes that are.
        committed: u64,
    },
    /// An offset or length that must be a multiple of a page is not.
    Unaligned {
        /// The number.
        value: u64,
        /// The page size, in bytes.
        align: u64,
    },
    /// The mapping has no descriptor to hand out (an empty region, or pages that were replaced).
    NotExportable,
    /// No descriptors left (`RLIMIT_NOFILE`, or the system's table).
    NoFds {
        /// The limit of this process.
        limit: u64,
    },
    /// Locked memory is used up (`RLIMIT_MEMLOCK`).
    MemlockLimit {
        /// Bytes asked for.
        need: u64,
        /// The limit.
        have: u64,
    },
    /// A range, length or right of a view was wrong.
    Shared(SharedError),
    /// A system call failed in a way that has no better name.
    Os {
        /// The call.
        call: &'static str,
        /// The number that it gave (`errno`).
        errno: i32,
    },
}

impl MemError {
    /// Returns what the user can do about the error, as an English sentence.
    #[must_use]
    pub const fn remedy(&self) -> &'static str {
        match self {
            Self::NoSpace { limit: MemLimit::Cgroup, .. } => {
                "ask for a smaller region or raise the control group's memory limit"
            }
            Self::NoSpace { limit: MemLimit::AddressSpace, .. } => {
                "ask for a smaller region or raise `ulimit -v`"
            }
            Self::NoSpace { .. } => "ask for a smaller region or free memory",
            Self::TooLong { .. } => "ask for a smaller region",
            Self::NotSealed { .. } | Self::ShortFile { .. } | Self::Sparse { .. } => {
                "the peer is broken or hostile; close the link and update the peer"
            }
            Self::Unaligned { .. } => "round the offset and the length to whole pages",
            Self::NotExportable => "allocate a new region for the new window",
            Self::NoFds { .. } => "raise `ulimit -n` or close links",
            Self::MemlockLimit { .. } => "raise `ulimit -l` (limits.conf: memlock)",
            Self::Shared(_) => "correct the offset, the length or the right",
            Self::Os { .. } => "see the manual page of the call",
        }
    }
}

impl core::fmt::Display for MemError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match *self {
            Self::NoSpace { need, have, limit } => {
                write!(f, "not enough memory: need {need} bytes, {} leaves {have}", limit.name())?;
            }
            Self::TooLong { len, limit } => {
                write!(f, "{len} bytes are more than this machine can map ({limit})")?;
            }
            Self::NotSealed { have, need } => {
                write!(f, "the peer's memory has seals {have:#x}, needs {need:#x}")?;
            }
            Self::ShortFile { claim, size } => {
                write!(f, "the peer claims {claim} bytes of a file of {size}")?;
            }
            Self::Sparse { claim, committed } => {
                write!(f, "the peer claims {claim} bytes but committed {committed}")?;
            }
            Self::Unaligned { value, align } => {
                write!(f, "{value} is not a multiple of the page size {align}")?;
            }
            Self::NotExportable => f.write_str("this memory has no descriptor to hand out")?,
            Self::NoFds { limit } => write!(f, "no file descriptors left (limit {limit})")?,
            Self::MemlockLimit { need, have } => {
                write!(f, "cannot lock {need} bytes, the limit is {have}")?;
            }
            Self::Shared(ref e) => write!(f, "{e}")?,
            Self::Os { call, errno } => write!(f, "{call} failed with errno {errno}")?,
        }
        write!(f, "; {}", self.remedy())
    }
}

impl core::error::Error for MemError {}

impl From<SharedError> for MemError {
    fn from(e: SharedError) -> Self {
        Self::Shared(e)
    }
}
