//! `hmc_core::wire::held`.

use crate::values::{any, done};
use hmc_core::wire::data::DataKind;
use hmc_core::wire::held::{Held, of_data, of_message};
use hmc_core::wire::message::ControlKind;

pub(crate) fn call() {
    let held = any(of_message(any(ControlKind::Ping)));
    done(of_data(any(DataKind::Region)));
    done(Held::count(held));
    done(Held::bytes(held, any(0)));
}
