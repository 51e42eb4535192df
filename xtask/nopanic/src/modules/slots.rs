//! `hmc_core::slots`.

use crate::values::{any, done, now, number, op, result, show, size, small};
use hmc_core::slots::{Full, Slot, Slots, Stale};

pub(crate) fn call() {
    show::<Stale>(&Stale { op: op() });
    show::<Full>(&Full { limit: size() });
    let mut storage = [Slot::FREE; 8];
    table(Slots::new(any(&mut storage[..])));
    table(Slots::new([Slot::FREE; 4]));
    table(Slots::new([any(Slot::free(None::<u64>)); 4]));
}

fn table<X: Default, S: AsRef<[Slot<X>]> + AsMut<[Slot<X>]>>(mut s: Slots<S, X>) {
    done(&mut s);
    done(Slots::grow(&mut s, |entries| done(entries)));
    done(&mut s);
    done(Slots::capacity(&s));
    done(Slots::in_use(&s));
    done(Slots::in_flight(&s));
    done(Slots::acquire(&mut s, now(), small()));
    done(&mut s);
    done(Slots::acquire_unposted(&mut s, now(), small()));
    done(&mut s);
    done(Slots::unpost(&mut s, op()));
    done(&mut s);
    done(Slots::mark_posted(&mut s, op(), small()));
    done(Slots::parts(&s, op()));
    done(Slots::has_failed(&s, op()));
    done(&mut s);
    done(Slots::complete(&mut s, op(), result()));
    done(&mut s);
    done(Slots::outcome(&s, op()));
    done(Slots::hold(&s, op()));
    done(Slots::hold_mut(&mut s, op()));
    done(&mut s);
    Slots::unfenced(&s).for_each(done);
}
