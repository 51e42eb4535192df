//! `hmc_core::ctrl::machine`.

use crate::values::{any, bytes, control, done, now, small};
use hmc_core::ctrl::machine::Control;
use hmc_core::ctrl::output::Input;
use hmc_core::wire::cursor::{WireError, WireErrorKind};
use hmc_core::time::Duration;
use hmc_core::wire::header::{FrameKind, Header};

pub(crate) fn call() {
    let mut c = control();
    done(Control::state(&c));
    done(Control::peer(&c));
    done(Control::heartbeat(&c));
    done(Control::close_reason(&c));
    done(Control::frame_limit(&c));
    Control::note_sent(&mut c, now());
    Control::note_received(&mut c, any(Some(now())), now());
    Control::excuse(&mut c, any(Duration::ZERO), now());
    Control::spread_beats(&mut c, any(1));
    done(&mut c);
    let storage = [0; 600];
    let header = any(Header::new(FrameKind::Int, small()));
    done(Control::receive(&mut c, header, bytes(&storage), now()));
    done(&mut c);
    done(Control::eof(&mut c));
    done(&mut c);
    let error = WireError { at: small(), kind: any(WireErrorKind::UnknownType(0)) };
    done(Control::malformed(&mut c, error));
    done(&mut c);
    Control::tick(&mut c, now());
    done(&mut c);
    done(Control::next_deadline(&c));
    done(Control::ends_at(&c));
    done(Control::is_due_to_end(&c, now()));
    done(Control::has_output(&c));
    done(Control::poll_output(&mut c));
    done(&mut c);
    done(Control::handle_input(&mut c, any(Input::Tick), now()));
    done(&mut c);
}
