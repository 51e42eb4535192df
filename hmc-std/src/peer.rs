//! One peer: everything that can be done with it.

use std::sync::Arc;
use std::time::Duration;

use hmc_core::kinds::{Access, ConnType, Rank};
use hmc_core::lane::{LaneError, Transfer};
use hmc_core::region::{LocalSlice, RemoteRegion, RemoteSlice};
use hmc_core::slots::{self, Outcome};
use hmc_core::span::Side;
use hmc_core::time::Instant;
use hmc_core::transport::ErrorKind as PostError;
use hmc_core::wire::advert::Role;
use hmc_core::wire::message::Message as Wire;
use hmc_core::work::{CompleteWhen, Opcode};

use crate::batch::{Batch, Copy, Direction};
use crate::clock;
use crate::error::{Error, ErrorKind, Result};
use crate::future::{Op, OpFuture};
use crate::link::data::{Aftermath, Hold};
use crate::link::{Choice, Life, Link, Watch, bump};
use crate::memory::Span;
use crate::node::inbox::{Message, Want};
use crate::op::{OpError, OpId};
use crate::shared::Shared;
use crate::window::{RemoteWindow, Window};

/// A connected peer. Cheap to clone; all methods may be called from any thread.
///
/// Offsets of `put` and `get` address the two ends' [`crate::memory::ConnBuffer`]s, in bytes. A
/// handle belongs to one life of the peer: when that is over every call answers `PeerDead`, also
/// after the peer came back; ask the session for a new handle then.
#[derive(Clone, Debug)]
pub struct Peer {
    pub(crate) link: Arc<Link>,
    pub(crate) shared: Arc<Shared>,
}

/// What `explain` tells.
#[derive(Clone, Debug)]
pub struct Explanation {
    /// The transport that moves the bytes; `None` for a peer of the upstream dialect.
    pub conn: Option<ConnType>,
    /// All that were considered, and why.
    pub choices: Vec<Choice>,
    /// Who checks accesses to exposed memory, and what that means.
    pub trust: &'static str,
}

impl std::fmt::Display for Explanation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.conn {
            Some(conn) => writeln!(f, "{conn}")?,
            None => writeln!(f, "control messages only")?,
        }
        for c in &self.choices {
            let mark = if c.chosen { "chosen" } else { "not chosen" };
            writeln!(f, "  {}: {mark}: {}", c.conn, c.why)?;
        }
        write!(f, "  trust: {}", self.trust)
    }
}

fn opcode(direction: Direction) -> Opcode {
    match direction {
        Direction::Put => Opcode::Put,
        Direction::Get => Opcode::Get,
    }
}

impl Peer {
    /// The peer's rank.
    #[must_use]
    pub fn rank(&self) -> Rank {
        self.link.peer
    }

    /// Whether the link can still be used.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.link.life() == Life::Ready
    }

    /// The transport that moves the bytes, as told by itself.
    #[must_use]
    pub fn conn(&self) -> Option<ConnType> {
        self.link.data().port().kind()
    }

    /// Which transport was chosen, why, and why not the others.
    #[must_use]
    pub fn explain(&self) -> Explanation {
        let conn = self.conn();
        let trust = match conn {
            Some(ConnType::Shm) => {
                "the kernel bounds mapped regions; offsets and revocation are checked by this \
                 library in the peer's process (same user)"
            }
            Some(ConnType::Tcp) => "the target checks window, range and epoch of every frame",
            Some(ConnType::Loopback) => "this process",
            _ => "no memory is exposed",
        };
        Explanation {
            conn,
            choices: self.link.choices(),
            trust,
        }
    }

    /// Bytes of the peer's buffer.
    ///
    /// # Errors
    /// `NotFound` when it exposes none.
    pub fn remote_len(&self) -> Result<u64> {
        Ok(self.default_remote()?.extent.len())
    }

    fn default_remote(&self) -> Result<RemoteRegion> {
        self.link
            .data()
            .default_remote()
            .ok_or_else(|| self.no_buffer())
    }

    fn no_buffer(&self) -> Error {
        if self.link.life() == Life::Dead {
            return self.link.gone();
        }
        Error::new(ErrorKind::NotFound, "the peer exposes no buffer").with_peer(self.rank())
    }

    fn deadline(&self) -> Instant {
        clock::deadline_in(self.shared.config.deadline)
    }

    /// Puts `len` bytes from `local_offset` of our buffer to `remote_offset` of the peer's, and
    /// returns when the peer can read them.
    ///
    /// # Errors
    /// `Range` when either range exceeds its buffer (nothing is written), `PeerDead`,
    /// `DeadlineExceeded` after the session's deadline (default 30 s), `Revoked`. After a failure
    /// the peer's bytes are old, new or mixed.
    pub fn put(&self, local_offset: u64, remote_offset: u64, len: u64) -> Result<()> {
        self.transfer(
            Opcode::Put,
            local_offset,
            remote_offset,
            len,
            self.shared.config.deadline,
        )
    }

    /// Gets `len` bytes from `remote_offset` of the peer's buffer to `local_offset` of ours.
    ///
    /// # Errors
    /// As [`Peer::put`]; after a failure our bytes are old, new or mixed.
    pub fn get(&self, local_offset: u64, remote_offset: u64, len: u64) -> Result<()> {
        self.transfer(
            Opcode::Get,
            local_offset,
            remote_offset,
            len,
            self.shared.config.deadline,
        )
    }

    /// As [`Peer::put`] or [`Peer::get`], with a deadline of its own.
    ///
    /// # Errors
    /// As [`Peer::put`].
    pub fn transfer_within(
        &self,
        direction: Direction,
        copy: Copy,
        timeout: Duration,
    ) -> Result<()> {
        let code = opcode(direction);
        self.transfer(
            code,
            copy.local_offset,
            copy.remote_offset,
            copy.len,
            timeout,
        )
    }

    /// Puts, then delivers `tag` to the peer's inbox after the bytes. Returns when both are there.
    ///
    /// # Errors
    /// As [`Peer::put`].
    pub fn put_notify(
        &self,
        local_offset: u64,
        remote_offset: u64,
        len: u64,
        tag: u64,
    ) -> Result<()> {
        let code = Opcode::PutNotify { tag };
        self.transfer(
            code,
            local_offset,
            remote_offset,
            len,
            self.shared.config.deadline,
        )
    }

    fn transfer(&self, code: Opcode, lo: u64, ro: u64, len: u64, timeout: Duration) -> Result<()> {
        let region = self.shared.buffer.region();
        let local = region.slice(lo, len)?;
        {
            let mut data = self.link.data();
            let Some(remote) = data.default_remote() else {
                drop(data);
                return Err(self.no_buffer());
            };
            let remote = remote.slice(ro, len)?;
            // A small copy into mapped memory needs neither clock nor operation.
            if self.link.life() == Life::Ready
                && let Some(done) = data.transfer_now(region, code, local, remote)
            {
                drop(data);
                self.count(code);
                return done.map(drop).map_err(|e| self.failed(e.into()));
            }
        }
        let deadline = clock::deadline_in(timeout);
        let t = self.describe(code, local, ro, len)?;
        let op = self.post(
            &t,
            deadline,
            Hold {
                region: Some(region.clone()),
                ..Hold::default()
            },
        )?;
        let (outcome, _) = self.finish(op, deadline)?;
        outcome.result.map(drop).map_err(|e| self.failed(e.into()))
    }

    fn failed(&self, e: Error) -> Error {
        bump(&self.link.counters.failures);
        if e.kind() == ErrorKind::PeerDead {
            return self.link.gone();
        }
        e.with_peer(self.rank())
    }

    fn count(&self, code: Opcode) {
        let c = &self.link.counters;
        bump(if code == Opcode::Get {
            &c.gets
        } else {
            &c.puts
        });
    }

    fn describe(&self, code: Opcode, local: LocalSlice, ro: u64, len: u64) -> Result<Transfer> {
        let remote = self.default_remote()?.slice(ro, len)?;
        Ok(Transfer {
            opcode: code,
            when: CompleteWhen::Visible,
            local,
            remote,
        })
    }

    /// Posts one transfer, waiting for room if there is none.
    fn post(&self, t: &Transfer, deadline: Instant, hold: Hold) -> Result<slots::OpId> {
        self.submit(t.opcode, deadline, hold, |data, hold| {
            data.post(t, deadline, hold)
        })
    }

    fn submit(
        &self,
        code: Opcode,
        deadline: Instant,
        hold: Hold,
        mut attempt: impl FnMut(
            &mut crate::link::data::DataState,
            Hold,
        )
            -> std::result::Result<slots::OpId, (LaneError<PostError>, Hold)>,
    ) -> Result<slots::OpId> {
        let mut hold = Some(hold);
        let mut once = |link: &Link| {
            if let Err(e) = link.check_open() {
                return Some(Err(e));
            }
            let mut after = Aftermath::default();
            let result = {
                let mut data = link.data();
                let r = attempt(&mut data, hold.take().unwrap_or_default());
                if r.is_ok() {
                    data.pump(&mut after);
                    link.settle_data(&mut data);
                }
                r
            };
            link.follow_up(after);
            match result {
                Ok(op) => Some(Ok(op)),
                Err((LaneError::Busy, back)) => {
                    hold = Some(back);
                    None
                }
                Err((e, _)) => Some(Err(self.refused(e))),
            }
        };
        let op = self
            .link
            .drive(Watch::Data, deadline, &mut once)
            .unwrap_or_else(|| Err(Error::deadline("waiting for room to post")))
            .map_err(|e| e.with_peer(self.rank()))?;
        self.count(code);
        Ok(op)
    }

    fn refused(&self, e: LaneError<PostError>) -> Error {
        match e {
            LaneError::Full { limit } => Error::new(
                ErrorKind::Full,
                format!(
                    "{limit} operations to this peer were posted and not waited for, which is the \
                     limit; wait for some, or start the session with more slots (at most 1024)"
                ),
            ),
            LaneError::Length { local, remote } => Error::new(
                ErrorKind::Length,
                format!("{local} local bytes against {remote} remote ones"),
            ),
            LaneError::Transport(PostError::Disconnected) => self.link.gone(),
            LaneError::Transport(PostError::Unsupported) => Error::new(
                ErrorKind::Unsupported,
                "this peer has no data plane (upstream dialect); connect natively",
            ),
            other => Error::new(ErrorKind::Io, format!("the transport refused: {other}")),
        }
    }

    fn name(&self, op: slots::OpId) -> OpId {
        OpId {
            peer: self.link.peer,
            link: self.link.serial,
            op,
        }
    }

    /// Waits for an operation of this link to end, at `deadline` at the latest.
    pub(crate) fn finish(&self, op: slots::OpId, deadline: Instant) -> Result<(Outcome, Hold)> {
        let stale = || {
            Error::new(ErrorKind::Stale, "the operation was already waited for")
                .with_op(self.name(op))
        };
        let mut take = |link: &Link| link.data().take(op).transpose();
        if let Some(r) = self.link.drive(Watch::Data, deadline, &mut take) {
            return r.map_err(|_| stale());
        }
        // The deadline passed: end it, if it is its own deadline too.
        let mut after = Aftermath::default();
        let ended = {
            let mut data = self.link.data();
            data.expire(clock::now(), &mut after);
            data.take(op)
        };
        self.link.follow_up(after);
        match ended {
            Ok(Some(r)) => Ok(r),
            Ok(None) => Err(Error::deadline("waiting")
                .with_op(self.name(op))
                .with_peer(self.rank())),
            Err(_) => Err(stale()),
        }
    }

    /// Begins a put and returns at once, with its name. The bytes of our buffer must not change
    /// until it is done. Waits for room when the transport has none.
    ///
    /// # Errors
    /// `Range`; `Full` when too many operations were posted and not waited for; `PeerDead`.
    pub fn put_nb(&self, local_offset: u64, remote_offset: u64, len: u64) -> Result<OpId> {
        self.begin(Opcode::Put, local_offset, remote_offset, len)
    }

    /// Begins a get and returns at once, with its name.
    ///
    /// # Errors
    /// As [`Peer::put_nb`].
    pub fn get_nb(&self, local_offset: u64, remote_offset: u64, len: u64) -> Result<OpId> {
        self.begin(Opcode::Get, local_offset, remote_offset, len)
    }

    /// Begins a put with a tag that follows its bytes; see [`Peer::put_notify`].
    ///
    /// # Errors
    /// As [`Peer::put_nb`].
    pub fn put_notify_nb(
        &self,
        local_offset: u64,
        remote_offset: u64,
        len: u64,
        tag: u64,
    ) -> Result<OpId> {
        self.begin(Opcode::PutNotify { tag }, local_offset, remote_offset, len)
    }

    fn begin(&self, code: Opcode, lo: u64, ro: u64, len: u64) -> Result<OpId> {
        let region = self.shared.buffer.region();
        let t = self.describe(code, region.slice(lo, len)?, ro, len)?;
        let hold = Hold {
            region: Some(region.clone()),
            ..Hold::default()
        };
        Ok(self.name(self.post(&t, self.deadline(), hold)?))
    }

    /// A put as a future. Any executor will do; dropping it abandons the operation, which runs on.
    ///
    /// # Errors
    /// As [`Peer::put_nb`].
    pub fn put_async(&self, local_offset: u64, remote_offset: u64, len: u64) -> Result<OpFuture> {
        Ok(OpFuture::new(
            self.clone(),
            self.put_nb(local_offset, remote_offset, len)?.op,
        ))
    }

    /// A get as a future; see [`Peer::put_async`].
    ///
    /// # Errors
    /// As [`Peer::put_nb`].
    pub fn get_async(&self, local_offset: u64, remote_offset: u64, len: u64) -> Result<OpFuture> {
        Ok(OpFuture::new(
            self.clone(),
            self.get_nb(local_offset, remote_offset, len)?.op,
        ))
    }

    /// Begins all copies of a list, as one operation.
    ///
    /// # Errors
    /// `Range` for the first copy that does not fit (nothing is posted), else as [`Peer::put_nb`].
    pub fn put_batch(&self, copies: &[Copy]) -> Result<OpId> {
        self.post_batch(&self.prepare(Direction::Put, copies)?)
    }

    /// Begins all copies of a list, as one operation.
    ///
    /// # Errors
    /// As [`Peer::put_batch`].
    pub fn get_batch(&self, copies: &[Copy]) -> Result<OpId> {
        self.post_batch(&self.prepare(Direction::Get, copies)?)
    }

    /// Checks a list of copies once, so that it can be posted many times. It belongs to this life of
    /// the peer and to the present window of its buffer.
    ///
    /// # Errors
    /// `Range` for the first copy that does not fit.
    pub fn prepare(&self, direction: Direction, copies: &[Copy]) -> Result<Batch> {
        let region = self.shared.buffer.region();
        let remote = self.default_remote()?;
        let list: Result<Vec<Transfer>> = copies
            .iter()
            .map(|c| {
                Ok(Transfer {
                    opcode: opcode(direction),
                    when: CompleteWhen::Visible,
                    local: region.slice(c.local_offset, c.len)?,
                    remote: remote.slice(c.remote_offset, c.len)?,
                })
            })
            .collect();
        Ok(Batch {
            list: list?.into(),
            region: region.clone(),
            direction,
            link: self.link.serial,
        })
    }

    /// Begins a prepared batch. Allocates nothing.
    ///
    /// # Errors
    /// `Stale` when it was prepared for another life of the peer; else as [`Peer::put_nb`].
    pub fn post_batch(&self, batch: &Batch) -> Result<OpId> {
        if batch.link != self.link.serial {
            return Err(Error::new(
                ErrorKind::Stale,
                "the batch was prepared for another peer or life; prepare it anew",
            )
            .with_peer(self.rank()));
        }
        let deadline = self.deadline();
        let hold = Hold {
            region: Some(batch.region.clone()),
            ..Hold::default()
        };
        let op = self.submit(opcode(batch.direction), deadline, hold, |data, hold| {
            data.post_list(&batch.list, deadline, hold)
        })?;
        Ok(self.name(op))
    }

    /// Puts a long range in chunks of `chunk` bytes with at most `max_inflight` of them under way.
    /// Returns when all is visible.
    ///
    /// # Errors
    /// `InvalidConfig` for a chunk of 0 or an `max_inflight` of 0; else as [`Peer::put`].
    pub fn put_pipeline(&self, copy: Copy, chunk: u64, max_inflight: usize) -> Result<()> {
        self.pipeline(Opcode::Put, copy, chunk, max_inflight)
    }

    /// Gets a long range in chunks; see [`Peer::put_pipeline`].
    ///
    /// # Errors
    /// As [`Peer::put_pipeline`].
    pub fn get_pipeline(&self, copy: Copy, chunk: u64, max_inflight: usize) -> Result<()> {
        self.pipeline(Opcode::Get, copy, chunk, max_inflight)
    }

    fn pipeline(&self, code: Opcode, copy: Copy, chunk: u64, max_inflight: usize) -> Result<()> {
        if chunk == 0 || max_inflight == 0 {
            return Err(Error::config(
                "a pipeline needs chunks of at least 1 byte, and at least one in flight",
            ));
        }
        let region = self.shared.buffer.region();
        let deadline = self.deadline();
        let mut rest = self.describe(
            code,
            region.slice(copy.local_offset, copy.len)?,
            copy.remote_offset,
            copy.len,
        )?;
        let limit = max_inflight.min(self.shared.config.slots);
        let mut flying = std::collections::VecDeque::with_capacity(limit);
        let mut failure = None;
        while !rest.local.span.is_empty() || !flying.is_empty() {
            let room = failure.is_none() && flying.len() < limit;
            if room && !rest.local.span.is_empty() {
                let (local, local_rest) = rest.local.span.take(chunk);
                let (remote, remote_rest) = rest.remote.span.take(chunk);
                let t = Transfer {
                    local: LocalSlice {
                        span: local,
                        ..rest.local
                    },
                    remote: RemoteSlice {
                        span: remote,
                        ..rest.remote
                    },
                    ..rest
                };
                let hold = Hold {
                    region: Some(region.clone()),
                    ..Hold::default()
                };
                match self.post(&t, deadline, hold) {
                    Ok(op) => flying.push_back(op),
                    Err(e) => failure = Some(e),
                }
                rest.local.span = local_rest;
                rest.remote.span = remote_rest;
                continue;
            }
            let Some(op) = flying.pop_front() else { break };
            match self.finish(op, deadline).map(|(o, _)| o.result) {
                Ok(Ok(_)) => {}
                Ok(Err(e)) => failure = failure.or(Some(self.failed(e.into()))),
                Err(e) => failure = failure.or(Some(e)),
            }
        }
        failure.map_or(Ok(()), Err)
    }

    /// Waits until an operation ended, within the session's deadline. Gives the bytes moved.
    ///
    /// # Errors
    /// The operation's own failure; `Stale` for one that was waited for before; `DeadlineExceeded`
    /// when it has not ended yet: it can be waited for again.
    pub fn wait(&self, op: OpId) -> Result<u64> {
        self.wait_within(op, self.shared.config.deadline)
    }

    /// As [`Peer::wait`], within `timeout`.
    ///
    /// # Errors
    /// As [`Peer::wait`].
    pub fn wait_within(&self, op: OpId, timeout: Duration) -> Result<u64> {
        self.check_name(op)?;
        let (outcome, _) = self.finish(op.op, clock::deadline_in(timeout))?;
        outcome
            .result
            .map_err(|e| self.failed(Error::from(e).with_op(op)))
    }

    /// Whether an operation has ended. It still has to be waited for.
    ///
    /// # Errors
    /// `Stale`.
    pub fn test(&self, op: OpId) -> Result<bool> {
        self.check_name(op)?;
        let ended = |link: &Link| link.data().lane().test(op.op);
        let stale = |_| Error::new(ErrorKind::Stale, "already waited for").with_op(op);
        if ended(&self.link).map_err(stale)? {
            return Ok(true);
        }
        self.link.turn_data();
        ended(&self.link).map_err(stale)
    }

    /// Asks for an operation to end. It still has to be waited for; it ends as `Cancelled` unless it
    /// had ended already.
    ///
    /// # Errors
    /// `Stale`.
    pub fn cancel(&self, op: OpId) -> Result<()> {
        self.check_name(op)?;
        let mut after = Aftermath::default();
        let r = {
            let mut data = self.link.data();
            let r = data.lane().cancel(op.op);
            data.pump(&mut after);
            self.link.settle_data(&mut data);
            r
        };
        self.link.follow_up(after);
        r.map_err(|_| Error::new(ErrorKind::Stale, "already waited for").with_op(op))
    }

    pub(crate) fn abandon(&self, op: slots::OpId) {
        let mut after = Aftermath::default();
        {
            let mut data = self.link.data();
            let _ = data.lane().abandon(op);
            data.pump(&mut after);
        }
        self.link.follow_up(after);
    }

    fn check_name(&self, op: OpId) -> Result<()> {
        if op.peer == self.link.peer && op.link == self.link.serial {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::Stale,
            "the operation belongs to another peer or life",
        )
        .with_op(op))
    }

    /// Puts all of `src` to `offset` of one of the peer's windows. The span goes into the operation
    /// and comes back with its result, or with its error once it is fenced.
    ///
    /// # Errors
    /// The span and why it was not posted: `Range`, `Busy`, `PeerDead`, ...
    pub fn put_span(
        &self,
        src: Span,
        dst: &RemoteWindow,
        offset: u64,
    ) -> std::result::Result<Op, OpError> {
        self.move_span(Opcode::Put, src, dst, offset)
    }

    /// Fills all of `dst` from `offset` of one of the peer's windows.
    ///
    /// # Errors
    /// As [`Peer::put_span`].
    pub fn get_span(
        &self,
        dst: Span,
        src: &RemoteWindow,
        offset: u64,
    ) -> std::result::Result<Op, OpError> {
        self.move_span(Opcode::Get, dst, src, offset)
    }

    fn move_span(
        &self,
        code: Opcode,
        span: Span,
        window: &RemoteWindow,
        offset: u64,
    ) -> std::result::Result<Op, OpError> {
        let remote = match window.region.slice(offset, span.len()) {
            Ok(r) => r,
            Err(e) => {
                return Err(OpError {
                    error: e.into(),
                    span: Some(span),
                });
            }
        };
        if window.link != self.link.serial {
            let e = Error::new(
                ErrorKind::Stale,
                "the window belongs to another peer or life",
            );
            return Err(OpError {
                error: e.with_peer(self.rank()),
                span: Some(span),
            });
        }
        let t = Transfer {
            opcode: code,
            when: CompleteWhen::Visible,
            local: span.slice(),
            remote,
        };
        let region = Some(span.region().clone());
        // The span stays in `kept` until the operation is posted, and goes into its slot then.
        let mut kept = Some(span);
        let deadline = self.deadline();
        let posted = self.submit(
            code,
            deadline,
            Hold {
                region,
                ..Hold::default()
            },
            |data, hold| {
                let op = data.post(&t, deadline, hold)?;
                data.keep_span(op, kept.take());
                Ok(op)
            },
        );
        match posted {
            Ok(op) => Ok(Op::new(self.clone(), op)),
            Err(error) => Err(OpError { error, span: kept }),
        }
    }

    /// Exposes a span to this peer until it is revoked. The peer finds it by `label`.
    ///
    /// # Errors
    /// The span and why: `Full` when too many windows are open, `Quarantined` when too much memory
    /// is, `PeerDead`.
    pub fn expose(
        &self,
        span: Span,
        access: Access,
        label: u64,
    ) -> std::result::Result<Window, (Error, Span)> {
        let held = crate::window::quarantined_bytes(&self.shared);
        if held > self.shared.config.max_quarantine {
            let e = Error::new(
                ErrorKind::Quarantined,
                format!(
                    "{held} bytes are quarantined because silent peers may still touch them, the \
                     limit is {}; wait for their processes to end",
                    self.shared.config.max_quarantine
                ),
            );
            return Err((e, span));
        }
        let made = self.link.check_open().and_then(|()| {
            let role = Role::Named(label);
            let (region, at, len) = (span.region(), span.offset(), span.len());
            let advert = self
                .shared
                .expose(&self.link, region, at, len, access, role)?;
            self.link.send(&Wire::Advert(advert))?;
            Ok(advert.region)
        });
        match made {
            Ok(region) => Ok(Window::new(self.clone(), span, region)),
            Err(e) => Err((e, span)),
        }
    }

    /// The peer's window of that label, waiting for it up to `timeout`.
    ///
    /// # Errors
    /// `DeadlineExceeded`, `PeerDead`.
    pub fn remote_window(&self, label: u64, timeout: Duration) -> Result<RemoteWindow> {
        let found = self
            .link
            .drive(Watch::Both, clock::deadline_in(timeout), |link| {
                if let Some(region) = link.data().named_remote(label) {
                    return Some(Ok(region));
                }
                (link.life() == Life::Dead).then(|| Err(link.gone()))
            });
        match found {
            Some(Ok(region)) => Ok(RemoteWindow {
                region,
                link: self.link.serial,
            }),
            Some(Err(e)) => Err(e),
            None => Err(
                Error::deadline(format_args!("waiting for the window labelled {label}"))
                    .with_peer(self.rank()),
            ),
        }
    }

    /// Sends a tag. It arrives in order with other messages; bytes of puts that were waited for
    /// before can be read by whoever receives it.
    ///
    /// # Errors
    /// `PeerDead`, `Closed`, `Full` when the peer does not receive.
    pub fn send_tag(&self, tag: u64) -> Result<()> {
        self.send(&Wire::Tag(tag))
    }

    /// Sends a 32-bit number.
    ///
    /// # Errors
    /// As [`Peer::send_tag`].
    pub fn send_int(&self, n: i32) -> Result<()> {
        self.send(&Wire::Int32(n))
    }

    /// Sends opaque bytes, at most 1 MiB.
    ///
    /// # Errors
    /// As [`Peer::send_tag`]; `Range` when they are too long.
    pub fn send_struct(&self, bytes: &[u8]) -> Result<()> {
        let limit = u64::from(hmc_core::limits::MAX_FRAME_BYTES);
        let len = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        hmc_core::span::Extent::new(limit).span(Side::Local, 0, len)?;
        self.send(&Wire::Struct(bytes))
    }

    fn send(&self, m: &Wire<'_>) -> Result<()> {
        self.link.check_open()?;
        self.link.send(m)
    }

    /// Receives the oldest message that is wanted, waiting for it up to `timeout`. Others stay.
    ///
    /// # Errors
    /// `DeadlineExceeded`; `PeerDead` or `Closed` when the peer is gone and nothing is left.
    pub fn recv(&self, want: Want, timeout: Duration) -> Result<Message> {
        let deadline = clock::deadline_in(timeout);
        let found = self.link.drive(Watch::Both, deadline, |link| {
            if let Some(m) = take_message(link, want) {
                return Some(Ok(m));
            }
            (link.life() == Life::Dead).then(|| Err(link.gone()))
        });
        found.unwrap_or_else(|| {
            Err(
                Error::deadline(format_args!("waiting for a message ({want:?})"))
                    .with_peer(self.rank()),
            )
        })
    }

    /// Receives the oldest tag, within the session's deadline.
    ///
    /// # Errors
    /// As [`Peer::recv`].
    pub fn recv_tag(&self) -> Result<u64> {
        match self.recv(Want::Tag, self.shared.config.deadline)? {
            Message::Tag(tag) | Message::Notify(tag) => Ok(tag),
            other => Err(Error::new(
                ErrorKind::Protocol,
                format!("not a tag: {other:?}"),
            )),
        }
    }

    /// Receives the oldest 32-bit number, within the session's deadline.
    ///
    /// # Errors
    /// As [`Peer::recv`].
    pub fn recv_int(&self) -> Result<i32> {
        match self.recv(Want::Int, self.shared.config.deadline)? {
            Message::Int(n) => Ok(n),
            other => Err(Error::new(
                ErrorKind::Protocol,
                format!("not a number: {other:?}"),
            )),
        }
    }

    /// Receives the oldest opaque bytes, within the session's deadline.
    ///
    /// # Errors
    /// As [`Peer::recv`].
    pub fn recv_struct(&self) -> Result<Vec<u8>> {
        match self.recv(Want::Struct, self.shared.config.deadline)? {
            Message::Struct(bytes) => Ok(bytes),
            other => Err(Error::new(
                ErrorKind::Protocol,
                format!("not bytes: {other:?}"),
            )),
        }
    }

    /// Receives the oldest tag of a `put_notify`, within the session's deadline. The bytes of that
    /// put can be read.
    ///
    /// # Errors
    /// As [`Peer::recv`].
    pub fn recv_notify(&self) -> Result<u64> {
        match self.recv(Want::Notify, self.shared.config.deadline)? {
            Message::Notify(tag) => Ok(tag),
            other => Err(Error::new(
                ErrorKind::Protocol,
                format!("no notification: {other:?}"),
            )),
        }
    }

    /// Ends the link in order: says BYE, lets both ends finish what was posted, closes.
    ///
    /// # Errors
    /// `DeadlineExceeded` when the peer did not agree in time; the link is over all the same.
    pub fn disconnect(&self, timeout: Duration) -> Result<()> {
        crate::session::leave(&self.shared, std::slice::from_ref(&self.link), timeout)
    }
}

/// Takes a message and, when the inbox had been full, lets the connection read on.
pub(crate) fn take_message(link: &Link, want: Want) -> Option<Message> {
    let (m, was_full) = {
        let mut inbox = link.inbox();
        let was_full = !inbox.has_room(0);
        (inbox.take(want)?, was_full)
    };
    if was_full {
        link.turn_ctrl();
        link.turn_data();
    }
    Some(m)
}
