//! Messages that a poll of the control connection received.

use hmc_mem::os::ring::RingReader;

use crate::base::error::Error;

/// What a poll received, to be acted on without the lock.
#[derive(Debug, Default)]
pub(crate) struct Received {
    /// The peer uses a window of ours no more.
    pub(crate) left: bool,
    /// A message of it makes the link useless.
    pub(crate) failed: Option<Error>,
    pub(crate) messages: bool,
    /// Bytes of any kind.
    pub(crate) any: bool,
    pub(crate) adverts: bool,
    pub(crate) revoked: bool,
    pub(crate) bye: bool,
    pub(crate) rndv: bool,
    /// A message that the system did not take may be sent now.
    pub(crate) space: bool,
    /// Through it the next bytes come.
    pub(crate) ring: Option<RingReader>,
}
