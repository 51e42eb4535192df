//! `hmc_core::rndv::sender`.

use crate::values::{any, done, failure, rndv_msg, number, small};
use hmc_core::rndv::sender::Sender;
use hmc_core::rndv::{RndvError, RndvId};

pub(crate) fn call() {
    done(Sender::eager(RndvId(small()), number()));
    let mut s = any(Sender::new(RndvId(small()), number()));
    s = any(Sender::counted(s));
    done(Sender::id(&s));
    done(Sender::phase(&s));
    done(Sender::is_finished(&s));
    done(Sender::receive(&mut s, &rndv_msg()));
    done(&mut s);
    Sender::put_done(&mut s, number(), any(Err(failure())));
    done(&mut s);
    Sender::end(&mut s, any(RndvError::PeerDead));
    done(&mut s);
    done(Sender::poll(&mut s));
    done(s);
}
