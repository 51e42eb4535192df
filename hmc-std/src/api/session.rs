//! A session: a process's part in a job.

mod builder;
mod info;
mod owner;
mod running;
mod shutdown;
#[cfg(test)]
mod tests;

pub use builder::SessionBuilder;
pub use info::SessionInfo;
pub use running::Session;
pub use shutdown::Shutdown;
