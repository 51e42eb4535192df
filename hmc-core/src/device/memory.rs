//! [`DeviceMemory`]: the regions that a device can reach.

use super::DeviceError;
use crate::place::MemoryClass;
use crate::region::{LocalRegion, RegionKey};

/// Memory that is wanted of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allocation {
    /// Bytes.
    pub len_bytes: u64,
    /// Which memory: all devices have [`MemoryClass::Device`].
    pub class: MemoryClass,
}

impl Allocation {
    /// Memory of the device itself.
    #[must_use]
    pub const fn device(len_bytes: u64) -> Self {
        Self { len_bytes, class: MemoryClass::Device }
    }
}

/// Memory of a device at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryUsage {
    /// Bytes that can be allocated, as the runtime says. More may be refused earlier.
    pub free_bytes: u64,
    /// Bytes that it has.
    pub total_bytes: u64,
}

/// The memory that a device can reach: its own, and what others own and is added to its table.
///
/// The caller chooses the keys. It uses none twice, so a key that is in the table names one region for ever.
pub trait DeviceMemory {
    /// Why a request was refused.
    type Error: DeviceError;
    /// A handle of memory that another owns: host memory, or memory of another device. Its owner keeps the bytes until all
    /// devices have freed it.
    type Memory;

    /// New memory under `key`. Its bytes are zero. It may take as long as the vendor's allocation does.
    ///
    /// # Errors
    /// `Region` if the key is in the table, `NoSpace`, `Unsupported` for a class that the device does not have, `Lost`, `Other`.
    fn alloc(&mut self, key: RegionKey, what: &Allocation) -> Result<LocalRegion, Self::Error>;

    /// Adds memory that another owns. No byte is copied.
    ///
    /// # Errors
    /// `Region` if the key is in the table, `Unsupported` if the device cannot reach such memory, `Lost`, `Other`.
    fn add(&mut self, key: RegionKey, memory: Self::Memory) -> Result<LocalRegion, Self::Error>;

    /// Gives memory back that was allocated, and forgets memory that was added. It may take as long as the vendor's
    /// deallocation does.
    ///
    /// # Errors
    /// `Region` when there is none of that key or a copy in flight uses it, `Lost`, `Other`: then the
    /// memory is not given back.
    fn free(&mut self, key: RegionKey) -> Result<(), Self::Error>;

    /// A handle of the region of that key, to add it to other devices of the same runtime. `None` if there is no such region.
    fn memory(&self, key: RegionKey) -> Option<Self::Memory>;

    /// The region of that key.
    fn region(&self, key: RegionKey) -> Option<LocalRegion>;

    /// How much memory the device has left.
    ///
    /// # Errors
    /// `Lost`, `Other`.
    fn usage(&mut self) -> Result<MemoryUsage, Self::Error>;
}
