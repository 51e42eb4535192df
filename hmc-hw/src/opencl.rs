//! Devices behind OpenCL: GPUs, accelerators and processors of every vendor with an installable client driver.

mod fault;
mod functions;
mod library;
mod sys;
#[cfg(test)]
mod tests;

pub use fault::OpenClFault;
pub use library::{Library, LoadError, Search};
