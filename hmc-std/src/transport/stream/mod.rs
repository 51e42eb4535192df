//! One byte stream (TCP or Unix socket) that moves payload in both directions: operations of this end on the peer's
//! windows, and the peer's on local windows.
//!
//! The target checks every access against its own [`WindowTable`]; payload is received directly into its region.
//! Frames are those of [`hmc_core::wire::data`]. Nothing here blocks:
//! [`Progress::poll_peer`](hmc_core::transport::Progress::poll_peer) reads the available bytes and sends what the
//! socket accepts.
//!
//! The state is in `requests` (requests of this end), `tx` (frames out), `rx` (frames in), `target` (requests of
//! the peer) and `life` (whether the peer may still copy). Methods of the data plane are in `send`, `gather`, `receive` and
//! `serve`. The lock of the link guards all of it.

mod gather;
mod life;
mod plane;
mod receive;
mod requests;
mod rx;
mod send;
mod serve;
mod target;
#[cfg(test)]
mod tests;
mod tx;

pub use life::PeerLife;
pub(crate) use requests::{MAX_REQUESTS, reserve_once};
pub(crate) use rx::Arrival;
pub(crate) use tx::Offer;

use std::collections::VecDeque;
use std::sync::Arc;

use hmc_core::slots::SlotId;
use hmc_core::transport::{CancelOutcome, DataCloseReason, PostErrorKind, Transport};
use hmc_core::types::{Caps, Rank};
use hmc_core::window::{WindowEntry, WindowTable};
use hmc_core::wire::cursor::WireError;
use hmc_core::work::{Completion, Failure, Opcode, WorkRequest};

use crate::io::socket::Socket;
use crate::node::inbox::SharedInbox;
use crate::transport::generation_tables::GenerationTables;
use crate::transport::regions::RegionCache;
use crate::transport::released::Released;
use requests::{Phase, Request, Requests, max_requests};
use target::StreamTarget;

/// How a stream came about, and its limits.
#[derive(Debug)]
pub(crate) struct StreamSetup {
    pub(crate) socket: Arc<Socket>,
    pub(crate) peer: Rank,
    /// Whether descriptors may travel (UDS).
    pub(crate) local: bool,
    /// Whether the peer may reach our memory without this stream, as a process of this system: its end, or that of its
    /// direction of the stream, tells that it is out.
    pub(crate) near: bool,
    /// The peer's process, when it is one of this host.
    pub(crate) pid: Option<u32>,
    /// Whether process_vm_readv(2) may be tried.
    pub(crate) cma: bool,
    /// Whether the peer understands an Ack of several operations.
    pub(crate) batched_acks: bool,
    /// Whether the peer compares generations, and understands frames that name them.
    pub(crate) generations: bool,
    /// Whether the peer understands frames whose headers come before their payloads.
    pub(crate) gathers: bool,
    /// Windows that can be exposed to this peer.
    pub(crate) windows: usize,
    pub(crate) inbox: SharedInbox,
}

#[derive(Debug)]
pub(crate) struct StreamDataPlane {
    socket: Arc<Socket>,
    peer: Rank,
    local: bool,
    near: bool,
    life: PeerLife,
    regions: RegionCache,
    released: Released,
    windows: WindowTable<Box<[WindowEntry]>>,
    tables: GenerationTables,
    /// Whether the peer compares generations too.
    has_generations: bool,
    requests: Requests,
    done: VecDeque<Completion>,
    tx: tx::Tx,
    rx: rx::Rx,
    target: StreamTarget,
    arrivals: VecDeque<Arrival>,
    inbox: SharedInbox,
    delivered: bool,
    /// The peer cannot reach our address space by itself (it said so once).
    by_ref_refused: bool,
    /// Whether several frames may be sent as one `Gather`.
    gathers: bool,
    down: Option<DataCloseReason>,
    /// What was wrong with the frame that ended the stream.
    malformed: Option<WireError>,
    /// When the stream went down, requests were unanswered that the peer serves by copies of its own.
    unanswered: bool,
    /// Our direction has ended.
    is_out: bool,
    /// Bytes of payload that this data plane moved, out and in.
    pub(crate) bytes_out: u64,
    pub(crate) bytes_in: u64,
}

impl StreamDataPlane {
    pub(crate) fn new(setup: StreamSetup) -> Self {
        let near = setup.near || setup.local;
        let life = match near {
            true => PeerLife::of(setup.pid, &setup.socket),
            false => PeerLife::default(),
        };
        // Without a way to see its end, a silent peer's copies could not be fenced.
        let reached = setup.pid.filter(|_| setup.local && setup.cma && life.has_process());
        Self {
            near,
            life,
            socket: setup.socket,
            peer: setup.peer,
            local: setup.local,
            regions: RegionCache::default(),
            windows: WindowTable::new(vec![WindowEntry::FREE; setup.windows].into()),
            tables: GenerationTables::default(),
            has_generations: setup.generations,
            requests: Requests::new(max_requests(setup.gathers)),
            done: VecDeque::with_capacity(MAX_REQUESTS.saturating_mul(2)),
            tx: tx::Tx::new(),
            rx: rx::Rx::new(setup.local),
            target: StreamTarget::new(reached, setup.batched_acks, setup.gathers),
            arrivals: VecDeque::new(),
            inbox: setup.inbox,
            delivered: false,
            by_ref_refused: false,
            gathers: setup.gathers,
            down: None,
            malformed: None,
            released: Released::default(),
            unanswered: false,
            is_out: false,
            bytes_out: 0,
            bytes_in: 0,
        }
    }

    pub(crate) fn peer(&self) -> Rank {
        self.peer
    }

    pub(crate) fn region_cache(&self) -> &RegionCache {
        &self.regions
    }

    /// The oldest that waits: a later window of the same place is to be the last that takes it.
    pub(crate) fn take_arrival(&mut self) -> Option<Arrival> {
        self.arrivals.pop_front()
    }

    /// Nothing of ours is in the peer's memory, nor will be: ends our direction of a stream that is down, which tells the
    /// peer so. That of the peer is left as it is, to be seen.
    pub(crate) fn say_out(&mut self) {
        if self.near && self.down.is_some() && !std::mem::replace(&mut self.is_out, true) {
            self.socket.end_sending();
        }
    }

    /// Whether the peer may reach our memory without this stream, as a process of this system.
    pub(crate) fn is_near(&self) -> bool {
        self.near
    }

    /// The peer, which came by TCP, may reach our memory without this stream, as the process of this system of that number.
    pub(crate) fn draw_near(&mut self, pid: Option<u32>) {
        if !self.near && self.down.is_none() {
            self.near = true;
            self.life = PeerLife::told(pid, &self.socket);
        }
    }

    /// Gives a request its completion, once, and forgets it.
    fn answer(&mut self, seq: u32, result: Result<u64, Failure>) {
        let Some(r) = self.requests.get_mut(seq) else {
            return;
        };
        if r.phase == Phase::Finished {
            return;
        }
        let completion = (!r.mute).then_some(Completion { op: r.work.op, result });
        self.requests.finish(seq);
        self.done.extend(completion);
    }

    /// Gives a request its completion although the peer has not answered: its local memory is no
    /// longer used.
    fn answer_early(&mut self, seq: u32, result: Result<u64, Failure>) {
        let Some(r) = self.requests.get_mut(seq) else {
            return;
        };
        if !r.mute {
            r.mute = true;
            let completion = Completion { op: r.work.op, result };
            self.done.push_back(completion);
        }
    }

    /// Accepts a request that the peer is to execute from or into our address space when `by_ref`.
    /// `report` is the number of bytes that its completion names. A request that expects a generation is never executed so: only
    /// frames with bytes name one.
    pub(crate) fn submit(
        &mut self,
        work: &WorkRequest,
        by_ref: bool,
        report: u64,
    ) -> Result<(), PostErrorKind> {
        if self.down.is_some() {
            return Err(PostErrorKind::Disconnected);
        }
        if self.regions.resolve(work.local).is_none() {
            return Err(PostErrorKind::UnknownRegion);
        }
        let expects = work.remote.expected.is_some();
        if expects && !self.has_generations {
            return Err(PostErrorKind::Unsupported);
        }
        // The second condition bounds `done`.
        if self.requests.is_full() || self.done.len() >= max_requests(self.gathers) {
            return Err(PostErrorKind::Busy);
        }
        self.requests.push(Request {
            work: *work,
            phase: Phase::Queued,
            moved: 0,
            mute: false,
            report,
            by_ref: by_ref && !expects,
        });
        Ok(())
    }

    /// Whether requests may ask the peer to reach into our address space.
    pub(crate) fn may_use_refs(&self) -> bool {
        self.local && self.target.has_cma() && !self.by_ref_refused
    }

    /// Why requests may not ask the peer to reach into our address space, on a local stream.
    pub(crate) fn refused_refs(&self) -> Option<&'static str> {
        if !self.local {
            None
        } else if self.by_ref_refused {
            Some("the peer may not call process_vm_readv(2) on this process")
        } else if !self.target.has_cma() {
            Some("process_vm_readv(2) is switched off, or refused here")
        } else {
            None
        }
    }

    /// Sends a descriptor and what it is.
    pub(crate) fn offer(&mut self, offer: tx::Offer) {
        self.tx.offers.push_back(offer);
    }
}

impl Transport for StreamDataPlane {
    type Error = PostErrorKind;

    fn caps(&self) -> Caps {
        Caps::all()
    }

    fn post(&mut self, work: &WorkRequest) -> Result<(), PostErrorKind> {
        self.submit(work, false, work.local.span.len())
    }

    /// Sends what fits and hands out completions. Receiving is `service`, which the driver calls
    /// when the socket is readable.
    fn poll(&mut self, out: &mut [Completion]) -> usize {
        self.send_queued();
        let mut n: usize = 0;
        for place in out {
            let Some(c) = self.done.pop_front() else {
                break;
            };
            *place = c;
            n = n.saturating_add(1);
        }
        n
    }

    fn cancel(&mut self, op: SlotId) -> CancelOutcome {
        // What the peer has not been told can be let go at once. So can a get that only has to be
        // answered: the answer will be received into nothing. The bytes of a put that was sent are on
        // their way into the peer's memory; its answer is the fence. A completion that waits to be
        // polled follows too.
        let mut running = self.done.iter().any(|c| c.op == op);
        for seq in self.requests.seqs() {
            let Some(r) = self.requests.get_mut(seq) else {
                continue;
            };
            if r.work.op == op && !r.mute {
                running |= match r.phase {
                    Phase::Queued | Phase::Finished => false,
                    Phase::Sending => true,
                    Phase::Sent => r.by_ref || r.work.opcode != Opcode::Get,
                };
            }
        }
        self.let_go(op, running);
        if running { CancelOutcome::Running } else { CancelOutcome::Withdrawn }
    }
}

impl StreamDataPlane {
    /// Frees every request of `op` that can be let go without an answer. With `report`, each gets a
    /// `Cancelled` completion; else none.
    fn let_go(&mut self, op: SlotId, report: bool) {
        for seq in self.requests.seqs() {
            let Some(r) = self.requests.get_mut(seq) else {
                continue;
            };
            if r.work.op != op || r.mute {
                continue;
            }
            match r.phase {
                Phase::Queued => {
                    if !report {
                        r.mute = true;
                    }
                    self.answer(seq, Err(Failure::Cancelled));
                }
                Phase::Sent if !r.by_ref && r.work.opcode == Opcode::Get => {
                    if report {
                        self.answer_early(seq, Err(Failure::Cancelled));
                    } else {
                        r.mute = true;
                    }
                    self.rx.divert_answer(seq);
                }
                Phase::Sending | Phase::Sent | Phase::Finished => {}
            }
        }
    }
}
