//! Shared parts of the tests: processes to kill, folders for sockets, and time limits.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::indexing_slicing,
    reason = "only tests use this crate; they may panic"
)]

pub mod actor;
pub mod attack;
pub mod bystander;
pub mod campaign;
pub mod child;
pub mod cluster;
pub mod counting;
#[cfg(hmc_mutants)]
pub mod elsewhere;
pub mod env;
pub mod errors;
pub mod events;
pub mod executor;
pub mod fake_ibv;
pub mod fake_library;
pub mod fake_ucp;
pub mod files;
pub mod group_fixture;
pub mod inside;
pub mod lent;
pub mod links;
pub mod listening;
pub mod metered;
#[cfg(hmc_mutants)]
pub mod mutants;
pub mod net;
pub mod pair;
pub mod planted;
pub mod pooled;
pub mod random_collectives;
pub mod raw_frames;
pub mod receiver;
pub mod rogue;
pub mod small_transfers;
pub mod soak;
pub mod strace;
pub mod strided;
pub mod tag_list;
pub mod ucx_pair;
pub mod ucx_planes;
pub mod verbs_planes;
pub mod verbs_sessions;
pub mod wrong;
