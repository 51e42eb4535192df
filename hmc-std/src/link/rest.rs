//! What is left of a link that is over while somebody may still receive messages of it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use hmc_core::ctrl::conn::{AcceptConfig, ControlConn, CxxPolicy};
use hmc_core::limits::FRAMER_INITIAL_BYTES;

use super::ctrl::CtrlState;
use super::data::DataState;
use super::{Life, Link, LinkParts};
use crate::clock;
use crate::node::inbox::Message;
use crate::socket::Socket;
use crate::transport::Port;

/// Bytes that a link's rest takes at most, but for its messages.
const REST_BYTES: usize = 8 << 10;
/// The same of a link that is not over yet, because its inbox is full.
const CLOSING_BYTES: usize = 160 << 10;

impl Link {
    /// A link with the inbox of this one, which is over, and with nothing else of it: no descriptors, no buffers, no
    /// operations. `socket` is one that says nothing, and `serial` a new number: names of operations do not lead here.
    pub(crate) fn rest(&self, socket: &Arc<Socket>, serial: u32) -> Arc<Self> {
        let acceptor = AcceptConfig { rank: self.peer, job: 0, cxx: CxxPolicy::Refused };
        let control = ControlConn::accepted(&acceptor, clock::now());
        let parts = LinkParts {
            session: self.session,
            serial,
            peer: self.peer,
            incarnation: self.incarnation,
            near: self.near,
            choices: self.choices(),
            spin: self.spin,
            driver: Arc::clone(&self.driver),
            owner: self.owner.clone(),
            ctrl: CtrlState::new(Arc::clone(socket), control, CtrlState::new_framer()),
            data: DataState::new(Port::None, 0, true, false),
            data_socket: None,
            inbox: self.inbox_handle(),
        };
        let rest = Self::new_at(parts, self.address);
        if let Some(conn) = self.conn() {
            let _ = rest.conn.set(conn);
        }
        let _ = rest.reason.set(self.reason().to_owned());
        rest.leaving.store(self.life_was_leaving(), Ordering::Release);
        rest.over.store(true, Ordering::Release);
        rest.ctrl().close();
        rest.advance(Life::Dead);
        rest
    }

    /// Whether this is the rest of one, with that socket.
    pub(crate) fn is_rest(&self, socket: &Arc<Socket>) -> bool {
        Arc::ptr_eq(&self.ctrl_socket, socket)
    }

    /// Bytes that it takes for messages that nobody has received, if its peer is gone or leaves. 0: it has none.
    pub(crate) fn left_bytes(&self) -> usize {
        let own = match self.life() {
            Life::Opening | Life::Ready => return 0,
            Life::Leaving => CLOSING_BYTES,
            Life::Dead => REST_BYTES,
        };
        let inbox = self.inbox();
        if inbox.len() == 0 { 0 } else { own.saturating_add(inbox.held_bytes()) }
    }

    /// Drops the messages that nobody has received, and ends the link if it is not over.
    pub(crate) fn drop_left(&self) {
        let left: Vec<Message> = {
            let mut inbox = self.inbox();
            inbox.drop_all()
        };
        tracing::warn!(
            peer = self.peer.0,
            messages = left.len(),
            "messages of a peer that is gone are dropped: those that nobody receives take more than the limit"
        );
        drop(left);
        if self.life() == Life::Leaving {
            self.die(false, "it left more messages than are kept");
        }
    }

    /// Why the link ended, and what was lost with it.
    pub(crate) fn last_words(&self) -> String {
        match self.inbox().dropped() {
            0 => self.reason().to_owned(),
            n => format!(
                "{}; {n} of its messages were dropped, because nobody had received them when those of all peers that \
                 are gone took more than {} MiB",
                self.reason(),
                hmc_core::limits::MAX_LEFT_BYTES >> 20
            ),
        }
    }
}

const _: () =
    assert!(FRAMER_INITIAL_BYTES < REST_BYTES >> 1, "a rest has a connection's first storage");
