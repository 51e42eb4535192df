//! Progress when no caller waits: the progress thread, and its reactions to events.

pub(crate) mod service;
pub(crate) mod start;
pub(crate) mod thread;
pub(crate) mod workers;
