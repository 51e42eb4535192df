//! [`DeviceAttributes`]: what a device has and can do.

use core::fmt;

use bitflags::bitflags;

bitflags! {
    /// What a device can do beyond what each device must.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct DeviceFeatures: u32 {
        /// It allocates host memory whose pages stay where they are.
        const PINNED = 1;
        /// [`Copies::copy_rows`](super::Copies::copy_rows) is one call of the vendor's library.
        const ROWS = 1 << 1;
    }
}

/// The place of a device on the PCI bus.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PciAddress {
    /// The domain.
    pub domain: u32,
    /// The bus.
    pub bus: u8,
    /// The device, below 32.
    pub device: u8,
    /// The function, below 8.
    pub function: u8,
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { domain, bus, device, function } = self;
        write!(f, "{domain:04x}:{bus:02x}:{device:02x}.{function:x}")
    }
}

/// What a device has and can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceAttributes {
    /// Its memory in bytes.
    pub total_bytes: u64,
    /// Its place on the bus, if it is on one.
    pub pci: Option<PciAddress>,
    /// What it can do.
    pub features: DeviceFeatures,
}

#[cfg(test)]
mod tests {
    use std::string::ToString as _;

    use super::PciAddress;

    /// As in `/sys/bus/pci/devices`.
    #[test]
    fn an_address_is_written_as_the_system_writes_it() {
        let address = PciAddress { domain: 0, bus: 0x3b, device: 0x1f, function: 7 };
        assert_eq!(address.to_string(), "0000:3b:1f.7");
        let address = PciAddress { domain: 0x1_0000, ..address };
        assert_eq!(address.to_string(), "10000:3b:1f.7");
    }
}
