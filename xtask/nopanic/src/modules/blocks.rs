//! `hmc_core::blocks`.

use crate::values::{done, number, small, span};
use hmc_core::blocks::WindowBlocks;
use hmc_core::range::Extent;

pub(crate) fn call() {
    if let Some(blocks) = WindowBlocks::new(Extent::new(number()), number()) {
        done(blocks.window());
        done(blocks.block_bytes());
        done(blocks.count());
        done(blocks.table());
        done(blocks.touched(span()));
    }
    done(WindowBlocks::word_at(small()));
}
