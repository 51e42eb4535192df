//! Small types of the protocol: ranks, memory kinds, transport kinds, access rights, status codes.

use bitflags::bitflags;
use zerocopy::{Immutable, IntoBytes};

/// The version of the native dialect.
pub const VERSION: u16 = 2;

/// The number of a process in a job. At most [`crate::limits::MAX_PEERS`] - 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Rank(pub u32);

impl core::fmt::Display for Rank {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// The life of a rank: a process that starts again with the same rank has a higher incarnation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Incarnation(pub u64);

/// Where bytes live. The first six numbers are those of the C++ HMC's `MemoryType` (mem.h:31-38).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, IntoBytes, Immutable)]
#[non_exhaustive]
#[repr(u8)]
pub enum MemoryKind {
    /// Host memory.
    Cpu = 1,
    /// NVIDIA GPU memory (CUDA).
    NvidiaGpu = 2,
    /// AMD GPU memory (ROCm).
    AmdGpu = 3,
    /// Cambricon MLU memory.
    CambriconMlu = 4,
    /// Moore Threads GPU memory (MUSA).
    MooreGpu = 5,
    /// Huawei Ascend NPU memory.
    HuaweiAscendNpu = 6,
    /// Hygon DCU memory (DTK).
    HygonDcu = 7,
    /// An OpenCL device's memory.
    OpenCl = 8,
}

impl MemoryKind {
    /// All kinds, in the order of their numbers.
    pub const ALL: [Self; 8] = [
        Self::Cpu,
        Self::NvidiaGpu,
        Self::AmdGpu,
        Self::CambriconMlu,
        Self::MooreGpu,
        Self::HuaweiAscendNpu,
        Self::HygonDcu,
        Self::OpenCl,
    ];

    /// The name of the vendor's runtime, as in `cuda:0`; `cpu` for host memory.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::NvidiaGpu => "cuda",
            Self::AmdGpu => "hip",
            Self::CambriconMlu => "cnrt",
            Self::MooreGpu => "musa",
            Self::HuaweiAscendNpu => "acl",
            Self::HygonDcu => "dtk",
            Self::OpenCl => "opencl",
        }
    }

    /// The kind that a number on the wire names, if any.
    #[must_use]
    pub const fn from_wire(n: u8) -> Option<Self> {
        Some(match n {
            1 => Self::Cpu,
            2 => Self::NvidiaGpu,
            3 => Self::AmdGpu,
            4 => Self::CambriconMlu,
            5 => Self::MooreGpu,
            6 => Self::HuaweiAscendNpu,
            7 => Self::HygonDcu,
            8 => Self::OpenCl,
            _ => return None,
        })
    }

    /// The number that names this kind on the wire.
    #[must_use]
    pub const fn to_wire(self) -> u8 {
        zerocopy::transmute!(self)
    }
}

/// How two ranks move data. `Auto` chooses per pair; a named kind never falls back to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum ConnType {
    /// The best transport that both ends have.
    #[default]
    Auto,
    /// A session's link to itself.
    Loopback,
    /// Shared memory between two processes of one host.
    Shm,
    /// A TCP stream.
    Tcp,
    /// UCX.
    Ucx,
    /// RDMA verbs.
    Rdma,
    /// A transport that the application brings, by its name. It is used only where it is named.
    Custom(&'static str),
}

impl ConnType {
    /// The name used in addresses, logs and error messages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Loopback => "loopback",
            Self::Shm => "shm",
            Self::Tcp => "tcp",
            Self::Ucx => "ucx",
            Self::Rdma => "rdma",
            Self::Custom(name) => name,
        }
    }
}

impl core::fmt::Display for ConnType {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.name())
    }
}

bitflags! {
    /// What a peer may do inside a window.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct Access: u8 {
        /// The peer may get bytes.
        const READ = 1;
        /// The peer may put bytes.
        const WRITE = 2;
    }
}

bitflags! {
    /// What a transport can do. Absent bits are answered with `Unsupported`, never emulated silently.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct Caps: u32 {
        /// One-sided writes.
        const PUT = 1;
        /// One-sided reads.
        const GET = 1 << 1;
        /// A tag delivered after the bytes of a put.
        const NOTIFY = 1 << 2;
        /// The target, not the initiator, checks every window access.
        const TARGET_CHECKED = 1 << 3;
        /// A posted operation can be withdrawn.
        const CANCEL = 1 << 4;
        /// Generations of blocks that a request expects are compared, before and after its bytes move.
        const GENERATIONS = 1 << 5;
    }
}

/// The status codes of the C++ HMC (`status_t`, status.h:23-30). Every error maps to one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Status {
    /// It worked.
    Success = 0,
    /// It failed.
    Error = 1,
    /// This build, machine or transport cannot do it.
    Unsupport = 2,
    /// The caller asked for something that makes no sense.
    InvalidConfig = 3,
    /// A deadline passed.
    Timeout = 4,
    /// A peer, region or operation of that name does not exist.
    NotFound = 5,
}

#[cfg(test)]
mod tests {
    use super::MemoryKind;

    #[test]
    fn memory_kinds_survive_the_wire() {
        let known: std::vec::Vec<u8> = (0..=u8::MAX)
            .filter(|n| MemoryKind::from_wire(*n).is_some_and(|k| k.to_wire() == *n))
            .collect();
        assert_eq!(known, MemoryKind::ALL.map(MemoryKind::to_wire));
    }
}
