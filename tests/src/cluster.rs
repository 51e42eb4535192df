//! Joins the simulated world to the real session logic: a rank of the world is a sans-IO session of hmc-std.
//!
//! It translates names only and makes no decisions.

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
    BatchPart, Cluster, ConnId, MemoryArea, Node, NodeConfig, NodeInput, NodeMessage, NodeOutput,
    Outsider, OutsiderBytes, Request, RequestError, RequestResult,
};
use hmc_std::{Error, ErrorKind};
use hmc_testkit::buffers::{Copy, Direction};
use hmc_testkit::node as driven;

use crate::metered;
use crate::raw_frames::{frame, hello_with};

/// Starts sans-IO sessions.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sessions;

/// A session as the world drives it.
pub struct SessionNode(driven::Node);

impl Cluster for Sessions {
    type Node = SessionNode;

    fn boot(&mut self, boot: &NodeConfig) -> SessionNode {
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

fn copy(piece: BatchPart) -> Copy {
    Copy { local_offset: piece.local, remote_offset: piece.remote, len: piece.len }
}

fn access(read: bool, write: bool) -> Access {
    let mut access = Access::empty();
    access.set(Access::READ, read);
    access.set(Access::WRITE, write);
    access
}

/// The request as one of hmc-std's sans-IO session.
fn translate(request: &Request) -> driven::NodeRequest {
    let transfer = |rank, direction, piece| driven::NodeRequest::Transfer {
        rank,
        direction,
        copy: copy(piece),
    };
    let window = |rank, label, direction, piece| driven::NodeRequest::Window {
        rank,
        label,
        direction,
        copy: copy(piece),
    };
    match *request {
        Request::Connect { rank } => driven::NodeRequest::Connect { rank },
        Request::Disconnect { peer } => driven::NodeRequest::Disconnect { rank: peer },
        Request::Leave => driven::NodeRequest::Leave,
        Request::Put { peer, piece } => transfer(peer, Direction::Put, piece),
        Request::Get { peer, piece } => transfer(peer, Direction::Get, piece),
        Request::PutNotify { peer, piece, tag } => {
            driven::NodeRequest::PutNotify { rank: peer, copy: copy(piece), tag }
        }
        Request::PutBatch { peer, ref list } => {
            let list = list.iter().copied().map(copy).collect();
            driven::NodeRequest::PutBatch { rank: peer, list }
        }
        Request::Tag { peer, tag } => driven::NodeRequest::Tag { rank: peer, tag },
        Request::Int { peer, value } => driven::NodeRequest::Int { rank: peer, value },
        Request::Struct { peer, ref bytes } => {
            driven::NodeRequest::Struct { rank: peer, bytes: bytes.clone() }
        }
        Request::Expose { peer, label, len, read, write } => {
            driven::NodeRequest::Expose { rank: peer, label, len, access: access(read, write) }
        }
        Request::PutWindow { peer, label, piece } => window(peer, label, Direction::Put, piece),
        Request::GetWindow { peer, label, piece } => window(peer, label, Direction::Get, piece),
        Request::Revoke { label, patience_ns } => {
            driven::NodeRequest::Revoke { label, patience: Duration::from_nanos(patience_ns) }
        }
        Request::Cancel { number } => driven::NodeRequest::Cancel { number },
        Request::Send { peer, local, len } => {
            driven::NodeRequest::Send { rank: peer, offset: local, len }
        }
        Request::Recv { peer, local, len } => {
            driven::NodeRequest::Recv { rank: peer, offset: local, space: len }
        }
    }
}

fn request_error(e: &Error) -> RequestError {
    match e.kind() {
        ErrorKind::PeerDead => RequestError::PeerDead,
        ErrorKind::DeadlineExceeded => RequestError::Deadline,
        ErrorKind::Cancelled => RequestError::Cancelled,
        ErrorKind::Revoked => RequestError::Revoked,
        ErrorKind::StaleEpoch => RequestError::StaleEpoch,
        ErrorKind::Range => RequestError::OutOfRange,
        ErrorKind::Access => RequestError::Access,
        ErrorKind::Quarantined => RequestError::Quarantined,
        ErrorKind::NotFound if e.peer().is_some() => RequestError::NotConnected,
        ErrorKind::NotFound => RequestError::Unknown,
        ErrorKind::DuplicateRank => RequestError::Duplicate,
        ErrorKind::Full | ErrorKind::Busy => RequestError::Full,
        ErrorKind::Closed => RequestError::Closed,
        ErrorKind::Unsupported => RequestError::Unsupported,
        _ => RequestError::Other(e.to_string()),
    }
}

fn message(m: hmc_std::Message) -> NodeMessage {
    match m {
        hmc_std::Message::Tag(tag) => NodeMessage::Tag(tag),
        hmc_std::Message::Int(n) => NodeMessage::Int(n),
        hmc_std::Message::Bytes(bytes) => NodeMessage::Struct(bytes.into_owned()),
        hmc_std::Message::Notify(tag) => NodeMessage::Notify(tag),
    }
}

fn label(area: MemoryArea) -> Option<u64> {
    match area {
        MemoryArea::Buffer => None,
        MemoryArea::Window(label) => Some(label),
    }
}

impl Node for SessionNode {
    fn handle(&mut self, now: Instant, input: NodeInput<'_>) {
        use driven::Input as In;
        let input = match input {
            NodeInput::Opened { number, conn } => In::Opened { number, conn: conn.0 },
            NodeInput::Failed { number } => In::Failed { number },
            NodeInput::Accepted { conn, from } => In::Accepted { conn: conn.0, from },
            NodeInput::Bytes { conn, bytes } => In::Bytes { conn: conn.0, bytes },
            NodeInput::SendSpace { conn, bytes } => In::Space { conn: conn.0, bytes },
            NodeInput::Closed { conn, reset } => In::Closed { conn: conn.0, reset },
            NodeInput::Tick => In::Tick,
            NodeInput::Request { number, request } => {
                In::Request { number, request: translate(request) }
            }
        };
        self.0.handle(now, input);
    }

    fn poll(&mut self) -> Option<NodeOutput> {
        use driven::Output as Out;
        Some(match self.0.poll()? {
            Out::Connect { number, to } => NodeOutput::Connect { number, to },
            Out::Send { conn, bytes } => NodeOutput::Send { conn: ConnId(conn), bytes },
            Out::Taken { conn, bytes } => NodeOutput::Taken { conn: ConnId(conn), bytes },
            Out::Close { conn } => NodeOutput::Close { conn: ConnId(conn) },
            Out::Result { number, result: Ok(bytes) } => {
                NodeOutput::Result { number, result: RequestResult::Done { bytes } }
            }
            Out::Result { number, result: Err(e) } => {
                NodeOutput::Result { number, result: RequestResult::Failed(request_error(&e)) }
            }
            Out::Message { from, message: m } => NodeOutput::Message { from, message: message(m) },
            Out::PeerUp { rank, start } => NodeOutput::PeerUp { rank, incarnation: start },
            Out::PeerDown { rank } => NodeOutput::PeerDown { rank },
        })
    }

    fn wake_at(&self) -> Instant {
        self.0.wake_at()
    }

    fn read(&self, area: MemoryArea, offset: u64, out: &mut [u8]) -> bool {
        self.0.read(label(area), offset, out)
    }

    fn write(&mut self, area: MemoryArea, offset: u64, bytes: &[u8]) -> bool {
        self.0.write(label(area), offset, bytes)
    }
}
