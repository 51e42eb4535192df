//! Peers that send data frames against the protocol to a session that serves others: what they send, by the check that
//! finds it.

mod ending;
pub mod losses;
pub mod rig;
pub mod target;
