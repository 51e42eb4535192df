//! One row of the table: what was measured for one size of one operation, as text and as comma-separated values.

use serde::Serialize;

use crate::units::short;

/// The first line of the table.
pub(super) const HEADING: &str = "op       size     p50 us     p99 us       GB/s";
/// The first line of comma-separated values.
pub(super) const CSV_HEADING: &str =
    "op,size,latency_iters,p50_us,p99_us,bandwidth_iters,depth,gb_per_s,transport";

/// One size of one operation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Row {
    /// `put` or `get`.
    pub(crate) op: &'static str,
    /// Bytes of one operation.
    pub(crate) size: u64,
    /// Operations measured one at a time.
    pub(crate) latency_iters: u32,
    /// Half of the operations took no longer, in microseconds.
    pub(crate) p50_us: f64,
    /// 99 of 100 took no longer.
    pub(crate) p99_us: f64,
    /// Operations measured several at a time.
    pub(crate) bandwidth_iters: u32,
    /// How many at a time.
    pub(crate) depth: u16,
    /// 10^9 bytes a second.
    pub(crate) gb_per_s: f64,
}

impl Row {
    /// The row as a line of the table.
    pub(super) fn line(&self) -> String {
        format!(
            "{:<4} {:>8} {:>10.2} {:>10.2} {:>10.3}",
            self.op,
            short(self.size),
            self.p50_us,
            self.p99_us,
            self.gb_per_s
        )
    }

    /// The row as comma-separated values.
    pub(super) fn csv(&self, transport: &str) -> String {
        format!(
            "{},{},{},{:.3},{:.3},{},{},{:.6},{transport}",
            self.op,
            self.size,
            self.latency_iters,
            self.p50_us,
            self.p99_us,
            self.bandwidth_iters,
            self.depth,
            self.gb_per_s
        )
    }
}

#[cfg(test)]
mod tests {
    use super::{CSV_HEADING, HEADING, Row};

    #[test]
    fn a_row_stands_under_its_heading() {
        let row = Row {
            op: "put",
            size: 64 << 10,
            latency_iters: 1000,
            p50_us: 3.25,
            p99_us: 10.5,
            bandwidth_iters: 20_000,
            depth: 16,
            gb_per_s: 12.0625,
        };
        let line = row.line();
        assert_eq!(line, "put       64K       3.25      10.50     12.062");
        // Right-aligned numbers end where their heading does.
        assert_eq!(line.len(), HEADING.len());
        assert_eq!(row.csv("shm"), "put,65536,1000,3.250,10.500,20000,16,12.062500,shm");
        assert_eq!(row.csv("shm").split(',').count(), CSV_HEADING.split(',').count());
    }
}
