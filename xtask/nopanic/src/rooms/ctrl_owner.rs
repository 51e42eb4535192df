//! `hmc_core::ctrl::owner`.

use crate::values::{any, control, done, hello, now, number, proof, rank, token};
use hmc_core::ctrl::machine::{Acceptor, Control, Upstream};
use hmc_core::wire::proof::Challenge;
use hmc_core::wire::reject::RejectReason;

pub(crate) fn call() {
    done(Control::dial(&hello(), now()));
    done(Control::dial_upstream(rank(), rank(), now()));
    done(Control::attach(rank(), token(), any(0), now()));
    let acceptor = Acceptor { rank: rank(), job: number(), upstream: any(Upstream::Allowed) };
    done(Control::accepted(&acceptor, now()));
    let mut c = control();
    done(Control::accept(&mut c, &hello(), token(), now()));
    done(&mut c);
    let challenge = any(Challenge { rank: rank(), nonce: any([0; 16]), proof: proof() });
    done(Control::challenge(&mut c, &challenge, proof()));
    done(&mut c);
    done(Control::prove(&mut c, &proof(), proof()));
    done(&mut c);
    done(Control::accept_upstream(&mut c));
    done(&mut c);
    done(Control::accept_attach(&mut c));
    done(&mut c);
    done(Control::reject(&mut c, any(RejectReason::Busy)));
    done(&mut c);
    done(Control::bye(&mut c, now(), now()));
    done(&mut c);
    Control::abort(&mut c);
    done(&mut c);
}
