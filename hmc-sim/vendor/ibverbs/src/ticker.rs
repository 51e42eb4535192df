//! Ticks by the clock, for callers that sleep until an event: what a NIC would do meanwhile.

use std::time::Duration;

use crate::state::{FakeIbv, state};

impl FakeIbv {
    /// Starts or ends ticks each `period_us` microseconds; 0: none. From then on a run depends on time.
    pub(crate) fn set_ticker(&mut self, period_us: u64) {
        // The thread of an earlier period ends at its next tick.
        self.ticker += 1;
        if period_us == 0 {
            return;
        }
        let own = self.ticker;
        std::thread::spawn(move || {
            loop {
                std::thread::park_timeout(Duration::from_micros(period_us));
                let mut w = state();
                if w.ticker != own {
                    return;
                }
                w.progress();
            }
        });
    }
}
