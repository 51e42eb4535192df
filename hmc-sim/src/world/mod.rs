//! A whole cluster in one thread, from one seed, in virtual time.
//!
//! [`node`] is the border: what a rank is told and what it says. The world plays everything else:
//! network, clock, processes that crash and pause, and the application of each rank, and an oracle
//! on plain vectors judges each answer. It never looks into a node except through that border.
//!
//! - Start at [`run`]: campaigns over many seeds; `report` prints them.
//! - A seed becomes a plan (`draft`, [`swarm`]): a [`script`] of asks and faults, and the network conditions.
//! - `engine` takes the events in order (`queue`), moves bytes (`net`, `pipe`, `outage`), and asks the
//!   judge: `oracle` and `answers` over `ground` (bytes), `mail` and `undelivered` (messages) and `links` (who is up).
//! - `outside` plays processes that do not belong to the cluster.
//! - `probe` wants ranks to connect and put again when all is healed.
//! - One run gives an `outcome`. A failure is a [`finding`]; `shrink` makes its script small.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::indexing_slicing,
    reason = "a simulator for tests: an overflow or a bad index is a bug in it and shall stop it"
)]

mod answers;
mod draft;
mod engine;
pub mod finding;
mod ground;
mod links;
mod mail;
mod net;
pub mod node;
mod nodes;
mod ops;
mod oracle;
mod outage;
mod outcome;
mod outside;
mod pipe;
mod probe;
mod queue;
mod relay;
mod report;
pub mod run;
pub mod script;
mod shrink;
pub mod stats;
pub mod swarm;
pub mod trace;
mod undelivered;
