//! Copies between both ends: those of the blocking calls of the C++ HMC, and objects as ends of others.

use hmc_std::{Address, ConnBuffer, Copy, Direction, OpId, Peer};
use pyo3::prelude::*;

use crate::args::Count;
use crate::data::{self, RegisteredBytes};
use crate::errors::OrRaise as _;
use crate::native::Core;

/// Copies of at most so many bytes are over before another thread could have the interpreter.
const SHORT: u64 = 4 << 10;

/// Places and lengths of a copy between the two ends' buffers.
pub(crate) fn copy((local, remote, len): (Count, Count, Count)) -> Copy {
    Copy { local_offset: local.0, remote_offset: remote.0, len: len.0 }
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
        copy: Copy,
        timeout: Option<f64>,
    ) -> PyResult<()> {
        if copy.len <= SHORT && peer.transfer_now(way, copy).or_raise(py)? {
            return Ok(());
        }
        let timeout = self.waits.cxx(py, timeout)?;
        py.detach(|| peer.transfer_within(way, copy, timeout)).or_raise(py)
    }

    /// Begins a transfer for the C++ HMC's calls.
    pub(crate) fn begin(
        &self,
        py: Python<'_>,
        peer: &Peer,
        way: Direction,
        copy: Copy,
    ) -> PyResult<OpId> {
        let timeout = self.waits.cxx(py, None)?;
        py.detach(|| peer.begin_within(way, copy, timeout)).or_raise(py)
    }

    /// A region over an object's bytes, for spans of it.
    pub(crate) fn region_for(
        &self,
        py: Python<'_>,
        obj: &Bound<'_, PyAny>,
        writes: bool,
    ) -> PyResult<hmc_std::Region> {
        let bytes = data::lasting(obj, writes)?;
        self.live(py)?.register(RegisteredBytes::from(bytes)).or_raise(py)
    }

    /// An object's bytes as memory that is addressed by offset.
    pub(crate) fn share(&self, py: Python<'_>, bytes: data::Bytes) -> PyResult<ConnBuffer> {
        let session = self.live(py)?;
        session
            .register(RegisteredBytes::from(bytes))
            .and_then(|region| session.share(region))
            .or_raise(py)
    }
}
