//! Requests: what is to be done, before anything is.

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use hmc_core::work::CompleteWhen;

use crate::base::polling::Polling;
use crate::ops::carried::Carried;
use crate::ops::started::Op;

/// A description of an operation. Nothing happens before it is finished in one of three ways:
///
/// - [`Request::wait`] performs the operation and blocks until it is complete.
/// - [`Request::start`] begins it and returns an [`Op`], which can be waited for later.
/// - `.await` performs it without blocking, on any executor. Nothing is done before the first poll. If the future is dropped
///   after that, the operation continues in the background.
#[derive(Debug)]
#[must_use = "nothing happens before .wait(), .start() or .await"]
pub struct Request<V> {
    verb: V,
    within: Option<Duration>,
}

/// The operation that a request describes. Only this library implements it.
pub trait Verb: sealed::Sealed + Sized {
    /// Its result.
    type Output;
    /// Its error.
    type Error;
    #[doc(hidden)]
    type Pending: Future<Output = Result<Self::Output, Self::Error>> + Unpin + std::fmt::Debug;

    #[doc(hidden)]
    fn wait(self, within: Option<Duration>) -> Result<Self::Output, Self::Error>;

    #[doc(hidden)]
    fn pending(self, within: Option<Duration>) -> Self::Pending;
}

/// An operation that can be started. It owns its memory until its fence.
pub trait Start: Verb {
    /// The memory that the operation owns and returns.
    type Memory: Carried;

    #[doc(hidden)]
    fn start(
        self,
        within: Option<Duration>,
        waits: bool,
    ) -> Result<Op<Self::Memory>, <Self::Memory as Carried>::Error>;
}

/// A put, whose bytes a notification may follow.
pub trait Notify: Verb {
    #[doc(hidden)]
    fn set_tag(&mut self, tag: u64);
}

/// A put of one source or of a list, which may be complete before the peer can read its bytes.
pub trait When: Verb {
    #[doc(hidden)]
    fn set_when(&mut self, when: CompleteWhen);
}

/// A transfer to or from a window, whose blocks may have generations.
pub trait Expect: Verb {
    #[doc(hidden)]
    fn set_expected(&mut self, generation: u32);
}

pub(crate) mod sealed {
    pub trait Sealed {}
}

impl<V> Request<V> {
    #[inline(always)]
    pub(crate) fn new(verb: V) -> Self {
        Self { verb, within: None }
    }

    /// The same with something changed.
    pub(crate) fn map(mut self, change: impl FnOnce(&mut V)) -> Self {
        change(&mut self.verb);
        self
    }

    pub(crate) fn into_verb(self) -> V {
        self.verb
    }

    /// Limits the time of the operation, counted from its begin: it then fails with `DeadlineExceeded`, and its memory is returned
    /// at its fence. The default is the session's deadline (30 s unless configured).
    #[inline]
    pub fn within(self, time: Duration) -> Self {
        Self { within: Some(time), ..self }
    }
}

impl<V: Verb> Request<V> {
    /// Performs the operation and blocks until it is complete.
    ///
    /// # Errors
    /// Those of the method that made the request; `DeadlineExceeded`, `Interrupted`, `Forked`.
    #[inline(always)]
    pub fn wait(self) -> Result<V::Output, V::Error> {
        self.verb.wait(self.within)
    }
}

impl<V: Start> Request<V> {
    /// Begins the operation without blocking.
    ///
    /// # Errors
    /// Those of the method that made the request. `Full`, with the memory, if all slots of this peer are in use.
    #[inline(always)]
    pub fn start(self) -> Result<Op<V::Memory>, <V::Memory as Carried>::Error> {
        self.verb.start(self.within, false)
    }

    /// As [`Request::start`], but where that is refused as `Full` it waits until one of the operations has ended. The time of
    /// the request counts from the call.
    ///
    /// # Errors
    /// As [`Request::start`]; `DeadlineExceeded`, `Interrupted`.
    #[inline(always)]
    pub fn start_blocking(self) -> Result<Op<V::Memory>, <V::Memory as Carried>::Error> {
        self.verb.start(self.within, true)
    }
}

impl<V: Notify> Request<V> {
    /// Delivers `tag` to the peer's inbox after all bytes: who receives it can read them.
    #[inline]
    pub fn notify(mut self, tag: u64) -> Self {
        self.verb.set_tag(tag);
        self
    }
}

impl<V: When> Request<V> {
    /// Says when the put is complete. [`CompleteWhen::Visible`], the default: the peer can read the bytes.
    ///
    /// [`CompleteWhen::Local`]: the memory here may be used again, as a send of MPI or a write of RDMA says it. The bytes arrive
    /// later, without an order to anything else: a tag that is sent after such a put may come before its bytes. An orderly end
    /// ([`Peer::disconnect`](crate::Peer::disconnect), the end of a session) waits for them until its deadline. That they did not
    /// arrive is not reported: because the peer ended, took its window back or refused them, or because that deadline passed or this
    /// process ended first. To know it, put visibly.
    ///
    /// Local completion saves a round trip over TCP, and the read behind the write over RDMA. It changes nothing, and the put is
    /// complete when its bytes are visible, where the put has a tag ([`Request::notify`]) or expects a generation
    /// ([`Request::expect`]), in memory that is mapped here, over UCX, and for sources that are slices. A list that is prepared
    /// keeps it.
    #[inline]
    pub fn when(mut self, when: CompleteWhen) -> Self {
        self.verb.set_when(when);
        self
    }
}

impl<V: Expect> Request<V> {
    /// Does it only if each block of the window of which it has bytes has that generation ([`Generations`](crate::Generations)
    /// says what that means for a get and for a put).
    ///
    /// The request fails with `StaleEpoch` if a block has another generation, before the bytes move or after; its error names
    /// the block ([`Error::stale_block`](crate::Error::stale_block)). The window's bytes, or those of a get's memory, are then
    /// old, new or mixed. It fails with `Unsupported` if the window was exposed without generations, or if the transport or the
    /// peer's version of HMC compares none.
    #[inline]
    pub fn expect(mut self, generation: u32) -> Self {
        self.verb.set_expected(generation);
        self
    }
}

/// A request that is awaited.
#[derive(Debug)]
#[must_use = "futures do nothing unless they are polled"]
pub struct Pending<V: Verb>(V::Pending);

impl<V: Verb> Future for Pending<V> {
    type Output = Result<V::Output, V::Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let _polling = Polling::enter();
        Pin::new(&mut self.0).poll(cx)
    }
}

impl<V: Verb> IntoFuture for Request<V> {
    type Output = Result<V::Output, V::Error>;
    type IntoFuture = Pending<V>;

    fn into_future(self) -> Pending<V> {
        Pending(self.verb.pending(self.within))
    }
}
