//! `hmc_core::wire::header`.

use crate::values::{any, done, small};
use hmc_core::wire::cursor::Writer;
use hmc_core::wire::header::{FrameKind, Header};

pub(crate) fn call() {
    done(Header::new(any(FrameKind::Int), small()));
    let Ok(header) = Header::parse(&any([0; 8]), small()) else {
        return;
    };
    let header = any(header);
    done(Header::kind(header));
    done(Header::len(header));
    done(Header::is_empty(header));
    done(Header::frame_bytes(header));
    done(Header::to_bytes(header));
    let mut target = [0; 64];
    done(Header::emit(header, &mut Writer::new(any(&mut target[..]))));
}
