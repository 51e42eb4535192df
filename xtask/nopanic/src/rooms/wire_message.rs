//! `hmc_core::wire::message`.

use crate::values::{any, bytes, done, number, small, window};
use hmc_core::wire::cursor::Writer;
use hmc_core::wire::header::{FrameKind, Header};
use hmc_core::wire::message::{Message, notify_frame, tag_frame};

pub(crate) fn call() {
    done(tag_frame(number()));
    done(notify_frame(number(), window()));
    let storage = [0; 600];
    let header = any(Header::new(FrameKind::Int, small()));
    done(Message::parse(header, bytes(&storage)));
    let message = any(Message::Bye);
    done(Message::kind(&message));
    done(Message::payload_len(&message));
    done(Message::emitted_len(&message));
    let mut target = [0; 600];
    done(Message::emit(&message, &mut Writer::new(any(&mut target[..]))));
}
