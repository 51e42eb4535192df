//! A file over UCX's own queue pairs on a soft-RoCE device, by the libucx of Debian that the VM has.

use super::counters;
use crate::cmd::demo::{self, Host, Hosts, Via};
use crate::verdict::Verdict;
use std::path::Path;

/// Variables of both processes. UD opens the way for the lanes of reliable connections; its packets are answered
/// only over the GID of the link-local address, index 0.
const VARIABLES: [(&str, &str); 3] =
    [("UCX_TLS", "rc_verbs,ud_verbs"), ("UCX_NET_DEVICES", "rxe0:1"), ("UCX_IB_GID_INDEX", "0")];

/// The packets that the device has sent.
const PACKETS: &str = "/sys/class/infiniband/rxe0/ports/1/hw_counters/sent_pkts";

/// What cannot run over these lanes, each with the reason.
const NOT_BY_UCX: [(&str, &str); 3] = [
    (
        "UCX 1.13.1 over an IPv4 GID (index 1, its choice)",
        "UD packets get no answer, also those of ucx_perftest: `ud_ep.c:276 Fatal: UD endpoint .. unhandled timeout error`",
    ),
    ("UCX_TLS=rc_verbs,tcp", "no UD lane opens the way: `Destination is unreachable`"),
    ("libucx-cu12 1.22.0", "the wheel has no module for RDMA devices: `No such device`"),
];

/// Moves a file of `bytes` bytes, and compares the packets of the device with its length.
pub(super) fn move_file(hmc: &Path, bytes: u64) -> Verdict {
    for (what, why) in NOT_BY_UCX {
        println!("not tried  {what}: {why}");
    }
    let host = || Host { prefix: Vec::new(), variables: VARIABLES.to_vec() };
    let hosts = Hosts { receiver: host(), sender: host(), address: None };
    let moved = counters::read(PACKETS).and_then(|before| {
        match demo::moved_by(hmc, Via::Ucx, bytes, &hosts) {
            Verdict::Passed => {}
            verdict => return Err(verdict.detail()),
        }
        counters::compare(bytes, counters::read(PACKETS)?.saturating_sub(before))
    });
    Verdict::from_result(moved)
}
