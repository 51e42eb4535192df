//! The dials of a driven session: the machine of [`crate::dialing`], fed by the world.

use std::time::Duration;

use hmc_core::kinds::Rank;
use hmc_core::wire::reject::RejectReason;

use super::{Dial, FIRST_PORT, Node, Output};
use crate::address::Address;
use crate::clock;
use crate::dialing::{Dialing, Step, Target, refusal};
use crate::driver::{Channel, Token};
use crate::error::{Error, ErrorKind, Result};
use crate::node::registry::Input as Change;
use crate::shared::lock;
use crate::socket::Socket;
use crate::socket::pipe::Pipe;

fn rank_at(target: &Target) -> Option<u32> {
    match target {
        Target::Address(Address::Tcp(at)) => at.port().checked_sub(FIRST_PORT).map(u32::from),
        Target::Address(Address::Uds(_)) | Target::Path(_) => None,
    }
}

impl Node {
    pub(super) fn redial(&mut self, rank: Rank) {
        let route = lock(&self.shared.routes).get(&rank).cloned();
        let begun = route.map(|r| Dialing::begin(&self.shared, rank, &r.address, r.conn));
        match begun {
            Some(Ok(Some(machine))) => self.begin_dial(rank, machine, Duration::from_secs(2)),
            Some(Err(_)) | None => {
                self.shared.decide(Change::DialFailed { rank });
            }
            // Connected meanwhile, or being dialed.
            Some(Ok(None)) => {}
        }
    }

    pub(super) fn begin_dial(&mut self, rank: Rank, machine: Dialing, patience: Duration) {
        let until = clock::deadline_in(patience);
        self.dials.insert(rank, Dial { machine, hears: None, conns: Vec::new(), until });
        self.advance_dial(rank);
    }

    pub(super) fn go_on_dialing(&mut self) -> bool {
        let ready = |d: &Dial| {
            let heard =
                d.hears.and_then(|id| self.conns.get(&id)).is_some_and(|c| c.pipe.is_readable());
            heard || self.now >= d.until
        };
        let ranks: Vec<Rank> =
            self.dials.iter().filter(|(_, d)| ready(d)).map(|(r, _)| *r).collect();
        let mut busy = false;
        for rank in ranks {
            busy |= self.advance_dial(rank);
        }
        busy
    }

    /// Takes a dial as far as it goes. Whether it went anywhere.
    fn advance_dial(&mut self, rank: Rank) -> bool {
        let Some(dial) = self.dials.get_mut(&rank) else { return false };
        if self.now >= dial.until {
            dial.machine.abandon(&self.shared);
            self.end_dial(rank, Err(Error::deadline("connecting")));
            return true;
        }
        match dial.machine.advance(&self.shared) {
            Ok(Step::Hear) => false,
            Ok(Step::Open(target)) => {
                dial.hears = None;
                let ticket = self.next_ticket;
                self.next_ticket = self.next_ticket.wrapping_add(1);
                match rank_at(&target) {
                    Some(to) => {
                        self.tickets.insert(ticket, rank);
                        self.out.push_back(Output::Connect { ticket, to });
                    }
                    None => {
                        let e = Error::new(ErrorKind::Unavailable, "no such door in this world");
                        self.tickets.insert(ticket, rank);
                        self.opened(ticket, Err(e));
                    }
                }
                true
            }
            Ok(Step::Linked(link)) => {
                for (id, channel) in dial.conns.iter().zip([Channel::Ctrl, Channel::Data]) {
                    if let Some(c) = self.conns.get_mut(id) {
                        c.token = Some(Token::Link(link.serial, channel));
                    }
                }
                self.dials.remove(&rank);
                true
            }
            Ok(Step::Refused(RejectReason::Duplicate)) => {
                // Perhaps the peer is dialing us; who asked waits for that, a second at the most.
                self.end_dial(rank, Ok(()));
                true
            }
            Ok(Step::Refused(why)) => {
                let ours = self.shared.config.rank;
                self.end_dial(rank, Err(refusal(rank, ours, why)));
                true
            }
            Err(e) => {
                self.end_dial(rank, Err(e));
                true
            }
        }
    }

    /// A connection for a dial, or none.
    pub(super) fn opened(&mut self, ticket: u32, opened: Result<(u32, Pipe)>) {
        let rank = self.tickets.remove(&ticket);
        let Some((rank, dial)) = rank.and_then(|r| Some((r, self.dials.get_mut(&r)?))) else {
            return;
        };
        if let Ok((conn, _)) = &opened {
            // The second may be tried twice: the last one counts.
            dial.conns.truncate(1);
            dial.conns.push(*conn);
            dial.hears = Some(*conn);
        }
        let socket = opened.map(|(_, pipe)| Socket::Simulated(pipe));
        match dial.machine.opened(&self.shared, socket) {
            Ok(()) => {
                self.advance_dial(rank);
            }
            Err(e) => self.end_dial(rank, Err(e)),
        }
    }

    /// A dial ended without a link.
    fn end_dial(&mut self, rank: Rank, why: Result<()>) {
        self.dials.remove(&rank);
        self.tickets.retain(|_, r| *r != rank);
        self.dial_ended(rank, why);
    }
}
