//! `hmc_core::rndv`.

use crate::values::{any, done, target, rndv_msg, remote, show, small};
use hmc_core::rndv::{RndvError, OfferCounter, RndvMsg, RecvTarget, RndvId, Violation, AbortReason};

pub(crate) fn call() {
    done(RecvTarget::staged(remote()));
    done(RecvTarget::direct(remote()));
    let p = target();
    done(RecvTarget::mode(&p));
    done(RecvTarget::area(&p));
    done(RecvTarget::halves(&p));
    show::<AbortReason>(&any(AbortReason::Cancelled));
    show::<RndvError>(&any(RndvError::PeerDead));
    show::<Violation>(&any(Violation::NotNow));
    let n = rndv_msg();
    done(RndvMsg::id(&n));
    done(RndvMsg::from(&n));
    let mut i = any(OfferCounter::new());
    done(OfferCounter::offer(&mut i, RndvId(small())));
    done(OfferCounter::is_late(&i, &n));
    done(&mut i);
    OfferCounter::offer_finished(&mut i);
    done(i);
}
