//! The RDMA devices of the guest: soft-RoCE on both ends of a veth pair; with two guests, on the NIC that the other
//! guest is connected to.
//!
//! Both addresses of the pair are local, so the kernel would deliver packets between them without the pair. Routing rules for the two
//! addresses precede the rule for local delivery and send these packets across the pair.

use super::guest_id::GuestId;
use std::io::Write;
use std::process::{Command, Stdio};

/// The interfaces.
const INTERFACES: [&str; 2] = ["hmc0", "hmc1"];

/// Commands of ip(8). An MTU of 4500 bytes holds RoCE's largest MTU of 4096 bytes and its headers.
const ADDRESSES: &str = "\
link set lo up
link add hmc0 address 02:00:00:00:00:01 mtu 4500 type veth peer name hmc1 address 02:00:00:00:00:02 mtu 4500
addr add 10.77.0.1/24 dev hmc0
addr add 10.77.0.2/24 dev hmc1
link set hmc0 up
link set hmc1 up
neigh add 10.77.0.2 lladdr 02:00:00:00:00:02 dev hmc0 nud permanent
neigh add 10.77.0.1 lladdr 02:00:00:00:00:01 dev hmc1 nud permanent
route add 10.77.0.2/32 dev hmc0 src 10.77.0.1 table 101
route add 10.77.0.1/32 dev hmc1 src 10.77.0.2 table 102
rule add pref 1 iif hmc0 lookup local
rule add pref 1 iif hmc1 lookup local
rule add pref 2 from 10.77.0.1 to 10.77.0.2 lookup 101
rule add pref 2 from 10.77.0.2 to 10.77.0.1 lookup 102
rule add pref 3 lookup local
rule del pref 0
";

/// Commands of rdma(8).
const DEVICES: &str = "\
link add rxe0 type rxe netdev hmc0
link add rxe1 type rxe netdev hmc1
";

/// Returns the commands of ip(8) for the NIC of one of two guests.
fn nic(guest: GuestId) -> String {
    format!(
        "\
link set lo up
link set eth0 name hmc0
link set hmc0 mtu 4500
addr add 10.77.0.{}/24 dev hmc0
link set hmc0 up
",
        guest.host_number()
    )
}

/// The command of rdma(8) for it.
const NIC_DEVICE: &str = "link add rxe0 type rxe netdev hmc0\n";

/// Creates the devices of a guest.
///
/// # Errors
/// A message of the kernel or of the tools.
pub(super) fn create(guest: GuestId) -> Result<(), String> {
    // Addresses are valid at once.
    set("net/ipv6/conf/default/accept_dad", "0")?;
    if guest.has_peer() {
        batch("ip", &nic(guest))?;
        return batch("rdma", NIC_DEVICE);
    }
    // Packets with a local source address are accepted.
    set("net/ipv4/conf/all/accept_local", "1")?;
    batch("ip", ADDRESSES)?;
    for interface in INTERFACES {
        set(&format!("net/ipv4/conf/{interface}/accept_local"), "1")?;
        set(&format!("net/ipv4/conf/{interface}/rp_filter"), "0")?;
    }
    batch("rdma", DEVICES)
}

/// Sets a kernel parameter below `/proc/sys`.
///
/// # Errors
/// A message with the parameter.
pub(super) fn set(name: &str, value: &str) -> Result<(), String> {
    std::fs::write(format!("/proc/sys/{name}"), value)
        .map_err(|e| format!("/proc/sys/{name}={value}: {e}"))
}

/// Runs a tool of iproute2 with a list of commands.
fn batch(program: &str, commands: &str) -> Result<(), String> {
    let failed = |e: std::io::Error| format!("`{program}`: {e}");
    let mut command = Command::new(program);
    command.args(["-b", "-"]).stdin(Stdio::piped()).stdout(Stdio::null());
    let mut child = command.stderr(Stdio::piped()).spawn().map_err(failed)?;
    // Fails if the program has ended, which its exit status shows.
    let _ = child.stdin.as_mut().map(|pipe| pipe.write_all(commands.as_bytes()));
    let out = child.wait_with_output().map_err(failed)?;
    if out.status.success() {
        return Ok(());
    }
    Err(format!("`{program}`: {}", String::from_utf8_lossy(&out.stderr).trim()))
}

#[cfg(test)]
mod tests {
    use super::{ADDRESSES, DEVICES, INTERFACES, batch};

    #[test]
    fn each_interface_has_an_address_a_route_and_a_device() {
        for interface in INTERFACES {
            for begin in ["addr add", "link set", "neigh add", "route add", "rule add pref 1 iif"] {
                let has = |l: &str| l.starts_with(begin) && l.contains(interface);
                assert!(ADDRESSES.lines().any(has), "{begin} {interface}");
            }
            assert!(DEVICES.lines().any(|line| line.ends_with(interface)));
        }
        // Local delivery has a rule before its default rule is removed.
        assert!(ADDRESSES.ends_with("rule add pref 3 lookup local\nrule del pref 0\n"));
    }

    #[test]
    fn a_failing_program_is_named_with_its_message() {
        assert!(batch("no-such-program-of-hmc", "").unwrap_err().contains("no-such-program"));
        // ls has an option -b, and reports that the file `-` is missing.
        let why = batch("ls", "x\n").unwrap_err();
        assert!(why.starts_with("`ls`: ls: "), "{why}");
    }
}
