//! `hmc_core::range`.

use crate::values::{done, number, show, side, span};
use hmc_core::range::{Extent, RangeError, Side, ByteRange};

pub(crate) fn call() {
    let extent = Extent::new(number());
    done(Extent::len(extent));
    done(Extent::is_empty(extent));
    done(Extent::whole(extent));
    match Extent::span(extent, side(), number(), number()) {
        Ok(span) => done(span),
        Err(e) => {
            show::<RangeError>(&e);
            done(RangeError::end(&e));
            done(e);
        }
    }
    done(Extent::block(extent, side(), (number(), number()), number(), number()));
    done(Extent::blocks(extent, side(), (number(), number()), number(), number()));
    done(Extent::contains(extent, span()));
    show::<Side>(&side());
    done(ByteRange::offset(span()));
    done(ByteRange::len(span()));
    done(ByteRange::is_empty(span()));
    done(ByteRange::end(span()));
    done(ByteRange::address(span(), number()));
    done(ByteRange::pointer(span(), core::ptr::without_provenance_mut(1)));
    done(ByteRange::sub(span(), side(), number(), number()));
    done(ByteRange::split_at(span(), number()));
    done(ByteRange::split_at_most(span(), number()));
    done(ByteRange::overlaps(span(), span()));
    done(ByteRange::join(span(), span()));
}
