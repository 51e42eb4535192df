//! A file from `hmc put` to `hmc serve` in two network namespaces of the guest.
//!
//! soft-RoCE of Linux 6.1 routes, sends and receives packets in the initial network namespace only, and none of its devices can
//! be moved to another one. So both devices and their interfaces stay there, and processes in all namespaces see them. The
//! namespaces are joined by a veth pair of their own, which carries the control connection. A process in a namespace does not see
//! the interface of a GID, so variables name the port and the GID.

use super::counters::{self, number};
use crate::cmd::demo::{self, Host, Hosts, Via};
use crate::shell;
use crate::verdict::Verdict;
use std::path::Path;
use std::process::Command;

/// The namespaces of the receiver and of the sender.
const RECEIVER: &str = "hmc-receiver";
const SENDER: &str = "hmc-sender";

/// Arguments of ip(8) that create the namespaces and join them.
const SETUP: [&str; 9] = [
    "netns add hmc-receiver",
    "netns add hmc-sender",
    "link add hmc-cable netns hmc-receiver type veth peer name hmc-cable netns hmc-sender",
    "-n hmc-receiver addr add 10.78.0.1/24 dev hmc-cable",
    "-n hmc-sender addr add 10.78.0.2/24 dev hmc-cable",
    "-n hmc-receiver link set lo up",
    "-n hmc-sender link set lo up",
    "-n hmc-receiver link set hmc-cable up",
    "-n hmc-sender link set hmc-cable up",
];

/// Prints the bytes that the receiver's end of the pair has received.
const TCP_BYTES: [&str; 5] =
    ["netns", "exec", RECEIVER, "cat", "/sys/class/net/hmc-cable/statistics/rx_bytes"];

/// The packets that the sender's device has sent.
const PACKETS: &str = "/sys/class/infiniband/rxe1/ports/1/hw_counters/sent_pkts";

/// Moves a file of `bytes` bytes between the namespaces.
pub(super) fn move_file(hmc: &Path, bytes: u64) -> Verdict {
    let verdict = Verdict::from_result(create().and_then(|()| check(hmc, bytes)));
    for name in [RECEIVER, SENDER] {
        // Fails for a namespace that was not created.
        let _ = ip(["netns", "del", name]);
    }
    verdict
}

fn create() -> Result<(), String> {
    SETUP.iter().try_for_each(|words| ip(words.split(' ')).map(drop))
}

/// Moves the file, and compares the counters of the device and of the pair with its length.
fn check(hmc: &Path, bytes: u64) -> Result<(), String> {
    let hosts = Hosts {
        receiver: host(RECEIVER, "rxe0:1"),
        sender: host(SENDER, "rxe1:1"),
        address: Some("10.78.0.1"),
    };
    let before = (counters::read(PACKETS)?, tcp_bytes()?);
    match demo::moved_by(hmc, Via::Rdma, bytes, &hosts) {
        Verdict::Passed => {}
        verdict => return Err(verdict.detail()),
    }
    let sent = counters::read(PACKETS)?.saturating_sub(before.0);
    let over_tcp = tcp_bytes()?.saturating_sub(before.1);
    counters::compare(bytes, sent)?;
    println!("           {over_tcp} bytes over TCP");
    compare(bytes, over_tcp)
}

/// Checks that TCP did not move the bytes of a file.
fn compare(bytes: u64, over_tcp: u64) -> Result<(), String> {
    if over_tcp >= bytes / 8 {
        return Err(format!("{over_tcp} bytes went over TCP, and the file has {bytes}"));
    }
    Ok(())
}

/// A namespace whose processes use one port.
fn host(name: &'static str, port: &'static str) -> Host {
    Host {
        prefix: vec!["ip", "netns", "exec", name],
        // Index 1 is RoCE v2 with the IPv4 address.
        variables: vec![("HMC_RDMA_PORT", port), ("HMC_RDMA_GID", "1")],
    }
}

fn tcp_bytes() -> Result<u64, String> {
    number(&ip(TCP_BYTES)?)
}

/// Runs ip(8). Returns its output.
fn ip<'a>(words: impl IntoIterator<Item = &'a str>) -> Result<String, String> {
    let mut command = Command::new("ip");
    command.args(words);
    let out = shell::capture(&mut command)?;
    if out.success {
        return Ok(out.stdout);
    }
    Err(format!("`{}`: {}", shell::shown(&command), out.stderr.trim()))
}

#[cfg(test)]
mod tests {
    use super::{RECEIVER, SENDER, SETUP, compare};

    #[test]
    fn each_namespace_has_an_address_and_its_end_of_the_pair() {
        for name in [RECEIVER, SENDER] {
            for words in ["addr add", "link set hmc-cable up", "link set lo up"] {
                let begin = format!("-n {name} {words}");
                assert!(SETUP.iter().any(|line| line.starts_with(&begin)), "{begin}");
            }
        }
    }

    #[test]
    fn bytes_that_another_transport_moved_are_a_failure() {
        assert_eq!(compare(4 << 20, 4000), Ok(()));
        assert!(compare(4 << 20, 4 << 20).unwrap_err().contains("over TCP"));
    }
}
