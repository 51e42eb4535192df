//! What is left of a link that is over while somebody may still receive messages of it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use hmc_core::ctrl::machine::{Acceptor, Control, Upstream};

use super::ctrl::CtrlState;
use super::data::DataState;
use super::{Life, Link, LinkParts};
use crate::clock;
use crate::socket::Socket;
use crate::transport::Port;

impl Link {
    /// A link with the inbox of this one, which is over, and with nothing else of it: no descriptors, no buffers, no
    /// operations. `socket` is one that says nothing, and `serial` a new number: names of operations do not lead here.
    pub(crate) fn rest(&self, socket: &Arc<Socket>, serial: u32) -> Arc<Self> {
        let acceptor = Acceptor { rank: self.peer, job: 0, upstream: Upstream::Refused };
        let control = Control::accepted(&acceptor, clock::now());
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
}
