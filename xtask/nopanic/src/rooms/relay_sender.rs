//! `hmc_core::relay::sender`.

use crate::values::{any, done, failure, note, number, small};
use hmc_core::relay::sender::Sender;
use hmc_core::relay::{Ending, RelayId};

pub(crate) fn call() {
    let mut s = any(Sender::new(RelayId(small()), number()));
    done(Sender::id(&s));
    done(Sender::phase(&s));
    done(Sender::is_over(&s));
    done(Sender::receive(&mut s, &note()));
    done(&mut s);
    Sender::put_done(&mut s, number(), any(Err(failure())));
    done(&mut s);
    Sender::end(&mut s, any(Ending::PeerDead));
    done(&mut s);
    done(Sender::poll(&mut s));
    done(s);
}
