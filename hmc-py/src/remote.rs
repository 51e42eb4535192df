//! Copies between both ends: those of the blocking calls of the C++ HMC, and objects as ends of others.

use std::time::Duration;

use hmc_std::{Address, ConnBuffer, ErrorKind, Op, Peer, Waited};
use pyo3::prelude::*;

use crate::args::Count;
use crate::data::{self, RegisteredBytes};
use crate::errors::OrRaise as _;
use crate::native::Core;

/// Copies of at most so many bytes are over before another thread could have the interpreter.
const SHORT: u64 = 4 << 10;

/// A copy between the two ends' buffers. All in bytes.
#[derive(Clone, Copy)]
pub(crate) struct Ranges {
    local: u64,
    remote: u64,
    len: u64,
}

/// Which way the bytes go.
#[derive(Clone, Copy)]
pub(crate) enum Direction {
    Put,
    Get,
}

/// Places and lengths of a copy between the two ends' buffers.
pub(crate) fn copy((local, remote, len): (Count, Count, Count)) -> Ranges {
    Ranges { local: local.0, remote: remote.0, len: len.0 }
}

pub(crate) fn address_of(py: Python<'_>, text: &str) -> PyResult<Address> {
    py.detach(|| text.parse::<Address>()).or_raise(py)
}

impl Core {
    /// A blocking transfer of the C++ HMC's calls.
    pub(crate) fn move_now(
        &self,
        py: Python<'_>,
        peer: &Peer,
        way: Direction,
        copy: Ranges,
        timeout: Option<f64>,
    ) -> PyResult<()> {
        let timeout = self.waits.cxx(py, timeout)?;
        let buffer = self.buffer(py)?;
        let remote = peer.buffer().or_raise(py)?;
        if copy.len <= SHORT && remote.is_mapped() {
            let range = buffer.range(copy.local, copy.len).or_raise(py)?;
            // As a rule it is over with this. What had to be posted is waited for below.
            let started = match way {
                Direction::Put => remote.put(copy.remote, range).within(timeout).start(),
                Direction::Get => remote.get(copy.remote, range).within(timeout).start(),
            };
            match started {
                // As many operations run as there are slots: as a long one.
                Err(e) if e.kind() == ErrorKind::Full => {}
                Err(e) => return Err(e).or_raise(py),
                Ok(op) => {
                    return match op.wait_for(Duration::ZERO) {
                        Waited::Ended(result) => result.map(drop).or_raise(py),
                        Waited::Limit | Waited::Interrupted => {
                            py.detach(|| op.wait()).map(drop).or_raise(py)
                        }
                    };
                }
            }
        }
        py.detach(|| {
            let range = buffer.range(copy.local, copy.len)?;
            match way {
                Direction::Put => remote.put(copy.remote, range).within(timeout).wait(),
                Direction::Get => remote.get(copy.remote, range).within(timeout).wait(),
            }
        })
        .map(drop)
        .or_raise(py)
    }

    /// Begins a transfer for the C++ HMC's calls.
    pub(crate) fn begin(
        &self,
        py: Python<'_>,
        peer: &Peer,
        way: Direction,
        copy: Ranges,
    ) -> PyResult<Op> {
        let timeout = self.waits.cxx(py, None)?;
        let (buffer, remote) = (self.buffer(py)?, peer.buffer().or_raise(py)?);
        py.detach(|| {
            let range = buffer.range(copy.local, copy.len)?;
            match way {
                Direction::Put => remote.put(copy.remote, range).within(timeout).start_blocking(),
                Direction::Get => remote.get(copy.remote, range).within(timeout).start_blocking(),
            }
        })
        .or_raise(py)
    }

    /// A region over an object's bytes, for spans of it.
    pub(crate) fn region_for(
        &self,
        py: Python<'_>,
        obj: &Bound<'_, PyAny>,
        writes: bool,
    ) -> PyResult<hmc_std::Region> {
        let bytes = data::lasting(obj, writes)?;
        self.live(py)?.memory().register(RegisteredBytes::from(bytes)).or_raise(py)
    }

    /// An object's bytes as memory that is addressed by offset.
    pub(crate) fn share(&self, py: Python<'_>, bytes: data::Bytes) -> PyResult<ConnBuffer> {
        let session = self.live(py)?;
        session
            .memory()
            .register(RegisteredBytes::from(bytes))
            .and_then(|region| region.share())
            .or_raise(py)
    }
}
