//! `hmc_core::lane`.

use crate::values::{
    Opaque, any, done, failure, local, now, number, op, opcode, remote, show, small, when,
};
use hmc_core::lane::{Lane, LaneError, Transfer};
use hmc_core::slots::Slot;
use hmc_core::transport::{ErrorKind, Transport};

pub(crate) fn call() {
    show::<LaneError<ErrorKind>>(&any(LaneError::Busy));
    let mut storage = [Slot::FREE; 8];
    lane(Lane::new(Opaque, any(&mut storage[..])));
    lane(Lane::new(&mut Opaque, [Slot::FREE; 4]));
}

fn lane<T: Transport<Error = ErrorKind>, S: AsRef<[Slot]> + AsMut<[Slot]>>(mut l: Lane<T, S>) {
    let transfer =
        any(Transfer { opcode: opcode(), when: when(), local: local(), remote: remote() });
    done(&mut l);
    done(Lane::transport(&l).caps());
    done(Lane::transport_mut(&mut l));
    done(Lane::slots(&l));
    done(&mut l);
    done(Lane::post(&mut l, &transfer, now()));
    done(&mut l);
    done(Lane::begin_batch(&mut l, small(), now()));
    done(Lane::record(&mut l, number()));
    done(&mut l);
    done(&mut l);
    done(Lane::feed(&mut l, op(), any(&[transfer; 4][..])));
    done(&mut l);
    done(Lane::progress(&mut l));
    done(Lane::stale(&l));
    done(&mut l);
    done(Lane::try_wait(&mut l, op()));
    done(&mut l);
    done(Lane::outcome(&l, op()));
    done(Lane::test(&l, op()));
    done(Lane::cancel(&mut l, op()));
    done(&mut l);
    done(Lane::abandon(&mut l, op()));
    done(&mut l);
    Lane::expire(&mut l, now());
    done(&mut l);
    done(Lane::next_deadline(&l));
    Lane::fail_all(&mut l, failure(), any(true));
    done(&mut l);
    done(Lane::next_event(&mut l));
    done(Lane::in_flight(&l));
    done(&mut l);
}
