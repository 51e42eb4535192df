//! Messages of any size, from and to any memory: the C++ HMC's `sendDataTo` and `recvDataFrom`.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hmc_core::time::Instant;

use crate::base::error::{Error, Result};
use crate::ops::carried::{Carried, Done, LocalBytes};
use crate::ops::event_wait::EventWait;
use crate::ops::lent::Lent;
use crate::ops::lent_message::{LentMessage, PendingLentMessage};
use crate::ops::message_begin::{Beginning, WAITING, begin};
use crate::ops::message_op::{DeferredWakes, MessageOp};
use crate::ops::peer_handle::Peer;
use crate::ops::request::sealed::Sealed;
use crate::ops::request::{Request, Start, Verb};
use crate::ops::running::Running;
use crate::ops::sources::{Sink, Source};
use crate::ops::started::{Op, OpResult, Started, conclude, given};

/// A message that is sent ([`Peer::send_data`]) from memory of that type.
#[derive(Debug)]
pub struct SendData<'a, B> {
    peer: &'a Peer,
    bytes: B,
}

/// A message that is received ([`Peer::recv_data`]) into memory of that type.
#[derive(Debug)]
pub struct RecvData<'a, B> {
    peer: &'a Peer,
    bytes: B,
}

impl Peer {
    /// Sends all bytes of `source` to the peer's next unmatched [`recv_data`](Peer::recv_data). The send is complete when the peer has
    /// the bytes. Either end may call first. Messages are matched in the order of the sends and of the posted receives.
    ///
    /// # Errors
    /// Of the request. After a failure the receiver's bytes are old, new or mixed.
    /// - `Length` if the receiver has space for fewer bytes. Both ends get the error, and nothing is written.
    /// - `Cancelled` if the receiver withdrew.
    /// - `DeadlineExceeded`, `Interrupted`. The peer may nevertheless receive a message of up to 4 KiB, which is sent with its offer.
    /// - `PeerDead` if the peer exited or the link closed.
    /// - `InvalidConfig` for memory of another session.
    /// - `Full`, of `start`, if 64 messages to the peer are under way.
    pub fn send_data<S: Source>(&self, source: S) -> Request<SendData<'_, S::Bytes>> {
        Request::new(SendData { peer: self, bytes: source.into_bytes() })
    }

    /// Receives the peer's next message into `sink`, which may be longer than the message. The result has the message's length in
    /// bytes.
    ///
    /// Over shm, a receive of 64 KiB or more into memory that [`Memory`](crate::memory::Memory) allocated gives the peer, a process of the same
    /// user, the descriptor of the whole region. HMC in the peer writes the message's part only; other code there could write any part,
    /// also later. For a peer that is not trusted, receive into a region that is used for messages only, or into a slice.
    ///
    /// # Errors
    /// Those of [`Peer::send_data`]; `Length` if `sink` is shorter than the message; `Full` if too many windows are open; `NoSpace`.
    pub fn recv_data<S: Sink>(&self, sink: S) -> Request<RecvData<'_, S::Bytes>> {
        Request::new(RecvData { peer: self, bytes: sink.into_bytes() })
    }
}

/// How the two kinds of messages begin.
pub trait Begin: Unpin + std::fmt::Debug {
    type Bytes: LocalBytes;

    fn peer(&self) -> &Peer;

    /// It is ready to begin, and ends at `by` at the latest.
    fn beginning(self, by: Instant) -> Began<Self::Bytes>;
}

type Memory<V> = <<V as Begin>::Bytes as LocalBytes>::Memory;

/// A message that can begin, or why it cannot, with its memory.
pub(crate) type Began<B> =
    std::result::Result<Beginning, <<B as LocalBytes>::Memory as Carried>::Error>;

impl<B: LocalBytes> Begin for SendData<'_, B> {
    type Bytes = B;

    fn peer(&self) -> &Peer {
        self.peer
    }

    fn beginning(self, by: Instant) -> Began<B> {
        self.peer.offer(self.bytes, by)
    }
}

impl<B: LocalBytes> Begin for RecvData<'_, B> {
    type Bytes = B;

    fn peer(&self) -> &Peer {
        self.peer
    }

    fn beginning(self, by: Instant) -> Began<B> {
        self.peer.want(self.bytes, by)
    }
}

fn started<V: Begin>(
    message: V,
    within: Option<Duration>,
    waits: bool,
) -> std::result::Result<MessageOp, <Memory<V> as Carried>::Error> {
    let peer = message.peer().clone();
    let until = peer.shared.until(within.unwrap_or(peer.shared.config.deadline));
    let mut beginning = message.beginning(until.at)?;
    begin(&peer, &mut beginning, until, waits).map_err(|e| beginning.refused::<Memory<V>>(e))
}

// Both requests are finished in the same way.
macro_rules! messages {
    ($verb:ident, $sends:literal) => {
        impl<B> Sealed for $verb<'_, B> {}

        impl<'a, B: LocalBytes> Verb for $verb<'a, B> {
            type Output = Done<B::Memory>;
            type Error = <B::Memory as Carried>::Error;
            type Pending = PendingData<Self>;

            fn wait(self, within: Option<Duration>) -> OpResult<B::Memory> {
                let _waits = DeferredWakes::new(self.peer);
                let op = started(self, within, true)?;
                let result = op.finish(|| Ok(()));
                conclude(Running::Message(op), result)
            }

            fn pending(self, within: Option<Duration>) -> PendingData<Self> {
                PendingData { state: State::New(self), wait: EventWait::new(within) }
            }
        }

        impl<B: LocalBytes> Start for $verb<'_, B> {
            type Memory = B::Memory;

            fn start(self, within: Option<Duration>, waits: bool) -> Started<B::Memory> {
                Ok(Op::begun(Running::Message(started(self, within, waits)?)))
            }
        }

        impl<'a, 'b> Verb for $verb<'a, Lent<'b>> {
            type Output = Done;
            type Error = Error;
            type Pending = PendingLentMessage<'a, 'b>;

            fn wait(self, within: Option<Duration>) -> Result<Done> {
                LentMessage::new(self.peer, self.bytes, $sends).wait(within)
            }

            fn pending(self, within: Option<Duration>) -> PendingLentMessage<'a, 'b> {
                LentMessage::new(self.peer, self.bytes, $sends).pending(within)
            }
        }
    };
}

messages!(SendData, true);
messages!(RecvData, false);

/// A message as a future. It begins with the first poll. While as many are under way as may be, it is pending.
#[derive(Debug)]
pub struct PendingData<V> {
    state: State<V>,
    wait: EventWait,
}

#[derive(Debug)]
enum State<V> {
    New(V),
    Beginning(Peer, Beginning),
    Running(MessageOp),
    Over,
}

impl<V: Begin> Future for PendingData<V> {
    type Output = OpResult<Memory<V>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { state, wait } = &mut *self;
        loop {
            match std::mem::replace(state, State::Over) {
                State::New(message) => {
                    let peer = message.peer().clone();
                    let by = wait.deadline(&peer.shared);
                    *state = State::Beginning(peer, message.beginning(by)?);
                }
                State::Beginning(peer, mut beginning) => {
                    let late = || Error::deadline(WAITING);
                    let begun = wait.poll_on(&peer.shared, peer.link.space(), cx, late, || {
                        beginning.attempt(&peer)
                    });
                    match begun {
                        Poll::Pending => {
                            *state = State::Beginning(peer, beginning);
                            return Poll::Pending;
                        }
                        Poll::Ready(Ok(handle)) => {
                            let by = wait.deadline(&peer.shared);
                            *state = State::Running(MessageOp::new(peer, handle, by));
                        }
                        Poll::Ready(Err(e)) => {
                            let e = e.with_peer(peer.rank());
                            return Poll::Ready(Err(beginning.refused::<Memory<V>>(e)));
                        }
                    }
                }
                State::Running(op) => {
                    if op.poll_result(cx).is_pending() {
                        *state = State::Running(op);
                        return Poll::Pending;
                    }
                    let result = ready!(op.poll_result(cx));
                    return Poll::Ready(conclude(Running::Message(op), result));
                }
                State::Over => return Poll::Ready(Err(given().into())),
            }
        }
    }
}
