//! How messages of any size begin: what is offered to the peer, and where its bytes are or go.

use std::sync::Arc;

use hmc_core::limits::{MAX_RNDV, RNDV_HALF_BYTES};
use hmc_core::range::ByteRange;
use hmc_core::region::WindowDesc;
use hmc_core::time::Instant;
use hmc_core::types::{Access, ConnType};
use hmc_core::wire::advert::WindowRole;
use hmc_mem::error::MemError;
use hmc_mem::shared::SharedBytes;

use crate::base::error::{Error, ErrorKind, Limit, Result};
use crate::base::wait_limit::WaitLimit;
use crate::link::Serves;
use crate::link::op_resources::OpResources;
use crate::link::rndv::handle::MessageHandle;
use crate::link::rndv::kept_window::{KeptWindow, has_all_pages};
use crate::link::rndv::state::{BounceBuffers, MessageBuffer, PostedRecv, half_for};
use crate::memory::{HeapBytes, Region, check_writable};
use crate::ops::carried::{Carried, LocalBytes};
use crate::ops::message_op::MessageOp;
use crate::ops::peer_handle::Peer;

/// From so many bytes on a receive opens a window over its region: to map its pages, where the peer does, takes as long as to copy
/// about as many.
const KEPT_FROM_BYTES: u64 = 64 << 10;

/// Where the sender of a message puts its bytes.
enum Place {
    Kept(KeptWindow),
    /// Half-buffers, or a window of its own.
    Other(std::result::Result<BounceBuffers, WindowDesc>),
}

/// A message that is to begin.
#[derive(Debug)]
pub struct Beginning {
    end: End,
    /// When the message ends at the latest.
    by: Instant,
}

#[derive(Debug)]
enum End {
    /// Bytes to be offered; short ones go with the offer.
    Send {
        buffer: MessageBuffer,
        len: u64,
        eager: Option<Box<[u8]>>,
    },
    Receive(Box<PostedRecv>),
    Begun,
}

impl Beginning {
    /// Begins it. `None`, and it can be tried again, while as many messages to the peer are under way as may be.
    pub(crate) fn attempt(&mut self, peer: &Peer) -> Option<Result<Arc<MessageHandle>>> {
        if let Err(e) = peer.check_rndv() {
            return Some(Err(e));
        }
        let Self { end, by } = self;
        if let End::Receive(_) = end
            && let End::Receive(want) = std::mem::replace(end, End::Begun)
        {
            return Some(Ok(peer.link.post_recv(*want)));
        }
        let begun = peer.link.begin_rndv(*by, |rndv| {
            if rndv.is_full() {
                return None;
            }
            Some(match std::mem::replace(end, End::Begun) {
                End::Send { buffer, eager: Some(copy), .. } => rndv.send_eager(buffer, copy, *by),
                End::Send { buffer, len, eager: None } => rndv.send(buffer, len, *by),
                End::Receive(_) | End::Begun => {
                    Err((Error::new(ErrorKind::Stale, "it has begun"), no_memory()))
                }
            })
        })?;
        Some(begun.map_err(|(e, _)| e.with_peer(peer.rank())))
    }

    /// The memory of a message that did not begin.
    fn memory<M: Carried>(self) -> Option<M> {
        let buffer = match self.end {
            End::Send { buffer, .. } => buffer,
            End::Receive(want) => want.bytes,
            End::Begun => return None,
        };
        let span = match buffer {
            MessageBuffer::Registered { span, .. } => span,
            MessageBuffer::Borrowed(_) => None,
        };
        M::take(&mut span.map(OpResources::span).unwrap_or_default())
    }

    /// The error of a message that did not begin, with its memory.
    pub(crate) fn refused<M: Carried>(self, e: Error) -> M::Error {
        match self.memory::<M>() {
            Some(memory) => memory.refused(e),
            None => e.into(),
        }
    }
}

const fn no_memory() -> MessageBuffer {
    MessageBuffer::Borrowed(None)
}

impl Peer {
    /// Refuses a peer that cannot exchange messages of any size.
    ///
    /// # Errors
    /// `Forked`, `PeerDead`, `Closed`; `Unsupported` for a peer without a data plane.
    pub(crate) fn check_rndv(&self) -> Result<()> {
        self.shared.check_process()?;
        self.link.check_open()?;
        if self.conn().is_some() {
            return Ok(());
        }
        let what = "this peer has no data plane (upstream dialect); connect natively";
        Err(Error::new(ErrorKind::Unsupported, what).with_peer(self.rank()))
    }

    /// A message of registered bytes.
    ///
    /// # Errors
    /// `InvalidConfig` for memory of another session.
    pub(crate) fn offer<B: LocalBytes>(
        &self,
        bytes: B,
        by: Instant,
    ) -> std::result::Result<Beginning, <B::Memory as Carried>::Error> {
        let (region, range) = (bytes.region().clone(), bytes.range());
        let may = self.check_rndv().and_then(|()| self.shared.check_own(&region));
        let len = range.len();
        let eager = may.and_then(|()| {
            let eager = self.link.sends_eagerly(len);
            eager.then(|| copy_of(&region.bytes(), range)).transpose()
        });
        let eager = match eager {
            Ok(eager) => eager,
            Err(e) => return Err(bytes.into_memory().refused(e)),
        };
        let span = bytes.into_resources().take_span();
        let buffer = MessageBuffer::Registered { region, range, span };
        Ok(Beginning { end: End::Send { buffer, len, eager }, by })
    }

    /// A receive into registered bytes: straight from the peer through a window over their region, or if there are more than a
    /// half-buffer takes.
    ///
    /// # Errors
    /// `InvalidConfig` for memory of another session; `Full` when too many windows are open; `NoSpace`.
    pub(crate) fn want<B: LocalBytes>(
        &self,
        bytes: B,
        by: Instant,
    ) -> std::result::Result<Beginning, <B::Memory as Carried>::Error> {
        let (region, range) = (bytes.region().clone(), bytes.range());
        let space = range.len();
        let may = self.check_rndv().and_then(|()| self.shared.check_own(&region));
        let place = may.and_then(|()| {
            Ok(if let Some(window) = self.kept_window(&region, space) {
                Place::Kept(window)
            } else if space > RNDV_HALF_BYTES {
                Place::Other(Err(self.expose_for_rndv(
                    &region,
                    (range.offset(), space),
                    Serves::All,
                )?))
            } else {
                Place::Other(Ok(self.staging(space)?))
            })
        });
        let place = match place {
            Ok(place) => place,
            Err(e) => return Err(bytes.into_memory().refused(e)),
        };
        let span = bytes.into_resources().take_span();
        let buffer = MessageBuffer::Registered { region, range, span };
        let want = match place {
            Place::Kept(window) => PostedRecv::in_kept(buffer, space, (window, range.offset()), by),
            Place::Other(place) => PostedRecv::new(buffer, space, place, by),
        };
        Ok(Beginning { end: End::Receive(Box::new(want)), by })
    }

    /// A message of bytes that the caller copies by itself.
    pub(crate) fn offer_lent(&self, bytes: &SharedBytes<'_>, by: Instant) -> Result<Beginning> {
        self.check_rndv()?;
        let len = bytes.extent().len();
        let (buffer, eager) = if self.link.sends_eagerly(len) {
            (no_memory(), Some(copy_of(bytes, bytes.extent().whole())?))
        } else {
            (MessageBuffer::Borrowed(Some(self.bounce(len)?)), None)
        };
        Ok(Beginning { end: End::Send { buffer, len, eager }, by })
    }

    /// A receive into bytes that the caller fills by itself.
    ///
    /// # Errors
    /// `InvalidConfig` when they may only be read.
    pub(crate) fn want_lent(&self, bytes: &SharedBytes<'_>, by: Instant) -> Result<Beginning> {
        self.check_rndv()?;
        check_writable(bytes)?;
        let space = bytes.extent().len();
        let want = PostedRecv::new(no_memory(), space, Ok(self.staging(space)?), by);
        Ok(Beginning { end: End::Receive(Box::new(want)), by })
    }

    /// Two bounce buffers for a message of `len` bytes.
    pub(crate) fn bounce(&self, len: u64) -> Result<Region> {
        let half = half_for(len);
        match self.link.rndv_storage(|rndv| rndv.take_bounce(half)) {
            Some(bounce) => Ok(bounce),
            None => self.shared.regions.allocate(half.saturating_mul(2)),
        }
    }

    fn expose_for_rndv(
        &self,
        region: &Region,
        (at, len): (u64, u64),
        serves: Serves,
    ) -> Result<WindowDesc> {
        let role = WindowRole::Named(0);
        // The peer learns of the window with the place of a message, by no advert.
        let advert =
            self.shared.expose(&self.link, region, (at, len, None), Access::WRITE, role, serves)?;
        Ok(advert.region)
    }

    /// A window over the whole region for a message of up to `space` bytes, if the peer can map its pages or sends to them over TCP:
    /// one that served before, or one for messages that are long enough to be worth it.
    fn kept_window(&self, region: &Region, space: u64) -> Option<KeptWindow> {
        let maps = || has_all_pages(region) && self.shared.domains.shares_pages(self.conn());
        if self.conn() != Some(ConnType::Tcp) && !maps() {
            return None;
        }
        let kept = self.link.rndv_storage(|rndv| rndv.take_kept(region.key()));
        if kept.is_some() || space < KEPT_FROM_BYTES {
            return kept;
        }
        // Where that fails, halves are asked for.
        let remote = self.expose_for_rndv(region, (0, region.len()), Serves::Nothing).ok()?;
        // It is open while a message comes.
        self.link.close_window(region, remote)
    }

    /// Two half-buffers for a message of up to `space` bytes, exposed to the peer.
    pub(crate) fn staging(&self, space: u64) -> Result<BounceBuffers> {
        let half = half_for(space);
        if let Some(staging) = self.link.rndv_storage(|rndv| rndv.take_staging(half)) {
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
        let remote = self.expose_for_rndv(&region, (0, len), Serves::All)?;
        Ok(BounceBuffers { region, remote })
    }
}

/// What a message does before it begins.
pub(crate) const WAITING: &str = "waiting for space to send a message";

/// Refuses one more message than may be under way.
#[cold]
pub(crate) fn full() -> Error {
    let limit = Limit::one_more("messages to this peer under way", MAX_RNDV);
    Error::limited(ErrorKind::Full, limit).with_remedy("wait for some")
}

/// Begins it. While as many are under way as may be, it waits, or is refused.
pub(crate) fn begin(
    peer: &Peer,
    beginning: &mut Beginning,
    until: WaitLimit,
    waits: bool,
) -> Result<MessageOp> {
    let begun = match beginning.attempt(peer) {
        Some(begun) => begun,
        None if waits => {
            let begun = peer.drive_rndv(until, &mut || beginning.attempt(peer));
            begun.unwrap_or_else(|stop| Err(stop.error(WAITING)))
        }
        None => Err(full()),
    };
    let handle = begun.map_err(|e| e.with_peer(peer.rank()))?;
    Ok(MessageOp::new(peer.clone(), handle, until.at))
}

/// A copy of a range of bytes that others may write meanwhile, each read once.
fn copy_of(bytes: &SharedBytes<'_>, range: ByteRange) -> Result<Box<[u8]>> {
    let mut copy = vec![0; usize::try_from(range.len()).unwrap_or(0)];
    bytes.read_at(range, &mut copy).map_err(MemError::from)?;
    Ok(copy.into())
}
