//! The GID table of a port, as the library or the kernel's files have it.

use std::ffi::{CStr, c_char, c_int};
use std::fmt;
use std::fs;
use std::path::Path;

use super::device::Device;
use super::gid::{Gid, GidScope, GidType};
use super::port::{LinkLayer, PortAttrs};
use super::sys::{ibv_gid, ibv_gid_entry};

/// Where the kernel has the attributes of devices.
const SYSFS: &str = "/sys/class/infiniband";
/// Where it has network interfaces.
const NET: &str = "/sys/class/net";

/// The most entries that are read: an index has 8 bits on the wire of the protocol's own structures.
const MAX_ENTRIES: u32 = 256;

/// The network interface of a GID.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Interface {
    /// It has none, or none that this process can see: that of another network namespace.
    None,
    /// It is up.
    Up(String),
    /// It is down, or has no link.
    Down(String),
}

impl fmt::Display for Interface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("no interface"),
            Self::Up(name) => write!(f, "{name}, up"),
            Self::Down(name) => write!(f, "{name}, down"),
        }
    }
}

/// One entry of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GidEntry {
    /// Its index.
    pub index: u8,
    /// The GID.
    pub gid: Gid,
    /// The protocol of its packets.
    pub kind: GidType,
    /// Its network interface.
    pub interface: Interface,
}

impl fmt::Display for GidEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { index, gid, kind, interface } = self;
        write!(f, "GID {index}, {gid}, {kind}")?;
        if *kind == GidType::InfiniBand { Ok(()) } else { write!(f, ", {interface}") }
    }
}

/// Reads the GID table of a port: the entries that are not empty, in the order of their indices.
#[must_use]
pub fn read(device: &Device, port: &PortAttrs) -> Vec<GidEntry> {
    read_table(device, port).unwrap_or_else(|| {
        let folder = Path::new(SYSFS).join(device.name()).join(format!("ports/{}", port.number));
        read_files(port, &folder, Path::new(NET), |index| query(device, port.number, index))
    })
}

/// Reads the table by one call, or returns `None` if the library does not have it or it fails.
fn read_table(device: &Device, port: &PortAttrs) -> Option<Vec<GidEntry>> {
    let call = device.api()._ibv_query_gid_table?;
    // The call has the entries of all ports.
    let ports = usize::from(device.attrs().ports.max(1));
    let capacity = ports.saturating_mul(usize::try_from(port.gid_table_len.max(MAX_ENTRIES)).ok()?);
    let mut entries = vec![ibv_gid_entry::default(); capacity];
    // SAFETY: the context is open; it writes at most that many entries of that size.
    let count = unsafe {
        call(device.context(), entries.as_mut_ptr(), capacity, 0, size_of::<ibv_gid_entry>())
    };
    entries.truncate(usize::try_from(count).ok()?);
    Some(of_port(&entries, port.number, &|ifindex| {
        interface_of(Path::new(NET), &name_of(ifindex)?)
    }))
}

/// Returns the entries of one port, by index.
fn of_port(
    entries: &[ibv_gid_entry],
    number: u8,
    interface: &dyn Fn(u32) -> Option<Interface>,
) -> Vec<GidEntry> {
    let ours = entries.iter().filter(|e| e.port_num == u32::from(number));
    let mut out: Vec<GidEntry> = ours
        .filter_map(|e| {
            Some(GidEntry {
                index: u8::try_from(e.gid_index).ok()?,
                gid: e.gid.into(),
                kind: GidType::of(e.gid_type),
                interface: interface(e.ndev_ifindex).unwrap_or(Interface::None),
            })
        })
        .collect();
    out.sort_by_key(|entry| entry.index);
    out
}

/// Reads one GID.
fn query(device: &Device, number: u8, index: u8) -> Option<Gid> {
    let mut gid = ibv_gid::default();
    // SAFETY: the context is open; it writes one GID.
    let returned = unsafe {
        (device.api().ibv_query_gid)(device.context(), number, c_int::from(index), &mut gid)
    };
    (returned == 0).then(|| gid.into())
}

/// Reads the table entry by entry; types and interfaces are in files under the port's folder.
fn read_files(
    port: &PortAttrs,
    folder: &Path,
    net: &Path,
    query: impl Fn(u8) -> Option<Gid>,
) -> Vec<GidEntry> {
    let read = |what: &str, index: u8| {
        let text = fs::read_to_string(folder.join(format!("gid_attrs/{what}/{index}")));
        text.ok().map(|text| text.trim().to_owned())
    };
    let indices = 0..port.gid_table_len.min(MAX_ENTRIES);
    let entries = indices.filter_map(|index| {
        let index = u8::try_from(index).ok()?;
        let gid = query(index)?;
        if gid.scope() == GidScope::Zero {
            return None;
        }
        // The kernel has no file's text for an entry that is empty.
        let kind = type_of(port.link, read("types", index).as_deref())?;
        let interface = read("ndevs", index).and_then(|name| interface_of(net, &name));
        Some(GidEntry { index, gid, kind, interface: interface.unwrap_or(Interface::None) })
    });
    entries.collect()
}

/// Returns the type that the kernel's text means, or `None` for an empty entry.
fn type_of(link: LinkLayer, text: Option<&str>) -> Option<GidType> {
    match (link, text?) {
        (LinkLayer::InfiniBand, "IB/RoCE v1") => Some(GidType::InfiniBand),
        (_, "IB/RoCE v1") => Some(GidType::RoceV1),
        (_, "RoCE v2") => Some(GidType::RoceV2),
        (_, _) => Some(GidType::Other(u32::MAX)),
    }
}

/// Returns the name of the interface of that number, if this process can see it.
fn name_of(ifindex: u32) -> Option<String> {
    let mut name: [c_char; libc::IF_NAMESIZE] = [0; libc::IF_NAMESIZE];
    // SAFETY: it writes a name with its zero, which fits.
    let found = unsafe { libc::if_indextoname(ifindex, name.as_mut_ptr()) };
    if found.is_null() {
        return None;
    }
    // SAFETY: as above; there was a zero in the array before, too.
    let name = unsafe { CStr::from_ptr(name.as_ptr()) };
    Some(name.to_string_lossy().into_owned())
}

/// Returns the state of an interface, or `None` if it cannot be seen.
fn interface_of(net: &Path, name: &str) -> Option<Interface> {
    let read = |what: &str| fs::read_to_string(net.join(name).join(what)).ok();
    let flags = read("flags")?;
    let flags = u32::from_str_radix(flags.trim().trim_start_matches("0x"), 16).ok()?;
    // IFF_UP, netdevice(7). Interfaces of software have the state "unknown".
    let is_up = flags & 1 == 1
        && !read("operstate").is_some_and(|state| {
            ["down", "lowerlayerdown", "notpresent", "dormant"].contains(&state.trim())
        });
    Some(if is_up { Interface::Up(name.to_owned()) } else { Interface::Down(name.to_owned()) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::port::{Mtu, PortState};
    use std::net::Ipv6Addr;
    use std::path::PathBuf;

    fn gid(text: &str) -> Gid {
        Gid(text.parse::<Ipv6Addr>().unwrap().octets())
    }

    fn port(link: LinkLayer, gid_table_len: u32) -> PortAttrs {
        PortAttrs {
            number: 1,
            state: PortState(4),
            link,
            mtu: Mtu(5),
            lid: 0,
            sm_lid: 0,
            gid_table_len,
            max_message: 1 << 30,
        }
    }

    /// Files in a folder of their own.
    struct Files(PathBuf);

    impl Files {
        fn new(name: &str, files: &[(&str, &str)]) -> Self {
            let root = std::env::temp_dir().join(format!("hmc-gids-{}-{name}", std::process::id()));
            for (path, text) in files {
                let path = root.join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
            Self(root)
        }
    }

    impl Drop for Files {
        fn drop(&mut self) {
            let _gone = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn an_interface_is_up_if_its_flag_and_its_link_are() {
        let files = Files::new(
            "up",
            &[
                ("up/flags", "0x1003\n"),
                ("up/operstate", "up\n"),
                ("dummy0/flags", "0xc3\n"),
                ("dummy0/operstate", "unknown\n"),
                ("old/flags", "0x1\n"),
                ("off/flags", "0x1002\n"),
                ("off/operstate", "down\n"),
                ("nolink/flags", "0x1003\n"),
                ("nolink/operstate", "down\n"),
                ("broken/flags", "yes\n"),
            ],
        );
        for (name, is_up) in
            [("up", true), ("dummy0", true), ("old", true), ("off", false), ("nolink", false)]
        {
            let state = if is_up { Interface::Up } else { Interface::Down };
            assert_eq!(interface_of(&files.0, name), Some(state(name.to_owned())));
        }
        assert_eq!(interface_of(&files.0, "broken"), None);
        assert_eq!(interface_of(&files.0, "elsewhere"), None);
    }

    #[test]
    fn types_are_those_of_the_kernels_files() {
        let (ib, ethernet) = (LinkLayer::InfiniBand, LinkLayer::Ethernet);
        for (link, text, kind) in [
            (ib, Some("IB/RoCE v1"), Some(GidType::InfiniBand)),
            (ethernet, Some("IB/RoCE v1"), Some(GidType::RoceV1)),
            (ethernet, Some("RoCE v2"), Some(GidType::RoceV2)),
            (ethernet, Some("RoCE v3"), Some(GidType::Other(u32::MAX))),
            (ethernet, None, None),
        ] {
            assert_eq!(type_of(link, text), kind, "{text:?}");
        }
    }

    #[test]
    fn entries_that_are_empty_are_left_out() {
        let files = Files::new(
            "table",
            &[
                ("gid_attrs/types/0", "IB/RoCE v1\n"),
                ("gid_attrs/ndevs/0", "eth0\n"),
                ("gid_attrs/types/1", "RoCE v2\n"),
                ("gid_attrs/ndevs/1", "eth0\n"),
                ("gid_attrs/types/3", "RoCE v2\n"),
                ("gid_attrs/types/4", "RoCE v2\n"),
                ("net/eth0/flags", "0x1003\n"),
            ],
        );
        let table = [Some("fe80::1"), Some("::ffff:10.0.0.1"), Some("fd00::1"), Some("::"), None];
        let query = |index: u8| table.get(usize::from(index)).copied().flatten().map(gid);
        let entries =
            read_files(&port(LinkLayer::Ethernet, 64), &files.0, &files.0.join("net"), query);
        let eth0 = || Interface::Up("eth0".to_owned());
        let entry = |index, text, kind| GidEntry { index, gid: gid(text), kind, interface: eth0() };
        // The third has no file of its type, the fourth is zero, the fifth is not there.
        let expected =
            [entry(0, "fe80::1", GidType::RoceV1), entry(1, "::ffff:10.0.0.1", GidType::RoceV2)];
        assert_eq!(entries, expected);
        let short = read_files(&port(LinkLayer::Ethernet, 1), &files.0, &files.0, query);
        assert_eq!(short.len(), 1);
        assert_eq!(short[0].interface, Interface::None);
    }

    #[test]
    fn the_table_of_a_port_is_in_the_order_of_its_indices() {
        let entry = |port_num, gid_index, ndev_ifindex| ibv_gid_entry {
            gid: gid("fd00::1").into(),
            gid_index,
            port_num,
            gid_type: 2,
            ndev_ifindex,
        };
        let table = [entry(1, 5, 7), entry(2, 0, 7), entry(1, 300, 7), entry(1, 2, 0)];
        let entries =
            of_port(&table, 1, &|ifindex| (ifindex == 7).then(|| Interface::Up("eth0".to_owned())));
        assert_eq!(entries.iter().map(|e| e.index).collect::<Vec<_>>(), [2, 5]);
        assert_eq!(entries[0].interface, Interface::None);
        assert_eq!(entries[1].to_string(), "GID 5, fd00::1, RoCE v2, eth0, up");
    }

    #[test]
    fn interfaces_have_the_names_of_this_system() {
        assert_eq!(name_of(0), None);
        for interface in fs::read_dir(NET).into_iter().flatten().flatten() {
            let Ok(number) = fs::read_to_string(interface.path().join("ifindex")) else { continue };
            let name = interface.file_name().into_string().unwrap();
            assert_eq!(name_of(number.trim().parse().unwrap()), Some(name));
        }
    }
}
