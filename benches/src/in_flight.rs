//! Operations with one peer, of which a limited number is in flight.

use std::collections::VecDeque;

use hmc_std::OpId;
use hmc_std::peer::Peer;

use crate::error::{Res, text};

/// Operations in flight, the oldest first.
pub(crate) struct InFlight<'a> {
    peer: &'a Peer,
    ops: VecDeque<OpId>,
    depth: usize,
}

impl<'a> InFlight<'a> {
    /// None yet, and at most `depth` at a time.
    pub(crate) fn new(peer: &'a Peer, depth: usize) -> Self {
        Self { peer, ops: VecDeque::with_capacity(depth), depth }
    }

    /// Begins an operation, once the oldest has ended where as many as there may be are in flight.
    pub(crate) fn begin(&mut self, begin: impl FnOnce(&Peer) -> hmc_std::Result<OpId>) -> Res<()> {
        if self.ops.len() == self.depth
            && let Some(oldest) = self.ops.pop_front()
        {
            self.peer.wait(oldest).map_err(text)?;
        }
        self.ops.push_back(begin(self.peer).map_err(text)?);
        Ok(())
    }

    /// Waits for all of them.
    pub(crate) fn finish(self) -> Res<()> {
        self.ops.into_iter().try_for_each(|op| self.peer.wait(op).map(drop).map_err(text))
    }
}
