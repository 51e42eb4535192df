//! The control connection as a function of time and frames: no socket, no clock, no storage of its own.
//!
//! A driver passes in one input, then calls [`conn::ControlConn::poll_output`] until it returns `None`, then waits.
//! Read [`state`] first (the protocol is one table), then [`conn`].

mod commands;
pub mod conn;
pub mod framer;
pub mod io;
pub mod ranks;
pub mod state;
mod timers;
