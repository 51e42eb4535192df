//! Windows: which ranges of this process's regions a peer may access, and until when.
//!
//! The states of an entry are `Free -> Exposed -> Revoking -> Free | Quarantined | Closed` and `Closed -> Exposed | Revoking | Free`: a closed
//! window can be exposed again under its name, or revoked. [`WindowTable`] is the target's
//! side of every transport whose target checks accesses: it translates a claim of the peer into a proven range of a
//! local region, or into a [`WindowFault`]. It takes no lock and is not for several threads; one table serves one
//! peer.

use crate::limits::MAX_WINDOWS_PER_PEER;
use crate::range::{ByteRange, Extent, RangeError, Side};
use crate::region::{Epoch, LocalSlice, RegionKey, WindowDesc, WindowId};
use crate::types::{Access, MemoryKind};

/// Why an access to a window was refused. Nothing was read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WindowFault {
    /// No window has that name.
    Unknown,
    /// The window was exposed again since; its description is out of date.
    StaleEpoch,
    /// The window is being, or was, revoked.
    Revoked,
    /// The range leaves the window.
    OutOfWindow(RangeError),
    /// The window does not allow this kind of access.
    Access,
    /// A block of the window has another generation than expected. Unlike for the other faults, bytes may have moved: the block
    /// can change while they do.
    StaleGeneration(StaleGeneration),
}

/// A block that has another generation than expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StaleGeneration {
    /// Which block of the window.
    pub block: u32,
    /// The generation that the initiator named.
    pub expected: u32,
    /// The generation that the block had.
    pub found: u32,
}

impl core::fmt::Display for StaleGeneration {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let Self { block, expected, found } = self;
        write!(f, "block {block} of the window has generation {found}, not {expected}")
    }
}

impl core::error::Error for StaleGeneration {}

impl core::fmt::Display for WindowFault {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Unknown => f.write_str("no such window"),
            Self::StaleEpoch => {
                f.write_str("the window was exposed anew; fetch its description again")
            }
            Self::Revoked => f.write_str("the window was revoked"),
            Self::OutOfWindow(e) => write!(f, "{e}"),
            Self::Access => f.write_str("the window does not allow this access"),
            Self::StaleGeneration(e) => write!(f, "{e}"),
        }
    }
}

impl core::error::Error for WindowFault {}

/// The state of an entry of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WindowState {
    /// Nothing is exposed here; the range is private.
    Free,
    /// The peer may access the range.
    Exposed,
    /// Revocation has begun: new accesses are refused, old ones may still run.
    Revoking,
    /// The deadline of a revocation passed without a fence: the range must not be used again until
    /// a fence comes after all.
    Quarantined,
    /// It was revoked, and its fence has passed, but its name is kept: the owner may open it again.
    Closed,
}

/// A transition of an entry of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WindowTransition {
    /// The owner exposes a range.
    Expose,
    /// The peer accesses it.
    PeerAccess,
    /// The owner begins to revoke.
    Revoke,
    /// A fence: the peer acknowledged, died, or the transport guarantees it.
    Fence,
    /// The deadline of the revocation passed.
    Expire,
    /// A fence, after which the owner keeps the name: the peer is not told that the window is gone.
    Close,
    /// The owner opens a closed window again.
    Reopen,
}

/// A transition that is not allowed in a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidTransition {
    /// The state.
    pub state: WindowState,
    /// The transition.
    pub transition: WindowTransition,
}

impl WindowState {
    /// Returns the state after `transition`. `tests/window_table.txt` has every pair.
    ///
    /// # Errors
    /// [`InvalidTransition`] if the transition is not allowed in this state.
    pub const fn next(self, transition: WindowTransition) -> Result<Self, InvalidTransition> {
        match (self, transition) {
            (Self::Free, WindowTransition::Expose)
            | (Self::Exposed, WindowTransition::PeerAccess)
            | (Self::Closed, WindowTransition::Reopen) => Ok(Self::Exposed),
            (Self::Revoking, WindowTransition::Close) => Ok(Self::Closed),
            (Self::Exposed | Self::Closed, WindowTransition::Revoke) => Ok(Self::Revoking),
            (
                Self::Exposed | Self::Revoking | Self::Quarantined | Self::Closed,
                WindowTransition::Fence,
            ) => Ok(Self::Free),
            (Self::Revoking, WindowTransition::Expire) => Ok(Self::Quarantined),
            // To ask twice changes nothing.
            (Self::Revoking, WindowTransition::Revoke) => Ok(Self::Revoking),
            (Self::Quarantined, WindowTransition::Revoke | WindowTransition::Expire) => {
                Ok(Self::Quarantined)
            }
            _ => Err(InvalidTransition { state: self, transition }),
        }
    }
}

/// One entry of a [`WindowTable`].
#[derive(Clone, Copy, Debug)]
pub struct WindowEntry {
    state: WindowState,
    id: WindowId,
    epoch: Epoch,
    access: Access,
    kind: MemoryKind,
    key: RegionKey,
    span: ByteRange,
    /// The part of `span` that requests of the peer reach.
    served: ByteRange,
}

impl WindowEntry {
    /// An unused entry.
    pub const FREE: Self = Self {
        state: WindowState::Free,
        id: WindowId(0),
        epoch: Epoch(0),
        access: Access::empty(),
        kind: MemoryKind::Cpu,
        key: RegionKey { index: 0, generation: 0 },
        span: Extent::new(0).whole(),
        served: Extent::new(0).whole(),
    };

    /// Returns its state.
    #[must_use]
    pub const fn state(&self) -> WindowState {
        self.state
    }

    /// The range of the local region that it covers.
    #[must_use]
    pub const fn local(&self) -> LocalSlice {
        LocalSlice { key: self.key, span: self.span }
    }

    /// What the peer is told about it.
    #[must_use]
    pub const fn describe(&self) -> WindowDesc {
        WindowDesc {
            window: self.id,
            epoch: self.epoch,
            extent: Extent::new(self.span.len()),
            access: self.access,
            kind: self.kind,
        }
    }
}

/// A refusal to expose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExposeError {
    /// All entries of the table are in use.
    Full {
        /// How many there are.
        limit: usize,
    },
}

impl core::fmt::Display for ExposeError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Full { limit } => {
                write!(f, "all {limit} windows towards this peer are in use; revoke one first")
            }
        }
    }
}

impl core::error::Error for ExposeError {}

/// The windows towards one peer, on storage of the caller's (at most
/// [`MAX_WINDOWS_PER_PEER`] entries are used).
#[derive(Clone, Debug)]
pub struct WindowTable<S> {
    entries: S,
}

impl<S: AsRef<[WindowEntry]> + AsMut<[WindowEntry]>> WindowTable<S> {
    /// A table on `entries`, all of which are overwritten with [`WindowEntry::FREE`].
    pub fn new(mut entries: S) -> Self {
        entries.as_mut().fill(WindowEntry::FREE);
        Self { entries }
    }

    fn entries_mut(&mut self) -> impl Iterator<Item = (u16, &mut WindowEntry)> {
        (0..=u16::MAX).zip(self.entries.as_mut().iter_mut().take(MAX_WINDOWS_PER_PEER))
    }

    /// Exposes `local` to the peer. `entropy` must be unpredictable: it becomes part of the name.
    ///
    /// # Errors
    /// [`ExposeError::Full`] if no entry is free.
    pub fn expose(
        &mut self,
        local: LocalSlice,
        kind: MemoryKind,
        access: Access,
        entropy: u64,
    ) -> Result<WindowDesc, ExposeError> {
        let limit = self.entries.as_ref().len().min(MAX_WINDOWS_PER_PEER);
        for (index, e) in self.entries_mut() {
            if let Ok(state) = e.state.next(WindowTransition::Expose) {
                *e = WindowEntry {
                    state,
                    id: WindowId::new(index, entropy),
                    epoch: Epoch(e.epoch.0.wrapping_add(1)),
                    access,
                    kind,
                    key: local.key,
                    span: local.span,
                    served: local.span,
                };
                return Ok(e.describe());
            }
        }
        Err(ExposeError::Full { limit })
    }

    /// The entry of that name in that epoch, whatever its state.
    ///
    /// # Errors
    /// [`WindowFault::Unknown`] or [`WindowFault::StaleEpoch`].
    pub fn entry(&self, id: WindowId, epoch: Epoch) -> Result<&WindowEntry, WindowFault> {
        let e = self.entries.as_ref().get(usize::from(id.index())).ok_or(WindowFault::Unknown)?;
        if e.id != id || (matches!(e.state, WindowState::Free) && e.epoch == epoch) {
            return Err(WindowFault::Unknown);
        }
        if e.epoch != epoch {
            return Err(WindowFault::StaleEpoch);
        }
        Ok(e)
    }

    /// Checks an access from the wire and gives the range of local memory that it means.
    ///
    /// # Errors
    /// The [`WindowFault`] to answer with; no byte may be touched.
    #[inline]
    pub fn check(
        &self,
        id: WindowId,
        epoch: Epoch,
        offset: u64,
        len: u64,
        access: Access,
    ) -> Result<LocalSlice, WindowFault> {
        let e = self.entry(id, epoch)?;
        let served = e.state.next(WindowTransition::PeerAccess).is_ok();
        if !served {
            return Err(WindowFault::Revoked);
        }
        let allowed = e.access.contains(access);
        if !allowed {
            return Err(WindowFault::Access);
        }
        match e.span.sub(Side::Remote, offset, len) {
            Ok(span) if e.served.offset() <= span.offset() && span.end() <= e.served.end() => {
                Ok(LocalSlice { key: e.key, span })
            }
            Ok(_) => Err(WindowFault::Revoked),
            Err(range) => Err(WindowFault::OutOfWindow(range)),
        }
    }

    /// From here on requests of the peer reach only `len` bytes from `offset` of the window: others are refused as
    /// [`WindowFault::Revoked`]. The peer is not told, and its name, epoch and length stay. It bounds what this end copies for the
    /// peer; a peer that has the pages mapped copies by itself.
    ///
    /// # Errors
    /// As [`Self::entry`], and [`WindowFault::OutOfWindow`].
    pub fn serve(
        &mut self,
        id: WindowId,
        epoch: Epoch,
        offset: u64,
        len: u64,
    ) -> Result<(), WindowFault> {
        let part = self.entry(id, epoch)?.span.sub(Side::Remote, offset, len);
        let e =
            self.entries.as_mut().get_mut(usize::from(id.index())).ok_or(WindowFault::Unknown)?;
        e.served = part.map_err(WindowFault::OutOfWindow)?;
        Ok(())
    }

    /// Applies a transition (all but `Expose` and `PeerAccess`, which have their own methods) to a window.
    ///
    /// # Errors
    /// As [`Self::entry`], and [`WindowFault::Revoked`] if the transition is no longer allowed.
    pub fn apply(
        &mut self,
        id: WindowId,
        epoch: Epoch,
        transition: WindowTransition,
    ) -> Result<WindowState, WindowFault> {
        self.entry(id, epoch)?;
        let e =
            self.entries.as_mut().get_mut(usize::from(id.index())).ok_or(WindowFault::Unknown)?;
        e.state = e.state.next(transition).map_err(|_| WindowFault::Revoked)?;
        Ok(e.state)
    }

    /// Returns all entries that are not free.
    pub fn in_use(&self) -> impl Iterator<Item = &WindowEntry> {
        self.entries.as_ref().iter().filter(|e| !matches!(e.state, WindowState::Free))
    }
}

#[cfg(test)]
mod tests {
    use super::{WindowEntry, WindowFault, WindowState, WindowTable, WindowTransition};
    use crate::place::Place;
    use crate::range::Extent;
    use crate::region::{Epoch, LocalRegion, RegionKey, WindowId};
    use crate::types::{Access, MemoryKind};
    use std::fmt::Write as _;
    use std::string::String;

    #[test]
    fn the_whole_life_is_the_stored_table() {
        let mut text = String::new();
        for state in [
            WindowState::Free,
            WindowState::Exposed,
            WindowState::Revoking,
            WindowState::Quarantined,
            WindowState::Closed,
        ] {
            for transition in [
                WindowTransition::Expose,
                WindowTransition::PeerAccess,
                WindowTransition::Revoke,
                WindowTransition::Fence,
                WindowTransition::Expire,
                WindowTransition::Close,
                WindowTransition::Reopen,
            ] {
                let out = match state.next(transition) {
                    Ok(next) => std::format!("{next:?}"),
                    Err(_) => String::from("-"),
                };
                writeln!(text, "{state:?} {transition:?} {out}").unwrap();
            }
        }
        assert_eq!(text, include_str!("../tests/window_table.txt"));
    }

    fn table() -> WindowTable<[WindowEntry; 4]> {
        WindowTable::new([WindowEntry::FREE; 4])
    }

    fn region() -> LocalRegion {
        LocalRegion {
            key: RegionKey { index: 3, generation: 9 },
            extent: Extent::new(100),
            place: Place::HOST,
        }
    }

    #[test]
    fn an_access_is_translated_and_bounded() {
        let mut t = table();
        let w =
            t.expose(region().slice(10, 20).unwrap(), MemoryKind::Cpu, Access::WRITE, 77).unwrap();
        let hit = t.check(w.window, w.epoch, 5, 15, Access::WRITE).unwrap();
        assert_eq!((hit.key, hit.span.offset(), hit.span.len()), (region().key, 15, 15));
        assert!(matches!(
            t.check(w.window, w.epoch, 5, 16, Access::WRITE),
            Err(WindowFault::OutOfWindow(e)) if e.limit == 20
        ));
        assert_eq!(t.check(w.window, w.epoch, 0, 1, Access::READ), Err(WindowFault::Access));
        assert_eq!(
            t.check(WindowId(w.window.0 ^ (1 << 40)), w.epoch, 0, 1, Access::WRITE),
            Err(WindowFault::Unknown)
        );
        assert_eq!(
            t.check(w.window, Epoch(w.epoch.0 + 1), 0, 1, Access::WRITE),
            Err(WindowFault::StaleEpoch)
        );
    }

    #[test]
    fn a_revoked_window_refuses_and_its_place_returns_under_a_new_epoch() {
        let mut t = table();
        let slice = region().slice(0, 8).unwrap();
        let w = t.expose(slice, MemoryKind::Cpu, Access::all(), 1).unwrap();
        assert_eq!(t.apply(w.window, w.epoch, WindowTransition::Revoke), Ok(WindowState::Revoking));
        assert_eq!(t.check(w.window, w.epoch, 0, 1, Access::READ), Err(WindowFault::Revoked));
        assert_eq!(
            t.apply(w.window, w.epoch, WindowTransition::Expire),
            Ok(WindowState::Quarantined)
        );
        assert_eq!(t.in_use().count(), 1, "quarantined places are not given out");
        assert_eq!(t.apply(w.window, w.epoch, WindowTransition::Fence), Ok(WindowState::Free));
        let again = t.expose(slice, MemoryKind::Cpu, Access::all(), 1).unwrap();
        assert_eq!(again.window, w.window);
        assert_eq!(t.check(w.window, w.epoch, 0, 1, Access::READ), Err(WindowFault::StaleEpoch));
    }

    #[test]
    fn a_full_table_refuses() {
        let mut t = table();
        let slice = region().slice(0, 8).unwrap();
        for _ in 0..4 {
            t.expose(slice, MemoryKind::Cpu, Access::READ, 5).unwrap();
        }
        assert!(t.expose(slice, MemoryKind::Cpu, Access::READ, 5).is_err());
    }
}
