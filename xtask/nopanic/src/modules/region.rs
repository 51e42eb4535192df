//! `hmc_core::region`.

use crate::values::{access, any, done, epoch, key, kind, number, place, window};
use hmc_core::region::{LocalRegion, WindowDesc, WindowId};
use hmc_core::range::Extent;

pub(crate) fn call() {
    done(WindowId::new(any(0), number()));
    done(WindowId::index(window()));
    let extent = Extent::new(number());
    let local = LocalRegion { key: key(), extent, place: place() };
    done(LocalRegion::slice(&local, number(), number()));
    let remote =
        WindowDesc { window: window(), epoch: epoch(), extent, access: access(), kind: kind() };
    done(WindowDesc::slice(&remote, number(), number()));
}
