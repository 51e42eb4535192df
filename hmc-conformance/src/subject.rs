//! [`Subject`]: a transport under test.

use core::time::Duration;

use hmc_core::region::{LocalRegion, WindowDesc};
use hmc_core::transport::Transport;
use hmc_core::types::Access;

/// The result of an action that a case requests of its subject.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Support {
    /// The action was done.
    Done,
    /// The transport does not support it; the case is reported as skipped, with this reason.
    Unsupported(&'static str),
}

/// How long a case waits without progress, counted from the last completion.
#[derive(Clone, Copy, Debug)]
pub struct IdleLimit {
    /// Turns (one drive and one poll each) without any completion.
    pub turns: u64,
    /// Time without any completion.
    pub time: Duration,
    /// Turns after the end of a case, in which no completion and no change of memory may happen.
    pub settle: u64,
}

impl IdleLimit {
    /// For a transport whose peer is another thread or process.
    pub const REAL: Self = Self { turns: u64::MAX, time: Duration::from_secs(30), settle: 2_000 };
    /// For a transport that runs only when it is driven.
    pub const VIRTUAL: Self = Self { turns: 20_000, time: Duration::from_secs(30), settle: 200 };
}

/// A pair of ends of one transport: the initiator, whose [`Transport`] is tested, and its target.
pub trait Subject {
    /// The transport under test.
    type T: Transport;

    /// Builds the pair anew: one local region of `local_len` bytes at the initiator, one window of
    /// `window_len` bytes with `access` at the target. Earlier pairs may be dropped. If the window
    /// is part of a larger region, [`Subject::check`] should look at the bytes around it.
    ///
    /// # Errors
    /// Why it could not be built; the case fails with it.
    fn fresh(&mut self, local_len: u64, window_len: u64, access: Access) -> Result<(), String>;
    /// The initiator's transport.
    fn transport(&mut self) -> &mut Self::T;
    /// The initiator's region.
    fn local(&self) -> LocalRegion;
    /// The target's window.
    fn remote(&self) -> WindowDesc;
    /// Writes straight into the local region.
    fn write_local(&mut self, offset: u64, bytes: &[u8]);
    /// Reads straight from the local region.
    fn read_local(&mut self, offset: u64, out: &mut [u8]);
    /// Writes straight into the window's memory, as its owner does. Not used after a kill.
    fn write_remote(&mut self, offset: u64, bytes: &[u8]);
    /// Reads straight from the window's memory, as its owner does: it must move nothing and wait
    /// for nothing. Not used after a kill.
    fn read_remote(&mut self, offset: u64, out: &mut [u8]);
    /// Lets the target and the fabric make progress. Does nothing if they do so by themselves.
    /// Must not poll the initiator's completions.
    fn drive(&mut self);
    /// All tags that were delivered at the target since `fresh`.
    fn notifications(&mut self) -> Vec<u64>;
    /// The target revokes the window. Returns after its fence.
    fn revoke(&mut self) -> Support;
    /// The target dies, or the link to it is cut permanently.
    fn kill_peer(&mut self) -> Support;
    /// Checks for bytes that were written without a right.
    ///
    /// # Errors
    /// The first such byte.
    fn check(&mut self) -> Result<(), String> {
        Ok(())
    }
    /// Returns how long a case waits for this subject.
    fn idle_limit(&self) -> IdleLimit {
        IdleLimit::REAL
    }
    /// The seed of the suite's own random numbers, for payloads and scripts.
    fn seed(&self) -> u64 {
        1
    }
}
