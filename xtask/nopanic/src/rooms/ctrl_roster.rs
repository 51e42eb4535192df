//! `hmc_core::ctrl::roster`.

use crate::values::{any, done, incarnation, now, rank};
use hmc_core::ctrl::roster::{Backoff, Identity, Place, Places, Roster, Verdict};

pub(crate) fn call() {
    done(Verdict::accepted(any(Verdict::Accept)));
    let mut storage = [Place::VACANT; 8];
    let mut places = any(&mut storage[..]);
    done(Places::limit(&places));
    done(Places::at(&places, rank()));
    done(Places::at_mut(&mut places, rank()));
    let mut r = Roster::new(rank(), places);
    let who = any(Identity { host: any([0; 16]), proven: any(false) });
    done(&mut r);
    done(Roster::admit(&mut r, rank(), incarnation(), who, now()));
    done(&mut r);
    done(Roster::greet(&mut r, rank(), incarnation(), who, now()));
    done(&mut r);
    done(Roster::dial(&mut r, rank()));
    done(&mut r);
    Roster::dial_failed(&mut r, rank());
    done(&mut r);
    done(Roster::died(&mut r, rank(), incarnation(), now()));
    done(&mut r);
    done(Roster::is_live(&r, rank()));
    done(Roster::is_taken(&r, rank()));
    done(Roster::redials(&r, rank()));
    done(Roster::places(&r));
    let mut b = any(Backoff::new());
    done(Backoff::pause(&mut b));
    done(b);
}
