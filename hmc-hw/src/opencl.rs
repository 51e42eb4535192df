//! Devices behind OpenCL: GPUs, accelerators and processors of every vendor with an installable client driver.
//!
//! Start at [`Runtime::open`], which lists the devices, and [`Runtime::device`], which opens one as a
//! [`Device`](hmc_core::device::Device) of hmc-core. OpenCL 1.2 is enough.
//!
//! - Memory of a device is a buffer, a handle and no address. All devices of a platform share one context, so that each can copy
//!   to and from the others' buffers; those of different platforms cannot.
//! - OpenCL has no query for free memory: [`usage`](hmc_core::device::DeviceMemory::usage) counts what was allocated here.
//! - A forked child must not use what its parent opened: each call is refused with `Forked`, and drops do nothing.

mod context;
mod device;
mod event;
mod fault;
mod functions;
mod library;
mod memory;
mod queue;
mod runtime;
mod stream;
mod sys;
#[cfg(test)]
mod tests;

pub use device::OpenClDevice;
pub use fault::OpenClFault;
pub use library::{Library, LoadError, Search};
pub use memory::Memory;
pub use runtime::Runtime;
