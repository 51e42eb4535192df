//! `hmc_core::wire::relay`.

use crate::values::{any, bytes, done, note, small};
use hmc_core::wire::cursor::{Reader, Writer};
use hmc_core::wire::relay::{emit_note, note_len, parse_note};

pub(crate) fn call() {
    let storage = [0; 64];
    done(parse_note(&mut Reader::new(bytes(&storage), small())));
    let n = note();
    done(note_len(&n));
    let mut target = [0; 64];
    done(emit_note(&n, &mut Writer::new(any(&mut target[..]))));
}
