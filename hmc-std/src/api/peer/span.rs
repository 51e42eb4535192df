//! Transfers that own their memory, and windows.

use super::Peer;
use crate::base::error::{Error, ErrorKind, Result};
use crate::link::op_resources::OpResources;
use crate::link::{LinkState, WaitScope};
use crate::memory::{ConnBuffer, Region, Span};
use crate::ops::future::Op;
use crate::ops::op::OpError;
use crate::ops::post::Then;
use crate::ops::window::{Exposure, RemoteWindow, SharedWindow, Window};
use hmc_core::queue::Transfer;
use hmc_core::types::Access;
use hmc_core::wire::advert::WindowRole;
use hmc_core::wire::message::ControlMessage;
use hmc_core::work::{CompleteWhen, Opcode};
use std::sync::atomic::Ordering;
use std::time::Duration;

impl Peer {
    /// Puts all of `src` to `offset` of one of the peer's windows. The span goes into the operation
    /// and comes back with its result, or with its error once it is fenced.
    ///
    /// # Errors
    /// The span and why it was not posted: `Range`, `Busy`, `PeerDead`, ...
    pub fn put_span(
        &self,
        src: Span,
        dst: &RemoteWindow,
        offset: u64,
    ) -> std::result::Result<Op, OpError> {
        self.move_span(Opcode::Put, src, dst, offset)
    }

    /// Fills all of `dst` from `offset` of one of the peer's windows.
    ///
    /// # Errors
    /// As [`Peer::put_span`].
    pub fn get_span(
        &self,
        dst: Span,
        src: &RemoteWindow,
        offset: u64,
    ) -> std::result::Result<Op, OpError> {
        self.move_span(Opcode::Get, dst, src, offset)
    }

    fn move_span(
        &self,
        code: Opcode,
        span: Span,
        window: &RemoteWindow,
        offset: u64,
    ) -> std::result::Result<Op, OpError> {
        let mine = self.shared.check_process().and_then(|()| self.shared.check_own(span.region()));
        if let Err(error) = mine {
            return Err(OpError { error, span: Some(span) });
        }
        let remote = match window.region.slice(offset, span.len()) {
            Ok(r) => r,
            Err(e) => {
                return Err(OpError { error: e.into(), span: Some(span) });
            }
        };
        if window.link != self.link.id() {
            let e =
                Error::new(ErrorKind::Stale, "the window belongs to another peer, life or session");
            return Err(OpError { error: e.with_peer(self.rank()), span: Some(span) });
        }
        let t = Transfer { opcode: code, when: CompleteWhen::Visible, local: span.slice(), remote };
        // The span stays in `hold` until the operation is posted, and goes into its record then.
        let mut hold = OpResources::span(span);
        let until = self.until();
        match self.submit(code, Then::GoOn, until, |data| data.post(&t, until.at, &mut hold)) {
            Ok(op) => {
                self.link.resume_background();
                Ok(Op::new(self.clone(), op))
            }
            Err(error) => Err(OpError { error, span: hold.take_span() }),
        }
    }

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
            return Err(Error::new(
                ErrorKind::Quarantined,
                format!(
                    "{held} bytes are quarantined because silent peers may still touch them, the \
                     limit is {}; wait for their processes to end",
                    self.shared.config.max_quarantine
                ),
            ));
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

    /// The peer's window of that label, waiting for it up to `timeout`.
    ///
    /// # Errors
    /// `DeadlineExceeded`, `Interrupted`, `PeerDead`.
    pub fn remote_window(&self, label: u64, timeout: Duration) -> Result<RemoteWindow> {
        self.shared.check_process()?;
        let found = self.link.drive(WaitScope::Both, self.shared.until(timeout), |link| {
            // In this order: nothing comes after the end.
            let is_dead = link.state() == LinkState::Dead;
            if let Some(region) = link.data().named_remote(label) {
                return Some(Ok(region));
            }
            is_dead.then(|| Err(link.gone()))
        });
        match found {
            Ok(Ok(region)) => Ok(RemoteWindow { region, link: self.link.id() }),
            Ok(Err(e)) => Err(e),
            Err(stop) => Err(stop
                .error(format_args!("waiting for the window labelled {label}"))
                .with_peer(self.rank())),
        }
    }
}
