//! GIDs: the addresses of ports, and their kinds.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

use super::sys::{self, ibv_gid};

/// The address of a port. On RoCE it is an IPv6 address, or an IPv4 address mapped into one; on InfiniBand the prefix of
/// the subnet and the GUID of the port.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Gid(pub [u8; 16]);

/// What a GID is as an IP address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GidScope {
    /// All zero, or the IPv4 address 0.0.0.0.
    Zero,
    /// fe80::/10, or the IPv4 addresses 169.254.0.0/16.
    LinkLocal,
    /// ::1, or the IPv4 addresses 127.0.0.0/8.
    Loopback,
    /// A multicast address, or the IPv4 broadcast address.
    Multicast,
    /// Another IPv4 address.
    Ipv4,
    /// Another IPv6 address: global or unique local.
    Ipv6,
}

impl Gid {
    /// Returns the IPv4 address that is mapped into it, if it is one.
    #[must_use]
    pub fn ipv4(self) -> Option<Ipv4Addr> {
        Ipv6Addr::from(self.0).to_ipv4_mapped()
    }

    /// Returns what it is as an IP address.
    #[must_use]
    pub fn scope(self) -> GidScope {
        let ip = Ipv6Addr::from(self.0);
        if let Some(ip) = ip.to_ipv4_mapped() {
            return match ip {
                _ if ip.is_unspecified() => GidScope::Zero,
                _ if ip.is_link_local() => GidScope::LinkLocal,
                _ if ip.is_loopback() => GidScope::Loopback,
                _ if ip.is_multicast() || ip.is_broadcast() => GidScope::Multicast,
                _ => GidScope::Ipv4,
            };
        }
        match ip {
            _ if ip.is_unspecified() => GidScope::Zero,
            _ if ip.is_unicast_link_local() => GidScope::LinkLocal,
            _ if ip.is_loopback() => GidScope::Loopback,
            _ if ip.is_multicast() => GidScope::Multicast,
            _ => GidScope::Ipv6,
        }
    }

    /// Returns the prefix of its subnet: the upper half.
    #[must_use]
    pub const fn subnet(self) -> [u8; 8] {
        let [a, b, c, d, e, f, g, h, ..] = self.0;
        [a, b, c, d, e, f, g, h]
    }
}

impl From<ibv_gid> for Gid {
    fn from(gid: ibv_gid) -> Self {
        Self(gid.raw)
    }
}

impl From<Gid> for ibv_gid {
    fn from(gid: Gid) -> Self {
        Self { raw: gid.0 }
    }
}

impl fmt::Display for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ipv6Addr::from(self.0).fmt(f)
    }
}

impl fmt::Debug for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Gid({self})")
    }
}

/// `ibv_gid_type`: the protocol of packets that come from a GID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum GidType {
    /// InfiniBand.
    InfiniBand,
    /// RoCE v1: Ethernet frames without IP; they pass no router.
    RoceV1,
    /// RoCE v2: UDP, port 4791.
    RoceV2,
    /// A number that is not known.
    Other(u32),
}

impl GidType {
    /// Returns the type of that number.
    #[must_use]
    pub const fn of(number: u32) -> Self {
        match number {
            sys::IBV_GID_TYPE_IB => Self::InfiniBand,
            sys::IBV_GID_TYPE_ROCE_V1 => Self::RoceV1,
            sys::IBV_GID_TYPE_ROCE_V2 => Self::RoceV2,
            other => Self::Other(other),
        }
    }

    /// Returns its number.
    #[must_use]
    pub const fn number(self) -> u32 {
        match self {
            Self::InfiniBand => sys::IBV_GID_TYPE_IB,
            Self::RoceV1 => sys::IBV_GID_TYPE_ROCE_V1,
            Self::RoceV2 => sys::IBV_GID_TYPE_ROCE_V2,
            Self::Other(number) => number,
        }
    }
}

impl fmt::Display for GidType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InfiniBand => f.write_str("InfiniBand"),
            Self::RoceV1 => f.write_str("RoCE v1"),
            Self::RoceV2 => f.write_str("RoCE v2"),
            Self::Other(number) => write!(f, "GID type {number}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gid(text: &str) -> Gid {
        Gid(text.parse::<Ipv6Addr>().unwrap().octets())
    }

    #[test]
    fn scopes_are_those_of_ip() {
        use GidScope::{Ipv4, Ipv6, LinkLocal, Loopback, Multicast, Zero};
        for (text, scope) in [
            ("::", Zero),
            ("::ffff:0.0.0.0", Zero),
            ("fe80::1", LinkLocal),
            ("febf::1", LinkLocal),
            ("::ffff:169.254.7.1", LinkLocal),
            ("::1", Loopback),
            ("::ffff:127.0.0.1", Loopback),
            ("ff02::1", Multicast),
            ("::ffff:224.0.0.1", Multicast),
            ("::ffff:255.255.255.255", Multicast),
            ("::ffff:10.9.0.1", Ipv4),
            ("::ffff:192.168.1.2", Ipv4),
            ("fec0::1", Ipv6),
            ("fd00::1", Ipv6),
            ("2001:db8::1", Ipv6),
            // Not mapped: the address of the first four bytes is no IPv4 address.
            ("::a09:1", Ipv6),
        ] {
            assert_eq!(gid(text).scope(), scope, "{text}");
            assert_eq!(gid(text).ipv4().is_some(), text.starts_with("::ffff:"), "{text}");
            assert_eq!(gid(text).to_string(), text);
        }
    }

    #[test]
    fn the_subnet_is_the_upper_half() {
        let gid = gid("fe80::1:0:0:5");
        assert_eq!(gid.subnet(), [0xFE, 0x80, 0, 0, 0, 0, 0, 0]);
        assert_eq!(Gid::from(ibv_gid::from(gid)), gid);
    }

    #[test]
    fn each_type_has_its_number() {
        for number in [0, 1, 2, 3, u32::MAX] {
            assert_eq!(GidType::of(number).number(), number);
        }
        let names = ["InfiniBand", "RoCE v1", "RoCE v2", "GID type 3"];
        assert_eq!([0, 1, 2, 3].map(|n| GidType::of(n).to_string()), names);
    }
}
