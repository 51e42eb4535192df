//! `hmc_core::relay`.

use crate::values::{any, done, place, note, remote, show, small};
use hmc_core::relay::{Ending, Incoming, Note, Place, RelayId, Violation, Why};

pub(crate) fn call() {
    done(Place::staged(remote()));
    done(Place::direct(remote()));
    let p = place();
    done(Place::mode(&p));
    done(Place::area(&p));
    done(Place::halves(&p));
    show::<Why>(&any(Why::Cancelled));
    show::<Ending>(&any(Ending::PeerDead));
    show::<Violation>(&any(Violation::NotNow));
    let n = note();
    done(Note::id(&n));
    done(Note::from(&n));
    let mut i = any(Incoming::new());
    done(Incoming::offer(&mut i, RelayId(small())));
    done(&mut i);
    Incoming::over(&mut i);
    done(i);
}
