//! Files over HMC: a request and an answer as JSON, the bytes through a ring of slots.
//!
//! Who receives exposes a window of its own, cut into slots ([`ring`]). Who sends reads the file into
//! registered memory, puts a slot at a time and says so with a tag; the receiver sums the bytes where
//! they lie, writes them to the file and gives the slot back with a tag ([`sender`], [`receiver`]).
//! Each end sends exactly one last step: END or ABORT, DONE or ABORT. [`source`] and [`target`] are the
//! files, [`protocol`] are the messages.

pub(crate) mod meter;
pub(crate) mod protocol;
pub(crate) mod receiver;
pub(crate) mod ring;
pub(crate) mod sender;
pub(crate) mod source;
pub(crate) mod target;
