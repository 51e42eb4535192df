//! The file protocol of `hmc put`, `get` and `serve`, spoken by a test that stands in for one of its ends.

use hmc_std::{Access, Message, Peer, Session, Window, want::Wanted};
use serde_json::{Value, json};

use super::PATIENCE;

/// Tags of the protocol.
pub(crate) const FULL: u64 = 1 << 56;
pub(crate) const EMPTIED: u64 = 2 << 56;
pub(crate) const END: u64 = 3 << 56;
pub(crate) const DONE: u64 = 4 << 56;
pub(crate) const ABORT: u64 = 5 << 56;
pub(crate) const VALUE: u64 = (1 << 56) - 1;

/// Two slots, each with a page before its bytes.
const SLOT: u64 = 8192;
/// Bytes of a file that fill the ring more than once.
pub(crate) const LEN: usize = 10 * 4096;

/// The next tag.
pub(crate) fn tag(peer: &Peer) -> u64 {
    match peer.recv(Wanted::Tag).within(PATIENCE).wait().unwrap() {
        Message::Tag(tag) => tag,
        other => panic!("{other:?}"),
    }
}

/// Exposes a ring for the bytes of a file.
pub(crate) fn ring(session: &Session, peer: &Peer, label: u64) -> Window<hmc_std::Span> {
    let span = session.memory().allocate(2 * SLOT).unwrap().take_all().unwrap();
    peer.expose(span, Access::WRITE, label).unwrap()
}

/// The layout of that ring, as requests and replies tell it.
pub(crate) fn layout() -> Value {
    json!({"slots": 2, "slot_bytes": SLOT})
}

/// Empties slots as an honest receiver does, up to the sender's last word: the sum that it claims.
pub(crate) fn empty(peer: &Peer) -> u64 {
    let mut emptied = 0;
    loop {
        match tag(peer) {
            full if full & !VALUE == FULL => {
                emptied += 1;
                peer.send(Message::Tag(EMPTIED | emptied)).wait().unwrap();
            }
            end => {
                assert_eq!(end & !VALUE, END, "{end:#x}");
                return end & VALUE;
            }
        }
    }
}

/// Asks for a file, whose bytes are to go into the ring of that label.
pub(crate) fn request_file(peer: &Peer, name: &str, label: u64) {
    let ask = json!({"get": {"label": label, "layout": layout()}});
    let request = json!({"hmc_file": 1, "name": name.as_bytes(), "ask": ask});
    peer.send(Message::bytes(request.to_string().as_bytes())).wait().unwrap();
}

/// The next request or reply.
pub(crate) fn received(peer: &Peer) -> Value {
    let Message::Bytes(bytes) = peer.recv(Wanted::Bytes).within(PATIENCE).wait().unwrap() else {
        panic!()
    };
    serde_json::from_slice(&bytes).unwrap()
}
