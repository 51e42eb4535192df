//! How a node executes the requests of its application.
//!
//! A request completes when the operation's local memory is no longer used, not merely when its outcome is known: then the
//! application may use its range again whatever the outcome is.

use std::task::{Context, Poll, Waker};
use std::time::Duration;

use hmc_core::time::Instant;
use hmc_core::types::{Access, Rank};
use hmc_std::error::{Error, ErrorKind, Result};
use hmc_std::internals::link::DrivenLink;
use hmc_std::internals::own_buffer;
use hmc_std::peer::Peer;
use hmc_std::{Message, Op, Waited};

use super::node_request::NodeRequest;
use super::pending_request::PendingRequest;
use super::sending::Sending;
use super::{Node, Owned};
use crate::buffers::{BufferMessages as _, BufferTransfers as _, Copy, Direction, Ends};

/// Operations that one peer may be asked for at a time. Posting never has to wait for space then.
const MAX_AT_A_TIME: usize = 64;

impl Node {
    /// Begins a request; completes at once what is over at once.
    pub(super) fn begin_request(&mut self, number: u64, request: NodeRequest) {
        let begun = self.begin(number, request);
        match begun {
            Ok(Some(bytes)) => self.complete(number, Ok(bytes)),
            Ok(None) => {}
            // Posting would have to wait for space.
            Err(e) if e.kind() == ErrorKind::DeadlineExceeded => {
                let what = format!("there is no space for it now: {e}");
                self.complete(number, Err(Error::new(ErrorKind::Full, what)));
            }
            Err(e) => self.complete(number, Err(e)),
        }
    }

    pub(super) fn complete(&mut self, number: u64, result: Result<u64>) {
        self.out.push_back(super::Output::Result { number, result });
    }

    /// `Some` when it is done already.
    fn begin(&mut self, number: u64, request: NodeRequest) -> Result<Option<u64>> {
        match request {
            NodeRequest::Connect { rank } => Ok(self.connect(number, rank)),
            NodeRequest::Disconnect { rank } => {
                let Some(link) = self.session.link(Rank(rank)).filter(|l| !l.is_dead()) else {
                    return Ok(Some(0));
                };
                self.goodbye(number, vec![link]);
                Ok(None)
            }
            NodeRequest::Leave => {
                self.session.stop_links();
                let links = self.session.links();
                self.goodbye(number, links);
                Ok(None)
            }
            NodeRequest::Transfer { rank, direction, copy } => {
                let peer = self.ready_for_more(rank)?;
                let Copy { local_offset, remote_offset, len } = copy;
                let op = match direction {
                    Direction::Put => peer.start_put_at(local_offset, remote_offset, len)?,
                    Direction::Get => peer.start_get_at(local_offset, remote_offset, len)?,
                };
                self.wait_for(number, peer, op)
            }
            NodeRequest::PutNotify { rank, copy, tag } => {
                let peer = self.ready_for_more(rank)?;
                let Copy { local_offset, remote_offset, len } = copy;
                let op = peer.start_put_notify_at(local_offset, remote_offset, len, tag)?;
                self.wait_for(number, peer, op)
            }
            NodeRequest::PutBatch { rank, list } => {
                let peer = self.ready_for_more(rank)?;
                let op = peer.prepare_at(Direction::Put, &list)?.start()?;
                self.wait_for(number, peer, op)
            }
            NodeRequest::Window { rank, label, direction, copy } => {
                let peer = self.ready_for_more(rank)?;
                let unknown =
                    || Error::new(ErrorKind::NotFound, format!("no window {label} is known"));
                let window = DrivenLink::of(&peer).named_remote(label).ok_or_else(unknown)?;
                let local = own_buffer(&peer);
                let ends = Ends { local, remote: self.session.remote(&peer, window) };
                let op = ends.start_within(direction, copy, self.deadline)?;
                self.wait_for(number, peer, op)
            }
            NodeRequest::Tag { rank, tag } => self.send(number, rank, Message::Tag(tag)),
            NodeRequest::Int { rank, value } => self.send(number, rank, Message::Int(value)),
            NodeRequest::Struct { rank, bytes } => self.send(number, rank, Message::bytes(bytes)),
            NodeRequest::Expose { rank, label, len, access } => {
                self.expose(rank, label, len, access)
            }
            NodeRequest::Revoke { label, patience } => self.revoke(label, patience),
            NodeRequest::Send { rank, offset, len } => {
                let delivery = self.peer(rank)?.start_send_at(offset, len)?;
                self.requests.push(PendingRequest::Delivery { number, delivery });
                Ok(None)
            }
            NodeRequest::Recv { rank, offset, space } => {
                let delivery = self.peer(rank)?.start_recv_at(offset, space)?;
                self.requests.push(PendingRequest::Delivery { number, delivery });
                Ok(None)
            }
            NodeRequest::Cancel { number } => {
                let found = self.requests.iter().find(|a| a.number() == number);
                match found {
                    // When it has just ended it is too late, which completes it as well.
                    Some(PendingRequest::Operation { op, .. }) => op.cancel(),
                    Some(PendingRequest::Delivery { delivery, .. }) => delivery.cancel(),
                    Some(PendingRequest::Message(_) | PendingRequest::Goodbye { .. }) | None => {}
                }
                self.remove_dial(number);
                Ok(Some(0))
            }
        }
    }

    fn connect(&mut self, number: u64, rank: u32) -> Option<u64> {
        if self.up.contains_key(&rank) && self.peer(rank).is_ok() {
            self.connected.push((number, rank));
            return Some(0);
        }
        self.dial_for(number, rank);
        None
    }

    fn goodbye(&mut self, number: u64, links: Vec<DrivenLink>) {
        for link in &links {
            link.begin_to_leave();
        }
        let until = self.deadline_in(self.deadline);
        self.requests.push(PendingRequest::Goodbye { number, links, until });
    }

    fn send(&mut self, number: u64, rank: u32, message: Message<'static>) -> Result<Option<u64>> {
        let peer = self.peer(rank)?;
        let until = self.deadline_in(self.deadline);
        self.requests.push(PendingRequest::Message(Sending {
            number,
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
        if self.requests.iter().filter(same).count() >= MAX_AT_A_TIME {
            return Err(Error::new(ErrorKind::Full, "too many operations at a time"));
        }
        Ok(peer)
    }

    fn wait_for(&mut self, number: u64, peer: Peer, op: Op) -> Result<Option<u64>> {
        self.requests.push(PendingRequest::Operation { number, peer, op });
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
                let span = window.revoke().within(patience).wait()?;
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

    /// Completes the requests that have ended. Whether any had.
    pub(super) fn complete_requests(&mut self) -> bool {
        let mut at = 0usize;
        let mut any = false;
        while let Some(request) = self.requests.get_mut(at) {
            let Some(result) = look(request, self.now) else {
                at = at.saturating_add(1);
                continue;
            };
            let number = request.number();
            self.requests.remove(at);
            self.complete(number, result);
            any = true;
        }
        any
    }
}

/// The result of a request, if there is one now.
fn look(request: &mut PendingRequest, now: Instant) -> Option<Result<u64>> {
    match request {
        PendingRequest::Operation { peer, op, .. } => {
            let waited = DrivenLink::of(peer).is_free(op).then(|| op.wait_for(Duration::ZERO));
            waited.and_then(Waited::ended)
        }
        PendingRequest::Delivery { delivery, .. } => {
            // It drives nothing.
            match delivery.poll_ended(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(result) => Some(result),
                Poll::Pending => None,
            }
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
