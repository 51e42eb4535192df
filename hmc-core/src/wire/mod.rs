//! Bytes and their meaning: frames of the control connection and of the data stream.
//!
//! `docs/WIRE.md` has the byte tables. Everything is little-endian and unaligned. Nothing here
//! allocates, copies a payload, or trusts a length: each one is compared with [`crate::limits`]
//! before it sizes anything. Read [`header`] first, then [`message`].

pub mod advert;
pub mod cursor;
pub mod cxx;
pub mod data;
pub mod header;
pub mod held;
pub mod hello;
pub mod message;
pub mod proof;
pub mod reject;
pub mod rndv;
