//! `hmc_core::ctrl::roster`.

use crate::values::{any, done, incarnation, now, rank};
use hmc_core::ctrl::roster::{Backoff, Identity, Place, Roster, Verdict};

pub(crate) fn call() {
    done(Verdict::accepted(any(Verdict::Accept)));
    let mut storage = [Place::VACANT; 8];
    done(Roster::on_vacant(rank(), any(&mut storage[..])).redials(rank()));
    let mut r = Roster::new(rank(), any(&mut storage[..]));
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
    let mut b = any(Backoff::new());
    done(Backoff::pause(&mut b));
    done(b);
}
