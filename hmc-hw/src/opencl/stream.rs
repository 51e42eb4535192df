//! [`Stream`]: a queue, and the numbers of its events.

use std::collections::VecDeque;

use hmc_core::region::RegionKey;

use super::event::Event;
use super::fault::OpenClFault;
use super::queue::{Command, Queue};

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

impl Stream {
    pub(super) const fn new(queue: Queue) -> Self {
        Self { queue, pending: VecDeque::new(), submitted: 0, failed: None }
    }

    /// Ends what is done. Returns `true` if a further command fits.
    pub(super) fn has_space(&mut self) -> bool {
        self.sweep();
        self.pending.len() < DEPTH
    }

    fn sweep(&mut self) {
        while let Some(first) = self.pending.front() {
            match first.event.is_done() {
                Ok(false) => break,
                Ok(true) => {}
                Err(fault) => self.failed = self.failed.or(Some((first.number, fault))),
            }
            self.pending.pop_front();
        }
    }

    /// Submits a command, and returns the number of its event.
    ///
    /// # Safety
    /// That of [`Queue::submit`].
    pub(super) unsafe fn submit(
        &mut self,
        command: &Command,
        keys: [Option<RegionKey>; 2],
    ) -> Result<u64, OpenClFault> {
        // SAFETY: as the caller promises.
        let event = unsafe { self.queue.submit(command) }?;
        self.submitted = self.submitted.saturating_add(1);
        let number = self.submitted;
        self.pending.push_back(Pending { number, event, keys });
        Ok(number)
    }

    /// The status of the event of that number.
    pub(super) fn status(&mut self, number: u64) -> EventStatus {
        if number == 0 || number > self.submitted {
            return EventStatus::Unknown;
        }
        self.sweep();
        if self.pending.front().is_some_and(|first| first.number <= number) {
            return EventStatus::Ahead;
        }
        match self.failed {
            Some((at, fault)) if at <= number => EventStatus::Failed(fault),
            _ => EventStatus::Passed,
        }
    }

    /// The event of that number, unless it has passed.
    pub(super) fn event(&self, number: u64) -> Option<&Event> {
        self.pending.iter().find(|pending| pending.number >= number).map(|pending| &pending.event)
    }

    pub(super) const fn queue(&self) -> &Queue {
        &self.queue
    }

    /// Ends what is done. Returns `true` if nothing is under way any more.
    pub(super) fn is_idle(&mut self) -> bool {
        self.sweep();
        self.pending.is_empty()
    }

    /// Ends what is done. Returns `true` if a command under way uses the region.
    pub(super) fn uses(&mut self, key: RegionKey) -> bool {
        self.sweep();
        self.pending.iter().any(|pending| pending.keys.contains(&Some(key)))
    }

    /// Blocks until nothing is under way any more.
    pub(super) fn finish(&mut self) {
        for pending in self.pending.drain(..) {
            // A failure is a fence as well.
            let _ = pending.event.wait();
        }
    }
}
