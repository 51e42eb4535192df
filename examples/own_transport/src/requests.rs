//! What this end asks for: requests that wait for their copies, tags that wait for their acknowledgement, and completions.

use std::collections::VecDeque;
use std::os::fd::AsFd as _;

use hmc_core::limits::{MAX_CHUNK_BYTES, MAX_WINDOWS_PER_PEER};
use hmc_core::range::Side;
use hmc_core::region::{Epoch, WindowId};
use hmc_core::slots::SlotId;
use hmc_core::transport::{CancelOutcome, PostErrorKind};
use hmc_core::types::Access;
use hmc_core::window::WindowFault;
use hmc_core::work::{Completion, Failure, Opcode, WorkRequest};
use hmc_mem::os::file::{read_from, write_to};
use hmc_mem::os::io::IoError;
use hmc_std::Result;
use hmc_std::transport::{RegionCache, Released};

use crate::frames::{Frame, Output};
use crate::window::{PeerWindow, WindowNote};

/// Requests that are accepted and have not been reported.
pub(crate) const MAX_REQUESTS: usize = 256;

/// A request whose bytes are not all there yet.
#[derive(Clone, Copy, Debug)]
struct Queued {
    work: WorkRequest,
    moved: u64,
}

/// The requests of one data plane, and the peer's windows.
#[derive(Debug)]
pub(crate) struct Requests {
    windows: Vec<Option<PeerWindow>>,
    queue: VecDeque<Queued>,
    /// Those whose bytes are there and whose tags were sent, in the order of the tags.
    tagged: VecDeque<(SlotId, u64)>,
    done: VecDeque<Completion>,
    bytes: u64,
}

impl Requests {
    pub(crate) fn new() -> Self {
        Self {
            windows: std::iter::repeat_with(|| None).take(MAX_WINDOWS_PER_PEER).collect(),
            queue: VecDeque::with_capacity(MAX_REQUESTS),
            tagged: VecDeque::with_capacity(MAX_REQUESTS),
            done: VecDeque::with_capacity(MAX_REQUESTS),
            bytes: 0,
        }
    }

    /// Bytes that were moved.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether a request waits for its copy.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Whether a copy for `op` may be made yet.
    pub(crate) fn uses_memory_of(&self, op: SlotId) -> bool {
        self.queue.iter().any(|q| q.work.op == op)
    }

    /// Accepts a request.
    pub(crate) fn push(&mut self, work: &WorkRequest) -> std::result::Result<(), PostErrorKind> {
        let held = [self.queue.len(), self.tagged.len(), self.done.len()];
        if held.into_iter().fold(0, usize::saturating_add) >= MAX_REQUESTS {
            return Err(PostErrorKind::Busy);
        }
        self.queue.push_back(Queued { work: *work, moved: 0 });
        Ok(())
    }

    /// Copies up to 1 MiB. The frame of each tag goes into `output`.
    pub(crate) fn copy(&mut self, regions: &RegionCache, output: &mut Output) {
        let mut budget = MAX_CHUNK_BYTES;
        while let Some(Queued { work, moved }) = self.queue.front().copied() {
            let ready = !matches!(work.opcode, Opcode::PutNotify { .. }) || output.has_space();
            let len = work.local.span.len().saturating_sub(moved).min(budget);
            if !ready || (len == 0 && budget == 0 && moved < work.local.span.len()) {
                return;
            }
            budget = budget.saturating_sub(len);
            let result = match self.copy_part(regions, &work, moved, len) {
                Ok(()) if moved.saturating_add(len) < work.local.span.len() => {
                    if let Some(front) = self.queue.front_mut() {
                        front.moved = moved.saturating_add(len);
                    }
                    continue;
                }
                Ok(()) => Ok(work.local.span.len()),
                Err(failure) => Err(failure),
            };
            self.queue.pop_front();
            match (result, work.opcode) {
                (Ok(len), Opcode::PutNotify { tag }) => {
                    output.push(Frame::Tag(tag));
                    self.tagged.push_back((work.op, len));
                }
                _ => self.done.push_back(Completion { op: work.op, result }),
            }
        }
    }

    /// Copies `len` bytes of a request from byte `moved` on.
    fn copy_part(
        &mut self,
        regions: &RegionCache,
        work: &WorkRequest,
        moved: u64,
        len: u64,
    ) -> std::result::Result<(), Failure> {
        let is_get = work.opcode == Opcode::Get;
        let window = self.windows.get(usize::from(work.remote.window.index()));
        let window = window.and_then(Option::as_ref).ok_or(WindowFault::Unknown);
        // The whole request is checked each time: the window may have been revoked meanwhile.
        let access = if is_get { Access::READ } else { Access::WRITE };
        let (file, there) =
            window.and_then(|w| w.check(work.remote, access)).map_err(Failure::Window)?;
        let bytes = regions.bytes_of(work.local).ok_or(Failure::UnknownRegion)?;
        let Some(file) = file else { return Ok(()) };
        let part = |range: hmc_core::range::ByteRange| range.sub(Side::Local, moved, len);
        let (Ok(here), Ok(there)) = (part(work.local.span), part(there)) else {
            return Err(Failure::UnknownRegion);
        };
        let copied = if is_get {
            read_from(file.as_fd(), there.offset(), &bytes, here)
        } else {
            write_to(file.as_fd(), there.offset(), &bytes, here)
        };
        match copied {
            Ok(n) if n == len => {
                self.bytes = self.bytes.saturating_add(n);
                Ok(())
            }
            // The file is as long as it was made: this is not the window's.
            Ok(_) => Err(Failure::Window(WindowFault::Unknown)),
            Err(IoError::Os { errno }) => Err(Failure::Transport(errno)),
            Err(_) => Err(Failure::Unsupported),
        }
    }

    /// The peer has delivered the oldest tag. `false`: none was sent.
    pub(crate) fn acknowledge(&mut self) -> bool {
        let Some((op, len)) = self.tagged.pop_front() else { return false };
        self.done.push_back(Completion { op, result: Ok(len) });
        true
    }

    /// Withdraws what can be withdrawn: all that waits for its copy. What has a tag on its way, or a completion, runs on.
    pub(crate) fn cancel(&mut self, op: SlotId) -> CancelOutcome {
        let runs =
            self.tagged.iter().any(|(o, _)| *o == op) || self.done.iter().any(|c| c.op == op);
        let done = &mut self.done;
        self.queue.retain(|q| {
            let is_it = q.work.op == op;
            if is_it && runs {
                done.push_back(Completion { op, result: Err(Failure::Cancelled) });
            }
            !is_it
        });
        if runs { CancelOutcome::Running } else { CancelOutcome::Withdrawn }
    }

    /// Hands completions out.
    pub(crate) fn report(&mut self, out: &mut [Completion]) -> usize {
        let n = out.len().min(self.done.len());
        for (to, from) in out.iter_mut().zip(self.done.drain(..n)) {
            *to = from;
        }
        n
    }

    /// Every request that has not completed fails; the files of the peer are not used any more.
    pub(crate) fn end(&mut self, released: &mut Released) {
        let queued = self.queue.drain(..).map(|q| q.work.op);
        let ops = queued.chain(self.tagged.drain(..).map(|(op, _)| op));
        self.done.extend(ops.map(|op| Completion { op, result: Err(Failure::PeerDead) }));
        for window in self.windows.iter_mut().flatten() {
            if let Some(file) = window.revoke() {
                released.push(file);
            }
        }
    }

    /// The peer exposes a window.
    ///
    /// # Errors
    /// Its file cannot be opened.
    pub(crate) fn add_window(&mut self, note: &WindowNote, released: &mut Released) -> Result<()> {
        let window = PeerWindow::open(note)?;
        let Some(place) = self.windows.get_mut(usize::from(window.id().index())) else {
            let what = "the peer describes a window that it cannot have";
            return Err(hmc_std::Error::new(hmc_std::ErrorKind::Protocol, what));
        };
        if let Some(old) = place.replace(window) {
            released.push(old);
        }
        Ok(())
    }

    /// The peer takes a window back. No copy is under way: each is made in one call.
    pub(crate) fn remove_window(&mut self, id: WindowId, epoch: Epoch, released: &mut Released) {
        let place = self.windows.get_mut(usize::from(id.index())).and_then(Option::as_mut);
        if let Some(file) = place.filter(|w| w.is(id, epoch)).and_then(PeerWindow::revoke) {
            released.push(file);
        }
    }
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, reason = "tests may panic")]
mod tests {
    use super::{MAX_REQUESTS, Opcode, Requests, WorkRequest};
    use hmc_core::range::Extent;
    use hmc_core::region::{Epoch, LocalSlice, RegionKey, WindowId, WindowSlice};
    use hmc_core::slots::SlotId;
    use hmc_core::transport::{CancelOutcome, PostErrorKind};
    use hmc_core::window::WindowFault;
    use hmc_core::work::{CompleteWhen, Completion, Failure};
    use hmc_std::transport::RegionCache;

    fn work(index: u16) -> WorkRequest {
        let span = Extent::new(8).whole();
        WorkRequest {
            op: SlotId { index, generation: 1 },
            opcode: Opcode::Put,
            when: CompleteWhen::Visible,
            local: LocalSlice { key: RegionKey { index: 0, generation: 1 }, span },
            remote: WindowSlice { window: WindowId(0), epoch: Epoch(0), span, expected: None },
        }
    }

    #[test]
    fn what_is_accepted_is_bounded_and_can_be_withdrawn() {
        let mut requests = Requests::new();
        let most = u16::try_from(MAX_REQUESTS).expect("small");
        for index in 0..most {
            assert_eq!(requests.push(&work(index)), Ok(()));
        }
        assert_eq!(requests.push(&work(most)), Err(PostErrorKind::Busy));
        let op = work(3).op;
        assert!(requests.uses_memory_of(op));
        assert_eq!(requests.cancel(op), CancelOutcome::Withdrawn);
        assert!(!requests.uses_memory_of(op));
        assert_eq!(requests.push(&work(most)), Ok(()));
        assert!(!requests.acknowledge(), "no tag was sent");
    }

    #[test]
    fn a_request_for_a_window_that_nobody_described_fails() {
        let mut requests = Requests::new();
        requests.push(&work(0)).expect("space");
        let mut output = crate::frames::Output::new(1);
        requests.copy(&RegionCache::default(), &mut output);
        let mut out = [Completion { op: work(1).op, result: Ok(0) }; 2];
        assert_eq!(requests.report(&mut out), 1);
        let end = Completion { op: work(0).op, result: Err(Failure::Window(WindowFault::Unknown)) };
        assert_eq!(out[0], end);
    }
}
