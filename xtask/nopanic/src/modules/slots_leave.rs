//! `hmc_core::slots::leave`.

use crate::values::{any, done, op};
use hmc_core::slots::{Slot, Slots};

pub(crate) fn call() {
    let mut storage = [Slot::FREE; 8];
    table(Slots::new(any(&mut storage[..])));
    table(Slots::new([any(Slot::free(None::<u64>)); 4]));
}

fn table<X: Default, S: AsRef<[Slot<X>]> + AsMut<[Slot<X>]>>(mut s: Slots<S, X>) {
    done(&mut s);
    done(Slots::take(&mut s, op()));
    done(&mut s);
    done(Slots::take_held(&mut s, op()));
    done(&mut s);
    done(Slots::abandon(&mut s, op()));
    done(&mut s);
    done(Slots::next_event(&mut s));
    done(&mut s);
}
