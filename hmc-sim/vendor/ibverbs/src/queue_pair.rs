//! A queue pair, and the requests of its send queue.

use core::ffi::c_uint;
use std::collections::VecDeque;

use crate::abi::{
    IBV_QPS_ERR, IBV_QPS_RTS, ibv_mtu, ibv_qp, ibv_qp_attr, ibv_qp_cap, ibv_qp_state, ibv_wr_opcode,
};
use crate::faults::Outcome;
use crate::object::EventCount;
use crate::queue::{Owner, Piece, Receives};
use crate::table::Id;

/// The part of a bind that no other request has.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Bind {
    pub(crate) mw: Id,
    /// What the window's structure said of its key at the post.
    pub(crate) old_rkey: u32,
    pub(crate) rkey: u32,
    pub(crate) mr: Id,
    pub(crate) addr: u64,
    pub(crate) len: u64,
    pub(crate) access: c_uint,
}

/// A request of a send queue.
#[derive(Debug, Default)]
pub(crate) struct Request {
    pub(crate) wr_id: u64,
    pub(crate) opcode: ibv_wr_opcode,
    pub(crate) flags: c_uint,
    /// The immediate, or the key that is to be invalidated.
    pub(crate) imm: u32,
    pub(crate) remote_addr: u64,
    pub(crate) rkey: u32,
    pub(crate) bind: Bind,
    pub(crate) pieces: Vec<Piece>,
    /// The bytes of an inline request.
    pub(crate) inline: Vec<u8>,
    pub(crate) len: u64,
    /// Numbers all requests.
    pub(crate) seq: u64,
    /// The tick from which on it is carried out.
    pub(crate) due: u64,
    /// The tick from which on it completes, once it was carried out; until then the number of ticks.
    pub(crate) ack: u64,
    /// The scripted failure.
    pub(crate) failure: Option<Outcome>,
    /// Its completion is lost.
    pub(crate) is_dropped: bool,
    /// The result, once it was carried out.
    pub(crate) result: Option<Outcome>,
}

/// Bytes of a write that are not visible yet.
#[derive(Debug)]
pub(crate) struct Staged {
    /// The tick at which they become so without a read.
    pub(crate) due: u64,
    pub(crate) to: *mut u8,
    pub(crate) mr: Id,
    pub(crate) bytes: Vec<u8>,
}

/// A queue pair.
pub(crate) struct Qp {
    pub(crate) structure: *mut ibv_qp,
    pub(crate) context: Id,
    pub(crate) pd: Id,
    pub(crate) device: usize,
    /// Its number since the last reset, by which a script names it.
    pub(crate) ordinal: u64,
    pub(crate) qp_num: u32,
    pub(crate) state: ibv_qp_state,
    /// The attributes that were set.
    pub(crate) attr: ibv_qp_attr,
    pub(crate) cap: ibv_qp_cap,
    pub(crate) send_cq: Id,
    pub(crate) recv_cq: Id,
    pub(crate) srq: Option<Id>,
    pub(crate) signals_all: bool,
    /// A ring; a request's place is its number modulo the length.
    pub(crate) queue: Vec<Request>,
    pub(crate) posted: u64,
    pub(crate) completed: u64,
    /// Requests whose completion, or that of a later one, was polled.
    pub(crate) freed: u64,
    pub(crate) receives: Receives,
    /// The number of the next packet.
    pub(crate) sq_psn: u32,
    /// The number of the packet that is expected next.
    pub(crate) rq_psn: u32,
    /// The tick in which it can do no more.
    pub(crate) stalled: u64,
    /// Ticks in which its first request got no answer.
    pub(crate) retries: u64,
    /// The tick of the last read, and how many there were in it.
    pub(crate) reads: (u64, u64),
    pub(crate) staged: VecDeque<Staged>,
    pub(crate) async_events: EventCount,
}

impl Qp {
    pub(crate) fn at(&self, number: u64) -> usize {
        usize::try_from(number % self.queue.len().max(1) as u64).unwrap_or(0)
    }

    /// The sequence number of what it can do in this tick.
    pub(crate) fn next_seq(&self, tick: u64) -> Option<u64> {
        if self.stalled == tick {
            return None;
        }
        let is_failed = self.state == IBV_QPS_ERR;
        if self.completed < self.posted && (is_failed || self.state == IBV_QPS_RTS) {
            return Some(self.queue[self.at(self.completed)].seq);
        }
        (is_failed && !self.receives.posted.is_empty()).then_some(0)
    }

    /// Where its receives are.
    pub(crate) fn owner(&self, own: Id) -> Owner {
        self.srq.map_or(Owner::Qp(own), Owner::Srq)
    }
}

/// Bytes of a packet.
pub(crate) const fn mtu_bytes(mtu: ibv_mtu) -> u64 {
    128 << mtu
}

/// Number of packets of a message.
pub(crate) fn packets(len: u64, mtu: ibv_mtu) -> u32 {
    u32::try_from(len.div_ceil(mtu_bytes(mtu)).max(1)).unwrap_or(u32::MAX)
}

/// Adds to a packet's number, which has 24 bits.
pub(crate) const fn add_psn(psn: u32, packets: u32) -> u32 {
    psn.wrapping_add(packets) & 0x00FF_FFFF
}
