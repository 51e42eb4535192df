//! `hmc_core::rndv::receiver`.

use crate::values::{any, done, failure, rndv_msg, number, target, small};
use hmc_core::rndv::receiver::Receiver;
use hmc_core::rndv::{RndvError, RndvId};

pub(crate) fn call() {
    let mut r = any(Receiver::new(RndvId(small()), number()));
    done(Receiver::id(&r));
    done(Receiver::len(&r));
    done(Receiver::is_empty(&r));
    done(Receiver::phase(&r));
    done(Receiver::is_finished(&r));
    done(Receiver::is_open(&r));
    done(Receiver::is_failed(&r));
    done(Receiver::eager(RndvId(small()), number()));
    done(Receiver::is_eager(&r));
    r = any(Receiver::counted(r));
    done(Receiver::is_counted(&r));
    Receiver::all_put(&mut r);
    done(&mut r);
    done(Receiver::has_ended(&r));
    Receiver::take(&mut r, number());
    done(&mut r);
    Receiver::answer(&mut r, number(), target());
    done(&mut r);
    Receiver::refuse(&mut r, any(RndvError::PeerDead));
    done(&mut r);
    done(Receiver::receive(&mut r, &rndv_msg()));
    done(&mut r);
    Receiver::copied(&mut r, any(Err(failure())));
    done(&mut r);
    Receiver::fenced(&mut r);
    done(&mut r);
    Receiver::end(&mut r, any(RndvError::PeerDead));
    done(&mut r);
    done(Receiver::poll(&mut r));
    done(r);
}
