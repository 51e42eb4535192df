//! A whole cluster in one thread, from one seed, in virtual time.
//!
//! [`node`] is the interface: inputs and outputs of a rank. The world simulates everything else: network, clock, processes that
//! crash and pause, and the application of each rank. An oracle with shadow memory checks each result. It accesses a node only
//! through that interface.
//!
//! - Start at [`run`]: campaigns over many seeds; `report` prints them.
//! - A seed becomes a plan (`generate`, [`swarm`]): a [`script`] of requests and faults, and the network conditions.
//! - `simulation` takes the events in order (`queue`), moves bytes (`network`, `pipe`, `net_faults`), and calls the oracle:
//!   `oracle` and `oracle_results` over `shadow` (bytes), `message_oracle`, `rndv_oracle` and `undelivered` (messages) and
//!   `link_oracle` (links that are up).
//! - `outside` simulates processes that do not belong to the cluster.
//! - `probe` checks that ranks can connect and put again when all faults are healed.
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
