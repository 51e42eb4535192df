//! Devices behind OpenCL: GPUs, accelerators and processors of every vendor with an installable client driver.

mod functions;
mod sys;
#[cfg(test)]
mod tests;
