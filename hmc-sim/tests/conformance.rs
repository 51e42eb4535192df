//! The correct transports of this crate pass the suite, under any network conditions.

use hmc_sim::conformance::subjects::{RefSubject, SimSubject};
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
    run(|| SimSubject::new(config)).assert_all_passed();
}

#[test]
fn the_simulated_nic_passes_under_any_legal_conditions() {
    for seed in 1..=12 {
        // From calm to slow, from hardly ever busy to every other time; queues of odd depths.
        let faults = Faults {
            delay_max_ns: 300 << (seed % 8),
            busy: Rate::percent(u32::try_from(seed).unwrap_or(0) * 4),
            ..Faults::CONDITIONS
        };
        let config = Config { seed, faults, depth: 3 + 5 * usize::try_from(seed).unwrap_or(0) };
        println!("{config:?}");
        run(|| SimSubject::new(config)).assert_all_passed();
    }
}
