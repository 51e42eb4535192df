//! A whole cluster in one thread, from one seed, in virtual time.
//!
//! [`node`] is the border: what a rank is told and what it says. The world plays everything else:
//! network, clock, processes that crash and pause, and the application of each rank, and an oracle
//! on plain vectors judges each answer. It never looks into a node except through that border.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::indexing_slicing,
    reason = "a simulator for tests: an overflow or a bad index is a bug in it and shall stop it"
)]

mod answers;
mod engine;
pub mod finding;
mod ground;
mod links;
mod mail;
mod net;
pub mod node;
mod ops;
mod oracle;
mod pipe;
mod probe;
mod queue;
pub mod report;
pub mod run;
pub mod script;
mod shrink;
pub mod stats;
pub mod swarm;
mod trace;
