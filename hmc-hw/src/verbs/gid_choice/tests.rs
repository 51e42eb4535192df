//! The rule by which GIDs are chosen: its order, its reasons, and that it does not depend on the order of the table.

use super::*;
use crate::verbs::gid::Gid;
use std::net::Ipv6Addr;

use GidType::{InfiniBand, RoceV1, RoceV2};

fn gid(text: &str) -> Gid {
    Gid(text.parse::<Ipv6Addr>().unwrap().octets())
}

fn entry(index: u8, text: &str, kind: GidType) -> GidEntry {
    GidEntry { index, gid: gid(text), kind, interface: Interface::Up("eth0".to_owned()) }
}

/// The table of one Ethernet port with an IPv4 and an IPv6 address, as mlx5 has it.
fn usual() -> Vec<GidEntry> {
    let addresses = ["fe80::1", "::ffff:10.9.0.1", "2001:db8::1"];
    let kinds = [RoceV1, RoceV2];
    let all = addresses.into_iter().flat_map(|text| kinds.map(|kind| (text, kind)));
    (0..).zip(all).map(|(index, (text, kind))| entry(index, text, kind)).collect()
}

fn chosen(choice: &Choice) -> Option<u8> {
    choice.chosen().map(|entry| entry.index)
}

fn ethernet(table: Vec<GidEntry>) -> Choice {
    choose(LinkLayer::Ethernet, table, Want::default())
}

#[test]
fn roce_v2_with_an_ipv4_address_comes_first() {
    let choice = ethernet(usual());
    assert_eq!(chosen(&choice), Some(3));
    let reasons: Vec<Reason> = choice.entries.into_iter().map(|(_, reason)| reason).collect();
    let expected = [
        Reason::LinkLocal,
        Reason::LinkLocal,
        Reason::OnlyWithPeer,
        Reason::Best(RoceV2, GidScope::Ipv4),
        Reason::OnlyWithPeer,
        Reason::Later(3),
    ];
    assert_eq!(reasons, expected);
}

#[test]
fn then_roce_v2_with_an_ipv6_address() {
    let mut table = usual();
    table.retain(|e| e.gid.ipv4().is_none());
    let choice = ethernet(table);
    assert_eq!(chosen(&choice), Some(5));
    assert_eq!(choice.entries[3].1, Reason::Best(RoceV2, GidScope::Ipv6));
    assert_eq!(chosen(&ethernet(vec![entry(9, "fd00::9", RoceV2)])), Some(9));
}

#[test]
fn roce_v1_only_if_the_peer_has_it() {
    let want = |peer| Want { peer: Some(peer), index: None };
    let of = |table, peer| choose(LinkLayer::Ethernet, table, want(peer));
    assert_eq!(chosen(&of(usual(), RoceV1)), Some(2));
    assert_eq!(chosen(&of(usual(), RoceV2)), Some(3));
    assert_eq!(of(usual(), RoceV1).entries[3].1, Reason::PeerHas(RoceV1));
    let old: Vec<GidEntry> = usual().into_iter().filter(|e| e.kind == RoceV1).collect();
    assert_eq!(chosen(&ethernet(old.clone())), None);
    assert_eq!(chosen(&of(old.clone(), RoceV2)), None);
    assert_eq!(chosen(&of(old, RoceV1)), Some(2));
}

#[test]
fn an_interface_that_is_down_or_elsewhere_is_left_out() {
    let mut table = usual();
    table[3].interface = Interface::Down("eth0".to_owned());
    let choice = ethernet(table.clone());
    assert_eq!(chosen(&choice), Some(5));
    assert_eq!(choice.entries[3].1, Reason::Down("eth0".to_owned()));
    table[5].interface = Interface::None;
    let choice = ethernet(table);
    assert_eq!((chosen(&choice), &choice.entries[5].1), (None, &Reason::NoInterface));
}

#[test]
fn addresses_that_name_no_host_to_every_peer_are_never_chosen_without_an_index() {
    let texts = [
        ("::", Reason::Zero),
        ("::ffff:0.0.0.0", Reason::Zero),
        ("fe80::1", Reason::LinkLocal),
        ("::ffff:169.254.0.1", Reason::LinkLocal),
        ("::1", Reason::Loopback),
        ("::ffff:127.0.0.1", Reason::Loopback),
        ("ff02::1", Reason::Multicast),
    ];
    for (text, reason) in texts {
        for kind in [RoceV1, RoceV2] {
            for peer in [None, Some(kind)] {
                let want = Want { index: None, peer };
                let choice = choose(LinkLayer::Ethernet, vec![entry(0, text, kind)], want);
                assert_eq!(choice.entries[0].1, reason, "{text}");
            }
            let want = Want { index: Some(0), peer: None };
            let choice = choose(LinkLayer::Ethernet, vec![entry(0, text, kind)], want);
            assert_eq!(chosen(&choice).is_some(), reason != Reason::Zero, "{text}");
        }
    }
}

#[test]
fn a_given_index_overrides_the_rule() {
    for index in 0..6 {
        let want = Want { index: Some(index), peer: Some(RoceV2) };
        let choice = choose(LinkLayer::Ethernet, usual(), want);
        assert_eq!(chosen(&choice), Some(index));
        for (entry, reason) in &choice.entries {
            let expected =
                if entry.index == index { Reason::Given } else { Reason::NotGiven(index) };
            assert_eq!(*reason, expected);
        }
    }
    let want = Want { index: Some(77), peer: None };
    assert_eq!(chosen(&choose(LinkLayer::Ethernet, usual(), want)), None);
}

#[test]
fn infiniband_uses_index_0() {
    let table = vec![entry(0, "fe80::2:c903:1:2", InfiniBand), entry(1, "fe80::7", InfiniBand)];
    let choice = choose(LinkLayer::InfiniBand, table.clone(), Want::default());
    assert_eq!(chosen(&choice), Some(0));
    assert_eq!((&choice.entries[0].1, &choice.entries[1].1), (&Reason::First, &Reason::NotFirst));
    let want = Want { index: Some(1), peer: None };
    assert_eq!(chosen(&choose(LinkLayer::InfiniBand, table, want)), Some(1));
    for (bad, reason) in [
        (entry(0, "::", InfiniBand), Reason::Zero),
        (entry(0, "fd00::1", RoceV2), Reason::Foreign(RoceV2)),
    ] {
        let choice = choose(LinkLayer::InfiniBand, vec![bad], Want::default());
        assert_eq!(choice.entries[0].1, reason);
    }
    let choice =
        ethernet(vec![entry(0, "fd00::1", InfiniBand), entry(1, "fd00::1", GidType::Other(9))]);
    assert_eq!(choice.entries[0].1, Reason::Foreign(InfiniBand));
    assert_eq!(choice.entries[1].1, Reason::Foreign(GidType::Other(9)));
}

/// For every table of up to three entries of a small alphabet: at most one is chosen, it could be chosen, none that could
/// is of a lower rank, and the order of the table does not matter.
#[test]
fn the_choice_is_the_least_of_what_can_be_chosen() {
    let texts = ["::", "fe80::1", "::ffff:10.0.0.1", "fd00::1", "::1"];
    let interfaces =
        [Interface::None, Interface::Up("a".to_owned()), Interface::Down("a".to_owned())];
    let kinds = [InfiniBand, RoceV1, RoceV2];
    let mut alphabet = Vec::new();
    for text in texts {
        for kind in kinds {
            for interface in &interfaces {
                alphabet.push(GidEntry { interface: interface.clone(), ..entry(0, text, kind) });
            }
        }
    }
    let numbered = |which: [usize; 3]| -> Vec<GidEntry> {
        (0..).zip(which).map(|(index, at)| GidEntry { index, ..alphabet[at].clone() }).collect()
    };
    let all = alphabet.len();
    // A third of all triples, so that the test stays short.
    for n in (0..all * all * all).step_by(3) {
        let table = numbered([n % all, n / all % all, n / all / all]);
        let peer = [None, Some(RoceV1), Some(RoceV2)][n % 7 % 3];
        let link = if n % 2 == 0 { LinkLayer::Ethernet } else { LinkLayer::InfiniBand };
        let want = Want { index: None, peer };
        let choice = choose(link, table.clone(), want);
        let count = choice.entries.iter().filter(|(_, reason)| reason.is_chosen()).count();
        let ranks: Vec<_> = table.iter().filter_map(|e| suitable(link, e, want).ok()).collect();
        assert_eq!(count, usize::from(!ranks.is_empty()), "{choice}");
        if let Some(entry) = choice.chosen() {
            assert_eq!(suitable(link, entry, want).ok(), ranks.iter().min().copied(), "{choice}");
        }
        let reversed = choose(link, table.into_iter().rev().collect(), want);
        assert_eq!(choice.chosen(), reversed.chosen(), "{choice}");
    }
}

#[test]
fn each_entry_is_shown_with_its_reason() {
    let text = ethernet(usual()).to_string();
    assert_eq!(text.lines().count(), 6);
    let line =
        "GID 3, ::ffff:10.9.0.1, RoCE v2, eth0, up: chosen: the first RoCE v2 with an IPv4 address";
    assert!(text.lines().any(|l| l == line), "{text}");
    assert!(ethernet(Vec::new()).to_string().contains("ip addr add"));
    for reason in [
        Reason::Given,
        Reason::First,
        Reason::Best(RoceV2, GidScope::Ipv6),
        Reason::Later(1),
        Reason::NotGiven(1),
        Reason::NotFirst,
        Reason::Zero,
        Reason::LinkLocal,
        Reason::Loopback,
        Reason::Multicast,
        Reason::Down("eth7".to_owned()),
        Reason::NoInterface,
        Reason::OnlyWithPeer,
        Reason::PeerHas(RoceV1),
        Reason::Foreign(InfiniBand),
    ] {
        assert_eq!(reason.to_string().starts_with("chosen: "), reason.is_chosen(), "{reason}");
    }
}
