//! What the peer says on the control connection, executed for its link.

use hmc_core::ctrl::output::Event;
use hmc_core::region::{Epoch, WindowId};
use hmc_core::wire::message::Message as Wire;

use super::Link;
use crate::error::{Error, ErrorKind};
use crate::node::inbox::Message;

/// What a turn heard, to be acted on without the lock.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    /// The peer uses a window of ours no more.
    pub(crate) left: bool,
    /// Something that it told makes the link useless.
    pub(crate) failed: Option<Error>,
    pub(crate) messages: bool,
    pub(crate) adverts: bool,
    pub(crate) revoked: bool,
    pub(crate) bye: bool,
    pub(crate) relay: bool,
    /// A message that the system did not take may be sent now.
    pub(crate) room: bool,
}

/// Executes one message for a link. Gives a window of the peer that it is to be told we have left, if there is one.
pub(super) fn execute(
    event: Event<'_>,
    link: &Link,
    heard: &mut Heard,
) -> Option<(WindowId, Epoch)> {
    match event {
        Event::Deliver(m) => return deliver(m, link, heard),
        Event::PeerBye => heard.bye = true,
        // Handshakes are over when a link exists, and the end is told by `Output::Close`.
        Event::HelloReceived(_)
        | Event::UpstreamHello { .. }
        | Event::Challenged(_)
        | Event::Proven
        | Event::AttachReceived { .. }
        | Event::Connected(_)
        | Event::Attached
        | Event::Refused(_)
        | Event::Finished => {}
    }
    None
}

fn deliver(m: Wire<'_>, link: &Link, heard: &mut Heard) -> Option<(WindowId, Epoch)> {
    let message = match m {
        Wire::Tag(tag) => Message::Tag(tag),
        Wire::Int32(n) => Message::Int(n),
        Wire::Struct(bytes) => Message::Struct(bytes.to_vec()),
        Wire::Notify { tag, .. } => Message::Notify(tag),
        Wire::Relay(note) => {
            if !link.relay_hear(note) {
                let what = "more notes of messages than may be under way";
                heard.failed = Some(Error::new(ErrorKind::Protocol, what));
            }
            heard.relay = true;
            return None;
        }
        Wire::Advert(advert) => {
            link.data_in_turn().learn_remote(&advert);
            heard.adverts = true;
            return None;
        }
        Wire::Revoke { window, epoch } => {
            heard.revoked = true;
            // What still runs says it at its end, where the word is a fence.
            let left = link.data_in_turn().forget_remote(window, epoch);
            return left.then_some((window, epoch));
        }
        Wire::Revoked { window, epoch } => {
            link.data_in_turn().port().note_left(window, epoch);
            heard.left = true;
            return None;
        }
        Wire::Endpoint(blob) => {
            heard.adverts = true;
            heard.failed = link.learn_endpoint(&blob).err();
            return None;
        }
        // The state table delivers nothing else.
        _ => return None,
    };
    link.deliver(message);
    heard.messages = true;
    None
}
