//! The records of a peer's completion queue, by their numbers: those of requests, of flushes, of messages.

/// Requests that may be under way to one peer, with those that wait for the progress lock.
pub const MAX_REQUESTS: usize = 256;
/// Flushes under way at a time: more would only be behind each other.
pub(super) const FLUSHES: usize = 4;
/// Messages of the AM path in flight at a time.
pub(super) const SENDS: u16 = 8;
/// Records: one for each request, for each flush, for the endpoint's close, for the first put, and for each message.
pub(super) const RECORDS: u32 = 256 + 4 + 2 + 8;
pub(super) const FIRST_FLUSH: u16 = 256;
pub(super) const CLOSE: u16 = FIRST_FLUSH + 4;
pub(super) const WIREUP: u16 = CLOSE + 1;
pub(super) const FIRST_SEND: u16 = WIREUP + 1;
const _: () = assert!(MAX_REQUESTS == 256 && FLUSHES == 4 && SENDS == 8);
