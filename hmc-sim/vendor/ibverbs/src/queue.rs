//! Queues: completions, and receives that wait for a message.

use std::collections::VecDeque;

use crate::abi::{ibv_cq, ibv_sge, ibv_srq, ibv_wc};
use crate::object::EventCount;
use crate::table::Id;

/// What the poll of a completion frees.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Freed {
    /// The requests of a queue pair's send queue before that number.
    Sends(Id, u64),
    /// One receive of a queue.
    Receive(Owner, usize),
}

/// A completion that was not polled yet.
#[derive(Clone, Copy)]
pub(crate) struct Completion {
    pub(crate) wc: ibv_wc,
    /// The queue pair that it is of.
    pub(crate) qp: Id,
    pub(crate) freed: Freed,
}

/// Which completions raise an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Armed {
    No,
    Solicited,
    Any,
}

/// A completion queue.
pub(crate) struct Cq {
    pub(crate) structure: *mut ibv_cq,
    pub(crate) context: Id,
    pub(crate) device: usize,
    pub(crate) capacity: usize,
    pub(crate) ring: VecDeque<Completion>,
    pub(crate) channel: Option<Id>,
    pub(crate) armed: Armed,
    pub(crate) events: EventCount,
    pub(crate) async_events: EventCount,
    /// Queue pairs that complete to it: each counts once for either direction.
    pub(crate) users: u32,
    /// A completion was lost.
    pub(crate) is_overrun: bool,
}

/// A part of a message in registered memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    pub(crate) sge: ibv_sge,
    /// The region of its key when it was posted; 0: none.
    pub(crate) mr: Id,
}

/// The owner of receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    Qp(Id),
    Srq(Id),
}

/// A receive.
#[derive(Debug, Default)]
pub(crate) struct Receive {
    pub(crate) wr_id: u64,
    pub(crate) pieces: Vec<Piece>,
}

/// A queue of receives.
#[derive(Debug)]
pub(crate) struct Receives {
    pub(crate) slots: Vec<Receive>,
    pub(crate) free: Vec<usize>,
    pub(crate) posted: VecDeque<usize>,
    pub(crate) max_sge: usize,
}

impl Receives {
    pub(crate) fn new(capacity: usize, max_sge: usize) -> Self {
        let slot = || Receive { wr_id: 0, pieces: Vec::with_capacity(max_sge) };
        Self {
            slots: core::iter::repeat_with(slot).take(capacity).collect(),
            free: (0..capacity).rev().collect(),
            posted: VecDeque::with_capacity(capacity),
            max_sge,
        }
    }
}

/// A shared receive queue.
#[derive(Debug)]
pub(crate) struct Srq {
    pub(crate) structure: *mut ibv_srq,
    pub(crate) pd: Id,
    pub(crate) context: Id,
    pub(crate) device: usize,
    pub(crate) receives: Receives,
    /// The number of receives below which an event is raised once; 0: none.
    pub(crate) limit: u32,
    pub(crate) async_events: EventCount,
    /// Queue pairs that are attached.
    pub(crate) users: u32,
}
