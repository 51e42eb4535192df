//! A channel between two members of one host: each exposes a window to the other, which has that window mapped. A member puts
//! bytes into the other's window, and then words that count them.
//!
//! A window has seven words that the peer writes, one that its owner writes, and a ring of [`RING_BYTES`] (docs/WIRE.md, 9). The
//! counts belong to one group and one peer, and never decrease. **The peer can write any value at any time.** This end reads a
//! word once, compares it with counts of its own before it uses it, and computes positions from its own counts alone. It copies
//! bytes out of the ring and never borrows them.
//!
//! Messages have no header: [`stream`] has them. A long one is not put into the ring if the other end can read it in this process's
//! memory ([`peer_memory`]).

mod peer_memory;
pub(super) mod stream;
#[cfg(test)]
#[allow(clippy::arithmetic_side_effects, clippy::indexing_slicing, reason = "tests may panic")]
pub(super) mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

use hmc_core::range::ByteRange;
use hmc_core::types::{Access, Rank};
use hmc_core::wire::message::ControlMessage;
use hmc_core::work::Failure;
use hmc_mem::error::MemError;
use hmc_mem::os::mapped_window::MappedWindow;
use hmc_mem::shared::SharedBytes;

use crate::api::peer::Peer;
use crate::base::error::{Error, ErrorKind, Result};
use crate::memory::ConnBuffer;
use crate::ops::window::Window;
use peer_memory::PeerMemory;

/// Bytes of a ring: two halves of it stay in a processor's cache.
const RING_BYTES: u64 = 256 << 10;
/// Offsets of the words of a window. Written by the peer: the bytes that it put into this ring.
const FILLED: u64 = 0;
/// Written by the peer: the bytes that it took out of its own ring.
const TAKEN: u64 = 8;
/// Written by the peer: its latest receive.
const WANTED: u64 = 16;
/// Written by the peer: its latest message.
const OFFERED: u64 = 24;
/// Written by the peer: not 0 after a collective failed there.
const FAILED: u64 = 32;
/// That word if it failed because its time was over.
const LATE: u64 = 2;
/// The lower half of that word if it failed because a member died, whose rank is the upper half.
const DIED: u64 = 3;
/// That word if it failed for another reason. The peer can write any other value, which means the same.
const GAVE_UP: u64 = 1;
/// Written by the peer: where its latest message lies in its memory, if this end may read it there.
const SOURCE: u64 = 40;
/// Written by the peer: the bytes of its latest receive that it has read in this end's memory.
const READ: u64 = 48;
/// Written by the owner, in a cache line of its own: not 0 while it sleeps.
const PARKED: u64 = 64;
/// Offset of the ring.
const RING: u64 = 128;
/// Bytes of a window.
pub(super) const WINDOW_BYTES: u64 = RING + RING_BYTES;

/// Why a collective failed at a member.
#[derive(Clone, Copy, Debug)]
pub(super) enum Reason {
    /// Its time was over.
    Late,
    /// That member died.
    Died(Rank),
    /// For a reason of its own.
    GaveUp,
}

impl Reason {
    /// That of a member whose collective failed with `e`.
    pub(super) fn of(e: &Error) -> Self {
        match (e.kind(), e.peer()) {
            (ErrorKind::DeadlineExceeded, _) => Self::Late,
            (ErrorKind::PeerDead, Some(rank)) => Self::Died(rank),
            _ => Self::GaveUp,
        }
    }

    fn word(self) -> u64 {
        match self {
            Self::Late => LATE,
            Self::Died(rank) => u64::from(rank.0) << 32 | DIED,
            Self::GaveUp => GAVE_UP,
        }
    }

    /// The reason that the peer wrote, which can be any number.
    fn from_word(word: u64) -> Self {
        let [low, high] = [word & u64::from(u32::MAX), word >> 32];
        match (word, low, u32::try_from(high)) {
            (LATE, ..) => Self::Late,
            (_, DIED, Ok(rank)) => Self::Died(Rank(rank)),
            _ => Self::GaveUp,
        }
    }
}

/// A channel to one member. One collective uses it at a time, so its counts need no order.
#[derive(Debug)]
pub(super) struct Channel {
    buffer: ConnBuffer,
    _window: Window<ConnBuffer>,
    theirs: Arc<MappedWindow>,
    /// Bytes put into the peer's ring.
    sent: AtomicU64,
    /// Bytes taken out of this ring.
    received: AtomicU64,
    /// Of `received`, what the peer was told.
    reported: AtomicU64,
    /// Messages that were begun, and the announcement of the latest.
    messages: AtomicU64,
    offered: AtomicU64,
    /// Receives that were begun, and the announcement of the latest.
    receives: AtomicU64,
    wanted: AtomicU64,
    /// Where the latest message lies, and what of the latest receive was read in the peer's memory.
    source: AtomicU64,
    read: AtomicU64,
    /// The peer may read messages in this process's memory, and has not refused to.
    lends: AtomicBool,
    memory: Option<PeerMemory>,
    /// The peer knows that a collective failed here.
    has_reported: AtomicBool,
    /// An announcement was not sent yet.
    is_stale: AtomicBool,
}

fn get(n: &AtomicU64) -> u64 {
    n.load(Ordering::Relaxed)
}

fn set(n: &AtomicU64, value: u64) {
    n.store(value, Ordering::Relaxed);
}

impl Channel {
    /// Returns whether a window of the peer can be that of a channel.
    pub(super) fn fits(theirs: &MappedWindow) -> bool {
        theirs.len() == WINDOW_BYTES && theirs.access().contains(Access::all())
    }

    /// `buffer` has [`WINDOW_BYTES`] zeros and is exposed as `window`; `theirs` [fits](Self::fits).
    pub(super) fn new(
        window: Window<ConnBuffer>,
        buffer: ConnBuffer,
        theirs: Arc<MappedWindow>,
        peer: &Peer,
    ) -> Self {
        let memory = PeerMemory::of(peer, &theirs);
        Self {
            source: AtomicU64::new(0),
            read: AtomicU64::new(0),
            lends: AtomicBool::new(memory.is_some()),
            memory,
            has_reported: AtomicBool::new(false),
            buffer,
            _window: window,
            theirs,
            sent: AtomicU64::new(0),
            received: AtomicU64::new(0),
            reported: AtomicU64::new(0),
            messages: AtomicU64::new(0),
            offered: AtomicU64::new(0),
            receives: AtomicU64::new(0),
            wanted: AtomicU64::new(0),
            is_stale: AtomicBool::new(false),
        }
    }

    #[cfg(test)]
    pub(super) fn has_failed(&self) -> bool {
        self.word(FAILED).expect("a word") != 0
    }

    /// Reads a word of this end's window.
    fn word(&self, at: u64) -> Result<u64> {
        Ok(self.buffer.region().bytes().flag(at).map_err(MemError::from)?.load_acquire())
    }

    /// The death of another member, if the peer told of one.
    pub(super) fn death(&self, peer: &Peer) -> Option<Error> {
        let told = self.word(FAILED).map(|failed| (failed, Reason::from_word(failed)));
        let Ok((failed, Reason::Died(_))) = told else { return None };
        Some(gave_up(peer, failed)).filter(|e| e.kind() == ErrorKind::PeerDead)
    }

    /// Tells the peer that this member is about to sleep, or that it is awake. The caller reads the words once more after the
    /// first, before it sleeps.
    pub(super) fn set_parked(&self, parked: bool) {
        if let Ok(flag) = self.buffer.region().bytes().flag(PARKED) {
            flag.store_release(u64::from(parked));
            if parked {
                // Pairs with the fence of `MappedWindow::publish`.
                fence(Ordering::SeqCst);
            }
        }
    }

    /// Tells the peer that a collective failed here. A peer that cannot be told has exited or left.
    pub(super) fn report_failure(&self, peer: &Peer, why: Reason) {
        self.has_reported.store(true, Ordering::Relaxed);
        report_failure(peer, &self.theirs, (get(&self.wanted), get(&self.offered)), why);
    }

    /// Puts a piece into the peer's ring, if there is one, and writes all words.
    fn publish(&self, peer: &Peer, piece: Option<(u64, SharedBytes<'_>, ByteRange)>) -> Result<()> {
        let words = [
            (FILLED, get(&self.sent)),
            (TAKEN, get(&self.received)),
            (WANTED, get(&self.wanted)),
            (READ, get(&self.read)),
            (SOURCE, get(&self.source)),
            (OFFERED, get(&self.offered)),
        ];
        let parked = match self.theirs.publish(piece, &words, PARKED) {
            // The peer may have had its bytes before it closed its window: its words say so.
            Ok(parked) => parked.unwrap_or(0),
            Err(failure) => return self.refused(peer, failure, piece.is_some()),
        };
        self.is_stale.store(false, Ordering::Relaxed);
        set(&self.reported, get(&self.received));
        if parked != 0 {
            wake(peer);
        }
        Ok(())
    }

    /// The peer's window is closed.
    #[cold]
    fn refused(&self, peer: &Peer, failure: Failure, has_piece: bool) -> Result<()> {
        if !has_piece {
            // A member that did its part and left needs no counts, and has written all of its own words.
            self.is_stale.store(false, Ordering::Relaxed);
            return Ok(());
        }
        if failure == Failure::PeerDead {
            return Err(Error::peer_dead(peer.rank(), "its process has ended"));
        }
        match self.word(FAILED)? {
            0 => Err(left(peer)),
            failed => Err(gave_up(peer, failed)),
        }
    }

    /// Returns whether the peer takes part in nothing any more.
    fn has_left(&self, peer: &Peer) -> bool {
        !self.theirs.is_open() || peer.link.check_open().is_err()
    }

    /// Writes the words if the peer lacks an announcement.
    pub(super) fn flush(&self, peer: &Peer) -> Result<()> {
        if self.is_stale.load(Ordering::Relaxed) { self.publish(peer, None) } else { Ok(()) }
    }
}

/// Tells the peer, whose window that is, that a collective failed here.
pub(super) fn report_failure(
    peer: &Peer,
    theirs: &MappedWindow,
    (wanted, offered): (u64, u64),
    why: Reason,
) {
    // With the announcements, the peer compares lengths before it looks at the failure.
    let words = [(WANTED, wanted), (OFFERED, offered), (FAILED, why.word())];
    if let Ok(Some(1..)) = theirs.publish(None, &words, PARKED) {
        wake(peer);
    }
}

/// Wakes the peer: any frame on its link wakes a member that waits.
#[cold]
fn wake(peer: &Peer) {
    // Where the link takes no frame now, one that the peer has not received yet wakes it.
    let _ = peer.link.send(&ControlMessage::Pong(0));
}

/// The error of a peer that takes part in nothing any more: it died, or it left the group or the link in order.
#[cold]
pub(in crate::api::group) fn left(peer: &Peer) -> Error {
    let link = &peer.link;
    if link.check_open().is_err() && !link.was_leaving() {
        // The data connection may have ended before the peer's BYE was received.
        link.poll_ctrl(false);
        if !link.was_leaving() {
            return link.gone();
        }
    }
    let what = "the member or this session left before the collective was over";
    Error::new(ErrorKind::Closed, what).with_peer(peer.rank())
}

/// The error of a peer that wrote `failed`, which can be any number. It may blame a member that is alive, or none.
#[cold]
fn gave_up(peer: &Peer, failed: u64) -> Error {
    let (kind, what) = match Reason::from_word(failed) {
        Reason::Late => {
            (ErrorKind::DeadlineExceeded, "the time of the collective was over at this member")
        }
        Reason::Died(rank) if rank != peer.rank() && rank != peer.shared.config.rank => {
            return Error::peer_dead(rank, format_args!("rank {} says so", peer.rank().0));
        }
        Reason::Died(_) | Reason::GaveUp => {
            (ErrorKind::Cancelled, "a collective failed at this member")
        }
    };
    Error::new(kind, what).with_peer(peer.rank())
}
