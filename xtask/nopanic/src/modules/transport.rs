//! `hmc_core::transport`: the forwarding implementation for `&mut T`.

use crate::values::{Opaque, done, local, op, opcode, remote, result, when};
use hmc_core::transport::{PostErrorKind, Transport, TransportError};
use hmc_core::work::{Completion, WorkRequest};

pub(crate) fn call() {
    forward(&mut Opaque);
}

fn forward<T: Transport<Error = PostErrorKind>>(mut t: T) {
    done(t.caps());
    let work =
        WorkRequest { op: op(), opcode: opcode(), when: when(), local: local(), remote: remote() };
    if let Err(e) = t.post(&work) {
        done(e.kind());
    }
    done(t.poll(&mut [Completion { op: op(), result: result() }; 4]));
    done(t.cancel(op()));
}
