//! Operations of which a limited number is in flight.

use std::collections::VecDeque;

use hmc_std::{Op, Result};

use crate::error::{Res, text};

/// Operations in flight, the oldest first.
pub(crate) struct InFlight {
    ops: VecDeque<Op>,
    depth: usize,
}

impl InFlight {
    /// None yet, and at most `depth` at a time.
    pub(crate) fn new(depth: usize) -> Self {
        Self { ops: VecDeque::with_capacity(depth), depth }
    }

    /// Begins an operation, once the oldest has ended where as many as there may be are in flight.
    pub(crate) fn begin(&mut self, begin: impl FnOnce() -> Result<Op>) -> Res<()> {
        if self.ops.len() == self.depth
            && let Some(oldest) = self.ops.pop_front()
        {
            oldest.wait().map_err(text)?;
        }
        self.ops.push_back(begin().map_err(text)?);
        Ok(())
    }

    /// Waits for all of them.
    pub(crate) fn finish(self) -> Res<()> {
        self.ops.into_iter().try_for_each(|op| op.wait().map(drop).map_err(text))
    }
}
