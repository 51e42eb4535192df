//! The process that made an object. Objects of the parent are unusable in a forked child: every call returns
//! `Forked` before it takes a lock (another thread of the parent may have held it) or reads memory (it is not
//! mapped), and a drop has no effect.

use hmc_core::wire::hello::HostId;
use hmc_mem::os::fork::ForkGuard;
use hmc_mem::os::limits;

use crate::base::error::{Error, ErrorKind, Result};

/// Names the process that made an object; for code that keeps locks of its own around objects of this crate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin(ForkGuard);

impl Origin {
    /// Names this process.
    ///
    /// # Errors
    /// `NoSpace` for the first object of a process; `Io` on a kernel before Linux 4.14.
    pub fn here() -> Result<Self> {
        Ok(Self(ForkGuard::new()?))
    }

    /// Returns whether this process is a child that was forked since.
    #[must_use]
    #[inline]
    pub fn is_child(&self) -> bool {
        self.0.is_child()
    }

    /// Checks that this process is not a forked child.
    ///
    /// # Errors
    /// `Forked`.
    #[inline]
    pub fn check(&self) -> Result<()> {
        if self.0.is_child() { Err(forked()) } else { Ok(()) }
    }
}

#[cold]
#[inline(never)]
pub(crate) fn forked() -> Error {
    Error::new(ErrorKind::Forked, "this object belongs to the parent process")
        .with_remedy("start a new session in the child")
}

/// This process's network namespace; 0: not known.
pub(crate) fn netns() -> u64 {
    rustix::fs::stat("/proc/self/ns/net").map_or(0, |stat| stat.st_ino)
}

/// A hash of the boot id: equal for processes of one running system.
pub(crate) fn host_id() -> HostId {
    let text = limits::boot_id().unwrap_or_default();
    let hash = blake3::hash(text.as_bytes());
    let mut id = [0; 16];
    for (to, from) in id.iter_mut().zip(hash.as_bytes()) {
        *to = *from;
    }
    HostId(id)
}
