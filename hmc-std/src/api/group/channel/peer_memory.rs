//! The memory of the other member's process, read by process_vm_readv(2).

use std::sync::atomic::{Ordering, fence};

use hmc_core::range::ByteRange;
use hmc_mem::os::cma;
use hmc_mem::os::io::IoError;
use hmc_mem::os::mapped_window::MappedWindow;
use hmc_mem::shared::SharedBytes;
use rustix::process::Pid;

use crate::api::peer::Peer;
use crate::transport::stream::PeerLife;

/// A process of this host, which is another one than this, and what tells of its end.
#[derive(Debug)]
pub(super) struct PeerMemory {
    pid: Pid,
    life: PeerLife,
}

impl PeerMemory {
    /// Of the peer whose window is `theirs`, if both ends agreed to reads, and the end of its process can be seen.
    pub(super) fn of(peer: &Peer, theirs: &MappedWindow) -> Option<Self> {
        let agreed = peer.shared.config.cma && peer.link.has_group_reads;
        if !agreed || theirs.has_owner_ended().is_none() {
            return None;
        }
        let life = peer.link.data().plane().peer_life();
        let pid = life.pid().filter(|pid| *pid != rustix::process::getpid())?;
        Some(Self { pid, life })
    }

    /// Copies what lies at `address` over `span` of `into`. Returns `false` if the process has ended, or may have: the bytes are
    /// then those of nobody.
    ///
    /// # Errors
    /// Those of [`cma::read`].
    pub(super) fn read(
        &self,
        theirs: &MappedWindow,
        address: u64,
        into: &SharedBytes<'_>,
        span: ByteRange,
    ) -> Result<bool, IoError> {
        let has_ended = || theirs.has_owner_ended() != Some(false) || self.life.has_ended();
        if has_ended() {
            return Ok(false);
        }
        // SAFETY: `pid` is not the number of this process, which keeps its own: the channel was made with another one, and a forked
        // child uses no channel of its parent.
        let read = unsafe { cma::read(self.pid, address, into, span) };
        // Pairs with the fence of `MappedWindow::publish`: what a sender says before it changes its bytes is seen from here on, if
        // any of the changed ones was read.
        fence(Ordering::SeqCst);
        // The mark is set, or the stream has ended, before the process's memory goes: without both, the number was its own.
        if has_ended() { Ok(false) } else { read.map(|()| true) }
    }

    /// This process's own, for tests that change no bytes meanwhile. Its end is that of `life`.
    #[cfg(test)]
    pub(super) fn of_this(life: PeerLife) -> Self {
        Self { pid: rustix::process::getpid(), life }
    }
}
