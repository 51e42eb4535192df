//! Transfers in other shapes: as futures, as lists, as pipelines.

use super::Peer;
use super::transfer::opcode;
use crate::batch::{Batch, Copy, Direction};
use crate::error::{Error, ErrorKind, Result};
use crate::future::OpFuture;
use crate::link::data::Hold;
use crate::op::OpId;
use hmc_core::lane::Transfer;
use hmc_core::region::{LocalSlice, RemoteSlice};
use hmc_core::work::{CompleteWhen, Opcode};

impl Peer {
    /// A put as a future. Any executor will do; dropping it abandons the operation, which runs on.
    ///
    /// # Errors
    /// As [`Peer::put_nb`].
    pub fn put_async(&self, local_offset: u64, remote_offset: u64, len: u64) -> Result<OpFuture> {
        Ok(OpFuture::new(self.clone(), self.put_nb(local_offset, remote_offset, len)?.op))
    }

    /// A get as a future; see [`Peer::put_async`].
    ///
    /// # Errors
    /// As [`Peer::put_nb`].
    pub fn get_async(&self, local_offset: u64, remote_offset: u64, len: u64) -> Result<OpFuture> {
        Ok(OpFuture::new(self.clone(), self.get_nb(local_offset, remote_offset, len)?.op))
    }

    /// Begins all copies of a list, as one operation.
    ///
    /// # Errors
    /// `Range` for the first copy that does not fit (nothing is posted), else as [`Peer::put_nb`].
    pub fn put_batch(&self, copies: &[Copy]) -> Result<OpId> {
        self.post_batch(&self.prepare(Direction::Put, copies)?)
    }

    /// Begins all copies of a list, as one operation.
    ///
    /// # Errors
    /// As [`Peer::put_batch`].
    pub fn get_batch(&self, copies: &[Copy]) -> Result<OpId> {
        self.post_batch(&self.prepare(Direction::Get, copies)?)
    }

    /// Checks a list of copies once, so that it can be posted many times. It belongs to this life of
    /// the peer and to the present window of its buffer.
    ///
    /// # Errors
    /// `Range` for the first copy that does not fit.
    pub fn prepare(&self, direction: Direction, copies: &[Copy]) -> Result<Batch> {
        let region = self.shared.buffer.region();
        let remote = self.default_remote()?;
        let list: Result<Vec<Transfer>> = copies
            .iter()
            .map(|c| {
                Ok(Transfer {
                    opcode: opcode(direction),
                    when: CompleteWhen::Visible,
                    local: region.slice(c.local_offset, c.len)?,
                    remote: remote.slice(c.remote_offset, c.len)?,
                })
            })
            .collect();
        Ok(Batch { list: list?.into(), region: region.clone(), direction, link: self.link.serial })
    }

    /// Begins a prepared batch. Allocates nothing.
    ///
    /// # Errors
    /// `Stale` when it was prepared for another life of the peer; else as [`Peer::put_nb`].
    pub fn post_batch(&self, batch: &Batch) -> Result<OpId> {
        if batch.link != self.link.serial {
            return Err(Error::new(
                ErrorKind::Stale,
                "the batch was prepared for another peer or life; prepare it anew",
            )
            .with_peer(self.rank()));
        }
        let deadline = self.deadline();
        let hold = Hold { region: Some(batch.region.clone()), ..Hold::default() };
        let op = self.submit(opcode(batch.direction), deadline, hold, |data, hold| {
            data.post_list(&batch.list, deadline, hold)
        })?;
        self.link.hand_over();
        Ok(self.name(op))
    }

    /// Puts a long range in chunks of `chunk` bytes with at most `max_inflight` of them under way.
    /// Returns when all is visible.
    ///
    /// # Errors
    /// `InvalidConfig` for a chunk of 0 or an `max_inflight` of 0; else as [`Peer::put`].
    pub fn put_pipeline(&self, copy: Copy, chunk: u64, max_inflight: usize) -> Result<()> {
        self.pipeline(Opcode::Put, copy, chunk, max_inflight)
    }

    /// Gets a long range in chunks; see [`Peer::put_pipeline`].
    ///
    /// # Errors
    /// As [`Peer::put_pipeline`].
    pub fn get_pipeline(&self, copy: Copy, chunk: u64, max_inflight: usize) -> Result<()> {
        self.pipeline(Opcode::Get, copy, chunk, max_inflight)
    }

    fn pipeline(&self, code: Opcode, copy: Copy, chunk: u64, max_inflight: usize) -> Result<()> {
        if chunk == 0 || max_inflight == 0 {
            return Err(Error::config(
                "a pipeline needs chunks of at least 1 byte, and at least one in flight",
            ));
        }
        let region = self.shared.buffer.region();
        let deadline = self.deadline();
        let mut rest = self.describe(
            code,
            region.slice(copy.local_offset, copy.len)?,
            copy.remote_offset,
            copy.len,
        )?;
        let limit = max_inflight.min(self.shared.config.slots);
        let mut flying = std::collections::VecDeque::with_capacity(limit);
        let mut failure = None;
        while !rest.local.span.is_empty() || !flying.is_empty() {
            let room = failure.is_none() && flying.len() < limit;
            if room && !rest.local.span.is_empty() {
                let (local, local_rest) = rest.local.span.take(chunk);
                let (remote, remote_rest) = rest.remote.span.take(chunk);
                let t = Transfer {
                    local: LocalSlice { span: local, ..rest.local },
                    remote: RemoteSlice { span: remote, ..rest.remote },
                    ..rest
                };
                let hold = Hold { region: Some(region.clone()), ..Hold::default() };
                match self.post(&t, deadline, hold) {
                    Ok(op) => flying.push_back(op),
                    Err(e) => failure = Some(e),
                }
                rest.local.span = local_rest;
                rest.remote.span = remote_rest;
                continue;
            }
            let Some(op) = flying.pop_front() else { break };
            match self.finish(op, deadline).map(|(o, _)| o.result) {
                Ok(Ok(_)) => {}
                Ok(Err(e)) => failure = failure.or(Some(self.failed(e.into()))),
                Err(e) => failure = failure.or(Some(e)),
            }
        }
        failure.map_or(Ok(()), Err)
    }
}
