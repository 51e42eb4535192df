//! The correct transports of this crate pass the suite, under any network conditions.

use hmc_sim::conformance::subjects::{PeerEnd, RefSubject, SimSubject};
use hmc_sim::conformance::transport::run;
use hmc_sim::fault::{Faults, Rate};
use hmc_sim::nic::Config;

#[test]
fn the_reference_transport_passes() {
    run(|| RefSubject::new(|reference, _| reference)).assert_all_passed();
}

#[test]
fn the_simulated_nic_passes_in_ideal_conditions() {
    let config = Config { seed: 1, faults: Faults::NONE, depth: 64 };
    for end in [PeerEnd::Dies, PeerEnd::Closes] {
        run(|| SimSubject::new(config, end)).assert_all_passed();
    }
}

#[test]
fn the_simulated_nic_passes_under_any_legal_conditions() {
    for seed in 1..=12 {
        // From calm to slow, from hardly ever busy to every other time; queues of odd depths. Every other fabric has a latency and
        // a rate, moves bytes in any order, and takes time for the fence of a window.
        let condition = |value| if seed % 2 == 0 { value } else { 0 };
        let faults = Faults {
            delay_max_ns: 300 << (seed % 8),
            latency_ns: condition(100 << (seed % 5)),
            bytes_per_us: condition(64_000),
            scattered: Rate::percent(u32::try_from(condition(50)).unwrap_or(0)),
            fence_max_ns: condition(5_000 * seed),
            busy: Rate::percent(u32::try_from(seed).unwrap_or(0) * 4),
            ..Faults::CONDITIONS
        };
        let config = Config { seed, faults, depth: 3 + 5 * usize::try_from(seed).unwrap_or(0) };
        println!("{config:?}");
        let end = if seed % 4 < 2 { PeerEnd::Dies } else { PeerEnd::Closes };
        run(|| SimSubject::new(config, end)).assert_all_passed();
    }
}
