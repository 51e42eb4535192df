//! Rows over UCX: against raw calls of the same library, and against its own `ucx_perftest`.
//!
//! The lanes are those that UCX_TLS allows, for this process, for the passive one and for `ucx_perftest`.
//! `cargo xtask bench --ucx` runs them once for lanes of shared memory and once for TCP.

pub(crate) mod bandwidth;
pub(crate) mod latency;
pub(crate) mod rate;
pub(crate) mod registration;

use std::cell::RefCell;

use hmc_core::types::ConnType;
use hmc_std::{ConnBuffer, LocalRange, Peer, Remote};

use crate::context::{Context, SessionPair};
use crate::error::{Res, text};
use crate::reference::perftest::Perftest;
use crate::reference::ucx_raw::{End, only_tcp};

/// Samples beside `ucx_perftest`: each is two new processes.
const RUNS: usize = 5;

/// Two sessions and two raw ends between the same two processes.
struct Rig {
    // Before `duo`, which ends the other process: an endpoint is closed while its peer lives.
    raw: RefCell<End>,
    pair: RefCell<SessionPair>,
    peer: Peer,
    buffer: ConnBuffer,
    perftest: Res<Perftest>,
    /// Over TCP alone.
    tcp: bool,
}

impl Rig {
    fn new(context: &Context, bytes: u64) -> Res<Self> {
        let mut pair = context.pair(bytes, ConnType::Ucx)?;
        let raw = RefCell::new(End::pair(&mut pair.helper, bytes)?);
        let perftest = Perftest::of(&library()?);
        let (peer, buffer) = (pair.peer.clone(), pair.session.buffer().clone());
        Ok(Self { pair: RefCell::new(pair), peer, buffer, raw, perftest, tcp: only_tcp() })
    }

    /// The other's buffer.
    fn remote(&self) -> Res<Remote> {
        self.peer.buffer().map_err(text)
    }

    /// The first `len` bytes of our buffer.
    fn first(&self, len: u64) -> Res<LocalRange<'_>> {
        self.buffer.range(0, len).map_err(text)
    }

    /// The lanes, for names of lines.
    fn lanes(&self) -> &'static str {
        if self.tcp { "ucx tcp" } else { "ucx shm" }
    }
}

/// The library that sessions use.
fn library() -> Res<std::path::PathBuf> {
    hmc_std::probe::ucx().map(|facts| facts.path).map_err(text)
}
