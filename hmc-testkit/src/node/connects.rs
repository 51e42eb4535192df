//! The dials of a sans-IO session, whose connections come from the world.

use std::net::SocketAddr;
use std::time::Duration;

use hmc_core::time::Instant;
use hmc_core::types::{ConnType, Rank};
use hmc_std::address::Address;
use hmc_std::error::{Error, ErrorKind, Result};
use hmc_std::internals::connect::{DrivenConnect, DrivenStep};

use super::conn::Server;
use super::pending_connect::PendingConnect;
use super::pipe::Pipe;
use super::{FIRST_PORT, Node, Output, listener};

fn rank_at(at: SocketAddr) -> Option<u32> {
    at.port().checked_sub(FIRST_PORT).map(u32::from)
}

impl Node {
    /// Dials a lost peer again.
    pub(super) fn redial(&mut self, rank: Rank) {
        match self.session.route(rank) {
            Some((address, conn)) => self.dial(None, rank, &address, conn, Duration::from_secs(2)),
            None => self.session.note_dial_failed(rank),
        }
    }

    /// Begins to connect, for the request of that number.
    pub(super) fn dial_for(&mut self, number: u64, rank: u32) {
        let patience = self.deadline;
        let address = Address::Tcp(listener(rank));
        self.dial(Some(number), Rank(rank), &address, ConnType::Tcp, patience);
    }

    fn dial(
        &mut self,
        number: Option<u64>,
        rank: Rank,
        address: &Address,
        conn: ConnType,
        patience: Duration,
    ) {
        let deadline = self.deadline_in(patience);
        let machine = DrivenConnect::new(rank, address, conn, deadline);
        let id = self.next_number;
        self.next_number = self.next_number.wrapping_add(1);
        let wake = Instant::NEVER;
        let (opening, hears, seen_events) = (None, None, None);
        let dial = PendingConnect {
            machine,
            deadline,
            number,
            opening,
            hears,
            conns: Vec::new(),
            seen_events,
            wake,
        };
        self.dials.insert(id, dial);
        self.advance_dial(id);
    }

    /// Takes all dials as far as they go. Whether one of them ended or asked for something.
    pub(super) fn go_on_dialing(&mut self) -> bool {
        if self.dials.is_empty() {
            return false;
        }
        let ids: Vec<u32> = self.dials.keys().copied().collect();
        let mut busy = false;
        for id in ids {
            busy |= self.advance_dial(id);
        }
        busy
    }

    fn advance_dial(&mut self, id: u32) -> bool {
        let Some(dial) = self.dials.get_mut(&id) else { return false };
        let late = self.now >= dial.deadline;
        let deaf =
            dial.hears.and_then(|c| self.conns.get(&c)).is_some_and(|c| !c.pipe.is_readable());
        let events = self.session.events();
        let idle = dial.seen_events == Some(events) && self.now < dial.wake;
        if !late && (dial.opening.is_some() || deaf || idle) {
            return false;
        }
        dial.wake = Instant::NEVER;
        dial.seen_events = None;
        let result = match dial.machine.advance(&self.session) {
            Ok(DrivenStep::Receive) => return false,
            Ok(DrivenStep::Pause(until) | DrivenStep::Event(until)) => {
                dial.wake = until;
                dial.seen_events = Some(events);
                return false;
            }
            Ok(DrivenStep::Drive(link)) => {
                // The link's own connections from here on.
                dial.hears = None;
                let mut conns = std::mem::take(&mut dial.conns);
                conns.retain(|conn| {
                    let Some(c) = self.conns.get_mut(conn) else { return false };
                    c.server = link.half_of(|s| c.pipe.is_behind(s)).map(Server::Link);
                    c.server.is_some()
                });
                for conn in conns {
                    // What came with the last words.
                    self.serve(conn);
                }
                return false;
            }
            Ok(DrivenStep::Open(target)) => {
                dial.hears = None;
                let number = self.next_number;
                self.next_number = self.next_number.wrapping_add(1);
                dial.opening = Some(number);
                self.numbers.insert(number, id);
                match target.and_then(rank_at) {
                    Some(to) => self.out.push_back(Output::Connect { number, to }),
                    None => {
                        let e =
                            Error::new(ErrorKind::Unavailable, "no such listener in this world");
                        self.opened(number, Err(e));
                    }
                }
                return true;
            }
            Ok(DrivenStep::Ready(link)) => {
                self.connected.extend(dial.number.map(|t| (t, link.rank().0)));
                Ok(0)
            }
            Err(e) => Err(e),
        };
        self.end_dial(id, result);
        true
    }

    /// A connection for a dial, or none.
    pub(super) fn opened(&mut self, number: u32, opened: Result<(u32, Pipe)>) {
        let id = self.numbers.remove(&number);
        let Some((id, dial)) = id.and_then(|id| Some((id, self.dials.get_mut(&id)?))) else {
            return;
        };
        if dial.opening.take() != Some(number) {
            return;
        }
        if let Ok((conn, _)) = &opened {
            dial.conns.push(*conn);
            dial.hears = Some(*conn);
        }
        let stream = opened.map(|(_, pipe)| pipe.held());
        match dial.machine.opened(&self.session, stream) {
            Ok(()) => {
                self.advance_dial(id);
            }
            Err(e) => self.end_dial(id, Err(e)),
        }
    }

    fn end_dial(&mut self, id: u32, result: Result<u64>) {
        let Some(mut dial) = self.dials.remove(&id) else { return };
        dial.machine.abandon(&self.session);
        self.numbers.retain(|_, d| *d != id);
        if let Some(number) = dial.number {
            self.complete(number, result);
        }
    }

    /// The request of that number is no longer wanted.
    pub(super) fn remove_dial(&mut self, number: u64) {
        let found = self.dials.iter().find(|(_, d)| d.number == Some(number)).map(|(id, _)| *id);
        if let Some(id) = found {
            let e = Error::new(ErrorKind::Cancelled, "the dial was cancelled");
            self.end_dial(id, Err(e));
        }
    }
}
