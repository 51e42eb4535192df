//! Internals of this crate for `hmc-testkit`, which drives data planes without a session, and sessions without a
//! thread. Each function calls the named part and decides nothing. Not for applications, and not stable.

pub mod connect;
pub mod link;
pub mod session;

use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hmc_core::region::{Epoch, LocalRegion, LocalSlice, WindowDesc, WindowId};
use hmc_core::transport::Note;
use hmc_core::types::{Access, Rank};
use hmc_core::wire::hello::Features;
use hmc_mem::shared::SharedBytes;

use crate::base::config::{Config, Environment, Progress};
use crate::base::entropy;
use crate::base::error::Result;
use crate::io::listener;
use crate::io::reactor::Reactor;
use crate::memory::{ConnBuffer, Region, RegionTable};
use crate::node::inbox::{Inbox, Message, SharedInbox, Wanted};
use crate::ops::peer_handle::Peer;
use crate::transport::data_plane::{AnyDataPlane, Fence};
use crate::transport::domain::{DataPlaneParams, Domain};
use crate::transport::gate::Gate;
use crate::transport::loopback::LoopbackDataPlane;
use crate::transport::shm::ShmDataPlane;
use crate::transport::stream::{StreamDataPlane, StreamSetup};
use crate::transport::verbs::SessionVerbs;

/// The buffer of the session whose peer it is.
#[must_use]
pub fn own_buffer(peer: &Peer) -> ConnBuffer {
    peer.shared.buffer.clone()
}

/// Where a data plane delivers the tags of its peer.
#[derive(Clone, Debug)]
pub struct Tags(SharedInbox);

impl Tags {
    /// Space for so many messages, of so many bytes in all.
    #[must_use]
    pub fn new(messages: usize, bytes: usize) -> Self {
        Self(Arc::new(Mutex::new(Inbox::new(messages, bytes))))
    }

    /// The oldest tag that was delivered and not taken.
    #[must_use]
    pub fn take(&self) -> Option<u64> {
        match crate::base::lock::lock(&self.0).take(Wanted::Notify) {
            Some(Message::Notify(tag)) => Some(tag),
            _ => None,
        }
    }
}

/// What a data plane is made of beside its transport.
#[derive(Debug)]
pub struct Parts {
    /// The connection with the other end.
    pub socket: OwnedFd,
    /// The rank of the other end.
    pub peer: Rank,
    /// The process of the other end, if it is one of this host.
    pub pid: Option<u32>,
    /// Whether process_vm_readv(2) may be tried.
    pub cma: bool,
    /// Windows that can be exposed.
    pub windows: usize,
    /// Where tags go.
    pub tags: Tags,
}

/// What a domain makes a data plane of; the other end says that it runs on this system, and has all features.
#[must_use]
pub fn params(parts: Parts) -> DataPlaneParams<'static> {
    DataPlaneParams {
        serial: parts.peer.0,
        socket: Arc::new(parts.socket.into()),
        peer: parts.peer,
        pid: parts.pid,
        near: true,
        features: Features::all(),
        inbox: parts.tags.0,
        windows: parts.windows,
        cma: parts.cma,
        life: None,
    }
}

/// The data plane whose both ends are one.
#[must_use]
pub fn loopback(windows: usize, tags: Tags) -> AnyDataPlane {
    AnyDataPlane::new(LoopbackDataPlane::new(windows, tags.0))
}

/// The data plane of a stream.
#[must_use]
pub fn stream(parts: Parts) -> AnyDataPlane {
    AnyDataPlane::new(stream_plane(parts, false))
}

/// The data plane of shared memory.
///
/// # Errors
/// What the system refused.
pub fn shm(parts: Parts) -> Result<AnyDataPlane> {
    Ok(AnyDataPlane::new(ShmDataPlane::new(stream_plane(parts, true), None, Features::GATES)?))
}

/// RDMA verbs, set up as the environment says, but for the library if one is named.
///
/// # Errors
/// `SystemLimit`, `InvalidConfig`.
pub fn rdma(library: Option<&Path>) -> Result<impl Domain> {
    let mut config = Config::new(Rank(0), &Environment::read());
    config.check()?;
    if let Some(library) = library {
        config.rdma.library = Some(library.to_owned());
    }
    let reactor = Arc::new(Reactor::new(Progress::Manual)?);
    Ok(SessionVerbs::new(&config.rdma, config.progress, &reactor))
}

fn stream_plane(parts: Parts, local: bool) -> StreamDataPlane {
    StreamDataPlane::new(StreamSetup {
        socket: Arc::new(parts.socket.into()),
        peer: parts.peer,
        local,
        near: false,
        pid: parts.pid,
        cma: parts.cma,
        batched_acks: true,
        generations: true,
        gathers: true,
        windows: parts.windows,
        inbox: parts.tags.0,
    })
}

/// Random bytes of the system.
///
/// # Errors
/// `SystemLimit`.
pub fn random() -> Result<[u8; 8]> {
    entropy::random()
}

/// Gives a TCP connection the settings of all connections.
pub fn tune_tcp(fd: BorrowedFd<'_>) {
    listener::tune_tcp(fd);
}

/// Exposes a range of `region`. Also returns the note that the peer must receive before the advert of the window.
///
/// # Errors
/// `Full`.
pub fn expose<'a>(
    plane: &mut AnyDataPlane,
    region: &Region,
    local: LocalSlice,
    access: Access,
    entropy: u64,
    space: &'a mut [u8],
) -> Result<(WindowDesc, Option<Note<'a>>)> {
    plane.expose(region, (local, None), access, entropy, space)
}

/// Begins to revoke a window. Which fence remains.
///
/// # Errors
/// `NotFound`.
pub fn begin_revoke(plane: &mut AnyDataPlane, id: WindowId, epoch: Epoch) -> Result<Fence> {
    plane.begin_revoke(id, epoch)
}

/// Whether the fence of a revoked window has passed.
#[must_use]
pub fn has_passed(plane: &AnyDataPlane, fence: &Fence, id: WindowId, epoch: Epoch) -> bool {
    plane.has_passed(fence, id, epoch)
}

/// Waits until nobody is inside a window that is closed, up to `timeout`. Whether that was reached.
#[must_use]
pub fn wait_gate(gate: &Gate, timeout: Duration) -> bool {
    gate.wait(timeout)
}

/// A region that a peer can map; zeros.
///
/// # Errors
/// `NoSpace`.
pub fn allocate(table: &Arc<RegionTable>, len: u64) -> Result<Region> {
    table.allocate(len)
}

/// The name and the extent of a region.
#[must_use]
pub fn local(region: &Region) -> LocalRegion {
    region.local()
}

/// A range of a region.
///
/// # Errors
/// `Range`.
pub fn slice(region: &Region, offset: u64, len: u64) -> Result<LocalSlice> {
    region.slice(offset, len)
}

/// The bytes of a region, whoever may be reading or writing them.
#[must_use]
pub fn bytes(region: &Region) -> SharedBytes<'_> {
    region.bytes()
}
