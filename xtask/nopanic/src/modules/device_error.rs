//! `hmc_core::device::error`: what an error of a device says of itself.

use crate::values::{any, done};
use hmc_core::device::{DeviceError, DeviceErrorKind};

pub(crate) fn call() {
    let e = any(DeviceErrorKind::Busy);
    done((e.kind(), e.call(), e.code()));
}
