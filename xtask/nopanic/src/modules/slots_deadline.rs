//! `hmc_core::slots::deadline`.

use crate::values::{any, done, now};
use hmc_core::slots::{Slot, Slots};

pub(crate) fn call() {
    let mut storage = [Slot::FREE; 8];
    let mut s = Slots::new(any(&mut storage[..]));
    done(&mut s);
    done(Slots::next_deadline(&s));
    done(Slots::next_ended(&s, any(0)));
    done(Slots::next_expired(&mut s, now(), any(0)));
    done(&mut s);
}
