//! Puts and gets between memory of ours and a window of a peer.

use std::time::Duration;

use hmc_core::work::{CompleteWhen, Opcode};

use crate::base::error::{Error, Result};
use crate::ops::carried::{Carried, Done, LocalBytes};
use crate::ops::lent::{Lent, LentMove, PendingLent};
use crate::ops::remote::{Remote, There};
use crate::ops::request::sealed::Sealed;
use crate::ops::request::{Expect, Notify, Request, Start, Verb, When};
use crate::ops::sources::{Sink, Source};
use crate::ops::started::{OpResult, Started};
use crate::ops::transfer::{Move, PendingMove};

/// A put ([`Remote::put`]) of memory of that type.
#[derive(Debug)]
pub struct Put<'a, B> {
    remote: &'a Remote,
    there: There,
    bytes: B,
    tag: Option<u64>,
    when: CompleteWhen,
}

/// A get ([`Remote::get`]) into memory of that type.
#[derive(Debug)]
pub struct Get<'a, B> {
    remote: &'a Remote,
    there: There,
    bytes: B,
}

impl Remote {
    /// Puts all bytes of `source` to offset `at` of the window. The operation is complete when the peer can read them, unless
    /// [`Request::when`] changes that.
    ///
    /// # Errors
    /// Of the request. After a failure the bytes of the window are old, new or mixed.
    /// - `Range` if the bytes exceed the window. Nothing is written.
    /// - `Access` if the window may only be read.
    /// - `PeerDead` if the peer exited or the link closed.
    /// - `Revoked` if the peer revoked the window; `NotFound` if the peer does not know it any longer.
    /// - `InvalidConfig` for memory of another session.
    #[inline(always)]
    pub fn put<S: Source>(&self, at: u64, source: S) -> Request<Put<'_, S::Bytes>> {
        let there = There { at, expected: None };
        let (bytes, when) = (source.into_bytes(), CompleteWhen::Visible);
        Request::new(Put { remote: self, there, bytes, tag: None, when })
    }

    /// Gets the bytes from offset `at` of the window into all of `sink`.
    ///
    /// # Errors
    /// Those of [`Remote::put`]. After a failure the bytes of `sink` are old, new or mixed.
    #[inline(always)]
    pub fn get<S: Sink>(&self, at: u64, sink: S) -> Request<Get<'_, S::Bytes>> {
        let there = There { at, expected: None };
        Request::new(Get { remote: self, there, bytes: sink.into_bytes() })
    }
}

impl<B> Put<'_, B> {
    #[inline(always)]
    fn code(&self) -> Opcode {
        self.tag.map_or(Opcode::Put, |tag| Opcode::PutNotify { tag })
    }
}

impl<'a, B> Put<'a, B> {
    #[inline(always)]
    fn described(self, within: Option<Duration>) -> Move<'a, B> {
        Move {
            remote: self.remote,
            code: self.code(),
            when: self.when,
            there: self.there,
            bytes: self.bytes,
            within,
        }
    }
}

impl<'a, B> Get<'a, B> {
    #[inline(always)]
    fn described(self, within: Option<Duration>) -> Move<'a, B> {
        Move {
            remote: self.remote,
            code: Opcode::Get,
            when: CompleteWhen::Visible,
            there: self.there,
            bytes: self.bytes,
            within,
        }
    }
}

// Both requests are finished in the same way.
macro_rules! transfers {
    ($verb:ident) => {
        impl<B> Sealed for $verb<'_, B> {}

        impl<'a, B: LocalBytes> Verb for $verb<'a, B> {
            type Output = Done<B::Memory>;
            type Error = <B::Memory as Carried>::Error;
            type Pending = PendingMove<'a, B>;

            #[inline(always)]
            fn wait(self, within: Option<Duration>) -> OpResult<B::Memory> {
                self.described(within).wait()
            }

            fn pending(self, within: Option<Duration>) -> PendingMove<'a, B> {
                self.described(within).pending()
            }
        }

        impl<B: LocalBytes> Start for $verb<'_, B> {
            type Memory = B::Memory;

            #[inline(always)]
            fn start(self, within: Option<Duration>, waits: bool) -> Started<B::Memory> {
                self.described(within).start(waits)
            }
        }

        impl<'a, 'b> Verb for $verb<'a, Lent<'b>> {
            type Output = Done;
            type Error = Error;
            type Pending = PendingLent<'a, 'b>;

            fn wait(self, within: Option<Duration>) -> Result<Done> {
                LentMove::from(self.described(within)).wait()
            }

            fn pending(self, within: Option<Duration>) -> PendingLent<'a, 'b> {
                LentMove::from(self.described(within)).pending()
            }
        }

        impl<B> Expect for $verb<'_, B>
        where
            Self: Verb,
        {
            #[inline]
            fn set_expected(&mut self, generation: u32) {
                self.there.expected = Some(generation);
            }
        }
    };
}

transfers!(Put);
transfers!(Get);

impl<B> Notify for Put<'_, B>
where
    Self: Verb,
{
    fn set_tag(&mut self, tag: u64) {
        self.tag = Some(tag);
    }
}

impl<B> When for Put<'_, B>
where
    Self: Verb,
{
    #[inline]
    fn set_when(&mut self, when: CompleteWhen) {
        self.when = when;
    }
}
