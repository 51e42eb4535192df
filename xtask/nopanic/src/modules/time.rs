//! `hmc_core::time`.

use crate::values::{done, now, number, period};
use hmc_core::time::{Duration, Instant};

pub(crate) fn call() {
    done(Instant::from_nanos(number()));
    done(Instant::as_nanos(now()));
    done(Instant::after(now(), period()));
    done(Instant::since(now(), now()));
    done(Duration::from_nanos(number()));
    done(Duration::from_millis(number()));
    done(Duration::as_nanos(period()));
}
