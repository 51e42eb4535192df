//! The two ends of a transfer: memory of ours that an argument names, and a window of the peer.

use std::time::Duration;

use hmc_std::request::{Expect, Lent, Notify, Verb};
use hmc_std::{ConnBuffer, Done, Error, ErrorKind, LocalRange, Peer, Remote as StdRemote, Request};
use pyo3::prelude::*;

use crate::data::{self, Bytes, DropDeferred};
use crate::errors::OrRaise as _;
use crate::native::Core;
use crate::region::{Region, Remote};

/// Arrays of at most so many bytes are copied on their way to a window that is not mapped here, for calls that return when that
/// is done: cheaper than to register them for the one call.
pub(crate) const LENT: usize = 64 << 10;

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
    pub(crate) window: StdRemote,
    /// The first byte of ours.
    pub(crate) here: u64,
    /// The first byte in the window.
    pub(crate) there: u64,
    pub(crate) len: u64,
    /// The generation that the blocks in the window must have.
    pub(crate) expect: Option<u32>,
    pub(crate) _deferred: DropDeferred,
}

impl Local {
    /// The memory that an argument names: a region, an array, or the session's buffer. An array is registered, for this one
    /// operation, unless it is `lends` and that is not needed.
    fn new(
        py: Python<'_>,
        session: &Core,
        local: Option<&Bound<'_, PyAny>>,
        writes: bool,
        lends: impl FnOnce(usize) -> bool,
    ) -> PyResult<Self> {
        let Some(local) = local.filter(|l| !l.is_none()) else {
            return session.buffer(py).map(Self::Buffer);
        };
        if let Ok(region) = local.cast::<Region>() {
            if writes {
                region.get().check_writable(py)?;
            }
            return Ok(Self::Buffer(region.get().buffer.clone()));
        }
        let bytes = data::lasting(local, writes)?;
        if lends(bytes.len()) {
            return Ok(Self::Lent(bytes));
        }
        session.share(py, bytes).map(Self::Buffer)
    }

    pub(crate) fn len(&self) -> u64 {
        match self {
            Self::Buffer(buffer) => buffer.len(),
            Self::Lent(bytes) => bytes.view().extent().len(),
        }
    }
}

impl Ends {
    /// Both ends of a transfer: what `local` names, and a window of `peer` in this life of it, or its buffer. `lends`: the call returns
    /// when the transfer has ended.
    pub(crate) fn new(
        py: Python<'_>,
        session: &Core,
        peer: &Peer,
        (local, window): (Option<&Bound<'_, PyAny>>, Option<&Remote>),
        (here, there, nbytes): (u64, u64, Option<u64>),
        (writes, lends): (bool, bool),
    ) -> PyResult<Self> {
        let window = match window {
            Some(window) if window.peer == *peer => window.inner.clone(),
            Some(_) => {
                let what =
                    "the window belongs to another peer, life or session; ask this peer for it";
                return Err(Error::new(ErrorKind::Stale, what).with_peer(peer.rank())).or_raise(py);
            }
            None => peer.buffer().or_raise(py)?,
        };
        let may_lend = |len| lends && (window.is_mapped() || len <= LENT);
        let local = Local::new(py, session, local, writes, may_lend)?;
        let len = nbytes.unwrap_or_else(|| local.len().saturating_sub(here));
        Ok(Self { local, window, here, there, len, expect: None, _deferred: DropDeferred })
    }

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
            Local::Buffer(_) => {
                self.finish(self.window.put(self.there, self.range()?), within, tag)
            }
            Local::Lent(bytes) => {
                self.finish(self.window.put(self.there, self.lent(bytes)?), within, tag)
            }
        }
    }

    /// Gets.
    pub(crate) fn get(&self, within: Duration) -> Result<Done, Error> {
        let (there, within) = (self.there, Some(within));
        match &self.local {
            Local::Buffer(_) => {
                self.expecting(self.window.get(there, self.range()?), within).wait()
            }
            Local::Lent(bytes) => {
                self.expecting(self.window.get(there, self.lent(bytes)?), within).wait()
            }
        }
    }

    /// A request that expects what is expected, within a time if there is one.
    pub(crate) fn expecting<V: Expect>(
        &self,
        request: Request<V>,
        within: Option<Duration>,
    ) -> Request<V> {
        let request = match within {
            Some(time) => request.within(time),
            None => request,
        };
        match self.expect {
            Some(generation) => request.expect(generation),
            None => request,
        }
    }

    fn finish<V: Notify + Expect + Verb<Output = Done, Error = Error>>(
        &self,
        put: Request<V>,
        within: Duration,
        tag: Option<u64>,
    ) -> Result<Done, Error> {
        let put = self.expecting(put, Some(within));
        if let Some(tag) = tag { put.notify(tag).wait() } else { put.wait() }
    }
}
