//! How commands move bytes as virtual time passes.

use hmc_core::device::{Rows, StreamEvent};
use hmc_core::range::{Extent, Side};
use hmc_core::region::LocalSlice;

use super::FakeDevice;
use crate::device::stream::{Command, Job, StreamStep};

/// The bytes of the destination of a running command.
const GARBAGE: u8 = 0xBB;

/// The rows of a slice, `stride` bytes apart. Their extents were compared before.
fn rows_of(slice: LocalSlice, rows: Rows, stride: u64) -> impl Iterator<Item = LocalSlice> {
    let everything = Extent::new(u64::MAX);
    (0..u64::from(rows.count)).filter_map(move |n| {
        let offset = slice.span.offset().checked_add(n.checked_mul(stride)?)?;
        let span = everything.span(Side::Local, offset, rows.len).ok()?;
        Some(LocalSlice { key: slice.key, span })
    })
}

impl Command {
    /// What is read and written, piece by piece.
    fn pieces(self) -> Vec<(LocalSlice, LocalSlice)> {
        match self {
            Self::Copy(from, to) => vec![(from, to)],
            Self::CopyRows(from, to, rows) => {
                let from = rows_of(from, rows, rows.from_stride);
                from.zip(rows_of(to, rows, rows.to_stride)).collect()
            }
            Self::Fill(..) | Self::Record | Self::Wait(_) => Vec::new(),
        }
    }
}

impl FakeDevice {
    /// Lets virtual time pass.
    pub fn advance(&mut self, by_ns: u64) {
        self.now_ns = self.now_ns.saturating_add(by_ns);
        while let Some(step) = self.streams.next(self.now_ns) {
            match step {
                StreamStep::Begins(job) => self.spoil(job.command),
                StreamStep::Ends(job) => self.end(job),
            }
        }
    }

    pub(super) fn load(&self, range: LocalSlice) -> Option<Vec<u8>> {
        let key = self.regions.get(&range.key)?.memory.key;
        self.machine().get(LocalSlice { key, ..range }).map(<[u8]>::to_vec)
    }

    pub(super) fn store(&self, range: LocalSlice, bytes: &[u8]) -> bool {
        let Some(key) = self.regions.get(&range.key).map(|known| known.memory.key) else {
            return false;
        };
        match self.machine().get_mut(LocalSlice { key, ..range }) {
            Some(to) if to.len() == bytes.len() => {
                to.copy_from_slice(bytes);
                true
            }
            _ => false,
        }
    }

    fn spoil(&self, command: Command) {
        let fill = |to: LocalSlice| {
            let len = usize::try_from(to.span.len()).unwrap_or(0);
            self.store(to, &vec![GARBAGE; len]);
        };
        command.pieces().into_iter().for_each(|(_, to)| fill(to));
        if let Command::Fill(to, _) = command {
            fill(to);
        }
    }

    fn end(&mut self, job: Job) {
        if job.fails {
            return;
        }
        // What the same stream brought to the host before must be there to be read.
        self.land(job.event);
        if let Command::Wait(event) = job.command {
            self.land(event);
        }
        self.execute(job.command, Some(job.event));
    }

    /// Moves the bytes. Those for the host arrive once `event` is asked for, or now if there is none.
    pub(super) fn execute(&mut self, command: Command, event: Option<StreamEvent>) {
        for (from, to) in command.pieces() {
            let Some(bytes) = self.load(from) else { continue };
            let to_host = self.regions.get(&to.key).is_some_and(|k| k.region.place.is_host());
            match event {
                Some(event) if to_host => self.landing.push((event, to, bytes)),
                _ => {
                    self.store(to, &bytes);
                }
            }
        }
        if let Command::Fill(to, byte) = command {
            let len = usize::try_from(to.span.len()).unwrap_or(0);
            self.store(to, &vec![byte; len]);
        }
    }

    /// What came to the host before the event becomes visible.
    pub(super) fn land(&mut self, event: StreamEvent) {
        let is_before = |e: &StreamEvent| e.stream == event.stream && e.number <= event.number;
        let (now, later) =
            core::mem::take(&mut self.landing).into_iter().partition(|(e, _, _)| is_before(e));
        self.landing = later;
        let now: Vec<(StreamEvent, LocalSlice, Vec<u8>)> = now;
        for (_, to, bytes) in now {
            self.store(to, &bytes);
        }
    }
}
