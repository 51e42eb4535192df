//! What is posted to a link as one operation: a transfer or a list, with what it keeps until its fence.

use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll};

use hmc_core::queue::Transfer;
use hmc_core::time::Instant;
use hmc_core::work::Opcode;

use crate::base::error::{Error, Result};
use crate::base::wait_limit::WaitLimit;
use crate::callbacks::timer::Timer;
use crate::link::data::{Begun, DataState};
use crate::link::op_resources::OpResources;
use crate::ops::carried::Carried;
use crate::ops::peer_handle::Peer;
use crate::ops::post::Then;
use crate::ops::posted::Posted;
use crate::ops::running::Running;
use crate::ops::started::Op;
use crate::ops::started::{OpResult, Started, conclude, given};

/// What is to be posted.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Work {
    One(Transfer),
    /// A list of so many transfers, which is in the job's resources.
    List(u32, Opcode),
}

/// An operation that is to be begun.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) work: Work,
    pub(crate) held: OpResources,
}

impl Job {
    fn opcode(&self) -> Opcode {
        match self.work {
            Work::One(t) => t.opcode,
            Work::List(_, opcode) => opcode,
        }
    }

    fn begin(&mut self, data: &mut DataState, deadline: Instant) -> Begun {
        match &self.work {
            Work::One(t) => data.post(t, deadline, &mut self.held),
            Work::List(parts, _) => data.post_list(*parts, deadline, &mut self.held),
        }
    }

    /// Posts it, waiting for a slot if there is none.
    fn post(&mut self, peer: &Peer, until: WaitLimit, then: Then) -> Result<Posted> {
        let opcode = self.opcode();
        let slot = peer.submit(opcode, then, until, |data| self.begin(data, until.at))?;
        Ok(Posted::new(peer.clone(), slot, until.at))
    }

    /// As [`Self::post`] if there is a slot.
    fn try_post(&mut self, peer: &Peer, deadline: Instant) -> Option<Result<Posted>> {
        let opcode = self.opcode();
        let mut begin = |data: &mut DataState| self.begin(data, deadline);
        let posted = peer.attempt(opcode, Then::GoOn, &mut begin)?;
        let posted = posted.map_err(|e| e.with_peer(peer.rank()));
        Some(posted.map(|slot| Posted::new(peer.clone(), slot, deadline)))
    }

    /// The error of an operation that did not begin, with its memory.
    fn refused<M: Carried>(mut self, e: Error) -> M::Error {
        match M::take(&mut self.held) {
            Some(memory) => memory.refused(e),
            None => e.into(),
        }
    }

    /// Does it, and returns when it is done.
    pub(crate) fn wait<M: Carried>(mut self, peer: &Peer, until: WaitLimit) -> OpResult<M> {
        let op = match self.post(peer, until, Then::Wait) {
            Ok(op) => op,
            Err(e) => return Err(self.refused::<M>(e)),
        };
        if peer.link.has_leader() {
            // Its leader may be parked on the sockets and not see this.
            peer.link.resume_background();
        }
        let result = op.finish();
        conclude(Running::Posted(op), result)
    }

    /// Begins it. If all slots are in use by operations that run, it waits for one, or is refused.
    pub(crate) fn start<M: Carried>(
        mut self,
        peer: &Peer,
        until: WaitLimit,
        waits: bool,
    ) -> Started<M> {
        let op = if waits {
            self.post(peer, until, Then::GoOn)
        } else {
            let op = self.try_post(peer, until.at);
            op.unwrap_or_else(|| Err(peer.no_space()))
        };
        match op {
            Ok(op) => {
                // Nobody waits yet: what this thread did not finish goes on in the background.
                peer.link.resume_background();
                Ok(Op::begun(Running::Posted(op)))
            }
            Err(e) => Err(self.refused::<M>(e)),
        }
    }

    pub(crate) fn pending<M: Carried>(self, peer: &Peer, until: WaitLimit) -> PendingJob<'_, M> {
        PendingJob(State::Waiting(peer, Box::new(self), until.at, None), PhantomData)
    }
}

/// An operation as a future. While all slots are in use it is pending.
#[derive(Debug)]
pub(crate) struct PendingJob<'a, M>(State<'a>, PhantomData<fn() -> M>);

#[derive(Debug)]
enum State<'a> {
    /// It waits for a slot, until then.
    Waiting(&'a Peer, Box<Job>, Instant, Option<Timer>),
    Running(Posted),
    Over,
}

impl<M: Carried> Future for PendingJob<'_, M> {
    type Output = OpResult<M>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            match std::mem::replace(&mut self.0, State::Over) {
                State::Waiting(peer, mut job, deadline, mut timer) => {
                    let mut posted = job.try_post(peer, deadline);
                    if posted.is_none() {
                        // First the waker: a slot that comes meanwhile is found, or wakes.
                        peer.shared.wakers.start();
                        timer
                            .get_or_insert_with(|| {
                                Timer::new(&peer.shared.wakers, peer.shared.origin, deadline)
                            })
                            .wake(cx.waker());
                        peer.link.space().add(cx.waker());
                        posted = job.try_post(peer, deadline);
                    }
                    match posted {
                        Some(Ok(op)) => {
                            peer.link.resume_background();
                            self.0 = State::Running(op);
                        }
                        Some(Err(e)) => return Poll::Ready(Err(job.refused::<M>(e))),
                        None if peer.shared.clock.now() >= deadline => {
                            let e = Error::deadline("waiting for space to post");
                            let e = e.with_peer(peer.rank());
                            return Poll::Ready(Err(job.refused::<M>(e)));
                        }
                        None => {
                            self.0 = State::Waiting(peer, job, deadline, timer);
                            return Poll::Pending;
                        }
                    }
                }
                State::Running(op) => {
                    let Poll::Ready(result) = op.poll_result(cx) else {
                        self.0 = State::Running(op);
                        return Poll::Pending;
                    };
                    return Poll::Ready(conclude(Running::Posted(op), result));
                }
                State::Over => return Poll::Ready(Err(given().into())),
            }
        }
    }
}
