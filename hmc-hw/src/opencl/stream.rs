//! [`Stream`]: a queue, and the numbers of its events.

use std::collections::VecDeque;

use hmc_core::region::RegionKey;

use super::event::{Ended, Event};
use super::fault::OpenClFault;
use super::queue::{Command, Queue};
use super::sys::cl_event;

/// Commands that may be under way in a stream.
const DEPTH: usize = 256;

/// A command under way.
#[derive(Debug)]
struct Pending {
    number: u64,
    event: Event,
    /// The regions that it uses.
    keys: [Option<RegionKey>; 2],
}

/// A stream of a device.
#[derive(Debug)]
pub(super) struct Stream {
    queue: Queue,
    pending: VecDeque<Pending>,
    submitted: u64,
    /// The number of the first command that failed, and how.
    failed: Option<(u64, OpenClFault)>,
}

/// The status of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EventStatus {
    Unknown,
    Ahead,
    Passed,
    Failed(OpenClFault),
}

/// An error of these calls is that of a lost device: what is under way is not known to end any more.
type Result<T> = core::result::Result<T, OpenClFault>;

impl Stream {
    pub(super) const fn new(queue: Queue) -> Self {
        Self { queue, pending: VecDeque::new(), submitted: 0, failed: None }
    }

    /// Ends what is done. Returns `true` if a further command fits.
    pub(super) fn has_space(&mut self) -> Result<bool> {
        self.sweep()?;
        Ok(self.pending.len() < DEPTH)
    }

    fn sweep(&mut self) -> Result<()> {
        self.queue.flush().map_err(OpenClFault::lost)?;
        while let Some(first) = self.pending.front() {
            match first.event.ended().map_err(OpenClFault::lost)? {
                None => break,
                Some(Ended::Done) => {}
                Some(Ended::Failed(fault)) => self.note(first.number, fault),
            }
            self.pending.pop_front();
        }
        Ok(())
    }

    fn note(&mut self, number: u64, fault: OpenClFault) {
        self.failed = self.failed.or(Some((number, fault)));
    }

    /// Submits commands that count as one, and returns the number of their event. If the first is refused, nothing was accepted;
    /// if a later one is, the event fails.
    ///
    /// # Safety
    /// That of [`Queue::submit`].
    pub(super) unsafe fn submit(
        &mut self,
        commands: &[Command],
        keys: [Option<RegionKey>; 2],
    ) -> Result<u64> {
        for (at, command) in commands.iter().enumerate() {
            // SAFETY: as the caller promises.
            match unsafe { self.queue.submit(command) } {
                Ok(event) => {
                    self.submitted = self.submitted.saturating_add(1);
                    self.pending.push_back(Pending { number: self.submitted, event, keys });
                }
                Err(fault) if at == 0 => return Err(fault),
                Err(fault) => {
                    self.note(self.submitted, fault);
                    break;
                }
            }
        }
        Ok(self.submitted)
    }

    /// The status of the event of that number.
    pub(super) fn status(&mut self, number: u64) -> Result<EventStatus> {
        if number == 0 || number > self.submitted {
            return Ok(EventStatus::Unknown);
        }
        self.sweep()?;
        if self.pending.front().is_some_and(|first| first.number <= number) {
            return Ok(EventStatus::Ahead);
        }
        Ok(match self.failed {
            Some((at, fault)) if at <= number => EventStatus::Failed(fault),
            _ => EventStatus::Passed,
        })
    }

    /// A failure says nothing of what is submitted from now on.
    pub(super) const fn forgive(&mut self) {
        self.failed = None;
    }

    /// OpenCL's event of that number, unless it has passed.
    pub(super) fn event(&self, number: u64) -> Option<cl_event> {
        let mut pending = self.pending.iter();
        pending.find(|pending| pending.number >= number).map(|pending| pending.event.handle())
    }

    /// Ends what is done. Returns `true` if nothing is under way any more.
    pub(super) fn is_idle(&mut self) -> Result<bool> {
        self.sweep()?;
        Ok(self.pending.is_empty())
    }

    /// Ends what is done. Returns `true` if a command under way uses the region.
    pub(super) fn uses(&mut self, key: RegionKey) -> Result<bool> {
        self.sweep()?;
        Ok(self.pending.iter().any(|pending| pending.keys.contains(&Some(key))))
    }

    /// Blocks until nothing is under way any more.
    pub(super) fn finish(&mut self) -> Result<()> {
        while let Some(first) = self.pending.front() {
            match first.event.wait().map_err(OpenClFault::lost)? {
                Ended::Done => {}
                Ended::Failed(fault) => self.note(first.number, fault),
            }
            self.pending.pop_front();
        }
        Ok(())
    }
}
