//! What the toy does for its application and for its peers.

use hmc_sim::world::node::{BatchPart, MemoryArea, NodeMessage, NodeOutput, Request, RequestError};

use super::wire::{In, Out};
use super::{Bug, Toy};

const PUT: u8 = 10;
const ACK: u8 = 11;
const GET: u8 = 12;
const DATA: u8 = 13;
const TAG: u8 = 14;
const INT: u8 = 15;
const STRUCT: u8 = 16;
const ADVERT: u8 = 17;
const REVOKED: u8 = 18;
const SENT: u8 = 19;

/// Frames carry at most so many bytes.
const PIECE: u64 = 256 << 10;
const SMALL_PIECE: u64 = 100;
const BUFFER: u64 = u64::MAX;

#[derive(Default)]
pub struct Window {
    pub bytes: Vec<u8>,
    pub peer: u32,
    pub read: bool,
    pub write: bool,
    pub epoch: u64,
    pub exposed: bool,
    pub ended: bool,
}

#[derive(Clone, Copy)]
pub struct Advert {
    epoch: u64,
    len: u64,
    read: bool,
    write: bool,
}

pub struct Pending {
    pub peer: u32,
    pub total: u64,
    left: u64,
    local: u64,
    fault: Option<RequestError>,
}

fn code(fault: &RequestError) -> u64 {
    match fault {
        RequestError::OutOfRange => 1,
        RequestError::Access => 2,
        _ => 3,
    }
}

fn fault(code: u64) -> Option<RequestError> {
    [None, Some(RequestError::OutOfRange), Some(RequestError::Access), Some(RequestError::Revoked)]
        [usize::try_from(code).expect("small")]
    .clone()
}

fn small(n: u64) -> usize {
    usize::try_from(n).expect("small")
}

impl Toy {
    pub fn request(&mut self, number: u64, request: &Request) {
        if self.left && !matches!(request, Request::Revoke { .. } | Request::Cancel { .. }) {
            return self.fail(number, RequestError::Closed);
        }
        self.deadlines.push_back((self.now + self.boot.deadline_ns, number));
        match request {
            Request::Connect { rank } => self.connect(number, *rank),
            Request::Disconnect { peer } => {
                self.down(*peer, true);
                self.done(number, 0);
            }
            Request::Leave => {
                self.left = true;
                for rank in 0..self.boot.ranks {
                    self.down(rank, true);
                    for number in std::mem::take(&mut self.peers[rank as usize].wanted) {
                        self.fail(number, RequestError::Closed);
                    }
                }
                self.done(number, 0);
            }
            Request::Put { peer, piece } => self.put(number, *peer, None, &[*piece], None),
            Request::PutNotify { peer, piece, tag } => {
                self.put(number, *peer, None, &[*piece], Some(*tag));
            }
            Request::PutBatch { peer, list } => self.put(number, *peer, None, list, None),
            Request::PutWindow { peer, label, piece } => {
                self.put(number, *peer, Some(*label), &[*piece], None);
            }
            Request::Get { peer, piece } => self.get(number, *peer, None, piece),
            Request::GetWindow { peer, label, piece } => {
                self.get(number, *peer, Some(*label), piece)
            }
            Request::Tag { peer, tag } => self.message(number, *peer, Out::new(TAG).n(*tag).end()),
            Request::Int { peer, value } => {
                self.message(
                    number,
                    *peer,
                    Out::new(INT).n(u64::from(value.cast_unsigned())).end(),
                );
            }
            Request::Struct { peer, bytes } => {
                self.message(number, *peer, Out::new(STRUCT).bytes(bytes));
            }
            Request::Expose { peer, label, len, read, write } => {
                self.expose(number, *peer, *label, *len, (*read, *write));
            }
            Request::Revoke { label, .. } => self.revoke(number, *label),
            Request::Cancel { number: other } => {
                if let Some(op) = self.pending.remove(other) {
                    self.fail(*other, RequestError::Cancelled);
                    if self.bug == Bug::TwoAnswers {
                        self.pending.insert(*other, op);
                    }
                }
                self.done(number, 0);
            }
            Request::Send { peer, local, len } | Request::Recv { peer, local, len } => {
                let Some(conn) = self.peers[*peer as usize].up else {
                    return self.fail(number, RequestError::NotConnected);
                };
                let op = Pending { peer: *peer, total: *len, left: 1, local: *local, fault: None };
                self.pending.insert(number, op);
                if matches!(request, Request::Send { .. }) {
                    let bytes = &self.buffer[small(*local)..small(*local + *len)];
                    let frame = Out::new(SENT).n(number).bytes(bytes);
                    self.send(conn, frame);
                } else {
                    let receiver = (number, *local, *len);
                    self.peers[*peer as usize].receivers.push_back(receiver);
                    self.pair(*peer, conn);
                }
            }
        }
    }

    /// The name and limits of what an operation is about.
    fn target(
        &self,
        peer: u32,
        label: Option<u64>,
        put: bool,
    ) -> Result<(u64, u64, u64), RequestError> {
        let Some(label) = label else { return Ok((BUFFER, 0, self.boot.buffer_len)) };
        let advert = self.peers[peer as usize].adverts.get(&label).ok_or(RequestError::Unknown)?;
        let right = if put { advert.write } else { advert.read };
        if right || self.bug == Bug::NoRights {
            Ok((label, advert.epoch, advert.len))
        } else {
            Err(RequestError::Access)
        }
    }

    fn start(
        &mut self,
        number: u64,
        peer: u32,
        label: Option<u64>,
        pieces: &[BatchPart],
        put: bool,
    ) -> Option<(u32, u64, u64)> {
        let Some(conn) = self.peers[peer as usize].up else {
            self.fail(number, RequestError::NotConnected);
            return None;
        };
        let (label, epoch, len) = match self.target(peer, label, put) {
            Ok(target) => target,
            Err(fault) => {
                self.fail(number, fault);
                return None;
            }
        };
        let fits =
            |piece: &BatchPart| piece.remote.checked_add(piece.len).is_some_and(|e| e <= len);
        if !pieces.iter().all(fits) && self.bug != Bug::OutOfRange {
            self.fail(number, RequestError::OutOfRange);
            return None;
        }
        Some((conn, label, epoch))
    }

    fn put(
        &mut self,
        number: u64,
        peer: u32,
        label: Option<u64>,
        pieces: &[BatchPart],
        tag: Option<u64>,
    ) {
        let Some((conn, label, epoch)) = self.start(number, peer, label, pieces, true) else {
            return;
        };
        let total = pieces.iter().map(|piece| piece.len).sum();
        let mut frames = 0;
        for piece in pieces {
            let size = if piece.len > 4096 { PIECE } else { SMALL_PIECE };
            let mut at = 0;
            while at < piece.len || (at == 0 && tag.is_some()) {
                let len = size.min(piece.len - at);
                let last = at + len == piece.len;
                let early = self.bug == Bug::NotifyOvertakes && at == 0;
                let late = last && self.bug != Bug::NotifyOvertakes;
                let note = tag.is_some() && (late || early);
                let off = u64::from(self.bug == Bug::WrongOffset && at > 0);
                let remote = piece.remote.wrapping_add(at + off);
                let local = small(piece.local + at);
                let frame = Out::new(PUT).n(number).n(label).n(epoch).n(remote);
                let frame = frame.n(u64::from(note)).n(tag.unwrap_or(0));
                let frame = frame.bytes(&self.buffer[local..local + small(len)]);
                self.send(conn, frame);
                frames += 1;
                at += len;
                if piece.len == 0 {
                    break;
                }
            }
        }
        if frames == 0 {
            return self.done(number, 0);
        }
        let op = Pending { peer, total, left: frames, local: 0, fault: None };
        self.pending.insert(number, op);
    }

    fn get(&mut self, number: u64, peer: u32, label: Option<u64>, piece: &BatchPart) {
        let Some((conn, label, epoch)) = self.start(number, peer, label, &[*piece], false) else {
            return;
        };
        let frame = Out::new(GET).n(number).n(label).n(epoch).n(piece.remote).n(piece.len);
        self.send(conn, frame.n(piece.local).end());
        if self.bug == Bug::GetEarly {
            return self.done(number, piece.len);
        }
        let op = Pending { peer, total: piece.len, left: 1, local: piece.local, fault: None };
        self.pending.insert(number, op);
    }

    fn message(&mut self, number: u64, peer: u32, frame: Vec<u8>) {
        let Some(conn) = self.peers[peer as usize].up else {
            return self.fail(number, RequestError::NotConnected);
        };
        self.tags += 1;
        if self.bug == Bug::TagsBackwards && self.tags % 4 == 1 {
            self.peers[peer as usize].held.push(frame);
        } else if self.bug != Bug::TagLost || !self.tags.is_multiple_of(16) {
            self.send(conn, frame);
            for held in std::mem::take(&mut self.peers[peer as usize].held) {
                self.send(conn, held);
            }
        }
        self.done(number, 0);
    }

    fn expose(&mut self, number: u64, peer: u32, label: u64, len: u64, rights: (bool, bool)) {
        let Some(conn) = self.peers[peer as usize].up else {
            return self.fail(number, RequestError::NotConnected);
        };
        self.epochs += 1;
        let epoch = self.epochs;
        let window = self.windows.entry(label).or_default();
        if window.exposed {
            return self.fail(number, RequestError::Duplicate);
        }
        window.bytes.resize(small(len), 0);
        (window.read, window.write) = rights;
        (window.peer, window.epoch, window.exposed, window.ended) = (peer, epoch, true, false);
        let rights = u64::from(rights.0) | u64::from(rights.1) << 1;
        self.send(conn, Out::new(ADVERT).n(label).n(epoch).n(len).n(rights).end());
        self.done(number, 0);
    }

    fn revoke(&mut self, number: u64, label: u64) {
        let Some(window) = self.windows.get_mut(&label).filter(|window| window.exposed) else {
            return self.fail(number, RequestError::Unknown);
        };
        window.exposed = false;
        let (peer, epoch, ended) = (window.peer, window.epoch, window.ended);
        if let Some(conn) = self.peers[peer as usize].up.filter(|_| !ended) {
            self.send(conn, Out::new(REVOKED).n(label).n(epoch).end());
        }
        self.done(number, 0);
    }

    /// Where a peer's operation goes.
    fn reach(
        &mut self,
        peer: u32,
        put: bool,
        (label, epoch, remote, len): (u64, u64, u64, u64),
    ) -> Result<&mut [u8], RequestError> {
        let bug = self.bug;
        let mut area = MemoryArea::Buffer;
        if label != BUFFER {
            let window = self.windows.get(&label).ok_or(RequestError::Revoked)?;
            let live = window.exposed && !window.ended && window.peer == peer;
            if (!live || window.epoch != epoch) && bug != Bug::LateAfterRevoke {
                return Err(RequestError::Revoked);
            }
            if !(if put { window.write } else { window.read }) && bug != Bug::NoRights {
                return Err(RequestError::Access);
            }
            area = MemoryArea::Window(label);
        }
        let bytes = self.area(area).ok_or(RequestError::Revoked)?;
        let size = u64::try_from(bytes.len()).expect("small");
        let fits = remote.checked_add(len).is_some_and(|end| end <= size);
        let from = if fits {
            remote
        } else if bug == Bug::OutOfRange {
            size.saturating_sub(len)
        } else {
            return Err(RequestError::OutOfRange);
        };
        bytes.get_mut(small(from)..small(from + len)).ok_or(RequestError::OutOfRange)
    }

    /// A frame of a peer on its link.
    pub fn operation(&mut self, peer: u32, conn: u32, kind: u8, body: &[u8]) {
        let mut input = In(body);
        match kind {
            PUT => {
                if self.bug == Bug::AckBeforeBytes {
                    let number = input.n();
                    self.send(conn, Out::new(ACK).n(number).n(0).end());
                    self.delayed.push((peer, body.to_vec()));
                } else {
                    let (number, code) = self.land(peer, body);
                    self.send(conn, Out::new(ACK).n(number).n(code).end());
                }
            }
            ACK => {
                let (number, code) = (input.n(), input.n());
                let Some(op) = self.pending.get_mut(&number) else { return };
                op.left -= 1;
                op.fault = op.fault.take().or(fault(code));
                if op.left == 0 {
                    self.end(number);
                }
            }
            GET => {
                let (number, label, epoch) = (input.n(), input.n(), input.n());
                let (remote, len, local) = (input.n(), input.n(), input.n());
                let reply = Out::new(DATA).n(number);
                let reply = match self.reach(peer, false, (label, epoch, remote, len)) {
                    Ok(bytes) => reply.n(0).n(local).bytes(bytes),
                    Err(fault) => reply.n(code(&fault)).n(local).end(),
                };
                self.send(conn, reply);
            }
            DATA => {
                let (number, code, local) = (input.n(), input.n(), input.n());
                let late = self.bug == Bug::LateGet || self.bug == Bug::GetEarly;
                let local = match self.pending.get(&number) {
                    Some(op) => op.local,
                    None if late => local,
                    None => return,
                };
                let from = small(local);
                self.buffer[from..from + input.0.len()].copy_from_slice(input.0);
                if let Some(op) = self.pending.get_mut(&number) {
                    op.fault = fault(code);
                    self.end(number);
                }
            }
            SENT => {
                let number = input.n();
                let send = (number, input.0.to_vec());
                self.peers[peer as usize].sends.push_back(send);
                self.pair(peer, conn);
            }
            TAG => self.deliver(peer, NodeMessage::Tag(input.n())),
            INT => self.deliver(peer, NodeMessage::Int(i32::try_from(input.n()).unwrap_or(-1))),
            STRUCT => self.deliver(peer, NodeMessage::Struct(body.to_vec())),
            ADVERT => {
                let (label, epoch, len, rights) = (input.n(), input.n(), input.n(), input.n());
                let (read, write) = (rights & 1 != 0, rights & 2 != 0);
                let advert = Advert { epoch, len, read, write };
                self.peers[peer as usize].adverts.insert(label, advert);
            }
            REVOKED => {
                let label = input.n();
                self.peers[peer as usize].adverts.remove(&label);
            }
            _ => {}
        }
    }

    /// Matches messages with receivers in order.
    fn pair(&mut self, peer: u32, conn: u32) {
        loop {
            let state = &mut self.peers[peer as usize];
            let waits = state.receivers.front().is_none_or(|r| self.pending.contains_key(&r.0));
            if !waits {
                state.receivers.pop_front();
                continue;
            }
            if state.sends.is_empty() || state.receivers.is_empty() {
                return;
            }
            let (send, receiver) = if self.bug == Bug::SendsReversed {
                (state.sends.pop_back(), state.receivers.pop_front())
            } else {
                (state.sends.pop_front(), state.receivers.pop_front())
            };
            let (Some((sent, bytes)), Some((number, local, len))) = (send, receiver) else {
                return;
            };
            self.pending.remove(&number);
            let many = u64::try_from(bytes.len()).expect("small");
            if many > len {
                self.fail(number, RequestError::OutOfRange);
                self.send(conn, Out::new(ACK).n(sent).n(1).end());
            } else {
                self.buffer[small(local)..small(local + many)].copy_from_slice(&bytes);
                self.done(number, many);
                self.send(conn, Out::new(ACK).n(sent).n(0).end());
            }
        }
    }

    /// A put lands: its number, and what went wrong.
    fn land(&mut self, peer: u32, body: &[u8]) -> (u64, u64) {
        let mut input = In(body);
        let (number, label, epoch) = (input.n(), input.n(), input.n());
        let (remote, note, tag) = (input.n(), input.n(), input.n());
        let len = u64::try_from(input.0.len()).expect("small");
        match self.reach(peer, true, (label, epoch, remote, len)) {
            Ok(to) => to.copy_from_slice(input.0),
            Err(fault) => return (number, code(&fault)),
        }
        if note != 0 {
            self.deliver(peer, NodeMessage::Notify(tag));
        }
        (number, 0)
    }

    /// What one of the bugs put off.
    pub fn flush(&mut self) {
        for (peer, body) in std::mem::take(&mut self.delayed) {
            self.land(peer, &body);
        }
    }

    fn deliver(&mut self, from: u32, message: NodeMessage) {
        self.out.push_back(NodeOutput::Message { from, message });
    }

    fn end(&mut self, number: u64) {
        let Some(op) = self.pending.remove(&number) else { return };
        match op.fault {
            None => self.done(number, op.total),
            Some(fault) => self.fail(number, fault),
        }
    }
}
