//! [`Nodes`]: the processes of all ranks, as the applications see them.

use super::node::{Area, Node};
use super::oracle::Memory;

/// The nodes, as the applications see them.
pub(crate) struct Nodes<N>(pub(crate) Vec<Option<N>>);

impl<N: Node> Memory for Nodes<N> {
    fn read(&self, rank: u32, area: Area, offset: u64, out: &mut [u8]) -> bool {
        self.0[rank as usize].as_ref().is_some_and(|node| node.read(area, offset, out))
    }

    fn write(&mut self, rank: u32, area: Area, offset: u64, bytes: &[u8]) -> bool {
        self.0[rank as usize].as_mut().is_some_and(|node| node.write(area, offset, bytes))
    }
}
