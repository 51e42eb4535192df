//! Streams of copies in virtual time: one after the other within a stream, in any order between them.
//!
//! It has keys of ranges only and moves no byte: the owner of the memory executes the steps that [`Streams::next`] returns.

use std::collections::VecDeque;

use hmc_core::device::{StreamEvent, StreamId};
use hmc_core::region::{LocalSlice, RegionKey};

/// A copy that was accepted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Job {
    pub(crate) number: u64,
    pub(crate) from: LocalSlice,
    pub(crate) to: LocalSlice,
    pub(crate) due_ns: u64,
    /// It will fail.
    pub(crate) fails: bool,
    /// It has begun: its destination holds anything until it is done.
    begun: bool,
}

impl Job {
    /// Returns `true` if it uses any byte of the range.
    pub(crate) fn meets(&self, range: LocalSlice) -> bool {
        let meet = |mine: LocalSlice| mine.key == range.key && mine.span.overlaps(range.span);
        meet(self.from) || meet(self.to)
    }
}

/// A step of a stream.
#[derive(Clone, Copy, Debug)]
pub(crate) enum StreamStep {
    /// The copy begins.
    Begins(Job),
    /// It is done, or has failed.
    Ends(Job),
}

#[derive(Debug, Default)]
struct Stream {
    jobs: VecDeque<Job>,
    submitted: u64,
    done: u64,
    failed: Option<u64>,
    last_due_ns: u64,
}

/// The status of a stream event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EventStatus {
    /// No such copy was submitted.
    Unknown,
    /// A copy before it is not done.
    Ahead,
    /// All before it is done.
    Passed,
    /// All before it has completed, some of it with an error.
    Failed,
}

#[derive(Debug)]
pub(crate) struct Streams {
    streams: Vec<Stream>,
    depth: usize,
}

impl Streams {
    pub(crate) fn new(count: u16, depth: usize) -> Self {
        Self { streams: (0..count).map(|_| Stream::default()).collect(), depth }
    }

    /// One more stream; `None` when their numbers are used up.
    pub(crate) fn open(&mut self) -> Option<StreamId> {
        let id = u16::try_from(self.streams.len()).ok()?;
        self.streams.push(Stream::default());
        Some(StreamId(id))
    }

    pub(crate) fn knows(&self, id: StreamId) -> bool {
        usize::from(id.0) < self.streams.len()
    }

    pub(crate) fn is_full(&self, id: StreamId) -> bool {
        self.streams.get(usize::from(id.0)).is_none_or(|s| s.jobs.len() >= self.depth)
    }

    /// Appends a copy that takes `takes_ns` once everything before it is done.
    pub(crate) fn submit(
        &mut self,
        id: StreamId,
        (from, to): (LocalSlice, LocalSlice),
        now_ns: u64,
        takes_ns: u64,
        fails: bool,
    ) -> Option<StreamEvent> {
        let stream = self.streams.get_mut(usize::from(id.0))?;
        stream.submitted = stream.submitted.checked_add(1)?;
        let number = stream.submitted;
        let due_ns = stream.last_due_ns.max(now_ns).saturating_add(takes_ns);
        stream.last_due_ns = due_ns;
        stream.jobs.push_back(Job { number, from, to, due_ns, fails, begun: false });
        Some(StreamEvent { stream: id, number })
    }

    /// Returns the event after all submitted copies of a stream.
    pub(crate) fn last(&self, id: StreamId) -> Option<StreamEvent> {
        let stream = self.streams.get(usize::from(id.0))?;
        Some(StreamEvent { stream: id, number: stream.submitted })
    }

    /// Returns the next step until `now_ns`, in any stream.
    pub(crate) fn next(&mut self, now_ns: u64) -> Option<(StreamId, StreamStep)> {
        for (id, stream) in (0..=u16::MAX).zip(&mut self.streams) {
            let Some(job) = stream.jobs.front_mut() else {
                continue;
            };
            if !job.begun {
                job.begun = true;
                return Some((StreamId(id), StreamStep::Begins(*job)));
            }
            if job.due_ns <= now_ns {
                let job = *job;
                stream.jobs.pop_front();
                stream.done = job.number;
                if job.fails {
                    stream.failed = stream.failed.or(Some(job.number));
                }
                return Some((StreamId(id), StreamStep::Ends(job)));
            }
        }
        None
    }

    pub(crate) fn status(&self, mark: StreamEvent) -> EventStatus {
        let Some(stream) = self.streams.get(usize::from(mark.stream.0)) else {
            return EventStatus::Unknown;
        };
        if mark.number > stream.submitted {
            EventStatus::Unknown
        } else if mark.number > stream.done {
            EventStatus::Ahead
        } else if stream.failed.is_some_and(|n| n <= mark.number) {
            EventStatus::Failed
        } else {
            EventStatus::Passed
        }
    }

    /// Returns the accepted copies that have not completed.
    pub(crate) fn jobs(&self) -> impl Iterator<Item = &Job> {
        self.streams.iter().flat_map(|s| &s.jobs)
    }

    /// Returns `true` if a copy in flight uses the region.
    pub(crate) fn uses(&self, key: RegionKey) -> bool {
        self.jobs().any(|job| job.from.key == key || job.to.key == key)
    }
}
