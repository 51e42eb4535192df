//! The modules that call Linux: mappings, copies between processes, sockets, limits.
//!
//! Everything here is `std` on Linux, x86-64 or aarch64. Failures are typed; nothing is printed or logged.

pub mod cma;
mod descriptor;
pub mod exit;
pub mod fd_passing;
pub mod file;
pub mod fork;
pub mod io;
pub mod life;
pub mod limits;
mod mapped;
pub mod mapped_window;
pub mod memfd;
mod pages;
pub mod process;
pub mod ring;
pub mod words;
