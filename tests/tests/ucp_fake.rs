//! UCX's transport over the fake libucp keeps the promises of the conformance suite, in every order and with
//! every delay that UCX may have.

use hmc_sim::conformance::transport::run;
use hmc_tests::fake_ucp::FakeUcp;
use hmc_tests::ucx_pair::{Pair, UcxSetup, WITHOUT_TAGS};

/// A lane that reaches memory, one that reaches what it maps, and one that only sends messages.
const LANES: [&str; 3] = ["rc_mlx5/mlx5_0:1", "posix/memory", "tcp/eth0"];

/// Settings of the script, by name.
type Knobs = &'static [(&'static str, u64)];

/// Kinds of UCX: what it does at once, what later, in which order callbacks come, when bytes can be read.
const CONDITIONS: [(&str, Knobs); 7] = [
    ("as a rule", &[]),
    (
        "everything at once",
        &[("put_delay", 0), ("get_delay", 0), ("flush_delay", 0), ("close_delay", 0)],
    ),
    (
        "everything later",
        &[("put_delay", 3), ("get_delay", 5), ("flush_delay", 2), ("close_delay", 7)],
    ),
    ("reversed", &[("put_delay", 2), ("get_delay", 2), ("flush_delay", 1), ("order", 1)]),
    ("by chance", &[("jitter", 9), ("seed", 42), ("order", 2), ("immediate_bytes", 1000)]),
    ("mapped", &[("maps", 1), ("jitter", 3), ("seed", 5)]),
    ("bytes at once", &[("staged", 0), ("jitter", 3), ("seed", 7), ("put_delay", 1)]),
];

#[test]
fn the_suite_passes_over_every_kind_of_ucx() {
    let fake_ucp = FakeUcp::take();
    for ((name, knobs), lane) in CONDITIONS.iter().flat_map(|w| LANES.map(|lane| (w, lane))) {
        fake_ucp.lane(lane);
        for (knob, value) in *knobs {
            fake_ucp.set(knob, *value);
        }
        let report = run(|| Pair::new(UcxSetup::fake_ucp(fake_ucp.library())));
        println!("{name}, {lane}:\n{report}");
        report.assert_passed_but(&format!("{name}, {lane}"), &WITHOUT_TAGS);
        assert!(fake_ucp.count("flushes_max") <= 4, "{name}");
        // Each of the two paths was taken.
        let mapped = knobs.contains(&("maps", 1));
        let by_messages = !lane.starts_with("rc") && (lane.starts_with("tcp") || !mapped);
        assert_eq!(fake_ucp.calls("ucp_am_send_nbx") != 0, by_messages, "{name}, {lane}");
        fake_ucp.assert_clean();
        fake_ucp.restart();
    }
}
