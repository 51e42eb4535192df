//! `hmc_core::ctrl::io`.

use crate::values::{any, done, show};
use hmc_core::ctrl::io::{CloseReason, CommandError, Frame, Violation};
use hmc_core::ctrl::state::{Command, InvalidCommand, ControlState};
use hmc_core::wire::message::ControlMessage;

pub(crate) fn call() {
    if let Ok(frame) = Frame::of(&any(ControlMessage::Bye)) {
        done(Frame::as_bytes(&any(frame)));
    }
    show::<CloseReason>(&any(CloseReason::Eof));
    show::<Violation>(&any(Violation::WrongJob { theirs: 0, ours: 0 }));
    let misuse = InvalidCommand { state: ControlState::Ready, command: Command::Bye };
    show::<CommandError>(&any(CommandError::Misuse(misuse)));
}
