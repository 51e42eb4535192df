//! The two ends of a transfer: memory of ours that an argument names, and a window of the peer.

use std::time::Duration;

use hmc_std::request::{Lent, Notify, Verb};
use hmc_std::{ConnBuffer, Done, Error, ErrorKind, LocalRange, Remote, Request};

use crate::data::{Bytes, DropDeferred};

/// Arrays of at most so many bytes are copied on their way to a window that is not mapped here, for calls that return when that
/// is done: cheaper than to register them for the one call.
pub(crate) const LENT: usize = 256 << 10;

/// Memory of ours.
pub(crate) enum Local {
    /// Registered.
    Buffer(ConnBuffer),
    /// An array's, for a call that returns when nothing uses it any more.
    Lent(Bytes),
}

/// What moves between our memory and the peer's.
pub(crate) struct Ends {
    pub(crate) local: Local,
    pub(crate) window: Remote,
    /// The first byte of ours.
    pub(crate) here: u64,
    /// The first byte in the window.
    pub(crate) there: u64,
    pub(crate) len: u64,
    pub(crate) _deferred: DropDeferred,
}

impl Local {
    pub(crate) fn len(&self) -> u64 {
        match self {
            Self::Buffer(buffer) => buffer.len(),
            Self::Lent(bytes) => bytes.view().extent().len(),
        }
    }
}

impl Ends {
    /// The range of registered memory.
    pub(crate) fn range(&self) -> Result<LocalRange<'_>, Error> {
        self.part(self.here, self.len)
    }

    /// Another range of it.
    pub(crate) fn part(&self, offset: u64, len: u64) -> Result<LocalRange<'_>, Error> {
        match &self.local {
            Local::Buffer(buffer) => buffer.range(offset, len),
            Local::Lent(_) => {
                Err(Error::new(ErrorKind::InvalidConfig, "the memory is not registered"))
            }
        }
    }

    fn lent<'b>(&self, bytes: &'b Bytes) -> Result<Lent<'b>, Error> {
        Lent::new(bytes.view()).part(self.here, self.len)
    }

    /// Puts, and a tag after the bytes.
    pub(crate) fn put(&self, within: Duration, tag: Option<u64>) -> Result<Done, Error> {
        match &self.local {
            Local::Buffer(_) => finish(self.window.put(self.there, self.range()?), within, tag),
            Local::Lent(bytes) => {
                finish(self.window.put(self.there, self.lent(bytes)?), within, tag)
            }
        }
    }

    /// Gets.
    pub(crate) fn get(&self, within: Duration) -> Result<Done, Error> {
        match &self.local {
            Local::Buffer(_) => self.window.get(self.there, self.range()?).within(within).wait(),
            Local::Lent(bytes) => {
                self.window.get(self.there, self.lent(bytes)?).within(within).wait()
            }
        }
    }
}

fn finish<V: Notify + Verb<Output = Done, Error = Error>>(
    put: Request<V>,
    within: Duration,
    tag: Option<u64>,
) -> Result<Done, Error> {
    let put = put.within(within);
    if let Some(tag) = tag { put.notify(tag).wait() } else { put.wait() }
}
