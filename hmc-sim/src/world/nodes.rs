//! [`Nodes`]: the processes of all ranks, and the access of applications to their memory.

use super::finding::{Kind, Verdict, found};
use super::node::{MemoryArea, Node};
use super::queue::What;

/// The schedule of one process.
#[derive(Default)]
pub(crate) struct Process {
    /// When its next wake-up is scheduled.
    pub(crate) tick_ns: u64,
    pub(crate) paused_until_ns: u64,
    /// Events that wait until it resumes.
    pub(crate) backlog: Vec<What>,
}

/// Access of the applications to their memory.
pub(crate) trait Memory {
    /// Reads. Returns `true` only if all of `out` was filled.
    fn read(&self, rank: u32, area: MemoryArea, offset: u64, out: &mut [u8]) -> bool;
    /// Writes. Returns `false` if there is no such memory.
    fn write(&mut self, rank: u32, area: MemoryArea, offset: u64, bytes: &[u8]) -> bool;
}

/// The nodes of all ranks.
pub(crate) struct Nodes<N>(pub(crate) Vec<Option<N>>);

impl<N: Node> Memory for Nodes<N> {
    fn read(&self, rank: u32, area: MemoryArea, offset: u64, out: &mut [u8]) -> bool {
        self.0[rank as usize].as_ref().is_some_and(|node| node.read(area, offset, out))
    }

    fn write(&mut self, rank: u32, area: MemoryArea, offset: u64, bytes: &[u8]) -> bool {
        self.0[rank as usize].as_mut().is_some_and(|node| node.write(area, offset, bytes))
    }
}

/// Reads bytes of an area into `out`.
pub(crate) fn look(
    memory: &dyn Memory,
    rank: u32,
    area: MemoryArea,
    offset: u64,
    len: usize,
    out: &mut Vec<u8>,
) -> Verdict {
    // A read fills all of it. One that does not must not pass by the bytes of an earlier read.
    out.resize(len, 0);
    if cfg!(debug_assertions) {
        out.fill(0xA5);
    }
    if len != 0 && !memory.read(rank, area, offset, out) {
        let text = format!("rank {rank} cannot read {len} bytes at {offset} of its own {area:?}");
        return found(Kind::Interface, text);
    }
    Ok(())
}
