//! One message of a channel. Each member announces the number and length of its latest message and of its latest receive, and both
//! compare the lengths. A message is sent when all its bytes are in the ring and the receiver has announced as many.

use std::sync::atomic::Ordering;

use hmc_core::limits::MAX_CHUNK_BYTES;
use hmc_core::range::{Extent, Side};
use hmc_mem::error::MemError;
use hmc_mem::shared::SharedBytes;

use super::{
    Channel, FAILED, FILLED, OFFERED, READ, RING, RING_BYTES, Reason, SOURCE, TAKEN, WANTED,
    gave_up, get, left, set,
};
use crate::api::peer::Peer;
use crate::base::error::{Error, ErrorKind, Limit, Result};

/// The most bytes that are copied in or out between two reads of the words.
const PIECE_BYTES: u64 = 64 << 10;
/// Bytes that are taken out before the sender is told.
const REPORT_BYTES: u64 = 64 << 10;
/// Pieces that one call copies at most: the caller looks at its deadline between calls.
const PIECES: u32 = 16;

/// Bytes of a message that lies whole in a ring: a longer one is read where it lies, if it can be.
const MAX_RING_MESSAGE_BYTES: u64 = RING_BYTES;
/// Bytes that are read in the sender's memory between two looks at the words.
const READ_BYTES: u64 = MAX_CHUNK_BYTES;
/// Of such pieces, those that one call reads at most.
const READS: u32 = 4;
/// Instead of the bytes that were read: the receiver cannot read the sender's memory, and this message and all later ones go
/// through the ring.
pub(super) const REFUSED: u64 = LEN_MASK;

/// Bits of a length in an announcement; the bits above have the low bits of the message's number.
const LEN_BITS: u32 = 48;
pub(super) const LEN_MASK: u64 = (1 << LEN_BITS) - 1;
/// The number of an announcement, less 1.
const BEHIND: u64 = u64::MAX >> LEN_BITS;

/// Returns the announcement of message or receive `number`, of `len` bytes.
pub(super) const fn announcement(number: u64, len: u64) -> u64 {
    number << LEN_BITS | len & LEN_MASK
}

/// One message of a channel.
pub(in crate::api::group) struct Stream<'m, 'a> {
    pub(in crate::api::group) channel: &'m Channel,
    pub(in crate::api::group) peer: &'m Peer,
    bytes: SharedBytes<'a>,
    sends: bool,
    pub(super) number: u64,
    /// Bytes that were moved.
    done: u64,
    /// The other end announced the same length.
    is_agreed: bool,
    /// Of a send: the other end reads the bytes where they lie. They must be there until it has, or was told that they are not.
    pub(super) is_lent: bool,
    /// Of a receive: the bytes could not be read where they lie.
    has_refused: bool,
    /// The latest [`Stream::move_on`] changed something.
    pub(in crate::api::group) has_moved: bool,
    /// There are bytes left that this end can read.
    pub(in crate::api::group) has_more: bool,
    pub(in crate::api::group) over: bool,
}

impl Channel {
    /// Begins to send `bytes`, or to receive as many.
    pub(in crate::api::group) fn begin<'m, 'a>(
        &'m self,
        peer: &'m Peer,
        bytes: SharedBytes<'a>,
        sends: bool,
        blocks: bool,
    ) -> Stream<'m, 'a> {
        let (count, word) =
            if sends { (&self.messages, &self.offered) } else { (&self.receives, &self.wanted) };
        let number = get(count).wrapping_add(1);
        set(count, number);
        set(word, announcement(number, bytes.extent().len()));
        self.is_stale.store(true, Ordering::Relaxed);
        let address = if sends && blocks { self.address_of(&bytes) } else { None };
        if sends {
            set(&self.source, announcement(number, address.unwrap_or(0)));
        } else {
            set(&self.read, announcement(number, 0));
        }
        Stream {
            channel: self,
            peer,
            bytes,
            sends,
            number,
            done: 0,
            is_agreed: false,
            is_lent: address.is_some(),
            has_refused: false,
            has_moved: false,
            has_more: false,
            over: false,
        }
    }

    /// Returns where the peer may read a message, if it is worth that.
    fn address_of(&self, bytes: &SharedBytes<'_>) -> Option<u64> {
        let is_long = bytes.extent().len() > MAX_RING_MESSAGE_BYTES;
        let lends = is_long && self.lends.load(Ordering::Relaxed);
        let address = || u64::try_from(bytes.as_ptr().expose_provenance()).ok();
        lends.then(address).flatten().filter(|address| *address <= LEN_MASK)
    }
}

impl Stream<'_, '_> {
    fn len(&self) -> u64 {
        self.bytes.extent().len()
    }

    /// Returns whether it is copied in several pieces.
    pub(in crate::api::group) fn is_long(&self) -> bool {
        self.len() > PIECE_BYTES
    }

    /// Sends the bytes for which there is space.
    pub(in crate::api::group) fn send_first(&mut self) -> Result<()> {
        if self.sends { self.send() } else { Ok(()) }
    }

    /// Copies bytes that can be copied now. Returns whether the message has ended.
    pub(in crate::api::group) fn move_on(&mut self) -> Result<bool> {
        (self.has_moved, self.has_more) = (false, false);
        if self.over || self.step()? {
            return Ok(true);
        }
        // Looked at in this order: a member that leaves has written all words before, and one that failed all others.
        let has_left = self.channel.has_left(self.peer);
        let failed = self.channel.word(FAILED)?;
        if !has_left && failed == 0 {
            return Ok(false);
        }
        // That is all that the other end will ever have written.
        match (self.step()?, failed) {
            (true, _) => Ok(true),
            (false, 0) => Err(left(self.peer)),
            (false, _) => Err(gave_up(self.peer, failed)),
        }
    }

    /// Copies at most as much as fits into a ring, several times. Returns whether the message has ended.
    fn step(&mut self) -> Result<bool> {
        let before = (self.done, self.is_agreed);
        self.agree()?;
        if self.sends {
            self.send()?;
        } else {
            self.receive()?;
        }
        self.over = self.is_agreed && self.done == self.len();
        self.has_moved |= before != (self.done, self.is_agreed);
        Ok(self.over)
    }

    /// Compares the lengths, once the other end has announced its own. A member that announced its next message had agreed to
    /// this one.
    fn agree(&mut self) -> Result<()> {
        if self.is_agreed {
            return Ok(());
        }
        let word = self.channel.word(if self.sends { WANTED } else { OFFERED })?;
        match (word >> LEN_BITS).wrapping_sub(self.number) & BEHIND {
            0 if word & LEN_MASK == self.len() => self.is_agreed = true,
            0 => return Err(self.differs(word & LEN_MASK)),
            1 => self.is_agreed = true,
            BEHIND => {}
            _ => return Err(violated(self.peer)),
        }
        Ok(())
    }

    #[cold]
    fn differs(&self, theirs: u64) -> Error {
        let len = self.len();
        let (sent, wanted) = if self.sends { (len, theirs) } else { (theirs, len) };
        let number = |n| usize::try_from(n).unwrap_or(usize::MAX);
        let what = format!("the sender has {sent} bytes and the receiver expects {wanted}");
        Error::new(ErrorKind::Length, what)
            .with_limit(Limit::new("bytes of the message", number(wanted), number(sent)))
            .with_peer(self.peer.rank())
    }

    /// The bytes of the next piece: as many as are `ready`, left of the message, and before the end of the ring at `at`.
    fn piece(&self, ready: u64, at: u64) -> u64 {
        let left = self.len().saturating_sub(self.done);
        left.min(ready).min(PIECE_BYTES).min(RING_BYTES.saturating_sub(at))
    }

    fn send(&mut self) -> Result<()> {
        if self.is_lent {
            self.look_at_reads()?;
        }
        if self.is_lent {
            return Ok(());
        }
        let Self { channel, peer, bytes, .. } = *self;
        for _ in 0..PIECES {
            let sent = get(&channel.sent);
            let waiting = sent.wrapping_sub(channel.word(TAKEN)?);
            let Some(free) = RING_BYTES.checked_sub(waiting) else {
                return Err(violated(peer));
            };
            let at = sent % RING_BYTES;
            let piece = self.piece(free, at);
            if piece == 0 {
                break;
            }
            let range = bytes.extent().span(Side::Local, self.done, piece)?;
            set(&channel.sent, sent.wrapping_add(piece));
            let there = Some((RING.saturating_add(at), bytes, range));
            if let Err(e) = channel.publish(peer, there) {
                // The lengths may be why the other end gave up.
                return self.agree().and(Err(e));
            }
            self.done = self.done.saturating_add(piece);
        }
        Ok(())
    }

    fn receive(&mut self) -> Result<()> {
        // Bytes of another length would be those of the next message.
        if !self.is_agreed {
            return Ok(());
        }
        match self.lent_at()? {
            Some(address) => self.read(address),
            None => self.take(),
        }
    }

    /// Counts what the other end has read, or learns that it cannot.
    fn look_at_reads(&mut self) -> Result<()> {
        let word = self.channel.word(READ)?;
        let ahead = (word >> LEN_BITS).wrapping_sub(self.number) & BEHIND;
        match word & LEN_MASK {
            // It receives the next message, so it has read this one.
            _ if ahead == 1 => self.done = self.len(),
            _ if ahead != 0 => {}
            REFUSED => {
                (self.is_lent, self.done) = (false, 0);
                self.channel.lends.store(false, Ordering::Relaxed);
            }
            read if read < self.done || read > self.len() => return Err(violated(self.peer)),
            read => self.done = read,
        }
        Ok(())
    }

    /// Returns where the message lies in the sender's memory, if this end is to read it there.
    fn lent_at(&self) -> Result<Option<u64>> {
        if self.has_refused || self.done == self.len() {
            return Ok(None);
        }
        let word = self.channel.word(SOURCE)?;
        let is_ours = word >> LEN_BITS == self.number & BEHIND;
        Ok(Some(word & LEN_MASK).filter(|address| is_ours && *address != 0))
    }

    /// Reads some of a message that lies at `address` in the sender's memory.
    fn read(&mut self, address: u64) -> Result<()> {
        for _ in 0..READS {
            self.has_more = self.read_piece(address)?;
            if !self.has_more {
                break;
            }
        }
        Ok(())
    }

    /// Reads a piece. Returns whether another one can be read.
    fn read_piece(&mut self, address: u64) -> Result<bool> {
        let Self { channel, peer, bytes, .. } = *self;
        let there = Extent::new(LEN_MASK).span(Side::Remote, address, self.len());
        let (Some(memory), Ok(there)) = (&channel.memory, there) else {
            return self.refuse().map(|()| false);
        };
        // A sender that withdraws its bytes says so before it changes them, or finds the gate of this end's window shut: that of a link
        // that is over here.
        let may_change =
            || -> Result<bool> { Ok(channel.word(FAILED)? != 0 || channel.has_left(peer)) };
        if may_change()? {
            return Ok(false);
        }
        let (there, _) = there.split_at_most(self.done).1.split_at_most(READ_BYTES);
        let into = bytes.extent().span(Side::Local, self.done, there.len())?;
        match memory.read(&channel.theirs, there.offset(), &bytes, into) {
            Ok(true) => {}
            Ok(false) => return Ok(false),
            Err(e) => {
                let peer = peer.rank().0;
                tracing::debug!(peer, error = %e, "a member's memory cannot be read: its messages go through its window");
                return self.refuse().map(|()| false);
            }
        }
        if may_change()? {
            return Ok(false);
        }
        self.done = self.done.saturating_add(there.len());
        set(&channel.read, announcement(self.number, self.done));
        channel.publish(peer, None)?;
        Ok(self.done < self.len())
    }

    /// Asks the sender to send the message, and all later ones, through the ring.
    #[cold]
    fn refuse(&mut self) -> Result<()> {
        (self.has_refused, self.done) = (true, 0);
        set(&self.channel.read, announcement(self.number, REFUSED));
        self.channel.publish(self.peer, None)
    }

    /// Takes what is in the ring.
    fn take(&mut self) -> Result<()> {
        let Self { channel, peer, bytes, .. } = *self;
        let ring = channel.buffer.region().bytes();
        for _ in 0..PIECES {
            let received = get(&channel.received);
            let there = channel.word(FILLED)?.wrapping_sub(received);
            if there > RING_BYTES {
                return Err(violated(peer));
            }
            let at = received % RING_BYTES;
            let piece = self.piece(there, at);
            if piece == 0 {
                break;
            }
            let from = ring.span(RING.saturating_add(at), piece).map_err(MemError::from)?;
            let into = bytes.extent().span(Side::Local, self.done, piece)?;
            ring.copy_to(from, &bytes, into).map_err(MemError::from)?;
            set(&channel.received, received.wrapping_add(piece));
            self.done = self.done.saturating_add(piece);
            if get(&channel.received).wrapping_sub(get(&channel.reported)) >= REPORT_BYTES {
                channel.publish(peer, None)?;
            }
        }
        Ok(())
    }
}

impl Drop for Stream<'_, '_> {
    fn drop(&mut self) {
        // The other end may be reading: it must not take what lies there from now on for the message.
        if self.is_lent
            && !self.over
            && !self.channel.has_reported.load(Ordering::Relaxed)
            && !self.peer.shared.origin.is_child()
        {
            self.channel.report_failure(self.peer, Reason::GaveUp);
        }
    }
}

#[cold]
fn violated(peer: &Peer) -> Error {
    let what = "the member wrote an impossible count into the window of the group";
    Error::new(ErrorKind::Protocol, what).with_peer(peer.rank())
}
