//! What a message waits for before its memory is private again.

use std::sync::Arc;

use hmc_core::types::ConnType;
use hmc_mem::gate::WindowGate;
use hmc_mem::os::memfd::Mapping;

use super::OnLink;
use crate::link::ends::{pair, pair_that_stays_inside};
use crate::link::rndv::host::Host as _;
use crate::transport::data_plane::Fence;
use crate::transport::gate::Gate;

#[test]
fn a_window_comes_back_when_its_gate_is_left_though_the_peer_lives() {
    let (near, _far) = pair(ConnType::Shm);
    let (_region, window) = near.expose(1);
    let page = Arc::new(Mapping::create(4096).expect("memory"));
    let gate = WindowGate::new(page.bytes().word(0).expect("aligned"));
    gate.open(1).expect("closed before");
    gate.enter(1).expect("open");
    gate.close();
    let fence = Fence::Gate(Gate::new(Arc::clone(&page), 0));
    let mut host = OnLink::new(&near.link);
    assert!(!host.has_passed(&fence, &window), "a copy is inside");
    gate.exit();
    assert!(host.has_passed(&fence, &window));
}

#[test]
fn a_window_comes_back_when_its_peer_has_ended_inside() {
    let (near, far) = pair(ConnType::Shm);
    let (_region, window) = near.expose(1);
    let page = Arc::new(Mapping::create(4096).expect("memory"));
    let gate = WindowGate::new(page.bytes().word(0).expect("aligned"));
    gate.open(1).expect("closed before");
    gate.enter(1).expect("open");
    gate.close();
    let fence = Fence::Gate(Gate::new(Arc::clone(&page), 0));
    let mut host = OnLink::new(&near.link);
    assert!(!host.has_passed(&fence, &window));
    drop(far);
    assert!(host.has_passed(&fence, &window), "nobody is there to leave it");
}

/// Somebody at its gate would be there when it is to be opened, as far as this end knows.
#[test]
fn a_window_that_does_not_close_serves_no_message() {
    for inside in [false, true] {
        let (near, _far) = if inside { pair_that_stays_inside() } else { pair(ConnType::Shm) };
        let (region, window) = near.expose(1);
        let kept = near.link.close_window(&region, window);
        assert_eq!((kept.is_none(), near.link.has_rndvs()), (inside, inside), "it is taken back");
    }
}
