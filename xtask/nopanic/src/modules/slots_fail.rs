//! `hmc_core::slots::fail`.

use crate::values::{any, done, failure, op, small};
use hmc_core::slots::{Slot, Slots};

pub(crate) fn call() {
    let mut storage = [Slot::FREE; 8];
    let mut s = Slots::new(any(&mut storage[..]));
    done(&mut s);
    done(Slots::reduce(&mut s, op(), small(), any(Some(failure()))));
    done(&mut s);
    done(Slots::fail(&mut s, op(), failure()));
    done(&mut s);
    done(Slots::fence(&mut s, op(), failure()));
    done(&mut s);
    Slots::fail_all(&mut s, failure(), any(true));
    done(&mut s);
}
