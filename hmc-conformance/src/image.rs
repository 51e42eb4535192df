//! What both memories should hold: plain vectors, changed as the requests say.

use hmc_core::work::{Opcode, WorkRequest};

use super::ledger::Ledger;
use super::report::Stop;
use super::subject::Subject;

#[derive(Clone, Debug)]
pub(super) struct Image {
    pub(super) local: Vec<u8>,
    pub(super) remote: Vec<u8>,
}

/// The places of a span in a vector.
pub(super) fn places(offset: u64, len: u64) -> core::ops::Range<usize> {
    let place = |n: u64| usize::try_from(n).expect("test memory is small");
    place(offset)..place(offset + len)
}

impl Image {
    /// Fills the region and the window of a fresh subject with chance.
    pub(super) fn paint<S: Subject>(ledger: &mut Ledger<'_, S>) -> Self {
        let sizes = (ledger.subject.local().extent, ledger.subject.remote().extent);
        let local = ledger.rng.bytes(places(0, sizes.0.len()).end);
        let remote = ledger.rng.bytes(places(0, sizes.1.len()).end);
        ledger.subject.write_local(0, &local);
        ledger.subject.write_remote(0, &remote);
        Self { local, remote }
    }

    /// Does what the request should do.
    pub(super) fn apply(&mut self, work: &WorkRequest) {
        let local = places(work.local.span.offset(), work.local.span.len());
        let remote = places(work.remote.span.offset(), work.remote.span.len());
        match work.opcode {
            Opcode::Put | Opcode::PutNotify { .. } => {
                self.remote[remote].copy_from_slice(&self.local[local]);
            }
            Opcode::Get => self.local[local].copy_from_slice(&self.remote[remote]),
        }
    }

    /// The owner of the window writes all of it.
    pub(super) fn repaint_remote<S: Subject>(&mut self, ledger: &mut Ledger<'_, S>) {
        ledger.rng.fill(&mut self.remote);
        ledger.subject.write_remote(0, &self.remote);
    }

    /// The initiator writes all of its region.
    pub(super) fn repaint_local<S: Subject>(&mut self, ledger: &mut Ledger<'_, S>) {
        ledger.rng.fill(&mut self.local);
        ledger.subject.write_local(0, &self.local);
    }

    /// Compares both memories, without driving anything.
    pub(super) fn compare<S: Subject>(
        &self,
        ledger: &mut Ledger<'_, S>,
        when: &str,
    ) -> Result<(), Stop> {
        let mut remote = vec![0; self.remote.len()];
        ledger.subject.read_remote(0, &mut remote);
        same(when, "remote", &remote, &self.remote)?;
        self.compare_local(ledger, when)
    }

    /// Compares the local memory.
    pub(super) fn compare_local<S: Subject>(
        &self,
        ledger: &mut Ledger<'_, S>,
        when: &str,
    ) -> Result<(), Stop> {
        let mut local = vec![0; self.local.len()];
        ledger.subject.read_local(0, &mut local);
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
