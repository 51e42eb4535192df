//! What a link does for UCX: tells cards and keys, hears the peer's, and lets a waiter sleep on the worker.

use std::sync::Arc;

use hmc_core::region::WindowDesc;
use hmc_core::types::ConnType;
use hmc_core::wire::advert::{ENDPOINT_UCX, ENDPOINT_UCX_KEY, EndpointBlob, EndpointDesc};
use hmc_core::wire::message::ControlMessage;

use super::Link;
use crate::clock;
use crate::error::Result;
use crate::transport::Port;
use crate::transport::ucx::Bell;
use crate::ucx::Seat;

impl Link {
    /// The peer told what it takes to reach it, or one of its windows, by some transport. Those that this link does not
    /// use are passed over.
    ///
    /// # Errors
    /// The transport cannot use it.
    pub(super) fn learn_endpoint(&self, blob: &EndpointBlob<'_>) -> Result<()> {
        let mut data = self.data();
        let Port::Ucx(port) = data.port() else { return Ok(()) };
        let learned = match blob.decode() {
            Ok(EndpointDesc::Ucx { address }) => port.learn_card(address),
            Ok(EndpointDesc::UcxKey(key)) => port.learn_key(&key),
            _ => Ok(()),
        };
        drop(data);
        // What that began has to be moved on.
        self.enqueue();
        learned.map_err(|e| e.with_peer(self.peer))
    }

    /// Another thread has ended something of this link: a leader that sleeps on UCX looks again. What the worker gave was
    /// taken, so its descriptor tells of nothing.
    pub(super) fn wake_leader(&self) {
        if self.conn() != Some(ConnType::Ucx) {
            return;
        }
        if let Port::Ucx(port) = self.data().port() {
            port.bell().wake();
        }
    }

    /// What was posted to UCX goes on without a waiter.
    pub(super) fn leave_to_worker(&self) {
        if self.conn() != Some(ConnType::Ucx) {
            return;
        }
        let seat = match self.data().port() {
            Port::Ucx(port) => port.take_begun().then(|| Arc::clone(port.seat())),
            _ => None,
        };
        if let Some(seat) = seat {
            seat.serve(None);
        }
    }

    /// Tells the peer how to come here, if the link's transport needs it.
    ///
    /// # Errors
    /// `PeerDead`, `Io`.
    pub(crate) fn send_card(&self) -> Result<()> {
        let card = match self.data().port() {
            Port::Ucx(port) => port.card()?,
            _ => return Ok(()),
        };
        self.send(&ControlMessage::Endpoint(EndpointBlob { kind: ENDPOINT_UCX, bytes: &card }))
    }

    /// Tells the peer the key to a window. Whoever exposed the window does so, before it tells of the window itself.
    ///
    /// # Errors
    /// `PeerDead`, `Full`.
    pub(crate) fn send_key(&self, key: &[u8]) -> Result<()> {
        self.send(&ControlMessage::Endpoint(EndpointBlob { kind: ENDPOINT_UCX_KEY, bytes: key }))
    }

    /// Closes a window that the peer could not be told of: no access was made or will be.
    pub(crate) fn untell(&self, region: &WindowDesc) {
        let mut data = self.data();
        let _ = data.port().revoke(region.window, region.epoch);
        data.port().fenced(region.window, region.epoch);
    }

    /// Says of windows that the peer took back that nothing of ours uses them any more.
    pub(super) fn say_left(&self) {
        loop {
            let left = match self.data().port() {
                Port::Ucx(port) => port.take_left(),
                _ => None,
            };
            let Some((window, epoch)) = left else { return };
            // If the link is over, its end is the fence.
            let mut ctrl = self.ctrl();
            ctrl.say_left(window, epoch, clock::now());
            self.settle_ctrl(&mut ctrl);
        }
    }

    /// The transports of UCX's lanes to the peer, as UCX names them.
    pub(crate) fn ucx_lanes(&self) -> Vec<String> {
        match self.data().port() {
            Port::Ucx(port) => port.lanes().to_vec(),
            _ => Vec::new(),
        }
    }

    /// Whether UCX moves the bytes of both ends as messages, which the target judges.
    pub(crate) fn moves_by_messages(&self) -> bool {
        matches!(self.data().port(), Port::Ucx(port) if port.is_soft())
    }

    /// The worker that a waiter of this link drives, and what wakes it.
    pub(super) fn ucx(&self) -> Option<(Arc<Seat>, Arc<Bell>)> {
        if self.conn() != Some(ConnType::Ucx) {
            return None;
        }
        match self.data().port() {
            Port::Ucx(port) => Some((Arc::clone(port.seat()), Arc::clone(port.bell()))),
            _ => None,
        }
    }
}
