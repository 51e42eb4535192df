//! Whether two ports can reach each other, by the properties that their ends report.

use std::fmt;

use super::gid::{Gid, GidScope, GidType};
use super::port::LinkLayer;

/// One end of a connection: what its port is connected to, and the GID that it uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// The link layer of its port.
    pub link: LinkLayer,
    /// The protocol of its packets.
    pub kind: GidType,
    /// Its address.
    pub gid: Gid,
}

/// Why two ends cannot reach each other: ours, and the peer's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unreachable {
    /// Their link layers differ.
    Link(LinkLayer, LinkLayer),
    /// Their protocols differ.
    Protocol(GidType, GidType),
    /// One has an IPv4 address, the other an IPv6 address.
    Family(Gid, Gid),
    /// They are in different subnets of InfiniBand.
    Subnet(Gid, Gid),
    /// One has a loopback address, and the other another address.
    Loopback(Gid, Gid),
}

impl fmt::Display for Unreachable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Link(ours, theirs) => write!(
                f,
                "this end's port is {ours} and the peer's is {theirs}: choose ports of one network at both ends, by name \
                 (`mlx5_0:1`)"
            ),
            Self::Protocol(ours, theirs) => write!(
                f,
                "this end uses {ours} and the peer uses {theirs}: choose GIDs of one version at both ends, by index"
            ),
            Self::Family(ours, theirs) => write!(
                f,
                "this end's address {ours} and the peer's {theirs} are not both IPv4 or both IPv6: choose GIDs of one \
                 family at both ends, by index"
            ),
            Self::Subnet(ours, theirs) => write!(
                f,
                "this end's port {ours} and the peer's {theirs} are in different InfiniBand subnets: choose ports of one \
                 subnet"
            ),
            Self::Loopback(ours, theirs) => write!(
                f,
                "of this end's address {ours} and the peer's {theirs} one is a loopback address, which reaches its own \
                 host only: choose another GID by index"
            ),
        }
    }
}

impl std::error::Error for Unreachable {}

/// Returns whether two ends can reach each other, as far as their addresses tell. The network between them may still
/// pass nothing.
///
/// # Errors
/// [`Unreachable`].
pub fn reach(ours: &End, theirs: &End) -> Result<(), Unreachable> {
    if ours.link != theirs.link {
        return Err(Unreachable::Link(ours.link, theirs.link));
    }
    if ours.kind != theirs.kind {
        return Err(Unreachable::Protocol(ours.kind, theirs.kind));
    }
    let (a, b) = (ours.gid, theirs.gid);
    let is_loopback = |gid: Gid| gid.scope() == GidScope::Loopback;
    match ours.link {
        LinkLayer::InfiniBand if a.subnet() != b.subnet() => Err(Unreachable::Subnet(a, b)),
        LinkLayer::InfiniBand => Ok(()),
        _ if a.ipv4().is_some() != b.ipv4().is_some() => Err(Unreachable::Family(a, b)),
        _ if is_loopback(a) != is_loopback(b) => Err(Unreachable::Loopback(a, b)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv6Addr;

    use GidType::{InfiniBand, RoceV1, RoceV2};

    fn end(link: LinkLayer, kind: GidType, text: &str) -> End {
        End { link, kind, gid: Gid(text.parse::<Ipv6Addr>().unwrap().octets()) }
    }

    #[test]
    fn ends_of_one_network_reach_each_other() {
        for (link, kind, ours, theirs) in [
            (LinkLayer::Ethernet, RoceV2, "::ffff:10.0.0.1", "::ffff:10.0.0.2"),
            (LinkLayer::Ethernet, RoceV2, "::ffff:10.0.0.1", "::ffff:192.168.0.2"),
            (LinkLayer::Ethernet, RoceV2, "fd00::1", "2001:db8::2"),
            (LinkLayer::Ethernet, RoceV1, "fe80::1", "fe80::2"),
            (LinkLayer::Ethernet, RoceV2, "::ffff:127.0.0.1", "::ffff:127.0.0.1"),
            (LinkLayer::InfiniBand, InfiniBand, "fe80::1", "fe80::2"),
        ] {
            assert_eq!(reach(&end(link, kind, ours), &end(link, kind, theirs)), Ok(()), "{ours}");
        }
    }

    #[test]
    fn each_refusal_says_what_differs_and_what_to_do() {
        let ethernet = |kind, text| end(LinkLayer::Ethernet, kind, text);
        let infiniband = |text| end(LinkLayer::InfiniBand, InfiniBand, text);
        let v4 = ethernet(RoceV2, "::ffff:10.0.0.1");
        for (ours, theirs, words) in [
            (v4, infiniband("fe80::1"), "Ethernet and the peer's is InfiniBand"),
            (v4, ethernet(RoceV1, "::ffff:10.0.0.2"), "RoCE v2 and the peer uses RoCE v1"),
            (v4, ethernet(RoceV2, "fd00::1"), "not both IPv4 or both IPv6"),
            (v4, ethernet(RoceV2, "::ffff:127.0.0.1"), "loopback"),
            (infiniband("fe80::1"), infiniband("fec0::1"), "different InfiniBand subnets"),
        ] {
            let text = reach(&ours, &theirs).unwrap_err().to_string();
            assert!(text.contains(words) && text.contains(": choose "), "{text}");
        }
    }

    /// Both ends ask, each for itself.
    #[test]
    fn both_ends_have_the_same_answer() {
        let mut ends = Vec::new();
        for link in [LinkLayer::InfiniBand, LinkLayer::Ethernet] {
            for kind in [InfiniBand, RoceV1, RoceV2] {
                for text in ["fe80::1", "fd00::1", "::1", "::ffff:10.0.0.1", "::ffff:127.0.0.1"] {
                    ends.push(end(link, kind, text));
                }
            }
        }
        for a in &ends {
            assert_eq!(reach(a, a), Ok(()));
            for b in &ends {
                assert_eq!(reach(a, b).is_ok(), reach(b, a).is_ok(), "{a:?} {b:?}");
            }
        }
    }
}
