//! Two hosts and a path between them that can be cut: three network namespaces of a test's own.
//!
//! ```text
//!   A  10.77.1.2 ---- router ---- 10.77.2.2  B
//! ```
//!
//! A cut is a route of the router that swallows: the links stay up, no end learns anything, and packets vanish in one
//! direction or in both, as they do when a switch far away fails. Nothing of the machine's own network is touched, and
//! the kernel takes everything away with the last thread and descriptor that is in it, however the test ends.

use std::fs::File;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::process::Command;

use rustix::io::Errno;
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};

use crate::env::until;

/// How long a cable may take to be noticed.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(10);
/// The name of each host's way out.
pub const DEVICE: &str = "hmc0";

/// One of the two hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Host {
    /// The first.
    A,
    /// The second.
    B,
}

impl Host {
    /// Its address.
    #[must_use]
    pub const fn ip(self) -> &'static str {
        match self {
            Self::A => "10.77.1.2",
            Self::B => "10.77.2.2",
        }
    }

    const fn other(self) -> Self {
        match self {
            Self::A => Self::B,
            Self::B => Self::A,
        }
    }

    /// The router's address towards it.
    const fn gateway(self) -> &'static str {
        match self {
            Self::A => "10.77.1.1",
            Self::B => "10.77.2.1",
        }
    }

    /// Where it is.
    const fn subnet(self) -> &'static str {
        match self {
            Self::A => "10.77.1.0/30",
            Self::B => "10.77.2.0/30",
        }
    }

    /// The router's end of its cable.
    const fn port(self) -> &'static str {
        match self {
            Self::A => "r0",
            Self::B => "r1",
        }
    }
}

/// The three namespaces. They go with the value and with whatever was started in them.
#[derive(Debug)]
pub struct Net {
    a: File,
    b: File,
    router: File,
}

impl Net {
    /// Makes the hosts and the path between them.
    ///
    /// # Errors
    /// Words, when this process may not, or `ip` is missing: a test is skipped then.
    pub fn new() -> Result<Self, String> {
        let net = Self { a: fresh()?, b: fresh()?, router: fresh()? };
        in_thread(|| net.enter(&net.router).and_then(|()| route()))?;
        for host in [Host::A, Host::B] {
            in_thread(|| net.enter(net.of(host)).and_then(|()| net.plug(host)))?;
        }
        Ok(net)
    }

    fn of(&self, host: Host) -> &File {
        match host {
            Host::A => &self.a,
            Host::B => &self.b,
        }
    }

    fn enter(&self, place: &File) -> Result<(), String> {
        let kind = Some(LinkNameSpaceType::Network);
        move_into_link_name_space(place.as_fd(), kind)
            .map_err(|e| format!("a network namespace cannot be entered: {e}"))
    }

    /// From within a host: its cable to the router, its addresses, its route to the other host.
    fn plug(&self, host: Host) -> Result<(), String> {
        let router = format!("/proc/{}/fd/{}", std::process::id(), self.router.as_raw_fd());
        let (port, gateway) = (host.port(), host.gateway());
        ip(&format!("link add {DEVICE} type veth peer name {port} netns {router}"))?;
        in_thread(|| {
            self.enter(&self.router)?;
            ip(&format!("addr add {gateway}/30 dev {port}"))?;
            ip(&format!("link set {port} up"))
        })?;
        ip("link set lo up")?;
        ip(&format!("addr add {}/30 dev {DEVICE}", host.ip()))?;
        ip(&format!("link set {DEVICE} up"))?;
        ip(&format!("route add {} via {gateway}", host.other().subnet()))
    }

    /// Runs `work` on a host: what it starts (threads, processes, sockets) stays there. Its /sys is the host's, which is
    /// where UCX looks for devices.
    ///
    /// # Panics
    /// As `work`; when the host cannot be entered.
    pub fn on<R: Send>(&self, host: Host, work: impl FnOnce() -> R + Send) -> R {
        in_thread(|| {
            self.enter(self.of(host)).expect("it was entered before");
            own_sysfs().expect("who may make network namespaces may mount");
            // The kernel says it a little after the cable is plugged in, and UCX passes over a device that is not up.
            let state = format!("/sys/class/net/{DEVICE}/operstate");
            until("the host's device is up", PATIENCE, || {
                std::fs::read_to_string(&state).is_ok_and(|s| s == "up\n").then_some(())
            });
            work()
        })
    }

    /// From now on nothing gets from `host` to the other one, and nobody is told.
    ///
    /// # Panics
    /// When the router does not obey.
    pub fn cut_from(&self, host: Host) {
        self.swallow("add", host);
    }

    /// The way from `host` to the other one is open again.
    ///
    /// # Panics
    /// When the router does not obey.
    pub fn heal_from(&self, host: Host) {
        self.swallow("del", host);
    }

    /// Cuts both directions.
    pub fn cut(&self) {
        self.cut_from(Host::A);
        self.cut_from(Host::B);
    }

    /// Heals both directions.
    pub fn heal(&self) {
        self.heal_from(Host::A);
        self.heal_from(Host::B);
    }

    fn swallow(&self, verb: &str, from: Host) {
        let to = from.other().ip();
        in_thread(|| {
            self.enter(&self.router)?;
            ip(&format!("route {verb} blackhole {to}/32"))
        })
        .expect("the router obeys");
    }
}

/// A thread of its own: it enters namespaces, and nobody else is moved by that.
fn in_thread<R: Send>(work: impl FnOnce() -> R + Send) -> R {
    std::thread::scope(|s| match s.spawn(work).join() {
        Ok(r) => r,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}

fn unshare(what: UnshareFlags) -> Result<(), Errno> {
    // SAFETY: the flags given below do not include FILES: every descriptor stays everybody's.
    unsafe { unshare_unsafe(what) }
}

/// A new network namespace.
fn fresh() -> Result<File, String> {
    in_thread(|| {
        unshare(UnshareFlags::NEWNET).map_err(|e| {
            format!("network namespaces cannot be made ({e}): it takes root with CAP_SYS_ADMIN")
        })?;
        File::open("/proc/thread-self/ns/net").map_err(|e| format!("no namespace in /proc: {e}"))
    })
}

/// A /sys that shows the devices of the calling thread's network, for this thread and what it starts.
fn own_sysfs() -> Result<(), Errno> {
    unshare(UnshareFlags::NEWNS)?;
    // Or the machine would get it too.
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    mount("sysfs", "/sys", "sysfs", MountFlags::empty(), None)
}

/// Makes the namespace of the calling thread a router that passes on everything.
fn route() -> Result<(), String> {
    // A cut of one direction must not make packets of the other look forged.
    for (name, value) in
        [("ip_forward", "1"), ("conf/all/rp_filter", "0"), ("conf/default/rp_filter", "0")]
    {
        let path = format!("/proc/sys/net/ipv4/{name}");
        std::fs::write(&path, value).map_err(|e| format!("{path} cannot be written: {e}"))?;
    }
    ip("link set lo up")
}

/// Runs `ip` in the namespace of the calling thread.
fn ip(words: &str) -> Result<(), String> {
    // It is often not where ordinary users look.
    for program in ["ip", "/usr/sbin/ip", "/sbin/ip"] {
        match Command::new(program).args(words.split(' ')).output() {
            Ok(out) if out.status.success() => return Ok(()),
            Ok(out) => {
                let why = String::from_utf8_lossy(&out.stderr).trim().to_owned();
                return Err(format!("`ip {words}`: {why}"));
            }
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
            Err(e) => return Err(format!("`{program} {words}`: {e}")),
        }
    }
    Err("there is no `ip` (apt install iproute2)".to_owned())
}
