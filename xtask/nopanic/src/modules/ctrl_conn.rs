//! `hmc_core::ctrl::conn`.

use crate::values::{any, bytes, control, done, now, small};
use hmc_core::ctrl::conn::ControlConn;
use hmc_core::wire::cursor::{WireError, WireErrorKind};
use hmc_core::time::Duration;
use hmc_core::wire::header::{FrameKind, Header};

pub(crate) fn call() {
    let mut c = control();
    done(ControlConn::state(&c));
    done(ControlConn::peer(&c));
    done(ControlConn::heartbeat(&c));
    done(ControlConn::close_reason(&c));
    done(ControlConn::frame_limit(&c));
    ControlConn::on_sent(&mut c, now());
    ControlConn::on_received(&mut c, any(Some(now())), now());
    ControlConn::excuse(&mut c, any(Duration::ZERO), now());
    ControlConn::spread_beats(&mut c, any(1));
    done(&mut c);
    let storage = [0; 600];
    let header = any(Header::new(FrameKind::Int, small()));
    done(ControlConn::receive(&mut c, header, bytes(&storage), now()));
    done(&mut c);
    done(ControlConn::eof(&mut c));
    done(&mut c);
    let error = WireError { at: small(), kind: any(WireErrorKind::UnknownType(0)) };
    done(ControlConn::malformed(&mut c, error));
    done(&mut c);
    ControlConn::tick(&mut c, now());
    done(&mut c);
    done(ControlConn::next_deadline(&c));
    done(ControlConn::ends_at(&c));
    done(ControlConn::is_due_to_end(&c, now()));
    done(ControlConn::has_output(&c));
    done(ControlConn::poll_output(&mut c));
    done(&mut c);
}
