//! Puts and gets of ours over the software path: which pieces are sent, what the peer has answered.

use std::sync::Arc;

use hmc_core::wire::data::{DataFlags, DataFrame, DataKind};
use hmc_core::work::{Failure, Opcode, WorkRequest};

use super::state::{State, failure_of};
use super::trips::Trip;
use crate::ucx::endpoint::params_with_callback;
use crate::ucx::records::FIRST_SEND;
use crate::ucx::result::{NbxResult, Status};
use crate::ucx::soft::{Landing, PIECE, Way};
use crate::ucx::sys;
use crate::ucx::ucp_worker::LockedWorker;

/// The longest put that shares its message with others.
const PACKED: u64 = 1024;

/// The number of the wireup message. The highest bit of an operation's number is 0.
const WIREUP: u32 = u32::MAX;

impl State {
    /// Sends the wireup message, whose answer shows that the path is open.
    pub(in crate::ucx) fn send_am_wireup(&mut self, guard: &LockedWorker<'_>) {
        let Some(endpoint) = &self.endpoint else { return };
        let Some(trips) = &mut self.trips else { return };
        let way = Way { endpoint: endpoint.handle(), door: trips.door };
        self.door.set_way(way);
        let Some(parcel) = trips.parcels.first_mut() else { return };
        parcel.clear();
        let param = params_with_callback(&self.queue, u32::from(FIRST_SEND));
        let wireup = DataFrame::new(DataKind::Write, WIREUP);
        if let Err(status) = parcel.send(guard, way, &wireup, param) {
            self.queue.fail(status);
        }
    }

    /// Begins what was accepted.
    #[cold]
    pub(in crate::ucx) fn depart(&mut self, guard: &LockedWorker<'_>) {
        while let Some((record, flight)) = self.flights.next_queued() {
            let work = flight.work;
            match self.known.order(&work) {
                // A message is written and read by processors.
                Ok(order) if order.memory_type != sys::UCS_MEMORY_TYPE_HOST => {
                    self.refuse(record, Failure::Unsupported);
                }
                Ok(order) if order.len == 0 => {
                    flight.returned = true;
                    self.settle(record);
                }
                Ok(_) => self.depart_one(guard, record, &work),
                Err(why) => self.refuse(record, why),
            }
        }
    }

    fn depart_one(&mut self, guard: &LockedWorker<'_>, record: u16, work: &WorkRequest) {
        let memory = self.known.local(work.local.key).map(|l| Arc::clone(&l.memory));
        let (Some(trips), Some(memory)) = (&mut self.trips, memory) else { return };
        let Some(trip) = trips.trip(record) else { return };
        let uses = (trip.seq >> 8).wrapping_add(1) & 0x7F_FFFF;
        *trip = Trip { seq: uses << 8 | u32::from(record), ..Trip::default() };
        let (seq, total) = (trip.seq, work.local.span.len());
        trips.queue.push_back(record);
        if work.opcode == Opcode::Get {
            self.door.expect(Landing { seq, memory, span: work.local.span, come: 0 });
        }
        // Small ones that come while others are under way wait for company: until the next poll, or the next answer.
        if self.flights.len() <= 1 || total > PACKED {
            self.pump(guard);
        }
    }

    /// Sends pieces as long as messages are free.
    #[inline]
    pub(in crate::ucx) fn pump(&mut self, guard: &LockedWorker<'_>) {
        if self.trips.is_some() {
            self.send_pieces(guard);
        }
    }

    fn send_pieces(&mut self, guard: &LockedWorker<'_>) {
        while let Some((record, sent)) = self.send_piece(guard) {
            if let Err(status) = sent {
                // The peer cannot tell of bytes that it did not get.
                self.give_up(record, failure_of(status));
            }
        }
    }

    /// Sends the next piece, if there is one and a message for it.
    fn send_piece(&mut self, guard: &LockedWorker<'_>) -> Option<(u16, Result<NbxResult, Status>)> {
        let (record, work) = self.next_to_send()?;
        let memory = Arc::clone(&self.known.local(work.local.key)?.memory);
        let endpoint = self.endpoint.as_ref()?.handle();
        let trips = self.trips.as_mut()?;
        let at = trips.parcels.iter().position(|p| !p.is_busy())?;
        let parcel = trips.parcels.get_mut(at)?;
        let trip = trips.trips.get_mut(usize::from(record))?;
        let (put, total, from) = (work.opcode != Opcode::Get, work.local.span.len(), trip.sent);
        let kind = if put { DataKind::Write } else { DataKind::Read };
        let mut frame = DataFrame::new(kind, trip.seq);
        (frame.window, frame.epoch) = (work.remote.window, work.remote.epoch);
        (frame.offset, frame.total) = (work.remote.span.take(from).1.offset(), total);
        let mut loaded = true;
        trip.sent = total;
        if put {
            let (piece, rest) = work.local.span.take(from).1.take(PIECE);
            trip.sent = total.saturating_sub(rest.len());
            // At most a piece.
            frame.len = u32::try_from(piece.len()).unwrap_or(0);
            let bytes = memory.view(piece);
            loaded = bytes.is_some_and(|b| parcel.load(&b, b.extent().whole()).is_some());
        } else {
            parcel.clear();
        }
        if trip.sent >= total {
            trips.queue.pop_front();
            if put {
                frame.flags = DataFlags::LAST;
            }
        }
        if !loaded {
            return Some((record, Err(Status::INVALID_PARAM)));
        }
        if put && total <= PACKED {
            self.pack(at);
        }
        let number = FIRST_SEND.saturating_add(u16::try_from(at).unwrap_or(0));
        self.begun = true;
        let trips = self.trips.as_mut()?;
        let (way, param) = (
            Way { endpoint, door: trips.door },
            params_with_callback(&self.queue, u32::from(number)),
        );
        Some((record, trips.parcels.get_mut(at)?.send(guard, way, &frame, param)))
    }

    /// Puts small puts that wait behind the one that is in a parcel already.
    fn pack(&mut self, at: usize) {
        while let Some((record, work)) = self.next_to_send() {
            let len = work.local.span.len();
            let memory = self.known.local(work.local.key).map(|l| Arc::clone(&l.memory));
            let (Some(trips), Some(memory)) = (&mut self.trips, memory) else { return };
            let Some(parcel) = trips.parcels.get_mut(at) else { return };
            let Some(trip) = trips.trips.get_mut(usize::from(record)) else { return };
            if work.opcode == Opcode::Get || len > PACKED || !parcel.has_room(len) {
                return;
            }
            let mut frame = DataFrame::new(DataKind::Write, trip.seq);
            (frame.window, frame.epoch) = (work.remote.window, work.remote.epoch);
            (frame.offset, frame.total) = (work.remote.span.offset(), len);
            (frame.len, frame.flags) = (u32::try_from(len).unwrap_or(0), DataFlags::LAST);
            let Some(bytes) = memory.view(work.local.span) else { return };
            if parcel.add_with(&frame, &bytes).is_none() {
                return;
            }
            trip.sent = len;
            trips.queue.pop_front();
        }
    }

    /// The first operation of which something is to be sent. Those that have failed meanwhile are passed over.
    fn next_to_send(&mut self) -> Option<(u16, WorkRequest)> {
        let trips = self.trips.as_mut()?;
        while let Some(record) = trips.queue.front().copied() {
            if let Some(flight) = self.flights.get(record).filter(|f| f.result.is_ok()) {
                return Some((record, flight.work));
            }
            trips.queue.pop_front();
        }
        None
    }

    /// UCX gave a message back.
    pub(in crate::ucx) fn message_returned(&mut self, at: usize, status: Status) {
        let parcel = self.trips.as_mut().and_then(|t| t.parcels.get_mut(at));
        if let Some(parcel) = parcel {
            parcel.returned();
        }
        if status != Status::OK {
            // One that is lost means that all after it are: whoever waits for an answer waits in vain.
            self.queue.fail(status);
        }
    }

    /// Ends an operation without the peer's answer.
    fn give_up(&mut self, record: u16, why: Failure) {
        if let Some(flight) = self.flights.get(record) {
            flight.fail(why);
        }
        self.answered(record);
    }

    /// Ends an operation.
    fn answered(&mut self, record: u16) {
        let seq = self.trips.as_mut().and_then(|t| t.trip(record)).map(|trip| trip.seq);
        let Some(flight) = self.flights.get(record) else { return };
        flight.returned = true;
        if let Some(seq) = seq
            && flight.result.is_err()
            && flight.work.opcode == Opcode::Get
        {
            self.door.expect_no_more(seq);
        }
        self.settle(record);
    }

    /// Takes what the peer answered.
    pub(in crate::ucx) fn read_mail(&mut self) {
        while let Some((seq, result)) = self.door.take_mail() {
            if seq == WIREUP {
                self.is_wired_up = true;
                continue;
            }
            let Some(trips) = &mut self.trips else { continue };
            let Some(record) = trips.record_of(seq) else { continue };
            match result {
                Ok(()) => self.answered(record),
                Err(why) => self.give_up(record, why),
            }
        }
    }

    /// The peer is gone: nobody answers any more.
    pub(in crate::ucx) fn give_up_trips(&mut self) {
        self.door.shut();
        let Some(trips) = &mut self.trips else { return };
        trips.queue.clear();
        for record in 0..FIRST_SEND {
            self.give_up(record, Failure::PeerDead);
        }
    }
}
