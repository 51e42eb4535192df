//! `hmc_core::ctrl::ranks`.

use crate::values::{any, done, incarnation, now, rank};
use hmc_core::ctrl::ranks::{Backoff, Identity, RankEntry, RankStorage, RankTable, Admission};

pub(crate) fn call() {
    done(Admission::accepted(any(Admission::Accept)));
    let mut storage = [RankEntry::EMPTY; 8];
    let mut entries = any(&mut storage[..]);
    done(RankStorage::limit(&entries));
    done(RankStorage::at(&entries, rank()));
    done(RankStorage::at_mut(&mut entries, rank()));
    let mut r = RankTable::new(rank(), entries);
    let who = any(Identity { host: any([0; 16]), proven: any(false) });
    done(&mut r);
    done(RankTable::admit(&mut r, rank(), incarnation(), who, now()));
    done(&mut r);
    done(RankTable::admit_welcome(&mut r, rank(), incarnation(), who, now()));
    done(&mut r);
    done(RankTable::dial(&mut r, rank()));
    done(&mut r);
    RankTable::dial_failed(&mut r, rank());
    done(&mut r);
    done(RankTable::mark_dead(&mut r, rank(), incarnation(), now()));
    done(&mut r);
    done(RankTable::is_live(&r, rank()));
    done(RankTable::is_taken(&r, rank()));
    done(RankTable::should_redial(&r, rank()));
    done(RankTable::entries(&r));
    let mut b = any(Backoff::new());
    done(Backoff::pause(&mut b));
    done(b);
}
