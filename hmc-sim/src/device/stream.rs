//! Streams of commands in virtual time: one after the other within a stream, in any order between them.
//!
//! It has keys of ranges only and moves no byte: the owner of the memory executes the steps that [`Streams::next`] returns.

use std::collections::VecDeque;

use hmc_core::device::{Rows, StreamEvent, StreamId};
use hmc_core::region::LocalSlice;

/// What a stream is to do.
#[derive(Clone, Copy, Debug)]
pub(super) enum Command {
    Copy(LocalSlice, LocalSlice),
    CopyRows(LocalSlice, LocalSlice, Rows),
    Fill(LocalSlice, u8),
    /// Nothing: an event is behind it.
    Record,
    /// What follows begins after that event.
    Wait(StreamEvent),
}

impl Command {
    /// The ranges that it reads and writes.
    pub(super) const fn slices(&self) -> [Option<LocalSlice>; 2] {
        match *self {
            Self::Copy(from, to) | Self::CopyRows(from, to, _) => [Some(from), Some(to)],
            Self::Fill(to, _) => [None, Some(to)],
            Self::Record | Self::Wait(_) => [None, None],
        }
    }
}

/// A command that was accepted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job {
    /// The event behind it.
    pub(super) event: StreamEvent,
    pub(super) command: Command,
    due_ns: u64,
    /// It will fail.
    pub(super) fails: bool,
    /// It has begun: its destination holds anything until it is done.
    begun: bool,
}

/// A step of a stream.
#[derive(Clone, Copy, Debug)]
pub(super) enum StreamStep {
    /// The command begins.
    Begins(Job),
    /// It is done, or has failed.
    Ends(Job),
}

#[derive(Debug, Default)]
struct Stream {
    generation: u16,
    is_open: bool,
    jobs: VecDeque<Job>,
    submitted: u64,
    done: u64,
    failed: Option<u64>,
    last_due_ns: u64,
}

/// The status of a stream event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EventStatus {
    /// No such command was submitted.
    Unknown,
    /// A command before it is not done.
    Ahead,
    /// All before it is done.
    Passed,
    /// All before it has completed, some of it with an error.
    Failed,
}

#[derive(Debug)]
pub(super) struct Streams {
    streams: Vec<Stream>,
    depth: usize,
}

impl Streams {
    /// The first stream alone; `depth` commands wait in each.
    pub(super) fn new(depth: usize) -> Self {
        Self { streams: vec![Stream { is_open: true, ..Stream::default() }], depth }
    }

    /// One more stream; `None` when there are `limit` of them.
    pub(super) fn open(&mut self, limit: u16) -> Option<StreamId> {
        let closed = self.streams.iter().position(|s| !s.is_open && s.generation < u16::MAX);
        let index = u16::try_from(closed.unwrap_or(self.streams.len())).ok()?;
        if index >= limit {
            return None;
        }
        if closed.is_none() {
            self.streams.push(Stream::default());
        }
        let stream = self.streams.get_mut(usize::from(index))?;
        let generation = stream.generation.checked_add(1)?;
        *stream = Stream { generation, is_open: true, ..Stream::default() };
        Some(StreamId { index, generation })
    }

    /// Closes a stream. Returns `false` for one that there is not, for the first one, and for one with commands under way.
    pub(super) fn close(&mut self, id: StreamId) -> bool {
        match self.get_mut(id) {
            Some(stream) if id != StreamId::FIRST && stream.jobs.is_empty() => {
                stream.is_open = false;
                true
            }
            _ => false,
        }
    }

    fn get(&self, id: StreamId) -> Option<&Stream> {
        let stream = self.streams.get(usize::from(id.index))?;
        (stream.is_open && stream.generation == id.generation).then_some(stream)
    }

    fn get_mut(&mut self, id: StreamId) -> Option<&mut Stream> {
        let stream = self.streams.get_mut(usize::from(id.index))?;
        (stream.is_open && stream.generation == id.generation).then_some(stream)
    }

    pub(super) fn knows(&self, id: StreamId) -> bool {
        self.get(id).is_some()
    }

    pub(super) fn is_full(&self, id: StreamId) -> bool {
        self.get(id).is_none_or(|s| s.jobs.len() >= self.depth)
    }

    /// Appends a command that takes `takes_ns` once everything before it is done.
    pub(super) fn submit(
        &mut self,
        id: StreamId,
        command: Command,
        now_ns: u64,
        takes_ns: u64,
        fails: bool,
    ) -> Option<StreamEvent> {
        let stream = self.get_mut(id)?;
        stream.submitted = stream.submitted.checked_add(1)?;
        let event = StreamEvent { stream: id, number: stream.submitted };
        let due_ns = stream.last_due_ns.max(now_ns).saturating_add(takes_ns);
        stream.last_due_ns = due_ns;
        stream.jobs.push_back(Job { event, command, due_ns, fails, begun: false });
        Some(event)
    }

    /// Returns the event after all submitted commands of a stream.
    pub(super) fn last(&self, id: StreamId) -> Option<StreamEvent> {
        self.get(id).map(|s| StreamEvent { stream: id, number: s.submitted })
    }

    /// Returns the next step until `now_ns`, in any stream.
    pub(super) fn next(&mut self, now_ns: u64) -> Option<StreamStep> {
        for at in 0..self.streams.len() {
            let Some(job) = self.streams.get(at).and_then(|s| s.jobs.front().copied()) else {
                continue;
            };
            if matches!(job.command, Command::Wait(e) if self.status(e) == EventStatus::Ahead) {
                continue;
            }
            let stream = self.streams.get_mut(at)?;
            if !job.begun {
                stream.jobs.front_mut()?.begun = true;
                return Some(StreamStep::Begins(job));
            }
            if job.due_ns <= now_ns {
                stream.jobs.pop_front();
                stream.done = job.event.number;
                if job.fails {
                    stream.failed = stream.failed.or(Some(job.event.number));
                }
                return Some(StreamStep::Ends(job));
            }
        }
        None
    }

    pub(super) fn status(&self, event: StreamEvent) -> EventStatus {
        let Some(stream) = self.get(event.stream) else {
            return EventStatus::Unknown;
        };
        if event.number > stream.submitted || event.number == 0 {
            EventStatus::Unknown
        } else if event.number > stream.done {
            EventStatus::Ahead
        } else if stream.failed.is_some_and(|n| n <= event.number) {
            EventStatus::Failed
        } else {
            EventStatus::Passed
        }
    }

    /// Returns the ranges that accepted commands use which have not completed.
    pub(super) fn slices(&self) -> impl Iterator<Item = LocalSlice> {
        let jobs = self.streams.iter().flat_map(|s| &s.jobs);
        jobs.flat_map(|job| job.command.slices().into_iter().flatten())
    }
}
