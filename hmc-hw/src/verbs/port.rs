//! Ports of a device: their state, link layer, MTU and LID.

use std::fmt;

use super::device::Device;
use super::error::{VerbsError, check};
use super::sys::{self, ibv_port_attr};

/// `ibv_port_state`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortState(pub u32);

impl PortState {
    /// Returns `true` if the port passes data.
    #[must_use]
    pub const fn is_active(self) -> bool {
        self.0 == sys::IBV_PORT_ACTIVE
    }
}

impl fmt::Display for PortState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            sys::IBV_PORT_DOWN => "down: look at its cable, and at `ip link` where it is Ethernet",
            sys::IBV_PORT_INIT => "not set up yet: is a subnet manager running (opensm)?",
            sys::IBV_PORT_ARMED => "armed: the subnet manager is about to make it active",
            sys::IBV_PORT_ACTIVE => "active",
            sys::IBV_PORT_ACTIVE_DEFER => "active, with link errors",
            _ => "in an unknown state",
        })
    }
}

/// What a port is connected to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LinkLayer {
    /// InfiniBand: addressed by LID.
    InfiniBand,
    /// Ethernet: RoCE, addressed by GID.
    Ethernet,
    /// A number that is not known.
    Other(u8),
}

impl LinkLayer {
    /// Returns the link layer of that number. A port that names none is InfiniBand, as before there was RoCE.
    #[must_use]
    pub const fn of(number: u8) -> Self {
        match number {
            sys::IBV_LINK_LAYER_UNSPECIFIED | sys::IBV_LINK_LAYER_INFINIBAND => Self::InfiniBand,
            sys::IBV_LINK_LAYER_ETHERNET => Self::Ethernet,
            other => Self::Other(other),
        }
    }
}

impl fmt::Display for LinkLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InfiniBand => f.write_str("InfiniBand"),
            Self::Ethernet => f.write_str("Ethernet"),
            Self::Other(number) => write!(f, "link layer {number}"),
        }
    }
}

/// `ibv_mtu`: the largest payload of a packet, as its number in the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mtu(pub u32);

impl Mtu {
    /// Returns the bytes, or `None` for a number that is not known.
    #[must_use]
    pub const fn bytes(self) -> Option<u32> {
        Some(match self.0 {
            sys::IBV_MTU_256 => 256,
            sys::IBV_MTU_512 => 512,
            sys::IBV_MTU_1024 => 1024,
            sys::IBV_MTU_2048 => 2048,
            sys::IBV_MTU_4096 => 4096,
            _ => return None,
        })
    }
}

impl fmt::Display for Mtu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.bytes() {
            Some(bytes) => write!(f, "{bytes}"),
            None => write!(f, "unknown ({})", self.0),
        }
    }
}

/// Attributes of a port (`ibv_port_attr`, infiniband/verbs.h), as they were at one call of [`PortAttrs::read`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortAttrs {
    /// Its number within the device, from 1.
    pub number: u8,
    /// Whether it passes data.
    pub state: PortState,
    /// What it is connected to.
    pub link: LinkLayer,
    /// The largest payload that its link allows now.
    pub mtu: Mtu,
    /// Its local address in an InfiniBand subnet; 0 on Ethernet.
    pub lid: u16,
    /// The address of the subnet manager.
    pub sm_lid: u16,
    /// Entries of its GID table, empty ones included.
    pub gid_table_len: u32,
    /// Bytes that a message can have.
    pub max_message: u32,
}

impl PortAttrs {
    /// Reads a port (`ibv_query_port`), a system call.
    ///
    /// # Errors
    /// [`VerbsError`]: `EINVAL` if the device has no port of that number.
    pub fn read(device: &Device, number: u8) -> Result<Self, VerbsError> {
        // Zeroed as a whole: the call does not know the last fields.
        let mut attr = ibv_port_attr::default();
        // SAFETY: the context is open; it writes no more than the structure.
        let returned =
            unsafe { (device.api().ibv_query_port)(device.context(), number, &mut attr) };
        check("reading a port", &format!("{}:{number}", device.name()), returned)?;
        Ok(Self::of(number, &attr))
    }

    fn of(number: u8, attr: &ibv_port_attr) -> Self {
        Self {
            number,
            state: PortState(attr.state),
            link: LinkLayer::of(attr.link_layer),
            mtu: Mtu(attr.active_mtu),
            lid: attr.lid,
            sm_lid: attr.sm_lid,
            gid_table_len: u32::try_from(attr.gid_tbl_len).unwrap_or(0),
            max_message: attr.max_msg_sz,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_those_of_the_header() {
        let attr = ibv_port_attr {
            state: 4,
            active_mtu: 3,
            link_layer: 2,
            lid: 7,
            sm_lid: 1,
            gid_tbl_len: 16,
            max_msg_sz: 1 << 30,
            ..ibv_port_attr::default()
        };
        let port = PortAttrs::of(2, &attr);
        assert_eq!((port.number, port.lid, port.sm_lid, port.gid_table_len), (2, 7, 1, 16));
        assert!(port.state.is_active());
        assert_eq!((port.link, port.mtu.bytes()), (LinkLayer::Ethernet, Some(1024)));
        let negative = ibv_port_attr { gid_tbl_len: -1, ..attr };
        assert_eq!(PortAttrs::of(1, &negative).gid_table_len, 0);
    }

    #[test]
    fn only_an_active_port_passes_data() {
        let starts =
            ["in an", "down", "not set up", "armed", "active", "active, ", "in an", "in an"];
        for (state, start) in (0..).zip(starts) {
            let state = PortState(state);
            assert_eq!(state.is_active(), state.0 == 4);
            assert_eq!(state.to_string() == "active", state.0 == 4, "{state}");
            assert!(state.to_string().starts_with(start), "{state}");
        }
    }

    #[test]
    fn numbers_that_are_not_known_are_shown_as_they_are() {
        let links = [
            LinkLayer::InfiniBand,
            LinkLayer::InfiniBand,
            LinkLayer::Ethernet,
            LinkLayer::Other(3),
        ];
        for (number, link) in (0..).zip(links) {
            assert_eq!(LinkLayer::of(number), link);
        }
        assert_eq!(LinkLayer::Other(3).to_string(), "link layer 3");
        let bytes = [None, Some(256), Some(512), Some(1024), Some(2048), Some(4096), None];
        for (number, bytes) in (0..).zip(bytes) {
            assert_eq!(Mtu(number).bytes(), bytes);
        }
        assert_eq!((Mtu(5).to_string(), Mtu(9).to_string()), ("4096".into(), "unknown (9)".into()));
    }
}
