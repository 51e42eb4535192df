//! Messages of a C++ HMC peer, received by a node that allows it, compared with a second parser of the dialect.

use super::control::Rig;
use super::script::Script;
use super::subject::Subject;
use hmc_core::ctrl::io::Violation;
use hmc_core::ctrl::state::{ControlState, UnexpectedMessage};
use hmc_core::wire::cursor::{WireError, WireErrorKind};
use hmc_core::wire::message::ControlKind;

/// The role of a [`Rig`] that allows C++ peers.
const CXX_PEERS: u8 = 1;
/// The rig refuses higher ranks.
const LAST_RANK: u32 = 100;

/// What the second reader made of a stream.
struct Received {
    events: Vec<String>,
    /// A native frame came: the dialect ends there.
    native: bool,
}

fn over(events: &mut Vec<String>, v: Violation) {
    events.push(format!("violation: {v:?}"));
    events.push(format!("closed: Violation({v:?})"));
}

/// The dialect once more, in plain numbers: type u16, flags u16, length u32, payload.
fn read(mut stream: &[u8]) -> Received {
    let mut events = Vec::new();
    let mut known = false;
    while let Some((head, rest)) = stream.split_first_chunk::<8>() {
        let [a, b, c, d, e, f, g, h] = *head;
        let (ty, flags) = (u16::from(a) + (u16::from(b) << 8), u16::from(c) + (u16::from(d) << 8));
        let len = u32::from(e) + (u32::from(f) << 8) + (u32::from(g) << 16) + (u32::from(h) << 24);
        let limit = if known { 1 << 20 } else { 512 };
        let state = if known { ControlState::ReadyCxx } else { ControlState::AwaitHello };
        let bad = |at, kind| Violation::Wire(WireError { at, kind });
        let odd = bad(4, WireErrorKind::Value { field: "length", value: u64::from(len) });
        let wrong = match (ty, flags) {
            (2, 0xC000) => return Received { events, native: true },
            (1, 0) | (2, 0 | 0x8000) if len > limit => {
                Some(bad(4, WireErrorKind::TooLong { len, limit }))
            }
            (1, 0) if len != 4 && len != 8 => Some(odd),
            (2, 0x8000) if len != 4 => Some(odd),
            (1, 0) | (2, 0 | 0x8000) => None,
            (1 | 2, _) => Some(bad(2, WireErrorKind::UnknownFlags(flags))),
            _ => Some(bad(0, WireErrorKind::UnknownType(ty))),
        };
        if let Some(v) = wrong {
            over(&mut events, v);
            break;
        }
        let Some((payload, rest)) = rest.split_at_checked(len as usize) else { break };
        stream = rest;
        let word = |n: usize| payload[..n].iter().rev().fold(0u64, |w, b| (w << 8) | u64::from(*b));
        let kind = match (ty, flags, len) {
            (1, _, 8) => ControlKind::Tag,
            (1, ..) => ControlKind::Int32,
            (_, 0, _) => ControlKind::Struct,
            _ => ControlKind::HelloV1,
        };
        match (known, kind) {
            (false, ControlKind::HelloV1) => {
                let rank = word(4) as u32;
                events.push(format!("CxxHello {{ rank: Rank({rank}) }}"));
                if rank > LAST_RANK {
                    events.push("closed: Rejected(Duplicate)".into());
                    break;
                }
                known = true;
            }
            (true, ControlKind::Tag) => events.push(format!("Deliver(Tag({}))", word(8))),
            (true, ControlKind::Int32) => {
                events.push(format!("Deliver(Int32({}))", (word(4) as u32).cast_signed()));
            }
            (true, ControlKind::Struct) => events.push(format!("Deliver(Struct({payload:?}))")),
            _ => {
                over(&mut events, Violation::Unexpected(UnexpectedMessage { state, got: kind }));
                break;
            }
        }
    }
    Received { events, native: false }
}

/// What the machine made of the stream, which arrives in pieces as the first byte says. The broken
/// machine takes a small tag for an integer.
fn receive(bytes: &[u8], subject: Subject) -> (Rig, Vec<String>) {
    let mut s = Script::new(bytes);
    let piece = 1 + usize::from(s.u8());
    let mut rig = Rig::new(CXX_PEERS);
    for part in s.rest().chunks(piece) {
        rig.feed(part);
    }
    let events = rig.trace.events.clone();
    let events = events.into_iter().map(|e| match subject {
        Subject::Real => e,
        Subject::Broken => {
            let tag = e.strip_prefix("Deliver(Tag(").and_then(|t| t.strip_suffix("))"));
            match tag.and_then(|t| t.parse::<i32>().ok()) {
                Some(small) => format!("Deliver(Int32({small}))"),
                None => e,
            }
        }
    });
    let events = events.collect();
    (rig, events)
}

/// A byte for the size of the pieces, then what a C++ peer says.
pub fn cxx(bytes: &[u8], subject: Subject) {
    let (rig, events) = receive(bytes, subject);
    let want = read(bytes.get(1..).unwrap_or(&[]));
    if want.native {
        assert_eq!(events.get(..want.events.len()), Some(&want.events[..]));
    } else {
        assert_eq!(events, want.events);
        assert!(rig.trace.sent.is_empty(), "the C++ HMC sends no answers");
    }
}

/// The last event.
pub fn class(bytes: &[u8]) -> String {
    let (_, events) = receive(bytes, Subject::Real);
    events.last().map_or_else(|| "nothing".into(), Clone::clone)
}
