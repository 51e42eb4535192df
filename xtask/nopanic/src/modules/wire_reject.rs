//! `hmc_core::wire::reject`.

use crate::values::{any, done, number, show};
use hmc_core::wire::reject::RejectReason;

pub(crate) fn call() {
    let why = any(RejectReason::Busy);
    done(RejectReason::to_wire(why));
    done(RejectReason::from_wire(any(0), number()));
    show::<RejectReason>(&why);
}
