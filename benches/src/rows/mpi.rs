//! Collectives of two and of four processes over shared memory, beside those of an MPI library.

use std::cell::RefCell;

use super::group::{MOST, Members, What, times};
use crate::context::Context;
use crate::error::Res;
use crate::line::Line;
use crate::measure::interleave;
use crate::reference::mpi::Mpi;
use crate::row::{Row, size};

/// Samples.
const RUNS: (usize, usize) = (7, 21);
const COLLECTIVES: [What; 4] =
    [What::Alltoall, What::AllreduceSum, What::Allgather, What::Broadcast];
/// Bytes of the vector of each member.
const SMALL: usize = 1 << 10;
/// The most of the reference's time that a collective of [`SMALL`] may take.
const TIME: f64 = 1.5;
/// The least of the reference's speed that one of [`MOST`] has to have.
const SPEED: f64 = 1.0;

/// The program of the reference.
///
/// # Errors
/// Why there is none.
pub(crate) fn compiled() -> Res<Mpi> {
    Mpi::compile(MOST)
}

/// The row.
pub(crate) struct Collectives {
    pub(crate) first_line_only: bool,
}

impl Row for Collectives {
    fn name(&self) -> &'static str {
        "mpi-group"
    }

    fn unit(&self) -> &'static str {
        "GB/s, us"
    }

    fn reference(&self) -> &'static str {
        "the same collective of the MPI library of mpicc and mpirun, over shared memory: the faster of two jobs, of which \
         one yields its processors and one spins"
    }

    fn target(&self) -> &'static str {
        ">= 1.0 of its speed at 4 MiB, <= 1.5 of its time at 1 KiB"
    }

    fn run(&self, context: &Context) -> Res<Vec<Line>> {
        let mpi = compiled()?;
        let mut lines = Vec::new();
        // More processes than processors: they run where the system puts them.
        let _unpinned = context.unpinned()?;
        for count in [2, 4] {
            let mut members = Members::start(count)?;
            let jobs = RefCell::new([mpi.start(count, false)?, mpi.start(count, true)?]);
            for what in COLLECTIVES {
                for len in [MOST, SMALL] {
                    let ours = || members.sample(what, len, context.delay);
                    let name = format!("{what:?}");
                    // On a processor that others use as well one may be far faster than the other.
                    let reference = || {
                        jobs.borrow_mut().iter_mut().try_fold(f64::INFINITY, |least, job| {
                            Ok(job.sample(&name, len, times(len))?.min(least))
                        })
                    };
                    let pairs = interleave(context.pick(RUNS.0, RUNS.1), ours, reference)?;
                    let name = format!("{} of {} by {count}, shm", words(what), size(len as u64));
                    let line = if len == SMALL {
                        Line::latency(name, 1.0, &pairs, Some(TIME))
                    } else {
                        Line::bandwidth(name, len as u64, &pairs, Some(SPEED))
                    };
                    lines.push(line.with_interval(&pairs));
                    if self.first_line_only {
                        return Ok(lines);
                    }
                }
            }
        }
        Ok(lines)
    }
}

fn words(what: What) -> &'static str {
    match what {
        What::Alltoall => "alltoall",
        What::Allgather => "allgather",
        What::Broadcast => "broadcast",
        _ => "allreduce (sums of f32)",
    }
}

#[cfg(test)]
mod tests {
    use super::{COLLECTIVES, words};
    use crate::rows::group::What;

    #[test]
    fn the_program_in_c_has_each_collective_by_its_name() {
        let source = include_str!("../reference/mpi_collectives.c");
        for what in COLLECTIVES {
            assert!(source.contains(&format!("{{\"{what:?}\", ")), "{what:?}");
            assert_eq!(What::parse(&format!("{what:?}")), Ok(what));
        }
        let mut all: Vec<_> = COLLECTIVES.map(words).into();
        all.dedup();
        assert_eq!(all.len(), COLLECTIVES.len());
    }
}
