//! Trace of a run: a hash over all inputs and outputs of nodes, and on request its last lines.
//!
//! Two runs with the same hash were the same run. The trace reads and never decides.

use std::collections::VecDeque;

/// Lines kept for a report.
const TAIL_LINES: usize = 400;

/// Receives a line of the trace.
pub type TraceSink = fn(&str);

/// The record of one run.
pub(crate) struct Trace {
    hash: u64,
    lines: Option<VecDeque<String>>,
    print: Option<TraceSink>,
}

impl Trace {
    /// A record; `keep` the last lines as text, `print` gets every line at once.
    pub(crate) fn new(keep: bool, print: Option<TraceSink>) -> Self {
        let lines = (keep || print.is_some()).then(VecDeque::new);
        Self { hash: 0xCBF2_9CE4_8422_2325, lines, print }
    }

    /// Adds a number to the hash.
    #[inline]
    pub(crate) fn mix(&mut self, value: u64) {
        self.hash = (self.hash ^ value).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
    }

    /// Adds bytes to the hash.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.mix(u64::from_le_bytes(*word));
        }
        let mut last = [0; 8];
        for (to, from) in last.iter_mut().zip(rest) {
            *to = *from;
        }
        self.mix(u64::from_le_bytes(last) ^ (bytes.len() as u64) << 56);
    }

    /// Adds a line, if lines are kept or printed.
    #[inline]
    pub(crate) fn note(&mut self, now_ns: u64, line: impl FnOnce() -> String) {
        if self.lines.is_some() {
            self.keep(now_ns, &line());
        }
    }

    #[cold]
    fn keep(&mut self, now_ns: u64, line: &str) {
        let line = format!("{:>16.6} ms  {line}", now_ns as f64 / 1e6);
        if let Some(print) = self.print {
            print(&line);
        }
        if let Some(lines) = &mut self.lines {
            if lines.len() == TAIL_LINES {
                lines.pop_front();
            }
            lines.push_back(line);
        }
    }

    /// The hash so far.
    pub(crate) const fn hash(&self) -> u64 {
        self.hash
    }

    /// The kept lines.
    pub(crate) fn tail(&self) -> Vec<String> {
        self.lines.iter().flatten().cloned().collect()
    }
}
