//! How operations begin and end: what requests, lists and messages have in common.

use hmc_core::queue::QueueError;
use hmc_core::slots::{self};
use hmc_core::transport::PostErrorKind;
use hmc_core::work::Opcode;

use crate::base::error::{Error, ErrorKind, Limit, Result};
use crate::base::wait_limit::WaitLimit;
use crate::link::data::stored_outcomes::MAX_STORED;
use crate::link::data::{Begun, DataState};
use crate::link::deferred::Deferred;
use crate::link::{WaitScope, increment};
use crate::ops::peer_handle::Peer;

/// All slots are in use.
fn operations(slots: usize) -> Error {
    Error::limited(ErrorKind::Full, Limit::one_more("operations to this peer", slots))
}

/// What a caller does once it has begun an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    /// It waits for it: what it needs to complete goes out at once.
    Wait,
    /// Something else, and tells the link's worker: the transport may hold it back until then, and its completion until somebody asks.
    GoOn,
}

impl Peer {
    /// The error of an operation that has failed, which is counted. The caller holds no lock of the link.
    pub(crate) fn failed(&self, e: Error) -> Error {
        increment(&self.link.counters.failures);
        if e.kind() == ErrorKind::PeerDead {
            self.link.end_if_gone();
            return Error::peer_dead(self.rank(), self.link.why());
        }
        if e.kind() == ErrorKind::Io
            && let Some(why) = self.link.data_fairly().plane().why_closed()
        {
            // A status of the transport's own says nothing to a user.
            return Error::new(ErrorKind::Io, format!("{e}: {why}")).with_peer(self.rank());
        }
        e.with_peer(self.rank())
    }

    /// Begins an operation, waiting for space if there is none.
    pub(crate) fn submit(
        &self,
        code: Opcode,
        then: Then,
        until: WaitLimit,
        mut begin: impl FnMut(&mut DataState) -> Begun,
    ) -> Result<slots::SlotId> {
        let op = self
            .link
            .drive(WaitScope::Data, until, |_| self.attempt(code, then, &mut begin))
            .unwrap_or_else(|stop| Err(stop.error("waiting for space to post")))
            .map_err(|e| e.with_peer(self.rank()))?;
        Ok(op)
    }

    /// Begins an operation if there is space; `None` when there is none.
    pub(crate) fn attempt(
        &self,
        code: Opcode,
        then: Then,
        begin: &mut impl FnMut(&mut DataState) -> Begun,
    ) -> Option<Result<slots::SlotId>> {
        let link = &self.link;
        if let Err(e) = self.shared.check_process().and_then(|()| link.check_open()) {
            return Some(Err(e));
        }
        let mut after = Deferred::default();
        let (begun, why, store_full, copies) = {
            let mut data = link.data_fairly();
            let begun = begin(&mut data);
            let (mut why, mut copies) = (None, false);
            if begun.is_ok() {
                data.count(code);
                if then == Then::Wait || !data.can_wait() {
                    data.progress(&mut after);
                }
                copies = data.copy_piece(&mut after);
                link.update_data_interest(&mut data);
            } else {
                why = data.plane().take_refusal();
            }
            let full = matches!(begun, Err(QueueError::Full { .. }));
            (begun, why, full && data.is_outcome_store_full(), copies)
        };
        if copies {
            link.copy_pieces(false, &mut after);
        }
        link.run_deferred(&mut after);
        match begun {
            Ok(op) => Some(Ok(op)),
            // Whatever runs makes space when it ends.
            Err(QueueError::Full { .. }) if !store_full => None,
            Err(e) => Some(Err(why.unwrap_or_else(|| self.refused(e)))),
        }
    }

    fn refused(&self, e: QueueError<PostErrorKind>) -> Error {
        match e {
            QueueError::Full { limit } => operations(limit)
                .after(format_args!("{MAX_STORED} have ended that nobody waited for"))
                .with_remedy("wait for some"),
            QueueError::Length { local, remote } => Error::new(
                ErrorKind::Length,
                format!("{local} local bytes against {remote} remote ones"),
            )
            .with_limit(Limit::new(
                "local bytes, for as many remote ones",
                local,
                remote,
            )),
            QueueError::Transport(PostErrorKind::Disconnected) => {
                self.link.end_if_gone();
                Error::peer_dead(self.rank(), self.link.why())
            }
            QueueError::Transport(PostErrorKind::Unsupported) => {
                Error::new(ErrorKind::Unsupported, "this peer has no data plane (upstream dialect)")
                    .with_remedy("connect natively")
            }
            other => Error::new(ErrorKind::Io, other.to_string())
                .with_remedy("look at what `explain()` says of it, or connect by another one"),
        }
    }

    /// Why an operation is not begun: all slots are in use by operations that run.
    #[cold]
    pub(crate) fn no_space(&self) -> Error {
        operations(self.link.data().slots())
            .with_remedy("wait for one, or use `start_blocking`, which does")
            .with_peer(self.rank())
    }

    pub(crate) fn abandon(&self, op: slots::SlotId) {
        if self.shared.origin.is_child() {
            return;
        }
        let mut after = Deferred::default();
        {
            let mut data = self.link.data();
            data.abandon(op, &mut after);
            data.progress(&mut after);
        }
        self.link.run_deferred(&mut after);
    }
}
