//! Which GID of a port is used. The rule:
//!
//! - An index that the user gives is used, whatever its GID is, unless there is no such entry.
//! - InfiniBand: index 0.
//! - RoCE: v2 before v1; within a version an IPv4 address before an IPv6 address (global or unique local); then the lowest
//!   index. Its network interface must be up.
//! - RoCE v1 only if the peer has it. A peer's version excludes the other one.
//! - Never without an index: link-local (fe80::, 169.254.0.0/16), all-zero, loopback and multicast addresses. They do not
//!   name one interface of one host to every peer, and a connection to them would time out without a reason.

use std::fmt;

use super::gid::{GidScope, GidType};
use super::gid_table::{GidEntry, Interface};
use super::port::LinkLayer;

/// What the choice is made for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Want {
    /// The index that the user gives.
    pub index: Option<u8>,
    /// The type of the peer's GID, if it is known: the dialed end chooses one that fits.
    pub peer: Option<GidType>,
}

/// Why an entry was chosen, or not.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// Chosen: the user gave its index.
    Given,
    /// Chosen: index 0 of InfiniBand.
    First,
    /// Chosen: the first of that type and kind of address.
    Best(GidType, GidScope),
    /// Another entry, of this index, comes before it.
    Later(u8),
    /// The user gave another index, this one.
    NotGiven(u8),
    /// InfiniBand uses index 0.
    NotFirst,
    /// It is all-zero.
    Zero,
    /// It is link-local.
    LinkLocal,
    /// It is a loopback address.
    Loopback,
    /// It is a multicast address.
    Multicast,
    /// Its interface is down.
    Down(String),
    /// It has no interface that this process can see.
    NoInterface,
    /// It is RoCE v1, and the peer's version is not known.
    OnlyWithPeer,
    /// The peer has another version, this one.
    PeerHas(GidType),
    /// Its type does not belong to the port's link layer.
    Foreign(GidType),
}

impl Reason {
    /// Returns `true` if the entry was chosen.
    #[must_use]
    pub const fn is_chosen(&self) -> bool {
        matches!(self, Self::Given | Self::First | Self::Best(..))
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Given => f.write_str("chosen: its index was given"),
            Self::First => f.write_str("chosen: InfiniBand uses index 0"),
            Self::Best(kind, GidScope::Ipv4) => {
                write!(f, "chosen: the first {kind} with an IPv4 address")
            }
            Self::Best(kind, _) => write!(f, "chosen: the first {kind} with an IPv6 address"),
            Self::Later(index) => write!(f, "it could be used, but index {index} comes before it"),
            Self::NotGiven(index) => write!(f, "index {index} was given"),
            Self::NotFirst => f.write_str("InfiniBand uses index 0"),
            Self::Zero => f.write_str("empty"),
            Self::LinkLocal => f.write_str(
                "a link-local address reaches one network only: used only if its index is given",
            ),
            Self::Loopback => f.write_str(
                "a loopback address reaches this host only: used only if its index is given",
            ),
            Self::Multicast => f.write_str("a multicast address names no port"),
            Self::Down(name) => {
                write!(f, "its interface {name} is down: `ip link set {name} up`, see its cable")
            }
            Self::NoInterface => f.write_str(
                "its network interface is not known, or in another network namespace: used only if its index is given",
            ),
            Self::OnlyWithPeer => {
                f.write_str("RoCE v1 is used only if the peer has it, or if its index is given")
            }
            Self::PeerHas(kind) => write!(f, "the peer has {kind}"),
            Self::Foreign(kind) => write!(f, "{kind} does not belong to this link"),
        }
    }
}

/// What was chosen from a table, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The entries, in the table's order, each with its reason.
    pub entries: Vec<(GidEntry, Reason)>,
}

impl Choice {
    /// Returns the entry that was chosen, if any.
    #[must_use]
    pub fn chosen(&self) -> Option<&GidEntry> {
        self.entries.iter().find(|(_, reason)| reason.is_chosen()).map(|(entry, _)| entry)
    }
}

/// One line for each entry; for a table without any, a line that says so.
impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.entries.is_empty() {
            return f.write_str(
                "the GID table is empty: give the port's interface an IP address (`ip addr add`)",
            );
        }
        for (at, (entry, reason)) in self.entries.iter().enumerate() {
            let end = if at == 0 { "" } else { "\n" };
            write!(f, "{end}{entry}: {reason}")?;
        }
        Ok(())
    }
}

/// Chooses an entry of a port's table by the rule of this file.
#[must_use]
pub fn choose(link: LinkLayer, table: Vec<GidEntry>, want: Want) -> Choice {
    let rank = |entry: &GidEntry| suitable(link, entry, want).ok().map(|rank| (rank, entry.index));
    let best = table.iter().filter_map(rank).min().map(|(_, index)| index);
    let reason = |entry: &GidEntry| match (suitable(link, entry, want), best) {
        (Err(reason), _) => reason,
        (Ok(_), Some(index)) if index != entry.index => Reason::Later(index),
        (Ok(_), _) if want.index.is_some() => Reason::Given,
        (Ok(_), _) if link == LinkLayer::InfiniBand => Reason::First,
        (Ok(_), _) => Reason::Best(entry.kind, entry.gid.scope()),
    };
    let entries = table.into_iter().map(|entry| {
        let reason = reason(&entry);
        (entry, reason)
    });
    Choice { entries: entries.collect() }
}

/// Returns the rank of an entry that can be chosen, the lowest first.
///
/// # Errors
/// The reason why it cannot.
fn suitable(link: LinkLayer, entry: &GidEntry, want: Want) -> Result<u8, Reason> {
    let scope = entry.gid.scope();
    if let Some(index) = want.index {
        return match scope {
            _ if index != entry.index => Err(Reason::NotGiven(index)),
            GidScope::Zero => Err(Reason::Zero),
            _ => Ok(0),
        };
    }
    match link {
        LinkLayer::InfiniBand if entry.kind != GidType::InfiniBand => {
            return Err(Reason::Foreign(entry.kind));
        }
        LinkLayer::InfiniBand if scope == GidScope::Zero => return Err(Reason::Zero),
        LinkLayer::InfiniBand if entry.index != 0 => return Err(Reason::NotFirst),
        // The prefix of a subnet without a router is link-local.
        LinkLayer::InfiniBand => return Ok(0),
        LinkLayer::Ethernet | LinkLayer::Other(_) => {}
    }
    let rank = match scope {
        GidScope::Zero => return Err(Reason::Zero),
        GidScope::LinkLocal => return Err(Reason::LinkLocal),
        GidScope::Loopback => return Err(Reason::Loopback),
        GidScope::Multicast => return Err(Reason::Multicast),
        GidScope::Ipv4 => 0,
        GidScope::Ipv6 => 1,
    };
    match (entry.kind, want.peer) {
        (GidType::InfiniBand | GidType::Other(_), _) => return Err(Reason::Foreign(entry.kind)),
        (kind, Some(peer)) if kind != peer => return Err(Reason::PeerHas(peer)),
        (GidType::RoceV1, None) => return Err(Reason::OnlyWithPeer),
        (GidType::RoceV1 | GidType::RoceV2, _) => {}
    }
    match &entry.interface {
        Interface::Up(_) => Ok(rank),
        Interface::Down(name) => Err(Reason::Down(name.clone())),
        Interface::None => Err(Reason::NoInterface),
    }
}

#[cfg(test)]
mod tests;
