//! The numbers of a reduction: in memory that is the caller's alone, or that others may write meanwhile.

use std::ops::Range;

use hmc_mem::error::MemError;
use hmc_mem::shared::SharedBytes;

use super::call::len_of;
use super::element::{Element, Reduce};
use crate::base::error::Result;
use crate::memory::check_writable;

/// Bytes that are reckoned at a time: they stay in the nearest cache. A multiple of all elements' lengths.
const RECKONED_BYTES: usize = 4096;

/// Where numbers are, and what is done with others'.
pub(super) struct Numbers<'a> {
    pub(super) element: Element,
    pub(super) op: Reduce,
    pub(super) memory: Memory<'a>,
}

/// Memory that can be written.
pub(super) enum Memory<'a> {
    /// Nobody else uses it during the call.
    Exclusive(&'a mut [u8]),
    /// Others may write it meanwhile.
    Shared(SharedBytes<'a>),
}

impl Memory<'_> {
    /// The bytes, to be sent and received into.
    pub(super) fn view(&mut self) -> SharedBytes<'_> {
        match self {
            Self::Exclusive(bytes) => SharedBytes::of_mut(bytes),
            Self::Shared(view) => *view,
        }
    }

    /// # Errors
    /// `InvalidConfig` for memory that may only be read.
    pub(super) fn check_writable(&self) -> Result<()> {
        match self {
            Self::Exclusive(_) => Ok(()),
            Self::Shared(view) => check_writable(view),
        }
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Self::Exclusive(bytes) => bytes.len(),
            Self::Shared(view) => len_of(view),
        }
    }
}

impl Numbers<'_> {
    /// Reduces the blocks that lie one behind the other in `others`, each as long as `own`, into that range, in their order.
    ///
    /// # Errors
    /// `own` is no range of the memory.
    pub(super) fn fold(&mut self, own: Range<usize>, others: &[u8]) -> Result<()> {
        let len = own.len();
        if len == 0 {
            return Ok(());
        }
        let (element, op) = (self.element, self.op);
        let fold = |numbers: &mut [u8], done: usize| {
            for block in others.chunks_exact(len) {
                element.reduce(op, numbers, block.get(done..).unwrap_or_default());
            }
        };
        let pieces = (0..len).step_by(RECKONED_BYTES);
        match &mut self.memory {
            Memory::Exclusive(bytes) => {
                let own = bytes.get_mut(own).unwrap_or_default();
                for (numbers, done) in own.chunks_mut(RECKONED_BYTES).zip(pieces) {
                    fold(numbers, done);
                }
            }
            // In private memory, and back.
            Memory::Shared(view) => {
                let mut private = [0; RECKONED_BYTES];
                for done in pieces {
                    let at = own.start.saturating_add(done);
                    let count = len.saturating_sub(done).min(RECKONED_BYTES);
                    let range = view.span(widen(at), widen(count)).map_err(MemError::from)?;
                    let numbers = private.get_mut(..count).unwrap_or_default();
                    view.read_at(range, numbers).map_err(MemError::from)?;
                    fold(numbers, done);
                    view.write_at(range, numbers).map_err(MemError::from)?;
                }
            }
        }
        Ok(())
    }
}

fn widen(n: usize) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}
