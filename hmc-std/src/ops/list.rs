//! Lists of transfers: checked once, posted as one operation.

use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hmc_core::queue::Transfer;
use hmc_core::work::{CompleteWhen, Opcode};

use crate::base::error::{Error, Result};
use crate::link::LinkState;
use crate::link::op_resources::OpResources;
use crate::link::transfer_list::{Blocks, ListBuilder, NotPushed, TransferList};
use crate::memory::LocalRange;
use crate::ops::carried::Done;
use crate::ops::job::{Job, PendingJob, Work};
use crate::ops::remote::{Remote, There};
use crate::ops::request::sealed::Sealed;
use crate::ops::request::{Notify, Request, Start, Verb, When};
use crate::ops::started::{Op, given};

/// One piece of a list: a local range, and the offset in the peer's window to which it is put or from which it is got; or many
/// blocks of that length at equal distances ([`Piece::repeat`]).
#[derive(Clone, Copy, Debug)]
pub struct Piece<'m> {
    here: LocalRange<'m>,
    at: u64,
    times: u32,
    here_stride: u64,
    there_stride: u64,
    expected: Option<u32>,
}

impl<'m> Piece<'m> {
    /// A piece of the bytes of `here` and as many bytes at offset `at` (in bytes) of the window.
    #[must_use]
    pub const fn new(here: LocalRange<'m>, at: u64) -> Self {
        Self { here, at, times: 1, here_stride: 0, there_stride: 0, expected: None }
    }

    /// Replaces the piece by `times` blocks of its length: block `k` begins `k * here_stride` bytes behind the first local byte, and
    /// `k * there_stride` bytes behind `at` in the window. Any stride is allowed: blocks overlap if it is less than their length, and
    /// all are the same bytes if it is 0. With `times` 0 the piece is empty.
    ///
    /// A list stores such a piece as it is and computes its blocks when they are moved: a piece of millions of blocks takes as much
    /// memory, and as much time to check, as a piece of one block. Blocks that are adjacent on both sides are moved as one
    /// transfer, and so are successive pieces.
    ///
    /// The blocks may exceed the range of [`Piece::new`], but not its memory: the list is refused with `Range` if a block exceeds
    /// the local memory or the window.
    #[must_use]
    pub const fn repeat(self, times: u32, here_stride: u64, there_stride: u64) -> Self {
        Self { times, here_stride, there_stride, ..self }
    }

    /// Transfers the piece only if each block of the window of which it has bytes has that generation, as for
    /// [`Request::expect`]. Pieces of a list may expect different generations. If a piece is refused, the list fails, and other
    /// pieces may have been transferred.
    #[must_use]
    pub const fn expect(self, generation: u32) -> Self {
        Self { expected: Some(generation), ..self }
    }

    fn blocks(&self) -> Blocks {
        let Self { here, at, times, here_stride, there_stride, expected } = *self;
        let (here, len) = (here.bytes().offset(), here.len());
        Blocks { here, there: at, len, times, here_stride, there_stride, expected }
    }
}

/// Lists whose bytes go to the peer.
#[derive(Clone, Copy, Debug)]
pub enum Puts {}

/// Lists whose bytes come from the peer.
#[derive(Clone, Copy, Debug)]
pub enum Gets {}

/// The direction of a list.
pub trait ListKind: Sealed + Unpin + std::fmt::Debug {
    #[doc(hidden)]
    const OPCODE: Opcode;
}

impl Sealed for Puts {}
impl Sealed for Gets {}

impl ListKind for Puts {
    const OPCODE: Opcode = Opcode::Put;
}

impl ListKind for Gets {
    const OPCODE: Opcode = Opcode::Get;
}

/// A list of pieces, as a request ([`Remote::put_list`], [`Remote::get_list`]).
#[derive(Debug)]
pub struct List<'a, K> {
    remote: &'a Remote,
    pieces: &'a [Piece<'a>],
    tag: Option<u64>,
    when: CompleteWhen,
    kind: PhantomData<K>,
}

/// A list whose pieces were checked, which can be run any number of times ([`Request::prepare`]). Clones share the list; several
/// threads may run it at a time.
#[derive(Clone, Debug)]
pub struct Plan<K> {
    remote: Remote,
    list: Arc<TransferList>,
    pieces: usize,
    kind: PhantomData<K>,
}

/// A run of a prepared list, as a request ([`Plan::again`]).
#[derive(Debug)]
pub struct Again<'a, K> {
    plan: &'a Plan<K>,
    tag: Option<u64>,
}

/// A list that is to be run.
#[derive(Debug)]
pub struct Run<'a> {
    remote: &'a Remote,
    list: Arc<TransferList>,
    opcode: Opcode,
    tag: Option<u64>,
    within: Option<Duration>,
}

impl Remote {
    /// Puts all pieces as one operation, which is complete when the peer can read all of them, unless [`Request::when`] changes
    /// that. Their order is not defined: if two overlap in the window, their bytes may be mixed.
    ///
    /// # Errors
    /// Of the request:
    /// - `Range` if a piece exceeds the window, or a repeated piece the local memory. The error names the index of the first such
    ///   piece, and nothing is written.
    /// - Those of [`Remote::put`]. Some pieces may have been written.
    pub fn put_list<'a>(&'a self, pieces: &'a [Piece<'a>]) -> Request<List<'a, Puts>> {
        List::of(self, pieces)
    }

    /// Gets all pieces as one operation, which is complete when their bytes are in the local memory.
    ///
    /// # Errors
    /// As [`Remote::put_list`].
    pub fn get_list<'a>(&'a self, pieces: &'a [Piece<'a>]) -> Request<List<'a, Gets>> {
        List::of(self, pieces)
    }
}

impl<'a, K: ListKind> List<'a, K> {
    fn of(remote: &'a Remote, pieces: &'a [Piece<'a>]) -> Request<Self> {
        let when = CompleteWhen::Visible;
        Request::new(Self { remote, pieces, tag: None, when, kind: PhantomData })
    }

    fn check(&self) -> Result<Arc<TransferList>> {
        let peer = &self.remote.peer;
        peer.shared.check_process()?;
        let (window, runs) = (&self.remote.window, self.pieces.len());
        let mut list = ListBuilder::new(K::OPCODE, self.when, window, runs);
        let mut last = None;
        for (index, piece) in self.pieces.iter().enumerate() {
            let region = piece.here.region();
            if last.replace(region.key()) != Some(region.key()) {
                peer.shared.check_own(region)?;
            }
            list.push(region, piece.blocks()).map_err(|e| refused(e, Some(index)))?;
        }
        Ok(Arc::new(list.finish().map_err(|e| refused(e, None))?))
    }
}

/// The error of a list, because of that piece or of all of them.
#[cold]
fn refused(why: NotPushed, piece: Option<usize>) -> Error {
    match (why, piece) {
        (NotPushed::Range(range), Some(n)) => Error::out_of_range(format!("piece {n}"), range),
        (NotPushed::Range(range), None) => range.into(),
        (NotPushed::TooMany, _) => Error::config(format!(
            "the blocks of a list are more than the {} of one operation; post several lists",
            u32::MAX
        )),
    }
}

impl<K: ListKind> Request<List<'_, K>> {
    /// Checks the pieces once, for any number of runs ([`Plan::again`]). The tag and the time limit of this request do not apply to
    /// them.
    ///
    /// # Errors
    /// - `Range` for the first piece that exceeds the window or, if it is repeated, the local memory.
    /// - `InvalidConfig` for memory of another session, or more than 2^32 - 1 blocks that are not adjacent.
    /// - `Forked` in a forked child.
    pub fn prepare(self) -> Result<Plan<K>> {
        let verb = self.into_verb();
        let list = verb.check().map_err(|e| e.with_peer(verb.remote.peer.rank()))?;
        let pieces = verb.pieces.len();
        Ok(Plan { remote: verb.remote.clone(), list, pieces, kind: PhantomData })
    }
}

impl<K: ListKind> Plan<K> {
    /// Returns a request for one run of the list. Neither this call nor the run allocates.
    ///
    /// # Errors
    /// Of the request: as [`Remote::put`]; some pieces may have been written.
    pub fn again(&self) -> Request<Again<'_, K>> {
        Request::new(Again { plan: self, tag: None })
    }

    /// Returns the number of pieces. A repeated piece counts once.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.pieces
    }

    /// Returns `true` if the list has no pieces.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Run<'_> {
    /// Tries to copy a short list in the call, through a mapped window. Returns `true` if that was done.
    fn is_done(&self) -> Result<bool> {
        let peer = &self.remote.peer;
        peer.shared.check_process()?;
        if self.tag.is_some() || peer.link.state() != LinkState::Ready {
            return Ok(false);
        }
        let mut data = peer.link.data();
        let done = data.transfer_list_now(&self.list);
        if done {
            data.count(self.opcode);
        }
        Ok(done)
    }

    fn done(&self) -> Done {
        Done { bytes: self.list.bytes(), memory: () }
    }

    fn job(self) -> Result<Job> {
        let Self { list, opcode, tag, remote, .. } = self;
        let parts = list.len();
        Ok(match tag {
            None => Job { work: Work::List(parts, opcode), held: OpResources::list(list) },
            Some(tag) if parts != 0 => {
                let held = OpResources::notifying_list(list, tag);
                Job { work: Work::List(parts, opcode), held }
            }
            // The tag alone. Each window and region has a range without bytes.
            Some(tag) => {
                let region = remote.peer.shared.buffer.region();
                let (local, remote) =
                    (region.slice(0, 0)?, remote.slice(There { at: 0, expected: None }, 0)?);
                let (opcode, when) = (Opcode::PutNotify { tag }, CompleteWhen::Visible);
                let held = OpResources::region(region.clone());
                Job { work: Work::One(Transfer { opcode, when, local, remote }), held }
            }
        })
    }

    fn wait(self) -> Result<Done> {
        if self.is_done()? {
            return Ok(self.done());
        }
        let (peer, until) = (&self.remote.peer, self.remote.until(self.within));
        self.job()?.wait(peer, until)
    }

    fn start(self, waits: bool) -> Result<Op> {
        if self.is_done()? {
            return Ok(Op::over(self.done()));
        }
        let (peer, until) = (&self.remote.peer, self.remote.until(self.within));
        self.job()?.start(peer, until, waits)
    }
}

/// A request that is a run of a list.
pub trait AsRun<'a>: Unpin + std::fmt::Debug {
    #[doc(hidden)]
    fn run(&self, within: Option<Duration>) -> Result<Run<'a>>;
}

impl<'a, K: ListKind> AsRun<'a> for List<'a, K> {
    fn run(&self, within: Option<Duration>) -> Result<Run<'a>> {
        let list = self.check().map_err(|e| e.with_peer(self.remote.peer.rank()))?;
        Ok(Run { remote: self.remote, list, opcode: K::OPCODE, tag: self.tag, within })
    }
}

impl<'a, K: ListKind> AsRun<'a> for Again<'a, K> {
    fn run(&self, within: Option<Duration>) -> Result<Run<'a>> {
        let (remote, list) = (&self.plan.remote, Arc::clone(&self.plan.list));
        Ok(Run { remote, list, opcode: K::OPCODE, tag: self.tag, within })
    }
}

impl When for List<'_, Puts> {
    fn set_when(&mut self, when: CompleteWhen) {
        self.when = when;
    }
}

/// A run of a list as a future. The first poll posts it, and its time limit counts from then.
#[derive(Debug)]
pub struct PendingRun<'a, R>(State<'a, R>);

#[derive(Debug)]
enum State<'a, R> {
    New(R, Option<Duration>),
    Posting(PendingJob<'a, ()>),
    Over,
}

impl<'a, R: AsRun<'a>> Future for PendingRun<'a, R> {
    type Output = Result<Done>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let State::New(described, within) = &self.0 {
            let run = described.run(*within);
            self.0 = State::Over;
            let run = run?;
            if run.is_done()? {
                return Poll::Ready(Ok(run.done()));
            }
            let (peer, until) = (&run.remote.peer, run.remote.until(run.within));
            self.0 = State::Posting(run.job()?.pending(peer, until));
        }
        match &mut self.0 {
            State::Posting(job) => Pin::new(job).poll(cx),
            State::New(..) | State::Over => Poll::Ready(Err(given())),
        }
    }
}

// Both requests are finished in the same way.
macro_rules! runs {
    ($verb:ident) => {
        impl<K> Sealed for $verb<'_, K> {}

        impl<'a, K: ListKind> Verb for $verb<'a, K> {
            type Output = Done;
            type Error = Error;
            type Pending = PendingRun<'a, Self>;

            fn wait(self, within: Option<Duration>) -> Result<Done> {
                self.run(within)?.wait()
            }

            fn pending(self, within: Option<Duration>) -> PendingRun<'a, Self> {
                PendingRun(State::New(self, within))
            }
        }

        impl<K: ListKind> Start for $verb<'_, K> {
            type Memory = ();

            fn start(self, within: Option<Duration>, waits: bool) -> Result<Op> {
                self.run(within)?.start(waits)
            }
        }

        impl Notify for $verb<'_, Puts> {
            fn set_tag(&mut self, tag: u64) {
                self.tag = Some(tag);
            }
        }
    };
}

runs!(List);
runs!(Again);
