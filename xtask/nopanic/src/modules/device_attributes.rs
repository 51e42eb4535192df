//! `hmc_core::device::attributes`.

use crate::values::{any, show, small};
use hmc_core::device::PciAddress;

pub(crate) fn call() {
    let address = PciAddress { domain: small(), bus: any(1), device: any(2), function: any(3) };
    show::<PciAddress>(&address);
}
