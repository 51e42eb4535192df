//! Messages of any size: the C++ HMC's sendDataTo and recvDataFrom, from and to any memory.

use std::sync::Arc;
use std::time::Duration;

use hmc_core::limits::RNDV_HALF_BYTES;
use hmc_core::range::ByteRange;
use hmc_core::region::WindowDesc;
use hmc_core::rndv::AbortReason;
use hmc_core::types::{Access, ConnType};
use hmc_core::wire::advert::WindowRole;
use hmc_mem::error::MemError;
use hmc_mem::shared::SharedBytes;

use super::Peer;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::wait_limit::{WaitLimit, WaitStopped};
use crate::link::rndv::handle::{Found, MessageHandle};
use crate::link::rndv::state::{BounceBuffers, MessageBuffer, PostedRecv, half_for};
use crate::link::{Link, WaitScope};
use crate::memory::{HeapBytes, Region, Span, check_writable};
use crate::ops::delivery::{Delivery, OpError};

impl Peer {
    /// Sends `bytes` to the peer's next unmatched `recv_data`, of any form, and returns when the peer
    /// has them. Either side may come first. Messages are matched in the order in which they were
    /// sent and their receives posted.
    ///
    /// # Errors
    /// `Length` when the receiver has space for less (both ends are told, nothing is written),
    /// `DeadlineExceeded` after the session's deadline (default 30 s), `Interrupted`, `PeerDead`,
    /// `Cancelled` when the receiver withdrew, `Full` with 64 messages under way. After a failure the receiver's bytes
    /// are old, new or mixed. A message of up to 4 KiB goes with its offer: when its sending was interrupted or its time passed
    /// the peer may nevertheless receive all of it.
    pub fn send_data(&self, bytes: &[u8]) -> Result<()> {
        self.send_data_within(bytes, self.shared.config.deadline)
    }

    /// As [`Peer::send_data`], within `timeout`.
    ///
    /// # Errors
    /// As [`Peer::send_data`].
    pub fn send_data_within(&self, bytes: &[u8], timeout: Duration) -> Result<()> {
        self.send_data_view(SharedBytes::of(bytes), timeout)
    }

    /// As [`Peer::send_data_within`], for bytes that others may write meanwhile: the peer gets what is read of them, each
    /// byte once.
    ///
    /// # Errors
    /// As [`Peer::send_data`].
    #[doc(hidden)]
    pub fn send_data_view(&self, bytes: SharedBytes<'_>, timeout: Duration) -> Result<()> {
        let until = self.shared.until(timeout);
        self.check_rndv()?;
        let len = bytes.extent().len();
        let handle = if self.link.sends_eagerly(len) {
            let (borrowed, copy) =
                (MessageBuffer::Borrowed(None), copy_of(&bytes, bytes.extent().whole())?);
            self.link.with_rndv(|rndv| rndv.send_eager(borrowed, copy, until.at))
        } else {
            let half = half_for(len);
            let bounce = match self.link.with_rndv(|rndv| rndv.take_bounce(half)) {
                Some(bounce) => bounce,
                None => self.shared.regions.allocate(half.saturating_mul(2))?,
            };
            let borrowed = MessageBuffer::Borrowed(Some(bounce));
            self.link.with_rndv(|rndv| rndv.send(borrowed, len, until.at))
        };
        let handle = handle.map_err(|(e, _)| e.with_peer(self.rank()))?;
        let found = self.wait_rndv(&handle, until, "sending a message", || {
            self.link.rndv_send_borrowed(&handle, &bytes);
            handle.take()
        });
        found.0.map(drop)
    }

    /// Receives the peer's next message into `out` and gives its length.
    ///
    /// # Errors
    /// As [`Peer::send_data`]; `Length` when `out` is shorter than the message.
    pub fn recv_data(&self, out: &mut [u8]) -> Result<u64> {
        self.recv_data_within(out, self.shared.config.deadline)
    }

    /// As [`Peer::recv_data`], within `timeout`.
    ///
    /// # Errors
    /// As [`Peer::recv_data`].
    pub fn recv_data_within(&self, out: &mut [u8], timeout: Duration) -> Result<u64> {
        self.recv_data_view(SharedBytes::of_mut(out), timeout)
    }

    /// As [`Peer::recv_data_within`], for bytes that others may read and write meanwhile.
    ///
    /// # Errors
    /// As [`Peer::recv_data`]; `InvalidConfig` when `out` may only be read.
    #[doc(hidden)]
    pub fn recv_data_view(&self, out: SharedBytes<'_>, timeout: Duration) -> Result<u64> {
        let until = self.shared.until(timeout);
        self.check_rndv()?;
        check_writable(&out)?;
        let space = out.extent().len();
        let want = PostedRecv::new(
            MessageBuffer::Borrowed(None),
            space,
            Ok(self.staging(space)?),
            until.at,
        );
        let handle = self.link.with_rndv(|rndv| rndv.receive(want));
        let mut broken = None;
        let found = self.wait_rndv(&handle, until, "receiving a message", || {
            broken = broken.take().or(self.link.rndv_recv_borrowed(&handle, &out).err());
            handle.take()
        });
        match broken {
            Some(e) => Err(e.with_peer(self.rank())),
            None => found.0,
        }
    }

    /// Sends `len` bytes at `local_offset` of our buffer; see [`Peer::send_data`].
    ///
    /// # Errors
    /// As [`Peer::send_data`], and `Range`.
    pub fn send_data_at(&self, local_offset: u64, len: u64) -> Result<()> {
        let timeout = self.shared.config.deadline;
        self.send_data_nb(local_offset, len)?.wait(timeout).map(drop).map_err(Error::from)
    }

    /// Receives the peer's next message to `local_offset` of our buffer, where it may take `space`
    /// bytes, and gives its length; see [`Peer::recv_data`].
    ///
    /// # Errors
    /// As [`Peer::recv_data`], and `Range`.
    pub fn recv_data_at(&self, local_offset: u64, space: u64) -> Result<u64> {
        let timeout = self.shared.config.deadline;
        let (len, _) = self.recv_data_nb(local_offset, space)?.wait(timeout)?;
        Ok(len)
    }

    /// Begins to send from our buffer. The bytes must not change until it is done. What is given back
    /// is a future, and can be waited for.
    ///
    /// # Errors
    /// `Range`, `Full`, `PeerDead`.
    pub fn send_data_nb(&self, local_offset: u64, len: u64) -> Result<Delivery> {
        self.shared.check_process()?;
        let region = self.shared.buffer.region().clone();
        let range = region.slice(local_offset, len)?.span;
        self.begin_send(region, range, None).map_err(Error::from)
    }

    /// Begins to receive into our buffer.
    ///
    /// # Errors
    /// As [`Peer::send_data_nb`].
    pub fn recv_data_nb(&self, local_offset: u64, space: u64) -> Result<Delivery> {
        self.shared.check_process()?;
        let region = self.shared.buffer.region().clone();
        let range = region.slice(local_offset, space)?.span;
        self.begin_receive(region, range, None).map_err(Error::from)
    }

    /// Begins to send all of `src`. The span comes back with the result, or with the error once
    /// nothing reads it any more.
    ///
    /// # Errors
    /// The span and why nothing was sent.
    pub fn send_data_span(&self, src: Span) -> std::result::Result<Delivery, OpError> {
        let (region, range) = (src.region().clone(), src.slice().span);
        self.begin_send(region, range, Some(src))
    }

    /// Begins to receive the peer's next message into `dst`, straight from the peer when `dst` is
    /// longer than a half-buffer. The span comes back with the length of the message.
    ///
    /// # Errors
    /// The span and why nothing will be received.
    pub fn recv_data_span(&self, dst: Span) -> std::result::Result<Delivery, OpError> {
        let (region, range) = (dst.region().clone(), dst.slice().span);
        self.begin_receive(region, range, Some(dst))
    }

    fn begin_send(
        &self,
        region: Region,
        range: ByteRange,
        span: Option<Span>,
    ) -> std::result::Result<Delivery, OpError> {
        if let Err(error) = self.check_rndv().and_then(|()| self.shared.check_own(&region)) {
            return Err(OpError { error, span });
        }
        let len = range.len();
        let eager = self.link.sends_eagerly(len).then(|| copy_of(&region.bytes(), range));
        let eager = match eager.transpose() {
            Ok(eager) => eager,
            Err(error) => return Err(OpError { error, span }),
        };
        let bytes = MessageBuffer::Registered { region, range, span };
        let deadline = self.shared.clock.deadline_in(self.shared.config.deadline);
        let begun = self.link.with_rndv(|rndv| match eager {
            Some(copy) => rndv.send_eager(bytes, copy, deadline),
            None => rndv.send(bytes, len, deadline),
        });
        match begun {
            Ok(handle) => Ok(Delivery::new(self.clone(), handle)),
            Err((e, bytes)) => {
                let span =
                    if let MessageBuffer::Registered { span, .. } = bytes { span } else { None };
                Err(OpError { error: e.with_peer(self.rank()), span })
            }
        }
    }

    fn begin_receive(
        &self,
        region: Region,
        range: ByteRange,
        span: Option<Span>,
    ) -> std::result::Result<Delivery, OpError> {
        let space = range.len();
        let may = self.check_rndv().and_then(|()| self.shared.check_own(&region));
        let place = may.and_then(|()| {
            if space > RNDV_HALF_BYTES {
                self.expose_for_rndv(&region, range.offset(), space).map(Err)
            } else {
                self.staging(space).map(Ok)
            }
        });
        let place = match place {
            Ok(place) => place,
            Err(error) => return Err(OpError { error, span }),
        };
        let bytes = MessageBuffer::Registered { region, range, span };
        let deadline = self.shared.clock.deadline_in(self.shared.config.deadline);
        let want = PostedRecv::new(bytes, space, place, deadline);
        let handle = self.link.with_rndv(|rndv| rndv.receive(want));
        Ok(Delivery::new(self.clone(), handle))
    }

    fn expose_for_rndv(&self, region: &Region, at: u64, len: u64) -> Result<WindowDesc> {
        let role = WindowRole::Named(0);
        // The peer learns of the window with the place of a message, by no advert.
        let advert = self.shared.expose(&self.link, region, at, len, Access::WRITE, role)?;
        Ok(advert.region)
    }

    /// Two half-buffers for a message of up to `space` bytes, exposed to the peer.
    pub(crate) fn staging(&self, space: u64) -> Result<BounceBuffers> {
        let half = half_for(space);
        if let Some(staging) = self.link.with_rndv(|rndv| rndv.take_staging(half)) {
            return Ok(staging);
        }
        let len = half.saturating_mul(2);
        // Only some transports gain from pages with a descriptor; others are cheaper to have.
        let region = if self.shared.domains.shares_pages(self.conn()) {
            self.shared.regions.allocate(len)?
        } else {
            let size = usize::try_from(len).unwrap_or(0);
            self.shared.regions.adopt(Box::new(HeapBytes::from(vec![0; size])))?
        };
        let remote = self.expose_for_rndv(&region, 0, len)?;
        Ok(BounceBuffers { region, remote })
    }

    pub(crate) fn check_rndv(&self) -> Result<()> {
        self.shared.check_process()?;
        self.link.check_open()?;
        if self.conn().is_some() {
            return Ok(());
        }
        let what = "this peer has no data plane (upstream dialect); connect natively";
        Err(Error::new(ErrorKind::Unsupported, what).with_peer(self.rank()))
    }

    /// Drives the link until `look` finds a result, or the wait is over: then the message is ended, and
    /// nothing of what was borrowed is touched any more.
    pub(crate) fn wait_rndv(
        &self,
        handle: &Arc<MessageHandle>,
        until: WaitLimit,
        what: &str,
        mut look: impl FnMut() -> Option<Found>,
    ) -> Found {
        let stop = match self.drive_rndv(until, &mut look) {
            Ok(found) => return found,
            // The message is the parent's.
            Err(stop @ WaitStopped::Forked) => return (Err(stop.error(what)), None),
            Err(stop) => stop,
        };
        let why = match stop {
            WaitStopped::Deadline => AbortReason::DeadlineExceeded,
            WaitStopped::Interrupted | WaitStopped::Forked => AbortReason::Cancelled,
        };
        self.link.end_rndv(handle, why);
        let stopped = || Err(stop.error(what).with_peer(self.rank()));
        match handle.take() {
            // Its owner withdrew it by the hook.
            Some((Err(e), span))
                if stop == WaitStopped::Interrupted && e.kind() == ErrorKind::Cancelled =>
            {
                (stopped(), span)
            }
            Some(found) => found,
            None => (stopped(), None),
        }
    }

    pub(crate) fn drive_rndv<R>(
        &self,
        until: WaitLimit,
        look: &mut impl FnMut() -> Option<R>,
    ) -> std::result::Result<R, WaitStopped> {
        // What a session says to itself comes through no socket.
        if self.link.conn() == Some(ConnType::Loopback) {
            return self.shared.wait_for_event(until, |_| look());
        }
        self.link.drive(WaitScope::Both, until, |_: &Link| look())
    }
}

/// A copy of a range of bytes that others may write meanwhile, each read once.
fn copy_of(bytes: &SharedBytes<'_>, range: ByteRange) -> Result<Box<[u8]>> {
    let mut copy = vec![0; usize::try_from(range.len()).unwrap_or(0)];
    bytes.read_at(range, &mut copy).map_err(MemError::from)?;
    Ok(copy.into())
}
