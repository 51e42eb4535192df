//! `hmc_core::span`.

use crate::values::{done, number, show, side, span};
use hmc_core::span::{Extent, RangeError, Side, Span};

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
    done(Extent::contains(extent, span()));
    show::<Side>(&side());
    done(Span::offset(span()));
    done(Span::len(span()));
    done(Span::is_empty(span()));
    done(Span::end(span()));
    done(Span::address(span(), number()));
    done(Span::pointer(span(), core::ptr::without_provenance_mut(1)));
    done(Span::sub(span(), side(), number(), number()));
    done(Span::split_at(span(), number()));
    done(Span::split_at_most(span(), number()));
    done(Span::overlaps(span(), span()));
    done(Span::join(span(), span()));
}
