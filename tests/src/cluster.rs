//! Joins the simulated world to the real session logic: a rank of the world is a driven session of hmc-std.
//!
//! Only names are translated here; nothing is decided.

use std::time::Duration;

use hmc_core::range::Extent;
use hmc_core::region::{Epoch, WindowDesc, WindowId};
use hmc_core::time::Instant;
use hmc_core::types::{Access, Incarnation, MemoryKind};
use hmc_core::wire::advert::{RegionAdvert, WindowBacking, WindowRole};
use hmc_core::wire::held::of_message;
use hmc_core::wire::hello::Hello;
use hmc_core::wire::message::{ControlKind, ControlMessage};
use hmc_sim::world::node::{
    Answer, Area, Ask, Boot, Cluster, ConnId, Fault, Input, Message, Node, Output, Outsider,
    OutsiderBytes, Piece,
};
use hmc_std::testing::node as driven;
use hmc_std::{Copy, Direction, Error, ErrorKind};

use crate::metered;
use crate::raw::{frame, hello_with};

/// Boots driven sessions.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sessions;

/// A session as the world drives it.
pub struct SessionNode(driven::Node);

impl Cluster for Sessions {
    type Node = SessionNode;

    fn boot(&mut self, boot: &Boot) -> SessionNode {
        let settings = driven::Settings {
            rank: boot.rank,
            start: boot.incarnation,
            seed: boot.seed,
            now: boot.now,
            buffer_len: boot.buffer_len,
            heartbeat: Duration::from_nanos(boot.heartbeat_ns),
            deadline: Duration::from_nanos(boot.deadline_ns),
        };
        // A session that cannot start is a broken test, not a finding.
        SessionNode(driven::Node::new(&settings).expect("a session starts"))
    }

    fn redials(&self) -> bool {
        true
    }

    fn drains(&self) -> bool {
        true
    }

    fn outsider_bytes(&self, to: u32, outsider: &Outsider) -> Option<OutsiderBytes> {
        match *outsider {
            Outsider::Silent => None,
            Outsider::Claim { rank, incarnation } => {
                Some(OutsiderBytes { bytes: claim(rank, incarnation, to), held: 0 })
            }
            Outsider::Flood { rank, kind, frames } => {
                let kind = FLOODS[usize::from(kind) % FLOODS.len()];
                let mut bytes = claim(rank, 1, to);
                bytes.extend((0..frames).flat_map(|n| frame(&nth(kind, n))));
                let held = u64::try_from(of_message(kind).bytes(0)).unwrap_or(u64::MAX);
                Some(OutsiderBytes { bytes, held })
            }
        }
    }

    fn live_bytes() -> i64 {
        metered::live()
    }
}

/// Kinds of frames that ask for answers, or tell of windows.
const FLOODS: [ControlKind; 4] =
    [ControlKind::Ping, ControlKind::Revoke, ControlKind::Revoked, ControlKind::Advert];

/// A HELLO of a process that proves nothing.
fn claim(rank: u32, incarnation: u64, to: u32) -> Vec<u8> {
    hello_with(rank, 0, to, |h| Hello { incarnation: Incarnation(incarnation), ..h })
}

/// The `n`th frame of a kind among [`FLOODS`].
fn nth(kind: ControlKind, n: u32) -> ControlMessage<'static> {
    let (window, epoch) = (WindowId(u64::from(n % 256) | u64::from(n) << 16), Epoch(n + 1));
    match kind {
        ControlKind::Revoke => ControlMessage::Revoke { window, epoch },
        ControlKind::Revoked => ControlMessage::Revoked { window, epoch },
        ControlKind::Advert => {
            let (extent, access, kind) = (Extent::new(64), Access::all(), MemoryKind::Cpu);
            let region = WindowDesc { window, epoch, extent, access, kind };
            let role = WindowRole::Named(u64::from(n));
            ControlMessage::Advert(RegionAdvert { region, backing: WindowBacking::Process, role })
        }
        _ => ControlMessage::Ping(u64::from(n)),
    }
}

fn copy(piece: Piece) -> Copy {
    Copy { local_offset: piece.local, remote_offset: piece.remote, len: piece.len }
}

fn access(read: bool, write: bool) -> Access {
    let mut access = Access::empty();
    access.set(Access::READ, read);
    access.set(Access::WRITE, write);
    access
}

/// The ask in the session's words.
fn translate(ask: &Ask) -> driven::Ask {
    let transfer =
        |rank, direction, piece| driven::Ask::Transfer { rank, direction, copy: copy(piece) };
    let window = |rank, label, direction, piece| driven::Ask::Window {
        rank,
        label,
        direction,
        copy: copy(piece),
    };
    match *ask {
        Ask::Connect { rank } => driven::Ask::Connect { rank },
        Ask::Disconnect { peer } => driven::Ask::Disconnect { rank: peer },
        Ask::Leave => driven::Ask::Leave,
        Ask::Put { peer, piece } => transfer(peer, Direction::Put, piece),
        Ask::Get { peer, piece } => transfer(peer, Direction::Get, piece),
        Ask::PutNotify { peer, piece, tag } => {
            driven::Ask::PutNotify { rank: peer, copy: copy(piece), tag }
        }
        Ask::PutBatch { peer, ref list } => {
            let list = list.iter().copied().map(copy).collect();
            driven::Ask::PutBatch { rank: peer, list }
        }
        Ask::Tag { peer, tag } => driven::Ask::Tag { rank: peer, tag },
        Ask::Int { peer, value } => driven::Ask::Int { rank: peer, value },
        Ask::Struct { peer, ref bytes } => driven::Ask::Struct { rank: peer, bytes: bytes.clone() },
        Ask::Expose { peer, label, len, read, write } => {
            driven::Ask::Expose { rank: peer, label, len, access: access(read, write) }
        }
        Ask::PutWindow { peer, label, piece } => window(peer, label, Direction::Put, piece),
        Ask::GetWindow { peer, label, piece } => window(peer, label, Direction::Get, piece),
        Ask::Revoke { label, patience_ns } => {
            driven::Ask::Revoke { label, patience: Duration::from_nanos(patience_ns) }
        }
        Ask::Cancel { ticket } => driven::Ask::Cancel { ticket },
        Ask::Send { peer, local, len } => driven::Ask::Send { rank: peer, offset: local, len },
        Ask::Recv { peer, local, len } => {
            driven::Ask::Recv { rank: peer, offset: local, room: len }
        }
    }
}

fn fault(e: &Error) -> Fault {
    match e.kind() {
        ErrorKind::PeerDead => Fault::PeerDead,
        ErrorKind::DeadlineExceeded => Fault::Deadline,
        ErrorKind::Cancelled => Fault::Cancelled,
        ErrorKind::Revoked => Fault::Revoked,
        ErrorKind::StaleEpoch => Fault::StaleEpoch,
        ErrorKind::Range => Fault::OutOfRange,
        ErrorKind::Access => Fault::Access,
        ErrorKind::Quarantined => Fault::Quarantined,
        ErrorKind::NotFound if e.peer().is_some() => Fault::NotConnected,
        ErrorKind::NotFound => Fault::Unknown,
        ErrorKind::DuplicateRank => Fault::Duplicate,
        ErrorKind::Full | ErrorKind::Busy => Fault::Full,
        ErrorKind::Closed => Fault::Closed,
        ErrorKind::Unsupported => Fault::Unsupported,
        _ => Fault::Other(e.to_string()),
    }
}

fn message(m: hmc_std::Message) -> Message {
    match m {
        hmc_std::Message::Tag(tag) => Message::Tag(tag),
        hmc_std::Message::Int(n) => Message::Int(n),
        hmc_std::Message::Struct(bytes) => Message::Struct(bytes),
        hmc_std::Message::Notify(tag) => Message::Notify(tag),
    }
}

fn label(area: Area) -> Option<u64> {
    match area {
        Area::Buffer => None,
        Area::Window(label) => Some(label),
    }
}

impl Node for SessionNode {
    fn handle(&mut self, now: Instant, input: Input<'_>) {
        use driven::Input as In;
        let input = match input {
            Input::Opened { ticket, conn } => In::Opened { ticket, conn: conn.0 },
            Input::Failed { ticket } => In::Failed { ticket },
            Input::Accepted { conn, from } => In::Accepted { conn: conn.0, from },
            Input::Bytes { conn, bytes } => In::Bytes { conn: conn.0, bytes },
            Input::SendSpace { conn, bytes } => In::Room { conn: conn.0, bytes },
            Input::Closed { conn, reset } => In::Closed { conn: conn.0, reset },
            Input::Tick => In::Tick,
            Input::Ask { ticket, ask } => In::Ask { ticket, ask: translate(ask) },
        };
        self.0.handle(now, input);
    }

    fn poll(&mut self) -> Option<Output> {
        use driven::Output as Out;
        Some(match self.0.poll()? {
            Out::Connect { ticket, to } => Output::Connect { ticket, to },
            Out::Send { conn, bytes } => Output::Send { conn: ConnId(conn), bytes },
            Out::Taken { conn, bytes } => Output::Taken { conn: ConnId(conn), bytes },
            Out::Close { conn } => Output::Close { conn: ConnId(conn) },
            Out::Answer { ticket, result: Ok(bytes) } => {
                Output::Answer { ticket, answer: Answer::Done { bytes } }
            }
            Out::Answer { ticket, result: Err(e) } => {
                Output::Answer { ticket, answer: Answer::Failed(fault(&e)) }
            }
            Out::Message { from, message: m } => Output::Message { from, message: message(m) },
            Out::PeerUp { rank, start } => Output::PeerUp { rank, incarnation: start },
            Out::PeerDown { rank } => Output::PeerDown { rank },
        })
    }

    fn wake_at(&self) -> Instant {
        self.0.wake_at()
    }

    fn read(&self, area: Area, offset: u64, out: &mut [u8]) -> bool {
        self.0.read(label(area), offset, out)
    }

    fn write(&mut self, area: Area, offset: u64, bytes: &[u8]) -> bool {
        self.0.write(label(area), offset, bytes)
    }
}
