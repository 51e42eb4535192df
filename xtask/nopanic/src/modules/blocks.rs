//! `hmc_core::blocks`.

use crate::values::{done, number, small, span};
use hmc_core::blocks::WindowBlocks;
use hmc_core::range::Extent;

pub(crate) fn call() {
    if let Some(blocks) = WindowBlocks::new(Extent::new(number()), number()) {
        done(WindowBlocks::window(&blocks));
        done(WindowBlocks::block_bytes(&blocks));
        done(WindowBlocks::count(&blocks));
        done(WindowBlocks::table(&blocks));
        done(WindowBlocks::touched(&blocks, span()));
    }
    done(WindowBlocks::word_at(small()));
}
