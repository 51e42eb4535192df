//! `hmc_core::wire::data`.

use crate::values::{any, done, failure, number, small};
use hmc_core::wire::data::{DataFrame, DataKind};

pub(crate) fn call() {
    done(DataFrame::new(any(DataKind::Write), small()));
    done(DataFrame::ack(small(), number()));
    let mut frame = any(DataFrame::nack(small(), failure()));
    done(DataFrame::gather(number()));
    done(DataFrame::can_be_gathered(&frame));
    done(DataFrame::why(&frame));
    done(DataFrame::generation(&frame));
    DataFrame::expect(&mut frame, small());
    done(DataFrame::parse(&any([0; 56])));
    done(DataFrame::emit(&frame));
}
