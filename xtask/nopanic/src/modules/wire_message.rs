//! `hmc_core::wire::message`.

use crate::values::{any, bytes, done, number, small, window};
use hmc_core::wire::cursor::Writer;
use hmc_core::wire::header::{FrameKind, Header};
use hmc_core::wire::message::{ControlKind, ControlMessage, notify_frame, tag_frame};

pub(crate) fn call() {
    done(tag_frame(number()));
    done(notify_frame(number(), window()));
    ControlKind::all().for_each(done);
    let storage = [0; 600];
    let header = any(Header::new(FrameKind::Int, small()));
    done(ControlMessage::parse(header, bytes(&storage)));
    let message = any(ControlMessage::Bye);
    done(ControlMessage::kind(&message));
    done(ControlMessage::payload_len(&message));
    done(ControlMessage::emitted_len(&message));
    let mut target = [0; 600];
    done(ControlMessage::emit(&message, &mut Writer::new(any(&mut target[..]))));
}
