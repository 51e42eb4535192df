//! A fabric of several simulated processes, its access checker and its counts.
//!
//! Connect two ends and each gets a [`SimNic`]; one process may have a connection to each of the
//! others, and all of them reach the same regions. Faults, time and random numbers belong to the fabric.

use std::cell::RefCell;
use std::rc::Rc;

use hmc_core::time::Instant;

use crate::access_checker::{AccessChecker, Finding};
use crate::fabric::timed::Fabric;
use crate::fault::{FaultCounts, Faults};
use crate::nic::{Config, SimNic};

/// Several simulated processes. Clones are handles of the same fabric.
#[derive(Clone, Debug)]
pub struct SimNet {
    fabric: Rc<RefCell<Fabric>>,
}

impl SimNet {
    /// `ends` processes without connections.
    #[must_use]
    pub fn new(config: Config, ends: u16) -> Self {
        let Config { seed, faults, depth } = config;
        let fabric = Fabric::new(seed, faults, depth, usize::from(ends));
        Self { fabric: Rc::new(RefCell::new(fabric)) }
    }

    /// Connects two of them; `None` if one does not exist.
    #[must_use]
    pub fn connect(&self, a: u16, b: u16) -> Option<(SimNic, SimNic)> {
        let ports = self.fabric.borrow_mut().connect(usize::from(a), usize::from(b));
        let (a, b) = ports?;
        Some((SimNic::of_net(&self.fabric, a), SimNic::of_net(&self.fabric, b)))
    }

    /// Enables the access checker. Call it before the first registration: earlier events are not in its records.
    pub fn watch(&self) {
        self.fabric.borrow_mut().checker = Some(Box::<AccessChecker>::default());
    }

    /// Changes the faults of requests that are posted from now on. Depths and paths stay as they are.
    pub fn set_faults(&self, faults: Faults) {
        self.fabric.borrow_mut().faults = faults;
    }

    /// Lets virtual time pass.
    pub fn advance(&self, by_ns: u64) {
        self.fabric.borrow_mut().advance(by_ns);
    }

    /// The virtual time.
    #[must_use]
    pub fn now(&self) -> Instant {
        Instant::from_nanos(self.fabric.borrow().now_ns)
    }

    /// Returns the counts of faults.
    #[must_use]
    pub fn counts(&self) -> FaultCounts {
        self.fabric.borrow().counts
    }

    /// Compares all memories with their shadows, checks guards and poison, and returns all findings since [`Self::watch`]. Empty
    /// if the checker is off.
    #[must_use]
    pub fn audit(&self) -> Vec<Finding> {
        self.fabric.borrow_mut().audit()
    }
}
