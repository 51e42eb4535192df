//! The data plane of a link, for any transport.

use std::fmt::Debug;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use hmc_core::region::{Epoch, LocalSlice, WindowDesc, WindowId};
use hmc_core::slots::SlotId;
use hmc_core::transport::{CancelOutcome, DataPlane, Note, PostErrorKind, Transport};
use hmc_core::types::{Access, Caps, MemoryKind};
use hmc_core::window::{ExposeError, WindowEntry, WindowTransition};
use hmc_core::work::{Completion, WorkRequest};
use hmc_mem::os::mapped_window::MappedWindow;
use hmc_mem::os::ring::RingReader;

use crate::base::error::{Error, ErrorKind, Limit, Result};
use crate::memory::{Generations, Region};
use crate::transport::control_only::ControlOnly;
use crate::transport::ctrl_rings::{CtrlRings, PeerRing};
use crate::transport::gate::Gate;
use crate::transport::released::Released;
use crate::transport::stream::PeerLife;
use crate::transport::worker::Worker;

/// What ends the peer's last access to a revoked window.
pub type Fence = hmc_core::transport::Fence<Gate>;

/// A data plane whose opaque types are those of this crate. Every type that fits has it.
pub trait HostDataPlane:
    DataPlane<
        Error = PostErrorKind,
        Memory = Region,
        Released = Released,
        Windows = Box<[WindowEntry]>,
        Gate = Gate,
        Fault = Error,
        Mapped = Arc<MappedWindow>,
        Worker = Worker,
        PeerLife = PeerLife,
    > + Debug
    + Send
{
}

impl<T> HostDataPlane for T where
    T: DataPlane<
            Error = PostErrorKind,
            Memory = Region,
            Released = Released,
            Windows = Box<[WindowEntry]>,
            Gate = Gate,
            Fault = Error,
            Mapped = Arc<MappedWindow>,
            Worker = Worker,
            PeerLife = PeerLife,
        > + Debug
        + Send
{
}

/// The data plane of a link. All calls to it are made under the link's lock.
#[derive(Debug)]
pub struct AnyDataPlane(Box<dyn HostDataPlane>, Option<Arc<CtrlRings>>);

impl AnyDataPlane {
    /// A data plane of whatever transport.
    pub fn new(plane: impl HostDataPlane + 'static) -> Self {
        Self(Box::new(plane), None)
    }

    /// The same of a transport that exchanges rings for control frames.
    pub(crate) fn with_rings(self, rings: Option<Arc<CtrlRings>>) -> Self {
        Self(self.0, rings)
    }

    /// The ring through which this end receives control frames, if the transport exchanges rings. Once.
    pub(crate) fn take_own_ring(&self) -> Option<RingReader> {
        self.1.as_ref()?.take_reader()
    }

    /// The peer's ring, when it has come. Once.
    #[inline]
    pub(crate) fn take_ring(&self) -> Option<PeerRing> {
        self.1.as_ref().filter(|rings| rings.has_writer())?.take_writer()
    }

    /// Of a link that moves no payload.
    pub(crate) fn none() -> Self {
        Self::new(ControlOnly::new())
    }

    /// Exposes a range of `region` to the peer, with the generations of its blocks if it has any. Also returns the note that the
    /// peer must receive before the advert of the window; it is written to `space`.
    pub(crate) fn expose<'a>(
        &mut self,
        region: &Region,
        (local, generations): (LocalSlice, Option<&Generations>),
        access: Access,
        entropy: u64,
        space: &'a mut [u8],
    ) -> Result<(WindowDesc, Option<Note<'a>>)> {
        if self.0.kind().is_none() {
            return Err(Error::new(
                ErrorKind::Unsupported,
                "a peer of the upstream dialect has no data plane here",
            )
            .with_remedy("connect natively"));
        }
        if access.contains(Access::WRITE) {
            region.note_writable();
        }
        self.0.add_memory(region);
        let exposed = self.0.windows().expose(local, MemoryKind::Cpu, access, entropy);
        let exposed = exposed.map_err(|ExposeError::Full { limit }| {
            Error::limited(ErrorKind::Full, Limit::one_more("windows towards this peer", limit))
                .with_remedy("revoke one first")
        })?;
        let compares = generations.is_none_or(|g| {
            self.0.add_memory(g.table());
            self.0.add_generations(g.table(), *g.blocks(), &exposed)
        });
        let opened = match compares {
            true => self.0.open(region, local, &exposed, space),
            false => Err(Error::new(
                ErrorKind::Unsupported,
                "this transport, or the peer's version of HMC, compares no generations",
            )),
        };
        match opened {
            Ok(note) => Ok((exposed, note)),
            Err(e) => {
                // Nobody was told of it.
                let (id, epoch) = (exposed.window, exposed.epoch);
                let _ = self.0.windows().apply(id, epoch, WindowTransition::Revoke);
                self.0.free_window(id, epoch);
                Err(e)
            }
        }
    }

    /// Begins to revoke a window, sends what that refuses, and returns which fence remains.
    ///
    /// # Errors
    /// `NotFound`.
    pub(crate) fn begin_revoke(&mut self, id: WindowId, epoch: Epoch) -> Result<Fence> {
        let fence = self.0.revoke(id, epoch).map_err(|fault| {
            Error::new(ErrorKind::NotFound, format!("the window cannot be revoked: {fault}"))
        })?;
        self.0.flush();
        Ok(fence)
    }

    /// Whether the fence of a revoked window has passed.
    pub(crate) fn has_passed(&self, fence: &Fence, id: WindowId, epoch: Epoch) -> bool {
        match fence {
            Fence::Passed => true,
            Fence::Gate(gate) => gate.wait(std::time::Duration::ZERO),
            Fence::PeerAck => self.0.is_released(id, epoch),
        }
    }

    /// The deadline of a revocation passed before its fence.
    pub(crate) fn quarantine(&mut self, id: WindowId, epoch: Epoch) {
        // An error: its fence has passed meanwhile.
        let _ = self.0.windows().apply(id, epoch, WindowTransition::Expire);
    }

    /// Why it has ended, in words, if it has.
    pub(crate) fn why_closed(&self) -> Option<String> {
        let why = self.0.close_reason()?;
        let mut words = String::new();
        // Writing to a string does not fail.
        let _ = self.0.describe_close(why, &mut words);
        Some(words)
    }
}

impl Deref for AnyDataPlane {
    type Target = dyn HostDataPlane;

    fn deref(&self) -> &Self::Target {
        &*self.0
    }
}

impl DerefMut for AnyDataPlane {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut *self.0
    }
}

impl Transport for AnyDataPlane {
    type Error = PostErrorKind;

    fn caps(&self) -> Caps {
        self.0.caps()
    }

    fn post(&mut self, work: &WorkRequest) -> std::result::Result<(), PostErrorKind> {
        if work.remote.expected.is_some() && !self.0.caps().contains(Caps::GENERATIONS) {
            return Err(PostErrorKind::Unsupported);
        }
        self.0.post(work)
    }

    fn poll(&mut self, out: &mut [Completion]) -> usize {
        self.0.poll(out)
    }

    fn cancel(&mut self, op: SlotId) -> CancelOutcome {
        self.0.cancel(op)
    }
}
