//! Values, errors, the clock, locks and settings, which all other modules use.

pub mod address;
pub(crate) mod clock;
pub mod config;
pub(crate) mod entropy;
pub mod error;
pub(crate) mod event_count;
pub mod identity;
pub(crate) mod lock;
pub(crate) mod op_name;
pub(crate) mod paths;
pub(crate) mod polling;
pub(crate) mod private_ranks;
pub mod process;
pub(crate) mod secret;
pub(crate) mod wait_limit;
