//! Transfers of registered memory: how each of the three ways to finish a request moves the bytes.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use hmc_core::queue::Transfer;
use hmc_core::work::{CompleteWhen, Opcode};

use crate::base::wait_limit::WaitLimit;
use crate::ops::carried::{Carried, Done, LocalBytes};
use crate::ops::job::{Job, PendingJob, Work};
use crate::ops::remote::{Remote, There};
use crate::ops::started::{Op, OpResult, Started, given};

/// A transfer that was described: nothing has been done.
#[derive(Debug)]
pub(crate) struct Move<'a, B> {
    pub(crate) remote: &'a Remote,
    pub(crate) code: Opcode,
    pub(crate) when: CompleteWhen,
    pub(crate) there: There,
    pub(crate) bytes: B,
    pub(crate) within: Option<Duration>,
}

/// What became of a transfer that was tried in the call.
enum Tried<M> {
    Done(Done<M>),
    /// It has to be posted.
    Not(Job),
}

#[inline(always)]
fn done<B: LocalBytes>(bytes: B) -> Done<B::Memory> {
    Done { bytes: bytes.range().len(), memory: bytes.into_memory() }
}

impl<'a, B: LocalBytes> Move<'a, B> {
    #[inline(always)]
    fn is_copied(&self) -> bool {
        let (region, range) = (self.bytes.region(), self.bytes.range());
        // Memory of another session is refused over each transport.
        region.is_of(&self.remote.peer.shared.regions)
            && self.remote.copy_direct(self.code, self.there, region.bytes(), range, range.len())
    }

    /// Transfers, and returns when the bytes are there.
    #[inline(always)]
    pub(crate) fn wait(self) -> OpResult<B::Memory> {
        if self.is_copied() { Ok(done(self.bytes)) } else { self.wait_otherwise() }
    }

    /// As `wait`, by the link. Out of line: the direct path stays short.
    #[inline(never)]
    fn wait_otherwise(self) -> OpResult<B::Memory> {
        let (remote, within) = (self.remote, self.within);
        match self.attempt()? {
            Tried::Done(done) => Ok(done),
            Tried::Not(job) => job.wait(&remote.peer, remote.until(within)),
        }
    }

    /// Begins the transfer. If all slots are in use by operations that run, it waits for one, or is refused.
    #[inline(always)]
    pub(crate) fn start(self, waits: bool) -> Started<B::Memory> {
        if self.is_copied() { Ok(Op::over(done(self.bytes))) } else { self.start_otherwise(waits) }
    }

    #[inline(never)]
    fn start_otherwise(self, waits: bool) -> Started<B::Memory> {
        let (remote, within) = (self.remote, self.within);
        match self.attempt()? {
            Tried::Done(done) => Ok(Op::over(done)),
            Tried::Not(job) => job.start(&remote.peer, remote.until(within), waits),
        }
    }

    pub(crate) fn pending(self) -> PendingMove<'a, B> {
        PendingMove(State::New(self))
    }

    /// Does a small copy into mapped memory.
    fn attempt(self) -> Result<Tried<B::Memory>, <B::Memory as Carried>::Error> {
        let Self { remote, code, when, there, bytes, .. } = self;
        match remote.copy_locked(code, there, bytes.region(), bytes.slice()) {
            Ok(None) => Ok(Tried::Done(done(bytes))),
            Ok(Some(t)) => {
                let plain = code == Opcode::Put && there.expected.is_none();
                let when = if plain { when } else { CompleteWhen::Visible };
                let work = Work::One(Transfer { when, ..t });
                Ok(Tried::Not(Job { work, held: bytes.into_resources() }))
            }
            Err(e) => Err(bytes.into_memory().refused(e.with_peer(remote.peer.rank()))),
        }
    }
}

impl Remote {
    /// How long an operation takes at the most that was given that time, or none.
    pub(crate) fn until(&self, within: Option<Duration>) -> WaitLimit {
        let shared = &self.peer.shared;
        shared.until(within.unwrap_or(shared.config.deadline))
    }
}

/// A transfer as a future. Nothing is done before it is polled; then its time begins.
#[derive(Debug)]
pub struct PendingMove<'a, B: LocalBytes>(State<'a, B>);

#[derive(Debug)]
enum State<'a, B: LocalBytes> {
    New(Move<'a, B>),
    Posting(PendingJob<'a, B::Memory>),
    Over,
}

impl<B: LocalBytes> Future for PendingMove<'_, B> {
    type Output = OpResult<B::Memory>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let State::New(_) = &self.0
            && let State::New(m) = std::mem::replace(&mut self.0, State::Over)
        {
            if m.is_copied() {
                return Poll::Ready(Ok(done(m.bytes)));
            }
            let (remote, until) = (m.remote, m.remote.until(m.within));
            match m.attempt()? {
                Tried::Done(done) => return Poll::Ready(Ok(done)),
                Tried::Not(job) => self.0 = State::Posting(job.pending(&remote.peer, until)),
            }
        }
        match &mut self.0 {
            State::Posting(job) => Pin::new(job).poll(cx),
            State::New(_) | State::Over => Poll::Ready(Err(given().into())),
        }
    }
}
