//! `hmc_core::wire::rndv`.

use crate::values::{any, bytes, done, rndv_msg, small};
use hmc_core::wire::cursor::{Reader, Writer};
use hmc_core::wire::rndv::{emit_rndv, rndv_len, parse_rndv};

pub(crate) fn call() {
    let storage = [0; 64];
    done(parse_rndv(&mut Reader::new(bytes(&storage), small())));
    let n = rndv_msg();
    done(rndv_len(&n));
    let mut target = [0; 64];
    done(emit_rndv(&n, &mut Writer::new(any(&mut target[..]))));
}
