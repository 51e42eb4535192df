//! Puts and gets of ours over the software path: which pieces are sent, what the peer has answered.

use std::collections::VecDeque;
use std::sync::Arc;

use hmc_core::wire::data::{DataFlags, DataFrame, DataKind};
use hmc_core::work::{Failure, Opcode, WorkRequest};

use super::state::{State, failure_of};
use super::{FIRST_SEND, MAX_REQUESTS, SENDS};
use crate::ucx::endpoint::told;
use crate::ucx::result::{Answer, Status};
use crate::ucx::soft::{HEAD_BYTES, Landing, PIECE, Way, head, send};
use crate::ucx::worker::Crank;

/// The number of the greeting: no operation's, whose highest bit is 0.
const GREETING: u32 = u32::MAX;

/// The part of one operation.
#[derive(Clone, Copy, Debug, Default)]
struct Trip {
    /// Its number: the record, and above it a count of the record's uses.
    seq: u32,
    sent: u64,
    /// Messages of it that UCX has not given back.
    busy: u32,
    /// The peer has said how it ended, or never will.
    answered: bool,
}

/// A message that may be under way.
#[derive(Debug)]
struct Send {
    head: Box<[u8; HEAD_BYTES]>,
    busy: bool,
    /// The operation that it is a piece of.
    record: Option<u16>,
}

#[derive(Debug)]
pub(super) struct Trips {
    door: u64,
    /// Operations with something to be sent.
    queue: VecDeque<u16>,
    trips: Box<[Trip]>,
    sends: Box<[Send]>,
}

impl Trips {
    /// To the peer's door of that number.
    pub(super) fn new(door: u64) -> Self {
        let send = || Send { head: Box::new([0; HEAD_BYTES]), busy: false, record: None };
        Self {
            door,
            queue: VecDeque::with_capacity(MAX_REQUESTS),
            trips: vec![Trip::default(); MAX_REQUESTS].into(),
            sends: (0..SENDS).map(|_| send()).collect(),
        }
    }

    /// Whether UCX has given all messages back.
    pub(super) fn is_quiet(&self) -> bool {
        !self.sends.iter().any(|s| s.busy)
    }

    /// Whether a message could be sent now.
    pub(super) fn can_send(&self) -> bool {
        !self.queue.is_empty() && self.sends.iter().any(|s| !s.busy)
    }

    fn trip(&mut self, record: u16) -> Option<&mut Trip> {
        self.trips.get_mut(usize::from(record))
    }

    /// The operation of that number, if it is under way.
    fn record_of(&self, seq: u32) -> Option<u16> {
        let record = u16::from(seq.to_le_bytes()[0]);
        self.trips.get(usize::from(record)).filter(|t| t.seq == seq).map(|_| record)
    }
}

impl State {
    /// Says that we are here, so that both ends know when the way is open.
    pub(super) fn greet_softly(&mut self, crank: &Crank<'_>) {
        let Some(endpoint) = &self.endpoint else { return };
        let Some(trips) = &mut self.trips else { return };
        let way = Way { endpoint: endpoint.handle(), door: trips.door };
        self.door.set_way(way);
        let Some(place) = trips.sends.first_mut() else { return };
        *place.head = head(way.door, &DataFrame::new(DataKind::Write, GREETING));
        place.busy = true;
        let param = told(&self.board, u32::from(FIRST_SEND));
        let nothing = (std::ptr::null(), 0);
        // SAFETY: the head lies in a box that nobody writes while the send is busy.
        match unsafe { send(crank, way.endpoint, &place.head, nothing, param) } {
            Ok(Answer::Request(_)) => {}
            Ok(Answer::Done) => place.busy = false,
            Err(status) => {
                place.busy = false;
                self.board.fail(status);
            }
        }
    }

    /// Begins an operation whose flight is entered already.
    pub(super) fn depart(&mut self, crank: &Crank<'_>, record: u16, work: &WorkRequest) {
        let memory = self.local(work.local.key).map(|l| Arc::clone(&l.memory));
        let (Some(trips), Some(memory)) = (&mut self.trips, memory) else { return };
        let Some(trip) = trips.trip(record) else { return };
        let uses = (trip.seq >> 8).wrapping_add(1) & 0x7F_FFFF;
        *trip = Trip { seq: uses << 8 | u32::from(record), ..Trip::default() };
        let seq = trip.seq;
        trips.queue.push_back(record);
        if work.opcode == Opcode::Get {
            self.door.expect(Landing { seq, memory, span: work.local.span, come: 0 });
        }
        self.pump(crank);
    }

    /// Sends pieces as long as messages are free.
    pub(super) fn pump(&mut self, crank: &Crank<'_>) {
        while let Some((at, status)) = self.send_piece(crank) {
            match status {
                Ok(Answer::Request(_)) => {}
                Ok(Answer::Done) => self.message_returned(at, Status::OK),
                Err(status) => self.message_returned(at, status),
            }
        }
    }

    /// Sends the next piece, if there is one and a message for it.
    fn send_piece(&mut self, crank: &Crank<'_>) -> Option<(usize, Result<Answer, Status>)> {
        let (record, work) = self.next_to_send()?;
        let (start, ..) = self.here(work.local).ok()?;
        let endpoint = self.endpoint.as_ref()?.handle();
        let trips = self.trips.as_mut()?;
        let at = trips.sends.iter().position(|s| !s.busy)?;
        let (put, total) = (work.opcode != Opcode::Get, work.local.span.len());
        let trip = trips.trips.get_mut(usize::from(record))?;
        let from = trip.sent;
        let len = if put { total.saturating_sub(from).min(PIECE) } else { 0 };
        trip.sent = if put { from.saturating_add(len) } else { total };
        trip.busy = trip.busy.saturating_add(1);
        let whole = trip.sent >= total;
        let mut frame =
            DataFrame::new(if put { DataKind::Write } else { DataKind::Read }, trip.seq);
        (frame.window, frame.epoch) = (work.remote.window, work.remote.epoch);
        (frame.offset, frame.total) = (work.remote.span.offset().saturating_add(from), total);
        // At most a piece.
        frame.len = u32::try_from(len).unwrap_or(0);
        if put && whole {
            frame.flags = DataFlags::LAST;
        }
        if whole {
            trips.queue.pop_front();
        }
        let place = trips.sends.get_mut(at)?;
        *place.head = head(trips.door, &frame);
        (place.busy, place.record) = (true, Some(record));
        // Both are lengths within that memory.
        let (skip, len) = (usize::try_from(from).unwrap_or(0), usize::try_from(len).unwrap_or(0));
        let payload = if put { start.wrapping_add(skip).cast_const() } else { std::ptr::null() };
        let number = FIRST_SEND.saturating_add(u16::try_from(at).unwrap_or(0));
        let param = told(&self.board, u32::from(number));
        // SAFETY: the head lies in a box that nobody writes while the send is busy. The payload's range was proven against
        // registered memory, which `locals` holds until nothing is under way; it is only read.
        Some((at, unsafe { send(crank, endpoint, &place.head, (payload, len), param) }))
    }

    /// The first operation of which something is to be sent. Those that have failed meanwhile are passed over.
    fn next_to_send(&mut self) -> Option<(u16, WorkRequest)> {
        let trips = self.trips.as_mut()?;
        while let Some(record) = trips.queue.front().copied() {
            let flight = self.flights.get(usize::from(record)).copied().flatten();
            if let Some(flight) = flight.filter(|f| f.failure.is_none()) {
                return Some((record, flight.work));
            }
            trips.queue.pop_front();
        }
        None
    }

    /// UCX gave a message back.
    pub(super) fn message_returned(&mut self, at: usize, status: Status) {
        let Some(trips) = &mut self.trips else { return };
        let Some(place) = trips.sends.get_mut(at) else { return };
        place.busy = false;
        let Some(record) = place.record.take() else {
            if status != Status::OK {
                self.board.fail(status);
            }
            return;
        };
        let Some(trip) = trips.trip(record) else { return };
        trip.busy = trip.busy.saturating_sub(1);
        if status != Status::OK {
            // The peer cannot tell of bytes that it did not get.
            trip.answered = true;
            self.note_failure(record, failure_of(status));
        }
        self.settle_trip(record);
    }

    fn note_failure(&mut self, record: u16, why: Failure) {
        if let Some(Some(flight)) = self.flights.get_mut(usize::from(record)) {
            flight.failure = flight.failure.or(Some(why));
        }
    }

    /// Ends an operation that waits for nothing any more.
    fn settle_trip(&mut self, record: u16) {
        let Some(trips) = &mut self.trips else { return };
        let Some(trip) = trips.trip(record).filter(|t| t.answered && t.busy == 0) else { return };
        let seq = trip.seq;
        let Some(Some(flight)) = self.flights.get_mut(usize::from(record)) else { return };
        flight.returned = true;
        if flight.failure.is_some() && flight.work.opcode == Opcode::Get {
            self.door.expect_no_more(seq);
        }
        self.settle(record);
    }

    /// Takes what the peer answered.
    pub(super) fn read_mail(&mut self) {
        while let Some((seq, result)) = self.door.take_mail() {
            if seq == GREETING {
                self.wired = true;
                continue;
            }
            let Some(trips) = &mut self.trips else { continue };
            let Some(record) = trips.record_of(seq) else { continue };
            if let Some(trip) = trips.trip(record) {
                trip.answered = true;
            }
            if let Err(why) = result {
                self.note_failure(record, why);
            }
            self.settle_trip(record);
        }
    }

    /// The peer is gone: nobody answers any more.
    pub(super) fn give_up_trips(&mut self) {
        self.door.shut();
        let Some(trips) = &mut self.trips else { return };
        trips.queue.clear();
        for record in 0..FIRST_SEND {
            let flies = matches!(self.flights.get(usize::from(record)), Some(Some(_)));
            if !flies {
                continue;
            }
            if let Some(trip) = self.trips.as_mut().and_then(|t| t.trip(record)) {
                trip.answered = true;
            }
            self.note_failure(record, Failure::PeerDead);
            self.settle_trip(record);
        }
    }
}
