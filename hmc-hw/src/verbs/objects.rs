//! Objects of one device. Each owns the objects it was made from, so they are destroyed in the order that the
//! device requires.

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
