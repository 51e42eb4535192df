//! How a node does what its application asks.
//!
//! An answer comes when the operation's local memory is no longer used, not merely when its outcome is known: then the
//! application may use its range again whatever the outcome is.

use std::time::Duration;

use hmc_core::time::Instant;
use hmc_core::types::{Access, Rank};
use hmc_std::Message;
use hmc_std::batch::{Copy, Direction};
use hmc_std::error::{Error, ErrorKind, Result};
use hmc_std::internals::link::DrivenLink;
use hmc_std::op::OpId;
use hmc_std::peer::Peer;

use super::ask::Ask;
use super::pending_request::PendingRequest;
use super::sending::Sending;
use super::{Node, Owned};

/// Operations that one peer may be asked for at a time. Posting never has to wait for space then.
const MAX_AT_A_TIME: usize = 64;

impl Node {
    /// Begins what is asked; answers at once what is over at once.
    pub(super) fn ask(&mut self, ticket: u64, ask: Ask) {
        let begun = self.begin(ticket, ask);
        match begun {
            Ok(Some(bytes)) => self.answer(ticket, Ok(bytes)),
            Ok(None) => {}
            // Posting would have to wait for space.
            Err(e) if e.kind() == ErrorKind::DeadlineExceeded => {
                let full = Error::new(ErrorKind::Full, "there is no space for it now");
                self.answer(ticket, Err(full.with_source(e)));
            }
            Err(e) => self.answer(ticket, Err(e)),
        }
    }

    pub(super) fn answer(&mut self, ticket: u64, result: Result<u64>) {
        self.out.push_back(super::Output::Answer { ticket, result });
    }

    /// `Some` when it is done already.
    fn begin(&mut self, ticket: u64, ask: Ask) -> Result<Option<u64>> {
        match ask {
            Ask::Connect { rank } => Ok(self.connect(ticket, rank)),
            Ask::Disconnect { rank } => {
                let Some(link) = self.session.link(Rank(rank)).filter(|l| !l.is_dead()) else {
                    return Ok(Some(0));
                };
                self.goodbye(ticket, vec![link]);
                Ok(None)
            }
            Ask::Leave => {
                self.session.stop_links();
                let links = self.session.links();
                self.goodbye(ticket, links);
                Ok(None)
            }
            Ask::Transfer { rank, direction, copy } => {
                let peer = self.ready_for_more(rank)?;
                let Copy { local_offset, remote_offset, len } = copy;
                let op = match direction {
                    Direction::Put => peer.put_nb(local_offset, remote_offset, len)?,
                    Direction::Get => peer.get_nb(local_offset, remote_offset, len)?,
                };
                self.wait_for(ticket, peer, op)
            }
            Ask::PutNotify { rank, copy, tag } => {
                let peer = self.ready_for_more(rank)?;
                let op =
                    peer.put_notify_nb(copy.local_offset, copy.remote_offset, copy.len, tag)?;
                self.wait_for(ticket, peer, op)
            }
            Ask::PutBatch { rank, list } => {
                let peer = self.ready_for_more(rank)?;
                let op = peer.put_batch(&list)?;
                self.wait_for(ticket, peer, op)
            }
            Ask::Window { rank, label, direction, copy } => {
                let peer = self.ready_for_more(rank)?;
                let unknown =
                    || Error::new(ErrorKind::NotFound, format!("no window {label} is known"));
                let window = DrivenLink::of(&peer).named_remote(label).ok_or_else(unknown)?;
                self.session.check_range(copy.local_offset, copy.len)?;
                let op = self.session.begin_transfer(&peer, &window, direction, copy)?;
                self.wait_for(ticket, peer, op)
            }
            Ask::Tag { rank, tag } => self.send(ticket, rank, Message::Tag(tag)),
            Ask::Int { rank, value } => self.send(ticket, rank, Message::Int(value)),
            Ask::Struct { rank, bytes } => self.send(ticket, rank, Message::Struct(bytes)),
            Ask::Expose { rank, label, len, access } => self.expose(rank, label, len, access),
            Ask::Revoke { label, patience } => self.revoke(label, patience),
            Ask::Send { rank, offset, len } => {
                let delivery = self.peer(rank)?.send_data_nb(offset, len)?;
                self.asks.push(PendingRequest::Delivery { ticket, delivery });
                Ok(None)
            }
            Ask::Recv { rank, offset, space } => {
                let delivery = self.peer(rank)?.recv_data_nb(offset, space)?;
                self.asks.push(PendingRequest::Delivery { ticket, delivery });
                Ok(None)
            }
            Ask::Cancel { ticket } => {
                let found = self.asks.iter().find(|a| a.ticket() == ticket);
                match found {
                    // Stale when it has just ended: too late, which is an answer as well.
                    Some(PendingRequest::Operation { peer, op, .. }) => drop(peer.cancel(*op)),
                    Some(PendingRequest::Delivery { delivery, .. }) => delivery.cancel(),
                    Some(PendingRequest::Message(_) | PendingRequest::Goodbye { .. }) | None => {}
                }
                self.forget_dial(ticket);
                Ok(Some(0))
            }
        }
    }

    fn connect(&mut self, ticket: u64, rank: u32) -> Option<u64> {
        if self.up.contains_key(&rank) && self.peer(rank).is_ok() {
            self.connected.push((ticket, rank));
            return Some(0);
        }
        self.dial_for(ticket, rank);
        None
    }

    fn goodbye(&mut self, ticket: u64, links: Vec<DrivenLink>) {
        for link in &links {
            link.begin_to_leave();
        }
        let until = self.deadline_in(self.deadline);
        self.asks.push(PendingRequest::Goodbye { ticket, links, until });
    }

    fn send(&mut self, ticket: u64, rank: u32, message: Message) -> Result<Option<u64>> {
        let peer = self.peer(rank)?;
        let until = self.deadline_in(self.deadline);
        self.asks.push(PendingRequest::Message(Sending {
            ticket,
            peer,
            message,
            mark: None,
            until,
        }));
        Ok(None)
    }

    fn ready_for_more(&self, rank: u32) -> Result<Peer> {
        let peer = self.peer(rank)?;
        let link = DrivenLink::of(&peer);
        let same = |a: &&PendingRequest| matches!(a, PendingRequest::Operation { peer: p, .. } if DrivenLink::of(p).is(&link));
        if self.asks.iter().filter(same).count() >= MAX_AT_A_TIME {
            return Err(Error::new(ErrorKind::Full, "too many operations at a time"));
        }
        Ok(peer)
    }

    fn wait_for(&mut self, ticket: u64, peer: Peer, op: OpId) -> Result<Option<u64>> {
        self.asks.push(PendingRequest::Operation { ticket, peer, op });
        Ok(None)
    }

    fn expose(&mut self, rank: u32, label: u64, len: u64, access: Access) -> Result<Option<u64>> {
        if !self.owned.contains_key(&label) {
            let span = self.fresh_region(len)?.take_all()?;
            self.owned.insert(label, Owned::Private(span));
        }
        let peer = self.peer(rank)?;
        if let Some(Owned::Exposed(w)) = self.owned.get(&label) {
            let what = format!("window {label} of {} bytes is exposed already", w.len());
            return Err(Error::new(ErrorKind::DuplicateRank, what));
        }
        let Some(Owned::Private(span)) = self.owned.remove(&label) else {
            return Err(Error::new(ErrorKind::Busy, format!("window {label} is held back")));
        };
        let (kept, result) = match peer.expose(span, access, label) {
            Ok(window) => (Owned::Exposed(window), Ok(Some(0))),
            Err((e, span)) => (Owned::Private(span), Err(e)),
        };
        self.owned.insert(label, kept);
        result
    }

    fn revoke(&mut self, label: u64, patience: Duration) -> Result<Option<u64>> {
        match self.owned.remove(&label) {
            Some(Owned::Exposed(window)) => {
                let span = window.revoke(patience)?;
                self.owned.insert(label, Owned::Private(span));
                Ok(Some(0))
            }
            Some(private) => {
                self.owned.insert(label, private);
                Ok(Some(0))
            }
            // Never exposed: nobody can reach it.
            None => Ok(Some(0)),
        }
    }

    /// Answers what has ended. Whether anything had.
    pub(super) fn answer_asks(&mut self) -> bool {
        let mut at = 0usize;
        let mut any = false;
        while let Some(ask) = self.asks.get_mut(at) {
            let Some(result) = look(ask, self.now) else {
                at = at.saturating_add(1);
                continue;
            };
            let ticket = ask.ticket();
            self.asks.remove(at);
            self.answer(ticket, result);
            any = true;
        }
        any
    }
}

/// The result of an ask, if there is one now.
fn look(ask: &mut PendingRequest, now: Instant) -> Option<Result<u64>> {
    match ask {
        PendingRequest::Operation { peer, op, .. } => match DrivenLink::of(peer).is_free(*op) {
            Ok(true) => Some(peer.wait_within(*op, Duration::ZERO)),
            Ok(false) => None,
            Err(e) => Some(Err(e)),
        },
        PendingRequest::Delivery { delivery, .. } => {
            delivery.test().map(|r| r.map(|(bytes, _)| bytes).map_err(|e| e.error))
        }
        PendingRequest::Message(sending) => sending.look(now),
        PendingRequest::Goodbye { links, until, .. } => {
            for link in links.iter() {
                let quiet = !link.is_dead() && link.in_flight() == 0;
                if now >= *until {
                    link.close("this session left");
                } else if quiet && !link.was_leaving() {
                    link.bye(*until);
                }
            }
            links.retain(|l| !l.is_dead());
            links.is_empty().then_some(Ok(0))
        }
    }
}
