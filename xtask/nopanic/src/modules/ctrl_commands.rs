//! `hmc_core::ctrl::commands`.

use crate::values::{any, control, done, hello, now, number, proof, rank, token};
use hmc_core::ctrl::conn::{AcceptConfig, ControlConn, CxxPolicy};
use hmc_core::wire::proof::Challenge;
use hmc_core::wire::reject::RejectReason;

pub(crate) fn call() {
    done(ControlConn::dial(&hello(), now()));
    done(ControlConn::dial_cxx(rank(), rank(), now()));
    done(ControlConn::attach(rank(), token(), any(0), now()));
    let acceptor = AcceptConfig { rank: rank(), job: number(), cxx: any(CxxPolicy::Allowed) };
    done(ControlConn::accepted(&acceptor, now()));
    let mut c = control();
    done(ControlConn::accept(&mut c, &hello(), token(), now()));
    done(&mut c);
    let challenge = any(Challenge { rank: rank(), nonce: any([0; 16]), proof: proof() });
    done(ControlConn::challenge(&mut c, &challenge, proof()));
    done(&mut c);
    done(ControlConn::prove(&mut c, &proof(), proof()));
    done(&mut c);
    done(ControlConn::accept_cxx(&mut c));
    done(&mut c);
    done(ControlConn::accept_attach(&mut c));
    done(&mut c);
    done(ControlConn::reject(&mut c, any(RejectReason::Busy)));
    done(&mut c);
    done(ControlConn::bye(&mut c, now(), now()));
    done(&mut c);
    ControlConn::abort(&mut c);
    done(&mut c);
}
