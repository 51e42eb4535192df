//! A fabric of several simulated processes, its detector and its counts.
//!
//! Connect two ends and each gets a [`SimNic`]; one process may have a connection to each of the
//! others, and all of them reach the same regions. Faults, time and chance are the fabric's.

use std::cell::RefCell;
use std::rc::Rc;

use hmc_core::time::Instant;

use crate::detector::{Detector, Finding};
use crate::fabric::net::Fabric;
use crate::fault::{Faults, Tally};
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

    /// Connects two of them; `None` when there are no such two.
    #[must_use]
    pub fn connect(&self, a: u16, b: u16) -> Option<(SimNic, SimNic)> {
        let ports = self.fabric.borrow_mut().connect(usize::from(a), usize::from(b));
        let (a, b) = ports?;
        Some((SimNic::of_net(&self.fabric, a), SimNic::of_net(&self.fabric, b)))
    }

    /// Switches the detector on. Call it before anything is registered: what happened before is not
    /// in its books.
    pub fn watch(&self) {
        self.fabric.borrow_mut().detector = Some(Box::<Detector>::default());
    }

    /// Changes the faults of what is posted from now on. Depths and paths stay as they are.
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

    /// How often each thing happened.
    #[must_use]
    pub fn tally(&self) -> Tally {
        self.fabric.borrow().tally
    }

    /// Compares every memory with its shadow, looks at guards and poison, and gives everything that
    /// the detector found since [`Self::watch`]. Empty when it is off.
    #[must_use]
    pub fn audit(&self) -> Vec<Finding> {
        self.fabric.borrow_mut().audit()
    }
}
