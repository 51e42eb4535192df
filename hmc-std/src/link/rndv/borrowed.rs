//! Bytes of callers that lend their memory for the time of a call: only these callers copy them.

use std::sync::Arc;

use hmc_core::limits::MAX_CHUNK_BYTES;
use hmc_core::region::LocalSlice;
use hmc_core::work::Failure;
use hmc_mem::error::MemError;
use hmc_mem::shared::SharedBytes;

use super::handle::MessageHandle;
use super::host::Host;
use super::run::collect;
use super::state::{ChunkedPut, MessageBuffer, PostedRecv, RecvOp, RndvState};
use crate::base::error::{Error, ErrorKind, Result};

impl ChunkedPut {
    /// Copies what can be copied straight into the peer's memory.
    fn write_now(&mut self, host: &mut impl Host, bytes: &SharedBytes<'_>) {
        while self.has_more() {
            let before = (self.source, self.target);
            let (source, target) = self.cut(MAX_CHUNK_BYTES);
            let done = bytes.part(source).is_ok_and(|part| host.write_now(&part, target));
            if !done {
                (self.source, self.target) = before;
                return;
            }
        }
    }
}

impl RndvState {
    /// Sends what may be sent now of borrowed memory: all into memory that is mapped, else as much as there are bounce buffers.
    pub(super) fn copy_from_borrowed(
        &mut self,
        host: &mut impl Host,
        handle: &Arc<MessageHandle>,
        bytes: &SharedBytes<'_>,
    ) {
        let Some(m) = self.outbound.iter_mut().find(|m| Arc::ptr_eq(&m.handle, handle)) else {
            return;
        };
        // Whoever is woken because a put has ended finds its bounce buffer free.
        collect(host, m);
        let MessageBuffer::Borrowed(Some(bounce)) = &m.bytes else {
            return;
        };
        for i in 0..m.runs.len() {
            if let Some(run) = m.runs.get_mut(i) {
                run.write_now(host, bytes);
            }
            for half in 0..2 {
                let busy = m.runs.iter().any(|r| r.in_flight.iter().any(|(_, h)| *h == half));
                let Some(run) = m.runs.get_mut(i).filter(|r| r.has_more() && !busy) else {
                    continue;
                };
                let before = (run.source, run.target);
                let longest = bounce.len() >> 1;
                let (source, target) = run.cut(longest);
                let at = if half == 0 { 0 } else { longest };
                let place = bounce.slice(at, source.len()).ok();
                let fits = |s: &LocalSlice| bytes.copy_to(source, &bounce.bytes(), s.span).is_ok();
                let Some(local) = place.filter(fits) else {
                    run.failed = Some(Failure::UnknownRegion);
                    continue;
                };
                match host.post(bounce, local, target) {
                    Ok(Some(op)) => run.in_flight.push((op, half)),
                    Ok(None) => (run.source, run.target) = before,
                    Err(failure) => run.failed = Some(failure),
                }
            }
        }
    }

    /// Copies what came for borrowed memory.
    ///
    /// # Errors
    /// A half cannot be read.
    pub(super) fn copy_to_borrowed(
        &mut self,
        handle: &Arc<MessageHandle>,
        out: &SharedBytes<'_>,
    ) -> Result<()> {
        let is = |w: &PostedRecv| Arc::ptr_eq(&w.handle, handle);
        let found = self.inbound.iter_mut().find(|m| m.want.as_ref().is_some_and(is));
        let Some(RecvOp { machine, want: Some(want), eager, .. }) = found else {
            return Ok(());
        };
        let Some(copy) = want.copy.take() else {
            return Ok(());
        };
        let outside =
            || Error::new(ErrorKind::Protocol, "a piece of a message leaves the place for it");
        let done = out.part(copy.to).map_err(|_| outside()).and_then(|part| {
            let whole = part.extent().whole();
            let copied = if eager.is_empty() {
                let (region, range) = want.half(&copy).ok_or_else(outside)?;
                region.bytes().copy_to(range, &part, whole)
            } else {
                part.write_at(whole, eager)
            };
            Ok(copied.map_err(MemError::from)?)
        });
        machine.copied(if done.is_ok() { Ok(()) } else { Err(Failure::UnknownRegion) });
        done
    }
}
