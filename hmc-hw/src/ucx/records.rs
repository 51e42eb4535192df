//! The records of a peer's completion queue, by their numbers: those of requests, of flushes, of messages.

/// The number of requests that may be under way to one peer, including those that wait for the progress lock. A further post fails with
/// [`hmc_core::transport::PostErrorKind::Busy`].
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

#[cfg(test)]
mod tests {
    use super::{CLOSE, FIRST_FLUSH, FIRST_SEND, FLUSHES, MAX_REQUESTS, RECORDS, SENDS, WIREUP};

    #[test]
    fn each_record_has_one_use() {
        let mut uses = Vec::new();
        let many =
            |first: u16, count: usize| (first..).take(count).map(u32::from).collect::<Vec<u32>>();
        uses.extend(many(0, MAX_REQUESTS));
        uses.extend(many(FIRST_FLUSH, FLUSHES));
        uses.extend(many(CLOSE, 1));
        uses.extend(many(WIREUP, 1));
        uses.extend(many(FIRST_SEND, SENDS.into()));
        assert_eq!(uses, (0..RECORDS).collect::<Vec<u32>>());
    }
}
