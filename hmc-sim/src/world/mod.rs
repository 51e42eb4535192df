//! A whole cluster in one thread, from one seed, in virtual time.
//!
//! [`node`] is the interface: inputs and outputs of a rank. The world simulates everything else: network, clock, processes that
//! crash and pause, and the application of each rank. An oracle with shadow memory checks each answer. It accesses a node only
//! through that interface.
//!
//! - Start at [`run`]: campaigns over many seeds; `report` prints them.
//! - A seed becomes a plan (`generate`, [`swarm`]): a [`script`] of asks and faults, and the network conditions.
//! - `simulation` takes the events in order (`queue`), moves bytes (`network`, `pipe`, `net_faults`), and asks the oracle:
//!   `oracle` and `oracle_results` over `shadow` (bytes), `message_oracle`, `rndv_oracle` and `undelivered` (messages) and
//!   `link_oracle` (links that are up).
//! - `outside` plays processes that do not belong to the cluster.
//! - `probe` wants ranks to connect and put again when all is healed.
//! - One run gives an `outcome`. A failure is a [`finding`]; `shrink` makes its script small.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::indexing_slicing,
    reason = "a simulator for tests: an overflow or a bad index is a bug in it and shall stop it"
)]

pub mod finding;
mod generate;
mod link_oracle;
mod message_oracle;
mod net_faults;
mod network;
pub mod node;
mod nodes;
mod ops;
mod oracle;
mod oracle_results;
mod outcome;
mod outside;
mod pipe;
mod probe;
mod queue;
mod report;
mod rndv_oracle;
pub mod run;
pub mod script;
mod shadow;
mod shrink;
mod simulation;
pub mod stats;
pub mod swarm;
pub mod trace;
mod undelivered;
