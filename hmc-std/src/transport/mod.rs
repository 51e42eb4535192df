//! The transports of this crate, and the choice among them at the top.
//!
//! [`Port`] is what a link owns: one of the transports, seen both as initiator
//! ([`hmc_core::transport::Transport`]) and as target (windows, service). All ports are driven under
//! their link's lock.

pub(crate) mod loopback;
pub(crate) mod regions;
pub(crate) mod shm;
pub(crate) mod stream;
pub(crate) mod ucx;

use hmc_core::region::{Epoch, LocalSlice, WindowDesc, WindowId};
use hmc_core::slots::SlotId;
use hmc_core::transport::{CancelOutcome, PostErrorKind, Transport};
use hmc_core::types::{Access, Caps, ConnType, MemoryKind};
use hmc_core::window::{WindowEntry, WindowTable, WindowTransition};
use hmc_core::work::{Completion, WorkRequest};

use crate::error::{Error, ErrorKind as Kind, Result};
use crate::memory::Region;
use loopback::LoopbackPort;
use regions::RegionCache;
use shm::{ShmFence, ShmPort, Unused};
use stream::{Down, Interest, StreamPort};
use ucx::UcxPort;

/// The data plane towards one peer.
#[derive(Debug)]
pub(crate) enum Port {
    /// A session's link to itself.
    Loopback(LoopbackPort),
    /// Mapped memory of a process of this host.
    Shm(Box<ShmPort>),
    /// A TCP stream.
    Tcp(Box<StreamPort>),
    /// UCX.
    Ucx(Box<UcxPort>),
    /// A peer of the upstream dialect: control messages only.
    None,
}

/// What must still happen before a revoked window's memory is private again.
#[derive(Debug)]
pub(crate) enum Fence {
    /// Nothing: the target does all copies itself.
    Passed,
    /// The peer's last copy must end.
    Shm(ShmFence),
    /// The peer must say that it uses the window no more.
    Word,
}

impl Fence {
    /// Whether it has passed for that window of `port`.
    pub(crate) fn has_passed(&self, port: &Port, id: WindowId, epoch: Epoch) -> bool {
        match self {
            Self::Passed => true,
            Self::Shm(fence) => fence.wait(std::time::Duration::ZERO),
            Self::Word => port.has_left(id, epoch),
        }
    }
}

macro_rules! each {
    ($self:expr, $port:ident => $body:expr, none => $none:expr) => {
        match $self {
            Self::Loopback($port) => $body,
            Self::Shm($port) => $body,
            Self::Tcp($port) => $body,
            Self::Ucx($port) => $body,
            Self::None => $none,
        }
    };
}

impl Port {
    pub(crate) fn kind(&self) -> Option<ConnType> {
        match self {
            Self::Loopback(_) => Some(ConnType::Loopback),
            Self::Shm(_) => Some(ConnType::Shm),
            Self::Tcp(_) => Some(ConnType::Tcp),
            Self::Ucx(_) => Some(ConnType::Ucx),
            Self::None => None,
        }
    }

    /// The port's table of regions.
    pub(crate) fn regions(&mut self) -> Option<&mut RegionCache> {
        each!(self, p => Some(p.regions()), none => None)
    }

    pub(crate) fn windows(&mut self) -> Option<&mut WindowTable<Box<[WindowEntry]>>> {
        each!(self, p => Some(p.windows()), none => None)
    }

    /// The stream to watch, if the port has one.
    pub(crate) fn stream(&mut self) -> Option<&mut StreamPort> {
        match self {
            Self::Shm(p) => Some(p.stream()),
            Self::Ucx(p) => Some(p.stream()),
            Self::Tcp(p) => Some(p),
            Self::Loopback(_) | Self::None => None,
        }
    }

    /// What moves bytes by a slower path than the transport's own, and why, in words.
    pub(crate) fn slower(&mut self) -> Vec<String> {
        let mut out = Vec::new();
        match self {
            Self::Shm(p) => p.slower(&mut out),
            Self::Loopback(_) | Self::Tcp(_) | Self::Ucx(_) | Self::None => {}
        }
        out
    }

    /// Why the data plane ended, if it did.
    pub(crate) fn down(&mut self) -> Option<Down> {
        self.stream().and_then(|s| s.down())
    }

    /// Whether the peer's process cannot touch mapped memory any more.
    pub(crate) fn peer_has_ended(&mut self) -> bool {
        match self {
            Self::Ucx(p) => p.peer_has_ended(),
            Self::Loopback(_) | Self::Shm(_) | Self::Tcp(_) | Self::None => {
                self.stream().is_none_or(|s| s.peer_has_ended())
            }
        }
    }

    /// What is to be unmapped once the link's lock is free.
    pub(crate) fn take_unused(&mut self) -> Unused {
        match self {
            Self::Shm(p) => p.take_unused(),
            Self::Loopback(_) | Self::Tcp(_) | Self::Ucx(_) | Self::None => Unused::default(),
        }
    }

    pub(crate) fn bring_down(&mut self, why: Down) {
        match self {
            Self::Shm(p) => p.bring_down(why),
            Self::Tcp(p) => p.bring_down(why),
            Self::Ucx(p) => p.bring_down(why),
            Self::Loopback(_) | Self::None => {}
        }
    }

    /// Receives and executes what the peer asked. Returns whether anything happened.
    /// `attended` says that a caller drives the link, and no other thread may.
    pub(crate) fn service(&mut self, attended: bool) -> bool {
        match self {
            Self::Shm(p) => p.service(),
            Self::Tcp(p) => p.service(),
            Self::Ucx(p) => p.service(attended),
            Self::Loopback(_) | Self::None => false,
        }
    }

    pub(crate) fn interest(&mut self) -> Interest {
        match self {
            Self::Shm(p) => p.interest(),
            Self::Tcp(p) => p.interest(),
            Self::Ucx(p) => p.interest(),
            Self::Loopback(_) | Self::None => Interest::default(),
        }
    }

    /// Bytes of payload moved so far: by this end's operations and by the peer's through us.
    pub(crate) fn bytes_moved(&self) -> (u64, u64) {
        match self {
            Self::Loopback(p) => (p.bytes, p.bytes),
            Self::Shm(p) => p.bytes_moved(),
            Self::Tcp(p) => (p.bytes_out, p.bytes_in),
            Self::Ucx(p) => p.bytes_moved(),
            Self::None => (0, 0),
        }
    }

    /// Of these, what UCX moved for operations of this end: nothing that went beside it, by a stream.
    pub(crate) fn bytes_by_ucx(&self) -> u64 {
        if let Self::Ucx(p) = self { p.bytes_by_ucx() } else { 0 }
    }

    /// Exposes a range of `region` to the peer. Gives with it the key that the peer is to be told first, if it needs one.
    pub(crate) fn expose(
        &mut self,
        region: &Region,
        local: LocalSlice,
        access: Access,
        entropy: u64,
    ) -> Result<(WindowDesc, Option<Vec<u8>>)> {
        if access.contains(Access::WRITE) {
            region.note_writable();
        }
        if let Some(regions) = self.regions() {
            regions.learn(region);
        }
        let Some(windows) = self.windows() else {
            return Err(Error::new(
                Kind::Unsupported,
                "a peer of the upstream dialect has no data plane here; connect natively",
            ));
        };
        let exposed = windows
            .expose(local, MemoryKind::Cpu, access, entropy)
            .map_err(|e| Error::new(Kind::Full, e.to_string()))?;
        let opened = match self {
            Self::Shm(p) => p.open_window(region, local, &exposed).map(|()| None),
            Self::Ucx(p) => p.open_window(region, local, &exposed),
            Self::Loopback(_) | Self::Tcp(_) | Self::None => Ok(None),
        };
        match opened {
            Ok(key) => Ok((exposed, key)),
            Err(e) => {
                // Nobody was told of it.
                if let Some(windows) = self.windows() {
                    let _ = windows.apply(exposed.window, exposed.epoch, WindowTransition::Revoke);
                }
                self.fenced(exposed.window, exposed.epoch);
                Err(e)
            }
        }
    }

    /// Whether local memory of an operation may still be read or written.
    #[cfg(feature = "testing")]
    pub(crate) fn uses_local(&mut self, op: SlotId) -> bool {
        self.stream().is_some_and(|s| s.uses_local(op))
    }

    /// Begins to revoke a window and tells which fence remains.
    pub(crate) fn revoke(&mut self, id: WindowId, epoch: Epoch) -> Result<Fence> {
        let gone = |f: hmc_core::window::WindowFault| {
            Error::new(Kind::NotFound, format!("the window cannot be revoked: {f}"))
        };
        match self {
            Self::Loopback(p) => {
                p.windows().apply(id, epoch, WindowTransition::Revoke).map_err(gone)?;
                Ok(Fence::Passed)
            }
            Self::Tcp(p) => {
                p.revoke(id, epoch).map_err(gone)?;
                Ok(Fence::Passed)
            }
            Self::Shm(p) => {
                p.stream().revoke(id, epoch).map_err(gone)?;
                Ok(p.close_window(id).map_or(Fence::Passed, Fence::Shm))
            }
            Self::Ucx(p) => {
                p.stream().revoke(id, epoch).map_err(gone)?;
                p.shut_window(id);
                Ok(Fence::Word)
            }
            Self::None => Err(Error::new(Kind::NotFound, "no such window")),
        }
    }

    /// The fence of a revoked window has passed: its place is free again.
    pub(crate) fn fenced(&mut self, id: WindowId, epoch: Epoch) {
        if let Some(w) = self.windows() {
            let _ = w.apply(id, epoch, WindowTransition::Fence);
        }
        if let Self::Ucx(p) = self {
            p.close_window(id);
            p.forget_left(id, epoch);
        }
    }

    /// Whether the peer said that it uses a revoked window no more, where its word is the fence.
    pub(crate) fn has_left(&self, id: WindowId, epoch: Epoch) -> bool {
        match self {
            Self::Ucx(p) => p.has_left(id, epoch),
            Self::Loopback(_) | Self::Shm(_) | Self::Tcp(_) | Self::None => true,
        }
    }

    /// Whether the peer waits for our word that windows of its are not used any more.
    pub(crate) fn leaves(&self) -> bool {
        matches!(self, Self::Ucx(p) if p.leaves())
    }

    /// The peer uses a window of ours no more.
    pub(crate) fn note_left(&mut self, id: WindowId, epoch: Epoch) {
        if let Self::Ucx(p) = self {
            p.note_left(id, epoch);
        }
    }

    /// Whether nothing of ours can be read or written by the peer or a device.
    pub(crate) fn is_harmless(&mut self) -> bool {
        match self {
            Self::Ucx(p) => p.is_harmless(),
            Self::Loopback(_) | Self::Shm(_) | Self::Tcp(_) | Self::None => {
                self.stream().is_none_or(|s| s.is_harmless())
            }
        }
    }

    /// Whether nothing of ours can be read or written by the peer of a link that is over, windows included.
    pub(crate) fn is_out_of_reach(&mut self) -> bool {
        match self {
            Self::Ucx(p) => p.is_out_of_reach(),
            // Their windows need no more than the lock under which the link ended.
            Self::Loopback(_) | Self::Shm(_) | Self::Tcp(_) | Self::None => self.is_harmless(),
        }
    }

    /// The deadline of a revocation passed before its fence.
    pub(crate) fn quarantine(&mut self, id: WindowId, epoch: Epoch) {
        if let Some(w) = self.windows() {
            let _ = w.apply(id, epoch, WindowTransition::Expire);
        }
    }

    /// The peer revoked one of its windows: stop using it. Whether nothing of ours does.
    pub(crate) fn forget_remote(&mut self, id: WindowId, epoch: Epoch) -> bool {
        match self {
            Self::Shm(p) => {
                p.forget_remote(id, epoch);
                true
            }
            Self::Ucx(p) => p.forget_remote(id, epoch),
            Self::Loopback(_) | Self::Tcp(_) | Self::None => true,
        }
    }
}

impl Transport for Port {
    type Error = PostErrorKind;

    fn caps(&self) -> Caps {
        each!(self, p => p.caps(), none => Caps::empty())
    }

    fn post(&mut self, work: &WorkRequest) -> std::result::Result<(), PostErrorKind> {
        each!(self, p => p.post(work), none => Err(PostErrorKind::Unsupported))
    }

    fn poll(&mut self, out: &mut [Completion]) -> usize {
        each!(self, p => p.poll(out), none => 0)
    }

    fn cancel(&mut self, op: SlotId) -> CancelOutcome {
        each!(self, p => p.cancel(op), none => CancelOutcome::Withdrawn)
    }
}
