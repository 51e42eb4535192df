//! What an end of a simulated NIC is connected to.

use std::cell::RefCell;
use std::rc::Rc;

use hmc_core::region::{Epoch, LocalRegion, LocalSlice, RegionKey, WindowDesc, WindowId};
use hmc_core::work::WorkRequest;

use crate::fabric::timed::Fabric;
use crate::fabric::zero_latency::{FabricSide, FastFabric};
use crate::memory::Memory;

/// The fabric that it is connected to.
#[derive(Clone, Debug)]
pub(super) enum Wire {
    /// A request is done when it is posted.
    ZeroLatency(Rc<RefCell<FastFabric>>, FabricSide),
    /// Time, network conditions and faults; the number of the port.
    Net(Rc<RefCell<Fabric>>, usize),
}

impl Wire {
    /// Applies a function to the memory of this end's process.
    pub(super) fn with_memory<R>(&self, of: impl FnOnce(&mut Memory) -> R) -> R {
        match self {
            Self::ZeroLatency(fabric, side) => of(&mut fabric.borrow_mut().end(*side).memory),
            Self::Net(fabric, port) => of(&mut fabric.borrow_mut().host_of(*port).0.memory),
        }
    }

    /// Allocates memory of this end's process.
    pub(super) fn allocate(&self, len: u64) -> Option<LocalRegion> {
        match self {
            Self::ZeroLatency(fabric, side) => fabric.borrow_mut().end(*side).memory.allocate(len),
            Self::Net(fabric, port) => fabric.borrow_mut().allocate(*port, len),
        }
    }

    /// Removes a region of this end's process and poisons its bytes. Returns `true` if there was one.
    pub(super) fn deregister(&self, key: RegionKey) -> bool {
        match self {
            Self::ZeroLatency(fabric, side) => {
                fabric.borrow_mut().end(*side).memory.deregister(key)
            }
            Self::Net(fabric, port) => fabric.borrow_mut().deregister(*port, key),
        }
    }

    /// An unpredictable number, for the name of a window.
    pub(super) fn entropy(&self) -> u64 {
        match self {
            Self::ZeroLatency(fabric, _) => fabric.borrow_mut().rng().next_u64(),
            Self::Net(fabric, _) => fabric.borrow_mut().rng.next_u64(),
        }
    }

    /// Lets the other end reach a range by the name of a window. Returns `false` if the name is taken.
    pub(super) fn open_window(&self, range: LocalSlice, window: &WindowDesc) -> bool {
        match self {
            Self::ZeroLatency(fabric, side) => {
                fabric.borrow_mut().end(*side).open_window(range, window)
            }
            Self::Net(fabric, port) => fabric.borrow_mut().open_window(*port, range, window),
        }
    }

    /// Returns `true` if a request in flight of this end meets the condition.
    pub(super) fn any(&self, is_it: impl Fn(&WorkRequest) -> bool) -> bool {
        match self {
            Self::ZeroLatency(..) => false,
            Self::Net(fabric, port) => fabric.borrow_mut().port(*port).any(is_it),
        }
    }

    /// Returns `true` if a request in flight of this end uses a window of the peer.
    pub(super) fn uses_window(&self, window: (WindowId, Epoch)) -> bool {
        self.any(|work| (work.remote.window, work.remote.epoch) == window)
    }

    /// Returns `true` if the process at the other end has ended, or has closed the connection.
    pub(super) fn has_peer_ended(&self) -> bool {
        match self {
            Self::ZeroLatency(fabric, side) => !fabric.borrow_mut().end(side.peer()).is_alive(),
            Self::Net(fabric, port) => {
                let mut fabric = fabric.borrow_mut();
                let (peer, host) = (fabric.port(*port).peer, fabric.port(*port).peer_host);
                fabric.port(peer).closed || !fabric.host(host).alive
            }
        }
    }

    /// Returns the number of tags that nobody took, and whether no more fit.
    pub(super) fn tags(&self) -> (usize, bool) {
        match self {
            Self::ZeroLatency(fabric, side) => fabric.borrow_mut().end(*side).tags(),
            Self::Net(fabric, port) => {
                let mut fabric = fabric.borrow_mut();
                let inbox = &fabric.port(*port).inbox;
                (inbox.len(), inbox.is_full())
            }
        }
    }
}
