//! Transfers that own their memory, and windows.

use super::Peer;
use crate::base::error::{Error, ErrorKind, Limit, Result};
use crate::memory::{ConnBuffer, Generations, Region, Span};
use crate::ops::exposure::Exposure;
use crate::ops::window::{SharedWindow, Window};
use hmc_core::types::Access;
use hmc_core::wire::advert::WindowRole;
use hmc_core::wire::message::ControlMessage;
use std::sync::atomic::Ordering;

impl Peer {
    /// Exposes a span to this peer until it is revoked. The peer finds it by `label`.
    ///
    /// # Errors
    /// The span and why: `Full` when too many windows are open, `Quarantined` when too much memory
    /// is, `PeerDead`.
    pub fn expose(
        &self,
        span: Span,
        access: Access,
        label: u64,
    ) -> std::result::Result<Window, (Error, Span)> {
        self.expose_span(span, None, access, label)
    }

    /// As [`Peer::expose`], with generations of the span's blocks, which transfers of the peer may expect. The generations may
    /// belong to several windows at a time, of several peers.
    ///
    /// # Errors
    /// As [`Peer::expose`]; `InvalidConfig` if the generations are of another length, or of another session; `Unsupported` if the
    /// peer's version of HMC, or the transport, compares none.
    pub fn expose_blocks(
        &self,
        span: Span,
        access: Access,
        label: u64,
        generations: &Generations,
    ) -> std::result::Result<Window, (Error, Span)> {
        self.expose_span(span, Some(generations), access, label)
    }

    fn expose_span(
        &self,
        span: Span,
        generations: Option<&Generations>,
        access: Access,
        label: u64,
    ) -> std::result::Result<Window, (Error, Span)> {
        let place = (span.offset(), span.len(), generations);
        match self.grant(span.region(), place, access, label) {
            Ok(grant) => Ok(Window::new(grant, span)),
            Err(e) => Err((e, span)),
        }
    }

    /// Exposes `len` bytes at `offset` of a shared buffer to this peer until that is revoked. The peer finds them by
    /// `label`. Ranges may overlap, and the same one may be exposed to several peers, and be used by operations meanwhile.
    ///
    /// # Errors
    /// `Range`; `InvalidConfig` for a buffer of another session; else as [`Peer::expose`].
    pub fn expose_buffer(
        &self,
        buffer: &ConnBuffer,
        offset: u64,
        len: u64,
        access: Access,
        label: u64,
    ) -> Result<SharedWindow> {
        let grant = self.grant(buffer.region(), (offset, len, None), access, label)?;
        Ok(SharedWindow::new(grant, buffer.clone()))
    }

    /// As [`Peer::expose_buffer`] of as many bytes as the generations cover, with generations of their blocks.
    ///
    /// # Errors
    /// As [`Peer::expose_buffer`]; `InvalidConfig` for generations of another session; `Unsupported` if the peer's version of HMC,
    /// or the transport, compares none.
    pub fn expose_buffer_blocks(
        &self,
        buffer: &ConnBuffer,
        offset: u64,
        access: Access,
        label: u64,
        generations: &Generations,
    ) -> Result<SharedWindow> {
        let place = (offset, generations.blocks().window().len(), Some(generations));
        let grant = self.grant(buffer.region(), place, access, label)?;
        Ok(SharedWindow::new(grant, buffer.clone()))
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
        let advert =
            self.shared.expose(&self.link, region, place, access, WindowRole::Named(label))?;
        if let Err(e) = self.link.send(&ControlMessage::Advert(advert)) {
            self.link.revoke_unannounced(&advert.region);
            return Err(e);
        }
        Ok(Exposure::new(self.clone(), advert.region))
    }
}
