//! `hmc_core::ctrl::state`.

use crate::values::{any, done, show};
use hmc_core::ctrl::state::{Command, InvalidCommand, ControlState, UnexpectedMessage};
use hmc_core::wire::message::ControlKind;

pub(crate) fn call() {
    let state = any(ControlState::AwaitHello);
    done(ControlState::is_pending(state));
    if let Err(e) = ControlState::receive(state, any(ControlKind::Bye)) {
        show::<UnexpectedMessage>(&e);
    }
    if let Err(e) = ControlState::command(state, any(Command::Bye)) {
        show::<InvalidCommand>(&e);
    }
    done(state);
}
