//! The values of a session for logs and diagnostics.

use std::sync::Arc;
use std::time::Duration;

use hmc_core::types::Rank;

use crate::api::listener::Listener;
use crate::link::LinkState;
use crate::state::inner::SessionInner;

/// What a session was started with, and whose connections are being set up: [`Session::info`](crate::Session::info).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SessionInfo {
    /// Names the session among all of the process; [`Explanation::session`](crate::Explanation::session) has that of a peer's.
    pub id: u64,
    /// Its rank.
    pub rank: Rank,
    /// The job that it belongs to; see [`SessionBuilder::job`](crate::SessionBuilder::job).
    pub job: u64,
    /// The time of requests and calls that are given none of their own.
    pub deadline: Duration,
    /// Ranks whose connections are being set up. Their messages may be here already;
    /// [`Session::accept`](crate::Session::accept) waits until transfers can be.
    pub connecting: Vec<Rank>,
    /// Its open listeners, oldest first, those of the builder included: TCP before the folder. None in a forked child.
    pub listeners: Vec<Listener>,
}

impl SessionInfo {
    pub(super) fn of(shared: &Arc<SessionInner>) -> Self {
        let opening = shared.links().into_iter().filter(|l| l.state() == LinkState::Opening);
        Self {
            id: shared.id,
            rank: shared.config.rank,
            job: shared.config.job,
            deadline: shared.config.deadline,
            connecting: opening.map(|l| l.peer).collect(),
            listeners: Listener::all(shared),
        }
    }
}
