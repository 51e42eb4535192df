//! Outgoing messages: protocol messages are queued; messages of the application wait for space in the socket.

use hmc_core::time::Instant;
use hmc_core::types::ConnType;
use hmc_core::wire::advert::{ENDPOINT_CTRL_RING, EndpointBlob};
use hmc_core::wire::message::ControlMessage;

use super::ctrl::CtrlState;
use super::ctrl::machine::ControlMachine;
use super::{Link, increment};
use crate::base::error::{Error, ErrorKind, Result};
use crate::node::inbox::Message;
use crate::transport::ctrl_rings::PeerRing;

impl ControlMachine {
    /// Whether the protocol may queue an answer: nothing waits for the peer to read.
    #[inline]
    pub(super) fn may_answer(&self) -> bool {
        self.unsent.is_empty()
    }
}

impl Link {
    /// Sends a control message.
    ///
    /// # Errors
    /// `Full` when the peer does not read fast enough; `PeerDead` when it is gone.
    pub(crate) fn send(&self, m: &ControlMessage<'_>) -> Result<()> {
        self.send_by(m, |ctrl, m, now| ctrl.send(m, now)).map(drop)
    }

    /// Sends a message of the application. If this gives a mark, the message is on its way, and needs this process no more,
    /// when that [`has_left`](Link::has_left).
    ///
    /// # Errors
    /// `Full` when the system takes nothing now; `PeerDead` when the peer is gone.
    pub(crate) fn send_out(&self, m: &ControlMessage<'_>) -> Result<Option<u64>> {
        let mark = self.send_by(m, CtrlState::send_out)?;
        Ok(mark)
    }

    /// The peer's ring has come: sends by it.
    pub(super) fn send_by_ring(&self, ring: PeerRing) {
        let note = EndpointBlob { kind: ENDPOINT_CTRL_RING, bytes: &[] };
        let mut ctrl = self.ctrl();
        ctrl.send_by(ring, &ControlMessage::Endpoint(note), self.clock.now());
        self.update_ctrl_interest(&mut ctrl);
    }

    /// A call begins that sends messages and then waits for the peer: a peer that sleeps is woken after a short time of that
    /// wait, unless it looks by itself before.
    pub(crate) fn defer_wakes(&self) {
        self.ctrl_wakes.defer();
    }

    /// Such a call is over.
    pub(crate) fn resume_wakes(&self) {
        self.ctrl_wakes.resume();
        self.ctrl().wake_peer();
    }

    /// Whether the system has what was sent up to `mark`, if that is known; an error when it never will.
    pub(crate) fn has_left(&self, mark: u64) -> Option<Result<()>> {
        {
            let mut ctrl = self.ctrl();
            if ctrl.has_left(mark) {
                return Some(Ok(()));
            }
            self.update_ctrl_interest(&mut ctrl);
        }
        self.check_not_dead().err().map(Err)
    }

    #[inline]
    fn send_by<R: Default>(
        &self,
        m: &ControlMessage<'_>,
        send: impl FnOnce(&mut CtrlState, &ControlMessage<'_>, Instant) -> Result<R>,
    ) -> Result<R> {
        self.check_not_dead()?;
        if self.conn() == Some(ConnType::Loopback) {
            return self.send_to_self(m).map(|()| R::default());
        }
        let (sent, ended) = {
            let mut ctrl = self.ctrl();
            let sent = send(&mut ctrl, m, self.clock.now());
            // Also while another thread is about to wait for a message.
            ctrl.wake_peer();
            self.update_ctrl_interest(&mut ctrl);
            (sent, ctrl.machine.ended())
        };
        if ended.is_some() {
            self.end_ctrl(ended);
            // Whoever ends it at the same time may not have said so yet.
            return Err(Error::peer_dead(self.peer, self.closing_reason()));
        }
        let sent = sent.map_err(|e| e.with_peer(self.peer))?;
        self.count_sent(m);
        Ok(sent)
    }

    /// Counts a message of the application's.
    fn count_sent(&self, m: &ControlMessage<'_>) {
        if matches!(
            m,
            ControlMessage::Tag(_) | ControlMessage::Int32(_) | ControlMessage::Struct(_)
        ) {
            increment(&self.counters.messages_out);
        }
    }

    fn send_to_self(&self, m: &ControlMessage<'_>) -> Result<()> {
        let message = match m {
            ControlMessage::Tag(tag) => Message::Tag(*tag),
            ControlMessage::Int32(n) => Message::Int(*n),
            ControlMessage::Struct(bytes) => Message::bytes(bytes.to_vec()),
            ControlMessage::Advert(advert) => {
                self.data().add_peer_window(advert);
                self.leader_lock.notify();
                if let Some(owner) = self.owner.upgrade() {
                    owner.on_event(self);
                }
                return Ok(());
            }
            ControlMessage::Revoke { window, epoch } => {
                let _ = self.data().remove_peer_window(*window, *epoch);
                return Ok(());
            }
            _ => return Ok(()),
        };
        let full = {
            let bytes = if let Message::Bytes(b) = &message { b.len() } else { 0 };
            !self.inbox().has_space(1, bytes)
        };
        if full {
            return Err(Error::new(ErrorKind::Full, "this session's own inbox is full")
                .with_remedy("receive some")
                .with_peer(self.peer));
        }
        self.deliver(message);
        self.count_sent(m);
        self.leader_lock.notify();
        if let Some(owner) = self.owner.upgrade() {
            owner.on_event(self);
        }
        Ok(())
    }

    fn check_not_dead(&self) -> Result<()> {
        if self.is_closing() { Err(self.gone()) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use hmc_core::rndv::{RndvId, RndvMsg};
    use hmc_core::types::{ConnType, Rank};
    use hmc_core::wire::advert::{RegionAdvert, WindowBacking, WindowRole};
    use hmc_core::wire::message::ControlMessage;

    use crate::base::error::ErrorKind;
    use crate::link::ends::{End, INBOX, alone, pair};
    use crate::link::{CLOSING, LinkState};
    use crate::node::inbox::{Message, Wanted};

    fn sent(end: &End) -> u64 {
        end.link.counters.messages_out.load(Ordering::Relaxed)
    }

    #[test]
    fn messages_of_the_application_are_counted_and_no_others() {
        let (near, far) = pair(ConnType::Tcp);
        for (n, m) in
            [ControlMessage::Tag(1), ControlMessage::Int32(-2), ControlMessage::Struct(b"abc")]
                .iter()
                .enumerate()
        {
            assert!(near.link.send_out(m).expect("sent").is_none(), "it has left");
            assert_eq!(sent(&near), u64::try_from(n).expect("small") + 1);
        }
        near.link
            .send(&ControlMessage::Rndv(RndvMsg::Offer { id: RndvId(0), len: 1 }))
            .expect("sent");
        assert_eq!(sent(&near), 3);
        far.run_until_idle();
        let got = [(); 3].map(|()| far.link.inbox().take(Wanted::Any));
        let want = [Message::Tag(1), Message::Int(-2), Message::bytes(b"abc".to_vec())];
        assert_eq!(got, want.map(Some));
    }

    #[test]
    fn messages_of_a_session_to_itself_come_through_no_socket() {
        let end = alone(4, 1);
        end.link.choose(ConnType::Loopback, String::new());
        let events = || end.event_counts().0;
        for (m, got) in [
            (ControlMessage::Tag(1), Message::Tag(1)),
            (ControlMessage::Int32(-2), Message::Int(-2)),
            (ControlMessage::Struct(b"abc"), Message::bytes(b"abc".to_vec())),
        ] {
            let before = (sent(&end), events());
            end.link.send(&m).expect("it has space");
            assert_eq!(end.link.inbox().take(Wanted::Any), Some(got));
            assert_eq!((sent(&end), events()), (before.0 + 1, before.1 + 1), "{m:?}");
        }
        let (_region, region) = pair(ConnType::Tcp).0.expose(8);
        let (window, epoch) = (region.window, region.epoch);
        let advert =
            RegionAdvert { region, backing: WindowBacking::Process, role: WindowRole::Named(3) };
        end.link.send(&ControlMessage::Advert(advert)).expect("known");
        assert_eq!(end.link.data().named_remote(3), Some(region));
        end.link.send(&ControlMessage::Revoke { window, epoch }).expect("forgotten");
        assert_eq!(end.link.data().named_remote(3), None);
        assert_eq!((end.link.inbox().len(), sent(&end), events()), (0, 3, 4));
        for _ in 0..INBOX.0 {
            end.link.send(&ControlMessage::Int32(1)).expect("it has space");
        }
        let e = end.link.send(&ControlMessage::Int32(1)).expect_err("it is full");
        assert_eq!((e.kind(), e.peer()), (ErrorKind::Full, Some(Rank(4))));
        // By bytes, too.
        end.link.inbox().drop_all();
        end.link.send(&ControlMessage::Struct(&[0; INBOX.1 - 1])).expect("it has space");
        assert!(end.link.send(&ControlMessage::Struct(&[0; 2])).is_err());
        end.link.send(&ControlMessage::Struct(&[0; 1])).expect("it has space");
    }

    #[test]
    fn nothing_is_sent_on_a_link_that_closes() {
        for closing in [false, true] {
            let (near, far) = pair(ConnType::Tcp);
            assert!(near.link.advance(LinkState::Leaving));
            near.link.send(&ControlMessage::Tag(1)).expect("it is only being left");
            if closing {
                near.link.state.store(CLOSING, Ordering::Relaxed);
            } else {
                assert!(near.link.advance(LinkState::Dead));
            }
            for e in [
                near.link.send(&ControlMessage::Tag(2)),
                near.link.send_out(&ControlMessage::Tag(2)).map(drop),
            ] {
                assert_eq!(e.map_err(|e| e.kind()), Err(ErrorKind::PeerDead));
            }
            far.run_until_idle();
            assert_eq!((far.link.inbox().len(), sent(&near)), (1, 1));
            // The system has the first.
            assert!(near.link.has_left(1).is_some_and(|r| r.is_ok()));
            assert!(near.link.has_left(u64::MAX).is_some_and(|r| r.is_err()), "it never will");
        }
        let (near, _far) = pair(ConnType::Tcp);
        assert!(near.link.has_left(u64::MAX).is_none(), "it may still");
    }

    #[test]
    fn a_peer_that_does_not_read_takes_no_more_than_the_system_does() {
        let (near, far) = pair(ConnType::Tcp);
        let bytes = [7; 60_000];
        let mut taken = 0;
        let mark = loop {
            match near.link.send_out(&ControlMessage::Struct(&bytes)) {
                Ok(None) => taken += 1,
                Ok(Some(mark)) => break mark,
                Err(e) => panic!("half of one is taken first: {e}"),
            }
        };
        let e = near.link.send_out(&ControlMessage::Tag(1)).expect_err("nothing of it");
        assert_eq!((e.kind(), e.peer()), (ErrorKind::Full, Some(Rank(1))));
        assert_eq!(sent(&near), taken + 1);
        assert!(near.link.has_left(mark).is_none());
        while near.link.has_left(mark).is_none() {
            far.link.poll_ctrl(false);
            far.link.inbox().drop_all();
            near.link.poll_ctrl(false);
        }
        assert!(near.link.has_left(mark + 1).is_none(), "just so many bytes");
    }
}
