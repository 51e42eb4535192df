//! Transfers that own their memory, and windows.

use super::Peer;
use crate::base::error::{Error, ErrorKind, Limit, Result};
use crate::memory::{ConnBuffer, Region, Span};
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
        let (region, at, len) = (span.region(), span.offset(), span.len());
        match self.grant(region, at, len, access, label) {
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
        let grant = self.grant(buffer.region(), offset, len, access, label)?;
        Ok(SharedWindow::new(grant, buffer.clone()))
    }

    fn grant(
        &self,
        region: &Region,
        at: u64,
        len: u64,
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
            self.shared.expose(&self.link, region, at, len, access, WindowRole::Named(label))?;
        if let Err(e) = self.link.send(&ControlMessage::Advert(advert)) {
            self.link.revoke_unannounced(&advert.region);
            return Err(e);
        }
        Ok(Exposure::new(self.clone(), advert.region))
    }
}
