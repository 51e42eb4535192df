//! The control connection as a function of time and frames: no socket, no clock, no storage of its
//! own.
//!
//! The driver's rule: one input, then [`conn::ControlConn::poll_output`] until it is empty, then wait.
//! Read [`state`] first (the whole protocol is one table), then [`conn`].

mod commands;
pub mod conn;
pub mod framer;
pub mod io;
pub mod ranks;
pub mod state;
mod timers;
