//! Values that the optimiser knows nothing about, and a place to which results go.
//!
//! `core::hint::black_box` of a value makes all its fields unknown, private ones too: a function is
//! checked for states that it could never be in. That is stricter than needed, and simpler.

use core::fmt::{self, Write};
use core::hint::black_box;
use hmc_core::ctrl::conn::{AcceptConfig, ControlConn, CxxPolicy};
use hmc_core::place::{DeviceId, Place};
use hmc_core::range::{ByteRange, Extent, Side};
use hmc_core::region::{Epoch, LocalSlice, RegionKey, WindowId, WindowSlice};
use hmc_core::rndv::{RecvTarget, RndvId, RndvMsg};
use hmc_core::slots::SlotId;
use hmc_core::time::{Duration, Instant};
use hmc_core::transport::{CancelOutcome, PostErrorKind, Transport};
use hmc_core::types::{Access, Caps, Incarnation, MemoryKind, Rank};
use hmc_core::wire::hello::{Asked, Endpoints, Features, Hello, HostId, LinkToken};
use hmc_core::wire::proof::Proof;
use hmc_core::work::{CompleteWhen, Completion, Failure, Opcode, WorkRequest};

pub(crate) fn any<T>(value: T) -> T {
    black_box(value)
}

/// A result is used, so the call is kept.
pub(crate) fn done<T>(value: T) {
    black_box(value);
}

/// Formats a value with its `Display`, all flags unknown.
pub(crate) fn show<T: fmt::Display>(value: &T) {
    done(write!(Sink, "{value}"));
}

struct Sink;

impl fmt::Write for Sink {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        done(s);
        any(Ok(()))
    }
}

pub(crate) fn number() -> u64 {
    any(7)
}

pub(crate) fn small() -> u32 {
    any(7)
}

pub(crate) fn size() -> usize {
    any(7)
}

/// A slice of unknown length at an unknown place.
pub(crate) fn bytes(storage: &[u8]) -> &[u8] {
    any(storage)
}

pub(crate) fn span() -> ByteRange {
    any(Extent::new(0).whole())
}

pub(crate) fn side() -> Side {
    any(Side::Local)
}

pub(crate) fn key() -> RegionKey {
    any(RegionKey { index: 0, generation: 0 })
}

pub(crate) fn window() -> WindowId {
    any(WindowId(0))
}

pub(crate) fn epoch() -> Epoch {
    any(Epoch(0))
}

pub(crate) fn local() -> LocalSlice {
    LocalSlice { key: key(), span: span() }
}

pub(crate) fn remote() -> WindowSlice {
    WindowSlice { window: window(), epoch: epoch(), span: span(), expected: None }
}

pub(crate) fn target() -> RecvTarget {
    any(RecvTarget::direct(remote()))
}

pub(crate) fn rndv_msg() -> RndvMsg {
    any(RndvMsg::Filled { id: RndvId(small()), seq: number() })
}

pub(crate) fn op() -> SlotId {
    any(SlotId { index: 0, generation: 0 })
}

pub(crate) fn opcode() -> Opcode {
    any(Opcode::Put)
}

pub(crate) fn when() -> CompleteWhen {
    any(CompleteWhen::Visible)
}

pub(crate) fn failure() -> Failure {
    any(Failure::PeerDead)
}

pub(crate) fn result() -> Result<u64, Failure> {
    any(Ok(0))
}

pub(crate) fn now() -> Instant {
    any(Instant::ZERO)
}

pub(crate) fn period() -> Duration {
    any(Duration::ZERO)
}

pub(crate) fn rank() -> Rank {
    any(Rank(0))
}

pub(crate) fn incarnation() -> Incarnation {
    any(Incarnation(0))
}

pub(crate) fn device() -> DeviceId {
    DeviceId { kind: kind(), index: any(7) }
}

pub(crate) fn place() -> Place {
    any(Place::on(device()))
}

pub(crate) fn kind() -> MemoryKind {
    any(MemoryKind::Cpu)
}

pub(crate) fn access() -> Access {
    any(Access::READ)
}

pub(crate) fn hello() -> Hello<'static> {
    any(Hello {
        features: any(Features::CMA),
        job: number(),
        rank: rank(),
        incarnation: incarnation(),
        nonce: any([0; 16]),
        expected: any(Some(rank())),
        host: any(HostId([0; 16])),
        heartbeat: period(),
        slots: any(0),
        asked: any(&Asked::ANY),
        proves: any(false),
        endpoints: any(Endpoints::EMPTY),
    })
}

pub(crate) fn proof() -> Proof {
    any(Proof([0; 32]))
}

pub(crate) fn token() -> LinkToken {
    any(LinkToken([0; 16]))
}

/// A control connection in an unknown state.
pub(crate) fn control() -> ControlConn {
    let acceptor = AcceptConfig { rank: rank(), job: number(), cxx: any(CxxPolicy::Allowed) };
    any(ControlConn::accepted(&acceptor, now()))
}

/// A transport of which nothing is known, not even that it keeps its rules.
pub(crate) struct Opaque;

impl Transport for Opaque {
    type Error = PostErrorKind;

    fn caps(&self) -> Caps {
        any(Caps::PUT)
    }

    fn post(&mut self, work: &WorkRequest) -> Result<(), PostErrorKind> {
        done(*work);
        any(Ok(()))
    }

    fn poll(&mut self, out: &mut [Completion]) -> usize {
        for c in out {
            *c = any(Completion { op: op(), result: result() });
        }
        size()
    }

    fn cancel(&mut self, op: SlotId) -> CancelOutcome {
        done(op);
        any(CancelOutcome::Withdrawn)
    }
}
