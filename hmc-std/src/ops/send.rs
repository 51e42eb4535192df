//! Sending small messages.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use hmc_core::limits::MAX_FRAME_BYTES;
use hmc_core::range::{Extent, Side};
use hmc_core::wire::message::ControlMessage;
use hmc_mem::error::MemError;
use hmc_mem::shared::SharedBytes;

use crate::base::error::{Error, ErrorKind, Result};
use crate::link::{Link, WaitScope};
use crate::node::inbox::Message;
use crate::ops::event_wait::EventWait;
use crate::ops::peer_handle::Peer;
use crate::ops::request::sealed::Sealed;
use crate::ops::request::{Request, Verb};

/// A small message that is sent ([`Peer::send`]).
#[derive(Debug)]
pub struct SendMessage<'a> {
    peer: &'a Peer,
    message: Message<'a>,
    /// All of it is in the queue of the connection, up to this mark.
    mark: Option<u64>,
}

impl Message<'static> {
    /// A message of a copy of bytes that others may write meanwhile, each read once.
    ///
    /// # Errors
    /// `Range` for more than 1 MiB, of which nothing is copied.
    pub fn copy_of(bytes: SharedBytes<'_>) -> Result<Self> {
        let all = bytes.extent().whole();
        check_len(all.len())?;
        let mut copy = vec![0; usize::try_from(all.len()).unwrap_or(0)];
        bytes.read_at(all, &mut copy).map_err(MemError::from)?;
        Ok(Self::bytes(copy))
    }
}

fn check_len(len: u64) -> Result<()> {
    Extent::new(u64::from(MAX_FRAME_BYTES)).span(Side::Local, 0, len)?;
    Ok(())
}

impl Peer {
    /// Sends a small message. Messages arrive in the order in which they were sent; bytes of puts that were waited for before
    /// can be read by whoever receives it, unless they were to complete locally ([`Request::when`]). When the request is done
    /// the system has the message: it reaches the peer even if this process ends then.
    ///
    /// # Errors
    /// Of the request: `PeerDead`, `Closed`; `DeadlineExceeded` or `Interrupted` when the peer does not receive; `Range` for
    /// more than 1 MiB; `InvalidConfig` for a notification, which goes with a put.
    pub fn send<'a>(&'a self, message: Message<'a>) -> Request<SendMessage<'a>> {
        Request::new(SendMessage { peer: self, message, mark: None })
    }
}

impl SendMessage<'_> {
    fn check(&self) -> Result<()> {
        self.peer.shared.check_process()?;
        match &self.message {
            Message::Bytes(bytes) => check_len(u64::try_from(bytes.len()).unwrap_or(u64::MAX)),
            Message::Notify(_) => Err(Error::config(
                "a notification is sent with the bytes of a put: `remote.put(..).notify(tag)`",
            )),
            Message::Tag(_) | Message::Int(_) => Ok(()),
        }
    }

    /// Sends it if there is space. `None` while the system does not have all of it.
    fn attempt(&mut self, link: &Link) -> Option<Result<()>> {
        if self.mark.is_none() {
            let frame = match &self.message {
                Message::Tag(tag) | Message::Notify(tag) => ControlMessage::Tag(*tag),
                Message::Int(n) => ControlMessage::Int32(*n),
                Message::Bytes(bytes) => ControlMessage::Struct(bytes),
            };
            match link.check_open().and_then(|()| link.send_out(&frame)) {
                Err(e) if e.kind() == ErrorKind::Full => return None,
                Err(e) => return Some(Err(e)),
                Ok(None) => return Some(Ok(())),
                Ok(at) => self.mark = at,
            }
        }
        link.has_left(self.mark?)
    }
}

const WHAT: &str = "sending: the peer does not receive";

impl Sealed for SendMessage<'_> {}

impl<'a> Verb for SendMessage<'a> {
    type Output = ();
    type Error = Error;
    type Pending = PendingSend<'a>;

    fn wait(mut self, within: Option<Duration>) -> Result<()> {
        self.check()?;
        let peer = self.peer;
        self.attempt(&peer.link).unwrap_or_else(|| {
            let until = peer.shared.until(within.unwrap_or(peer.shared.config.deadline));
            let sent = peer.link.drive(WaitScope::Both, until, |link| self.attempt(link));
            sent.unwrap_or_else(|stop| Err(stop.error(WHAT).with_peer(peer.rank())))
        })
    }

    fn pending(self, within: Option<Duration>) -> PendingSend<'a> {
        PendingSend { send: self, wait: EventWait::new(within) }
    }
}

/// It as a future.
#[derive(Debug)]
pub struct PendingSend<'a> {
    send: SendMessage<'a>,
    wait: EventWait,
}

impl Future for PendingSend<'_> {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { send, wait } = &mut *self;
        send.check()?;
        wait.check()?;
        let peer = send.peer;
        let late = || Error::deadline(WHAT).with_peer(peer.rank());
        let space = peer.link.space();
        let sent = wait.poll_on(&peer.shared, space, cx, late, || send.attempt(&peer.link));
        wait.give(sent)
    }
}
