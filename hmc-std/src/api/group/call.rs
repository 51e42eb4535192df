//! One collective while it runs: who runs it, until when, and what the group keeps of it.

use hmc_core::time::Instant;
use hmc_mem::error::MemError;
use hmc_mem::shared::SharedBytes;

use super::channel::Reason;
use super::{Group, Members, State};
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::lock::lock;

/// One collective, as its caller runs it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call<'m> {
    pub(super) members: &'m Members,
    pub(super) by: Instant,
    /// The caller's thread sleeps in it, so that it is never pending. Otherwise polls never wait.
    pub(super) blocks: bool,
}

/// The right to run a collective. Dropped before [`Running::end`], it breaks the group: others may wait for this member.
#[derive(Debug)]
pub(super) struct Running<'m> {
    members: &'m Members,
    name: &'static str,
    pub(super) scratch: Vec<u8>,
    is_over: bool,
}

impl Group {
    /// Why the group is broken, if it is, or `Busy` while a collective runs.
    #[must_use]
    pub fn broken(&self) -> Option<Error> {
        self.members.shared.check_process().and_then(|()| lock(&self.members.state).check()).err()
    }

    /// Begins the collective `name`.
    ///
    /// # Errors
    /// `Forked`; `Busy` while another one runs; why an earlier one failed.
    pub(super) fn begin(&self, name: &'static str) -> Result<Running<'_>> {
        self.members.shared.check_process()?;
        let mut state = lock(&self.members.state);
        state.check()?;
        state.is_running = true;
        let scratch = std::mem::take(&mut state.scratch);
        Ok(Running { members: &self.members, name, scratch, is_over: false })
    }
}

impl State {
    fn check(&self) -> Result<()> {
        if self.is_running {
            let what = "a collective of this group runs already; wait for that first";
            return Err(Error::new(ErrorKind::Busy, what));
        }
        self.broken.as_ref().map_or(Ok(()), |e| {
            Err(e
                .clone()
                .during("this group is broken, make a new one; an earlier collective of it failed"))
        })
    }
}

impl Running<'_> {
    /// The collective is over. If it failed, the group is broken.
    pub(super) fn end(mut self, result: Result<()>) -> Result<()> {
        self.is_over = true;
        result.map_err(|e| self.break_group(e))
    }

    fn break_group(&self, e: Error) -> Error {
        let (me, len) = (self.members.position, self.members.ranks.len());
        let e = e.during(format_args!("{}, as number {me} of {len}", self.name));
        // In a forked child the lock may be held permanently, by a thread that does not exist there.
        if !self.members.shared.origin.is_child() {
            lock(&self.members.state).broken = Some(e.clone());
        }
        e
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if self.members.shared.origin.is_child() {
            return;
        }
        if !self.is_over {
            self.members.waker.unpark_task();
            self.members.report_failure(Reason::GaveUp);
            self.break_group(Error::new(ErrorKind::Cancelled, "its future was dropped"));
        }
        let mut state = lock(&self.members.state);
        state.is_running = false;
        state.scratch = std::mem::take(&mut self.scratch);
    }
}

/// The length of a view: it came as a `usize`.
pub(super) fn len_of(bytes: &SharedBytes<'_>) -> usize {
    usize::try_from(bytes.extent().len()).unwrap_or(usize::MAX)
}

/// Cuts `bytes` into `count` blocks; `len` gives the length of the one at each position, of which as much is taken as there
/// is.
pub(super) fn blocks<'a>(
    bytes: &SharedBytes<'a>,
    count: usize,
    len: impl Fn(usize) -> usize,
) -> Result<Vec<SharedBytes<'a>>> {
    let mut rest = bytes.extent().whole();
    let cut = |i| {
        let (first, after) = rest.split_at_most(u64::try_from(len(i)).unwrap_or(u64::MAX));
        rest = after;
        Ok(bytes.part(first).map_err(MemError::from)?)
    };
    (0..count).map(cut).collect()
}

/// Copies all of `from` over `into`, which is as long.
pub(super) fn copy(from: &SharedBytes<'_>, into: &SharedBytes<'_>) -> Result<()> {
    let (all, over) = (from.extent().whole(), into.extent().whole());
    Ok(from.copy_to(all, into, over).map_err(MemError::from)?)
}
