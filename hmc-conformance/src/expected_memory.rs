//! Expected bytes of both memories, in vectors to which each request is applied.

use hmc_core::work::{Opcode, WorkRequest};

use super::completion_checker::CompletionChecker;
use super::report::Stop;
use super::subject::Subject;

#[derive(Clone, Debug)]
pub(super) struct ExpectedMemory {
    pub(super) local: Vec<u8>,
    pub(super) remote: Vec<u8>,
}

/// Returns the index range of a span in a vector.
pub(super) fn index_range(offset: u64, len: u64) -> core::ops::Range<usize> {
    let place = |n: u64| usize::try_from(n).expect("test memory is small");
    place(offset)..place(offset + len)
}

impl ExpectedMemory {
    /// Fills the region and the window of a fresh subject with random bytes.
    pub(super) fn paint<S: Subject>(checker: &mut CompletionChecker<'_, S>) -> Self {
        let sizes = (checker.subject.local().extent, checker.subject.remote().extent);
        let local = checker.rng.bytes(index_range(0, sizes.0.len()).end);
        let remote = checker.rng.bytes(index_range(0, sizes.1.len()).end);
        checker.subject.write_local(0, &local);
        checker.subject.write_remote(0, &remote);
        Self { local, remote }
    }

    /// Applies a request.
    pub(super) fn apply(&mut self, work: &WorkRequest) {
        let local = index_range(work.local.span.offset(), work.local.span.len());
        let remote = index_range(work.remote.span.offset(), work.remote.span.len());
        match work.opcode {
            Opcode::Put | Opcode::PutNotify { .. } => {
                self.remote[remote].copy_from_slice(&self.local[local]);
            }
            Opcode::Get => self.local[local].copy_from_slice(&self.remote[remote]),
        }
    }

    /// The owner of the window writes all of it.
    pub(super) fn repaint_remote<S: Subject>(&mut self, checker: &mut CompletionChecker<'_, S>) {
        checker.rng.fill(&mut self.remote);
        checker.subject.write_remote(0, &self.remote);
    }

    /// The initiator writes all of its region.
    pub(super) fn repaint_local<S: Subject>(&mut self, checker: &mut CompletionChecker<'_, S>) {
        checker.rng.fill(&mut self.local);
        checker.subject.write_local(0, &self.local);
    }

    /// Compares both memories, without driving anything.
    pub(super) fn compare<S: Subject>(
        &self,
        checker: &mut CompletionChecker<'_, S>,
        when: &str,
    ) -> Result<(), Stop> {
        let mut remote = vec![0; self.remote.len()];
        checker.subject.read_remote(0, &mut remote);
        same(when, "remote", &remote, &self.remote)?;
        self.compare_local(checker, when)
    }

    /// Compares the local memory.
    pub(super) fn compare_local<S: Subject>(
        &self,
        checker: &mut CompletionChecker<'_, S>,
        when: &str,
    ) -> Result<(), Stop> {
        let mut local = vec![0; self.local.len()];
        checker.subject.read_local(0, &mut local);
        same(when, "local", &local, &self.local)
    }
}

fn same(when: &str, whose: &str, got: &[u8], want: &[u8]) -> Result<(), Stop> {
    if got == want {
        return Ok(());
    }
    let wrong = got.iter().zip(want).filter(|(g, w)| g != w).count();
    let first = got.iter().zip(want).position(|(g, w)| g != w).unwrap_or(want.len());
    Err(format!("{when}: {wrong} {whose} bytes are wrong, the first at {first}").into())
}
