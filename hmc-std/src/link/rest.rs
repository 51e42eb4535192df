//! The rest of a closed link, while its messages can still be received.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use hmc_core::ctrl::conn::{AcceptConfig, ControlConn, CxxPolicy};
use hmc_core::limits::FRAMER_INITIAL_BYTES;

use super::ctrl::CtrlState;
use super::data::DataState;
use super::{Link, LinkInit, LinkState};
use crate::io::socket::Socket;
use crate::node::inbox::Message;
use crate::transport::data_plane::AnyDataPlane;

/// Bytes that a link's rest takes at most, but for its messages.
const REST_BYTES: usize = 8 << 10;
/// The same of a link that is not over yet, because its inbox is full.
const CLOSING_BYTES: usize = 160 << 10;

impl Link {
    /// A link with the inbox of this one, which is over, and with nothing else of it: no descriptors, no buffers, no
    /// operations. `socket` is one that says nothing, and `serial` a new number: names of operations do not lead here.
    pub(crate) fn rest(&self, socket: &Arc<Socket>, serial: u32) -> Arc<Self> {
        let acceptor = AcceptConfig { rank: self.peer, job: 0, cxx: CxxPolicy::Refused };
        let control = ControlConn::accepted(&acceptor, self.clock.now());
        let parts = LinkInit {
            dialed: false,
            session: self.session,
            serial,
            peer: self.peer,
            incarnation: self.incarnation,
            near: self.near,
            choices: self.choices(),
            spin: self.spin,
            reactor: Arc::clone(&self.reactor),
            owner: self.owner.clone(),
            ctrl: CtrlState::new(Arc::clone(socket), control, CtrlState::new_framer()),
            data: DataState::new(AnyDataPlane::none(), 0, true, false),
            data_socket: None,
            inbox: self.inbox_handle(),
        };
        let rest = Self::new_at(parts, self.address);
        rest.is_given.store(self.is_given.load(Ordering::Relaxed), Ordering::Relaxed);
        if let Some(conn) = self.conn() {
            let _ = rest.conn.set(conn);
        }
        let _ = rest.reason.set(self.reason().to_owned());
        rest.leaving.store(self.was_leaving(), Ordering::Release);
        rest.over.store(true, Ordering::Release);
        rest.ctrl().machine.close();
        rest.advance(LinkState::Dead);
        rest
    }

    /// Whether this is the rest of one, with that socket.
    pub(crate) fn is_rest(&self, socket: &Arc<Socket>) -> bool {
        Arc::ptr_eq(&self.ctrl_socket, socket)
    }

    /// Bytes that it takes for messages that nobody has received, if its peer is gone or leaves. 0: it has none.
    pub(crate) fn left_bytes(&self) -> usize {
        let own = match self.state() {
            LinkState::Opening | LinkState::Ready => return 0,
            LinkState::Leaving => CLOSING_BYTES,
            LinkState::Dead => REST_BYTES,
        };
        let inbox = self.inbox();
        if inbox.len() == 0 { 0 } else { own.saturating_add(inbox.held_bytes()) }
    }

    /// Drops the messages that nobody has received, and ends the link if it is not over.
    pub(crate) fn drop_left(&self) {
        let left: Vec<Message<'static>> = {
            let mut inbox = self.inbox();
            inbox.drop_all()
        };
        tracing::warn!(
            peer = self.peer.0,
            messages = left.len(),
            "messages of a peer that is gone are dropped: those that nobody receives take more than the limit"
        );
        drop(left);
        if self.state() == LinkState::Leaving {
            self.close(false, "it left more messages than are kept");
        }
    }

    /// Why the link ended, and what was lost with it.
    pub(crate) fn closing_reason(&self) -> String {
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use hmc_core::types::ConnType;

    use super::LinkState;
    use crate::io::reactor::Token;
    use crate::io::rest_socket::RestSocket;
    use crate::link::Choice;
    use crate::link::ends::{alone, pair};
    use crate::node::inbox::{MESSAGE_BYTES, Message};

    #[test]
    fn what_a_peer_left_takes_the_bytes_of_its_messages_and_of_its_link() {
        let end = alone(1, 1);
        let left = |state| {
            if state != LinkState::Opening {
                assert!(end.link.advance(state));
            }
            end.link.left_bytes()
        };
        end.link.deliver(Message::bytes(vec![0; 100]));
        end.link.deliver(Message::Tag(1));
        let inbox = 100 + 2 * MESSAGE_BYTES;
        assert_eq!([LinkState::Opening, LinkState::Ready].map(left), [0, 0], "it goes on");
        assert_eq!(
            [LinkState::Leaving, LinkState::Dead].map(left),
            [163_840 + inbox, 8192 + inbox]
        );
        end.link.inbox().drop_all();
        assert_eq!(end.link.left_bytes(), 0, "nothing is left");
    }

    #[test]
    fn messages_that_are_dropped_are_reported_and_end_a_link_that_waited_for_space() {
        let (near, _far) = pair(ConnType::Tcp);
        assert_eq!(near.link.closing_reason(), "the connection ended");
        near.link.deliver(Message::Tag(1));
        near.link.deliver(Message::Tag(2));
        near.link.drop_left();
        assert_eq!((near.link.inbox().len(), near.link.state()), (0, LinkState::Ready));
        let words = near.link.closing_reason();
        assert!(
            words.starts_with("the connection ended; 2 of its messages were dropped"),
            "{words}"
        );
        assert!(words.contains("more than 64 MiB"), "{words}");
        assert!(near.link.advance(LinkState::Leaving));
        near.link.drop_left();
        assert_eq!((near.link.state(), near.event_counts().1), (LinkState::Dead, 1));
        assert!(near.link.reason().contains("more messages than are kept"));
        let over = alone(1, 1);
        assert!(over.link.advance(LinkState::Dead));
        over.link.drop_left();
        assert_eq!(over.event_counts().1, 0, "it was over before");
    }

    #[test]
    fn the_rest_of_a_link_has_its_messages_and_its_words_and_nothing_else() {
        let (near, _far) = pair(ConnType::Tcp);
        near.link.deliver(Message::Tag(5));
        near.link.bye(crate::base::clock::now());
        near.link.close(false, "for a test");
        let socket = RestSocket::socket().expect("a socket");
        let rest = near.link.rest(&socket, 77);
        assert!(rest.is_rest(&socket) && !near.link.is_rest(&socket));
        assert_eq!((rest.serial, rest.peer, rest.state()), (77, near.link.peer, LinkState::Dead));
        assert_eq!(rest.conn(), Some(ConnType::Tcp));
        assert_eq!(rest.reason(), near.link.reason());
        assert!(rest.was_leaving());
        assert!(Arc::ptr_eq(&rest.inbox_handle(), &near.link.inbox_handle()));
        assert!(rest.data_socket().is_none());
        rest.poll_ctrl(false);
        let unwatched = rest.reactor.watch(socket.fd().expect("a descriptor"), Token::Wake);
        assert!(unwatched.is_ok(), "other rests share the socket: {unwatched:?}");
        let chosen = Choice { conn: ConnType::Tcp, chosen: true, why: String::new() };
        assert_eq!(rest.choices(), [chosen]);
        rest.close(false, "once more");
        assert_eq!(near.event_counts().1, 1, "its end was reported before");
    }
}
