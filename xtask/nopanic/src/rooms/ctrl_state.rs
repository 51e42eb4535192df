//! `hmc_core::ctrl::state`.

use crate::values::{any, done, show};
use hmc_core::ctrl::state::{Command, Misuse, State, Unexpected};
use hmc_core::wire::message::MessageKind;

pub(crate) fn call() {
    let state = any(State::AwaitHello);
    done(State::is_stranger(state));
    if let Err(e) = State::receive(state, any(MessageKind::Bye)) {
        show::<Unexpected>(&e);
    }
    if let Err(e) = State::command(state, any(Command::Bye)) {
        show::<Misuse>(&e);
    }
    done(state);
}
