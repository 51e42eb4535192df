//! `hmc_core::relay::receiver`.

use crate::values::{any, done, failure, note, number, place, small};
use hmc_core::relay::receiver::Receiver;
use hmc_core::relay::{Ending, RelayId};

pub(crate) fn call() {
    let mut r = any(Receiver::new(RelayId(small()), number()));
    done(Receiver::id(&r));
    done(Receiver::len(&r));
    done(Receiver::is_empty(&r));
    done(Receiver::phase(&r));
    done(Receiver::is_over(&r));
    done(Receiver::is_open(&r));
    done(Receiver::is_failed(&r));
    Receiver::answer(&mut r, number(), place());
    done(&mut r);
    Receiver::refuse(&mut r, any(Ending::PeerDead));
    done(&mut r);
    done(Receiver::receive(&mut r, &note()));
    done(&mut r);
    Receiver::copied(&mut r, any(Err(failure())));
    done(&mut r);
    Receiver::fenced(&mut r);
    done(&mut r);
    Receiver::end(&mut r, any(Ending::PeerDead));
    done(&mut r);
    done(Receiver::poll(&mut r));
    done(r);
}
