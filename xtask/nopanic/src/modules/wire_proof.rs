//! `hmc_core::wire::proof`.

use crate::values::{any, done, hello, proof, rank};
use hmc_core::wire::proof::{Proof, Role, transcript};

pub(crate) fn call() {
    done(Proof::matches(&proof(), &proof()));
    done(transcript(any(Role::Dialer), &hello(), rank(), &any([0; 16])));
}
