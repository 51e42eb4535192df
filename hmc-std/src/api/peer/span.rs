//! Transfers that own their memory, and windows.

use super::Peer;
use crate::base::error::{Error, ErrorKind, Limit, Result};
use crate::link::Serves;
use crate::memory::{ConnBuffer, Generations, Region};
use crate::ops::exposable::Exposable;
use crate::ops::exposure::Exposure;
use crate::ops::window::Window;
use hmc_core::types::Access;
use hmc_core::wire::advert::WindowRole;
use hmc_core::wire::message::ControlMessage;
use std::sync::atomic::Ordering;

impl Peer {
    /// Exposes memory to this peer until the window is revoked: a [`Span`](crate::Span), or a range of a shared buffer. The peer
    /// finds it by `label` ([`Peer::window`]).
    ///
    /// # Errors
    /// `Full` if too many windows are open; `Quarantined` if peers may still access too much memory; `InvalidConfig` for memory of
    /// another session; `PeerDead`; `Forked`. A span is returned with the error.
    pub fn expose<M: Exposable>(
        &self,
        memory: M,
        access: Access,
        label: u64,
    ) -> std::result::Result<Window<M::Held>, M::Error> {
        self.expose_as(memory, None, access, label)
    }

    /// As [`Peer::expose`], with generations of the memory's blocks, which transfers of the peer may expect. The generations may
    /// belong to several windows at a time, of several peers.
    ///
    /// # Errors
    /// As [`Peer::expose`]; `InvalidConfig` if the generations are of another length, or of another session; `Unsupported` if the
    /// peer's version of HMC, or the transport, compares none.
    pub fn expose_blocks<M: Exposable>(
        &self,
        memory: M,
        access: Access,
        label: u64,
        generations: &Generations,
    ) -> std::result::Result<Window<M::Held>, M::Error> {
        self.expose_as(memory, Some(generations), access, label)
    }

    fn expose_as<M: Exposable>(
        &self,
        memory: M,
        generations: Option<&Generations>,
        access: Access,
        label: u64,
    ) -> std::result::Result<Window<M::Held>, M::Error> {
        let (region, at, len) = memory.place();
        match self.grant(region, (at, len, generations), access, label) {
            Ok(grant) => Ok(Window::new(grant, memory.into_held())),
            Err(e) => Err(memory.into_error(e)),
        }
    }

    /// Exposes all of a shared buffer without an advert: the caller tells the peer the window's name by other means.
    pub(crate) fn expose_unannounced(
        &self,
        buffer: ConnBuffer,
        access: Access,
    ) -> Result<Window<ConnBuffer>> {
        self.link.check_open()?;
        self.link.has_channels.store(true, Ordering::Relaxed);
        let place = (0, buffer.len(), None);
        let role = WindowRole::Named(0);
        let advert =
            self.shared.expose(&self.link, buffer.region(), place, access, role, Serves::All)?;
        Ok(Window::new(Exposure::new(self.clone(), advert.region), buffer))
    }

    fn grant(
        &self,
        region: &Region,
        place: (u64, u64, Option<&Generations>),
        access: Access,
        label: u64,
    ) -> Result<Exposure> {
        self.shared.check_process()?;
        self.shared.check_own(region)?;
        let held = self.shared.tally.window_bytes.load(Ordering::Acquire);
        if held > self.shared.config.max_quarantine {
            let name = "bytes quarantined because silent peers may still touch them";
            let limit = Limit::new(name, held, self.shared.config.max_quarantine);
            return Err(Error::limited(ErrorKind::Quarantined, limit)
                .with_remedy("wait for their processes to end"));
        }
        self.link.check_open()?;
        let advert = self.shared.expose(
            &self.link,
            region,
            place,
            access,
            WindowRole::Named(label),
            Serves::All,
        )?;
        if let Err(e) = self.link.send(&ControlMessage::Advert(advert)) {
            self.link.revoke_unannounced(&advert.region);
            return Err(e);
        }
        Ok(Exposure::new(self.clone(), advert.region))
    }
}
