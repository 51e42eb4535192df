//! The gate of a revoked window, for which its owner waits.

use std::sync::Arc;

use hmc_mem::gate::Drain;
use hmc_mem::gates::WindowGates;
use hmc_mem::os::memfd::Mapping;
use hmc_mem::os::words::{gate_at, gates_of};
use hmc_mem::sync::Word64;

use crate::base::clock;
use crate::base::polling;
use crate::base::wait_limit::{WaitLimit, WaitStopped};

/// The longest sleep between two looks at the peer's end, of which its gate tells nothing.
const MAX_PARK_NS: u64 = 20_000_000;

/// The gate of a revoked window, in a page that its owner shares with the peer. It drains when the peer's last copy ends.
#[derive(Debug)]
pub struct Gate {
    page: Arc<Mapping>,
    /// Where the gates lie in the page.
    offsets: Offsets,
}

#[derive(Clone, Copy, Debug)]
enum Offsets {
    One(u64),
    OfWindow { index: u16, has_further_gates: bool },
}

/// All gates of an entry of the window table, in a page with or without further ones. Each entry has one at least.
pub(crate) fn window_gates(
    page: &Mapping,
    index: u16,
    has_further_gates: bool,
) -> WindowGates<impl Iterator<Item = &Word64> + Clone> {
    debug_assert!(gates_of(index) > 0, "an index beyond the table");
    let bytes = page.bytes();
    let gates = if has_further_gates { gates_of(index) } else { 1 };
    WindowGates::new((0..gates).filter_map(move |n| bytes.word(gate_at(n, index)?).ok()))
}

impl Gate {
    /// The gate at `at`, a multiple of 8, of a page that both ends map.
    #[must_use]
    pub const fn new(page: Arc<Mapping>, at: u64) -> Self {
        Self { page, offsets: Offsets::One(at) }
    }

    /// All gates of an entry of the window table.
    pub(crate) const fn of_window(page: Arc<Mapping>, index: u16, has_further_gates: bool) -> Self {
        Self { page, offsets: Offsets::OfWindow { index, has_further_gates } }
    }

    /// Whether nobody is inside any more, waiting up to `timeout`.
    pub(crate) fn wait(&self, timeout: std::time::Duration) -> bool {
        if !timeout.is_zero() {
            polling::waits();
        }
        let drain = match self.offsets {
            Offsets::One(at) => {
                WindowGates::new(self.page.bytes().word(at).into_iter()).wait_drained(timeout)
            }
            Offsets::OfWindow { index, has_further_gates } => {
                window_gates(&self.page, index, has_further_gates).wait_drained(timeout)
            }
        };
        drain == Drain::Drained
    }

    /// Sleeps until nobody is inside any more, `is_over` says that nobody can be, or the wait is over.
    pub(crate) fn wait_until(
        &self,
        until: WaitLimit,
        mut is_over: impl FnMut() -> bool,
    ) -> std::result::Result<(), WaitStopped> {
        let mut timer = until.timer();
        loop {
            let pause = clock::left(timer.park_until()).as_nanos().min(MAX_PARK_NS);
            if self.wait(std::time::Duration::from_nanos(pause)) || is_over() {
                return Ok(());
            }
            timer.check()?;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use hmc_core::time::{Duration, Instant};
    use hmc_mem::gate::WindowGate;
    use hmc_mem::os::memfd::Mapping;

    use super::Gate;
    use crate::base::clock;
    use crate::base::wait_limit::{WaitLimit, WaitStopped};

    #[test]
    fn the_wait_for_a_peer_that_stays_inside_can_be_interrupted() {
        let page = Arc::new(Mapping::create(4096).expect("memory"));
        let word = WindowGate::new(page.bytes().word(0).expect("aligned"));
        word.open(1).expect("closed before");
        word.enter(1).expect("open");
        let fence = Gate::new(Arc::clone(&page), 0);
        let interrupted = WaitLimit::new(Instant::NEVER, Some(|| true));
        assert_eq!(fence.wait_until(interrupted, || false), Err(WaitStopped::Interrupted));
        let soon = clock::now().after(Duration::from_millis(1));
        assert_eq!(
            fence.wait_until(WaitLimit::new(soon, Some(|| true)), || false),
            Err(WaitStopped::Deadline)
        );
        assert_eq!(fence.wait_until(interrupted, || true), Ok(()), "the peer has ended");
        word.exit();
        assert_eq!(fence.wait_until(interrupted, || false), Ok(()));
    }
}
