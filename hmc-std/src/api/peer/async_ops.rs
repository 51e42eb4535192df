//! Transfers in other shapes: as futures, as lists, as pipelines.

use super::Peer;
use super::binding::{Begun, Binding as _};
use crate::base::clock;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::op_id::OpId;
use crate::base::wait_limit::{WaitLimit, WaitStopped};
use crate::link::data::pieces::Pieces;
use crate::link::deferred::Deferred;
use crate::link::op_resources::OpResources;
use crate::link::{Link, LinkState, WaitScope};
use crate::ops::batch::{Batch, Copy, Direction};
use crate::ops::future::OpFuture;
use crate::ops::post::Then;
use hmc_core::pipeline::{Pipeline, PipelineStatus};
use hmc_core::time::Duration;
use hmc_core::work::Opcode;
use std::num::NonZeroU64;
use std::sync::Arc;

/// How long a pipeline whose time is up waits for its pieces to let go of the buffer.
const FENCE_MS: u64 = 200;

impl Peer {
    /// A put as a future. Any executor will do; dropping it abandons the operation, which runs on. While there is no space
    /// for it the future is pending, and begins it when it is polled and there is some; dropped before, nothing was begun.
    ///
    /// # Errors
    /// As [`Peer::put_nb`], but nothing is waited for.
    pub fn put_async(&self, local_offset: u64, remote_offset: u64, len: u64) -> Result<OpFuture> {
        self.begin_async(Opcode::Put, local_offset, remote_offset, len)
    }

    fn begin_async(&self, code: Opcode, lo: u64, ro: u64, len: u64) -> Result<OpFuture> {
        let t = match self.begin_now(code, lo, ro, len)? {
            Begun::Over(op) => return Ok(OpFuture::new(self.clone(), op.op)),
            Begun::Not(t) => t,
        };
        let mut future = OpFuture::later(self.clone(), t, self.region().clone());
        future.begin()?;
        Ok(future)
    }

    /// A get as a future; see [`Peer::put_async`].
    ///
    /// # Errors
    /// As [`Peer::put_nb`].
    pub fn get_async(&self, local_offset: u64, remote_offset: u64, len: u64) -> Result<OpFuture> {
        self.begin_async(Opcode::Get, local_offset, remote_offset, len)
    }

    /// An operation that was begun, as a future. Its name can still be asked and cancelled, but not waited for: the future
    /// takes the result.
    ///
    /// # Errors
    /// `Stale` for one of another peer or life.
    pub fn watch(&self, op: OpId) -> Result<OpFuture> {
        self.check_name(op)?;
        Ok(OpFuture::new(self.clone(), op.op))
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
        self.list(direction, copies)
    }

    /// Begins a prepared batch. Allocates nothing.
    ///
    /// # Errors
    /// `Stale` when it was prepared for another life of the peer; else as [`Peer::put_nb`].
    pub fn post_batch(&self, batch: &Batch) -> Result<OpId> {
        self.post_batch_by(batch, self.until())
    }

    fn post_batch_by(&self, batch: &Batch, until: WaitLimit) -> Result<OpId> {
        self.shared.check_process()?;
        if batch.link != self.link.id() {
            return Err(Error::new(
                ErrorKind::Stale,
                "the batch was prepared for another peer, life or session; prepare it anew",
            )
            .with_peer(self.rank()));
        }
        let mut hold = OpResources::list(Arc::clone(&batch.list));
        let op = self.submit(batch.direction.opcode(), Then::GoOn, until, |data| {
            data.post_list(batch.len(), until.at, &mut hold)
        })?;
        self.link.resume_background();
        Ok(self.name(op))
    }

    /// Does a prepared batch and returns when all of it is done, puts visible to the peer. Batches of small copies into memory
    /// that is mapped here need no operation: this is the way to send many small puts at once. Allocates nothing.
    ///
    /// # Errors
    /// As [`Peer::post_batch`] and [`Peer::put`]; some of the copies may have been done.
    pub fn run_batch(&self, batch: &Batch) -> Result<()> {
        self.run_batch_within(batch, self.shared.config.deadline)
    }

    /// As [`Peer::run_batch`], within `timeout`.
    ///
    /// # Errors
    /// As [`Peer::run_batch`].
    pub fn run_batch_within(&self, batch: &Batch, timeout: std::time::Duration) -> Result<()> {
        self.shared.check_process()?;
        if batch.link == self.link.id() && self.link.state() == LinkState::Ready {
            let mut data = self.link.data();
            if data.transfer_list_now(&batch.list) {
                data.count(batch.direction.opcode());
                return Ok(());
            }
        }
        let op = self.post_batch_by(batch, self.shared.until(timeout))?;
        // Nobody knows its name: what is not over runs on by itself.
        self.wait_within(op, timeout).map(drop).inspect_err(|_| self.abandon(op.op))
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
        self.shared.check_process()?;
        let Some(chunk) = NonZeroU64::new(chunk).filter(|_| max_inflight > 0) else {
            return Err(Error::config(
                "a pipeline needs chunks of at least 1 byte, and at least one in flight",
            ));
        };
        let region = self.shared.buffer.region();
        let until = self.until();
        let local = region.slice(copy.local_offset, copy.len)?;
        let whole = self.describe(code, local, copy.remote_offset, copy.len)?;
        let mut pipe = Pipeline::new(&whole, chunk, max_inflight, until.at)
            .map_err(|e| Error::new(ErrorKind::Length, e.to_string()))?;
        self.link.check_open()?;
        self.link.data().count(code);
        let mut step = |link: &Link| {
            let mut after = Deferred::default();
            let advance = {
                let mut data = link.data();
                let advance = pipe.advance(&mut Pieces { data: &mut data, region }, clock::now());
                data.progress(&mut after);
                link.update_data_interest(&mut data);
                advance
            };
            link.run_deferred(&mut after);
            match advance {
                PipelineStatus::Pending | PipelineStatus::Failed { fenced: false, .. } => None,
                PipelineStatus::Done(_) => Some(Ok(())),
                PipelineStatus::Failed { failure, fenced: true } => Some(Err(failure)),
            }
        };
        // A little longer than the pieces' own deadline, for their fences.
        let patience = until.with_deadline(until.at.after(Duration::from_millis(FENCE_MS)));
        match self.link.drive(WaitScope::Data, patience, &mut step) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(failure)) => Err(self.failed(failure.into())),
            Err(stop) => {
                if stop != WaitStopped::Forked {
                    // What still runs holds the buffer's pages until its fence.
                    pipe.abandon(&mut Pieces { data: &mut self.link.data(), region });
                }
                Err(stop.error("a pipeline").with_peer(self.rank()))
            }
        }
    }
}
