//! Objects of one device, each of which holds what it was made from: they are destroyed in the order that the device demands.

mod completion_queue;
mod memory_region;
mod memory_window;
mod protection_domain;
mod queue_pair;

pub(super) use completion_queue::CompletionQueue;
pub(super) use memory_region::MemoryRegion;
pub(super) use memory_window::{MemoryWindow, WindowRange};
pub(super) use protection_domain::ProtectionDomain;
pub(super) use queue_pair::{PathTo, QueuePair, QueueSizes};
