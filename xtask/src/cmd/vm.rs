//! `cargo xtask vm -- COMMAND`: runs a program of this machine in a small VM with two RDMA devices.
//!
//! The VM consists of Debian packages that are downloaded and extracted below `target/vm`, not installed ([`image`]). Its root
//! file system is that of the host, read-only, with a tmpfs above it: the command has the same files at the same paths. Only
//! files in the output folder are kept. No privilege is needed.

mod accelerator;
mod apt;
mod apt_state;
mod compression;
mod devices;
mod ending;
pub(crate) mod guest;
mod image;
mod initramfs;
mod kernel;
mod machine;
mod merged_usr;
mod modules;
mod packages;
pub(crate) mod qemu;
mod run_folder;
mod stream;
mod task;
