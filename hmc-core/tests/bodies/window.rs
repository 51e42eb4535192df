//! The windows towards one peer against a plain model: every access that is let through lies within
//! a range that is exposed, in its own epoch, with the right it needs; every other one says why not.

use super::script::Script;
use super::subject::Subject;
use hmc_core::limits::MAX_WINDOWS_PER_PEER;
use hmc_core::place::Place;
use hmc_core::range::Extent;
use hmc_core::region::{Epoch, LocalRegion, LocalSlice, RegionKey, WindowDesc, WindowId};
use hmc_core::types::{Access, MemoryKind};
use hmc_core::window::{WindowEntry, WindowFault, WindowState, WindowTable, WindowTransition};

/// A place of the table, as plain facts.
#[derive(Clone, Copy, Debug)]
struct Entry {
    state: WindowState,
    id: u64,
    epoch: u32,
    access: Access,
    key: RegionKey,
    from: u64,
    len: u64,
}

impl Entry {
    const EMPTY: Self = Self {
        state: WindowState::Free,
        id: 0,
        epoch: 0,
        access: Access::empty(),
        key: RegionKey { index: 0, generation: 0 },
        from: 0,
        len: 0,
    };
}

struct World {
    table: WindowTable<Vec<WindowEntry>>,
    places: Vec<Entry>,
    /// Everything that was ever told to the peer.
    told: Vec<WindowDesc>,
    subject: Subject,
}

impl World {
    /// The broken table takes every access for one of today's epoch.
    fn check(&self, id: WindowId, epoch: Epoch, at: u64, len: u64, access: Access) -> Checked {
        let today = match self.subject {
            Subject::Real => epoch,
            Subject::Broken => self
                .table
                .in_use()
                .map(WindowEntry::describe)
                .find(|w| w.window == id)
                .map_or(epoch, |w| w.epoch),
        };
        self.table.check(id, today, at, len, access)
    }

    fn expected(&self, id: WindowId, epoch: Epoch, at: u64, len: u64, access: Access) -> Want {
        let Some(p) = self.places.get(usize::from(id.index())) else { return Want::Unknown };
        if p.id != id.0 || (p.state == WindowState::Free && p.epoch == epoch.0) {
            return Want::Unknown;
        }
        if p.epoch != epoch.0 {
            return Want::Stale;
        }
        if p.state != WindowState::Exposed {
            return Want::Revoked;
        }
        if !p.access.contains(access) {
            return Want::Access;
        }
        if u128::from(at) + u128::from(len) > u128::from(p.len) {
            return Want::Out { limit: p.len };
        }
        Want::Slice { key: p.key, from: p.from + at, len }
    }

    fn expose(&mut self, s: &mut Script<'_>) {
        let size = 1000;
        let from = s.number() % size;
        let len = s.number() % (size - from + 1);
        let key = RegionKey { index: u16::from(s.u8()), generation: 3 };
        let access = Access::from_bits_truncate(s.u8());
        let region = LocalRegion { key, extent: Extent::new(size), place: Place::HOST };
        // Few different ones, so that old and new names are often the same but for the epoch.
        let entropy = u64::from(s.u8() & 1) << 40;
        let got =
            self.table.expose(region.slice(from, len).unwrap(), MemoryKind::Cpu, access, entropy);
        let Some(i) = self.places.iter().position(|p| p.state == WindowState::Free) else {
            assert!(got.is_err(), "a full table takes nothing");
            return;
        };
        let told = got.unwrap();
        let p = &mut self.places[i];
        let epoch = p.epoch.wrapping_add(1);
        *p =
            Entry { state: WindowState::Exposed, id: told.window.0, epoch, access, key, from, len };
        assert_eq!(usize::from(told.window.index()), i, "the first free place is taken");
        assert_eq!((told.epoch.0, told.extent.len(), told.access), (epoch, len, access));
        self.told.push(told);
    }

    /// A name that was told once, perhaps bent.
    fn name(&self, s: &mut Script<'_>) -> (WindowId, Epoch) {
        let pick = usize::from(s.u8());
        let bend = s.u8();
        let told = (!self.told.is_empty()).then(|| self.told[pick % self.told.len()]);
        let (mut id, mut epoch) = told.map_or((0, 0), |t| (t.window.0, t.epoch.0));
        match bend {
            0xF0..=0xF3 => id = s.u64(),
            0xF4..=0xF7 => id ^= 1 << (bend & 3),
            0xF8..=0xFB => epoch = epoch.wrapping_add(1),
            0xFC..=0xFF => epoch = epoch.wrapping_sub(1),
            _ => {}
        }
        (WindowId(id), Epoch(epoch))
    }

    fn access(&self, s: &mut Script<'_>) {
        let (id, epoch) = self.name(s);
        let (at, len) = (s.number(), s.number());
        let access = Access::from_bits_truncate(s.u8());
        let got = self.check(id, epoch, at, len, access);
        assert_eq!(Want::of(&got), self.expected(id, epoch, at, len, access), "{got:?}");
    }

    fn transition(&mut self, s: &mut Script<'_>) {
        let (id, epoch) = self.name(s);
        let transition = [
            WindowTransition::Revoke,
            WindowTransition::Fence,
            WindowTransition::Expire,
            WindowTransition::Close,
            WindowTransition::Reopen,
        ][usize::from(s.u8() % 5)];
        let got = self.table.apply(id, epoch, transition);
        // As an access, but for the state.
        match self.expected(id, epoch, 0, 0, Access::empty()) {
            Want::Unknown => assert_eq!(got, Err(WindowFault::Unknown)),
            Want::Stale => assert_eq!(got, Err(WindowFault::StaleEpoch)),
            _ => {
                let p = &mut self.places[usize::from(id.index())];
                let next = match (p.state, transition) {
                    (
                        WindowState::Exposed | WindowState::Revoking | WindowState::Closed,
                        WindowTransition::Revoke,
                    ) => Some(WindowState::Revoking),
                    (WindowState::Revoking, WindowTransition::Close) => Some(WindowState::Closed),
                    (WindowState::Closed, WindowTransition::Reopen) => Some(WindowState::Exposed),
                    (_, WindowTransition::Fence) => Some(WindowState::Free),
                    (
                        WindowState::Revoking | WindowState::Quarantined,
                        WindowTransition::Expire,
                    )
                    | (WindowState::Quarantined, WindowTransition::Revoke) => {
                        Some(WindowState::Quarantined)
                    }
                    _ => None,
                };
                assert_eq!(got, next.ok_or(WindowFault::Revoked));
                p.state = next.unwrap_or(p.state);
            }
        }
    }

    fn compare(&self) {
        let used: Vec<_> = self.places.iter().filter(|p| p.state != WindowState::Free).collect();
        assert_eq!(self.table.in_use().count(), used.len());
        for (entry, p) in self.table.in_use().zip(used) {
            let (local, told) = (entry.local(), entry.describe());
            assert_eq!((entry.state(), told.window.0, told.epoch.0), (p.state, p.id, p.epoch));
            assert_eq!((local.key, local.span.offset(), local.span.len()), (p.key, p.from, p.len));
        }
    }
}

type Checked = Result<LocalSlice, WindowFault>;

/// An answer to an access, in plain numbers.
#[derive(Debug, PartialEq, Eq)]
enum Want {
    Unknown,
    Stale,
    Revoked,
    Access,
    Out { limit: u64 },
    Slice { key: RegionKey, from: u64, len: u64 },
}

impl Want {
    fn of(got: &Checked) -> Self {
        match got {
            Ok(s) => Self::Slice { key: s.key, from: s.span.offset(), len: s.span.len() },
            Err(WindowFault::Unknown) => Self::Unknown,
            Err(WindowFault::StaleEpoch) => Self::Stale,
            Err(WindowFault::Revoked) => Self::Revoked,
            Err(WindowFault::Access) => Self::Access,
            Err(WindowFault::OutOfWindow(e)) => Self::Out { limit: e.limit },
            Err(other) => panic!("no model of {other:?}"),
        }
    }
}

/// A script: the number of places, then steps of one byte and what each needs.
pub fn window(bytes: &[u8], subject: Subject) {
    let mut s = Script::new(bytes);
    let size = [1, 2, 4, MAX_WINDOWS_PER_PEER + 3, 0][usize::from(s.u8() % 5)];
    let table = WindowTable::new(vec![WindowEntry::FREE; size]);
    let places = vec![Entry::EMPTY; size.min(MAX_WINDOWS_PER_PEER)];
    let mut world = World { table, places, told: Vec::new(), subject };
    while !s.is_over() {
        match s.u8() % 4 {
            0 => world.expose(&mut s),
            1 | 2 => world.access(&mut s),
            _ => world.transition(&mut s),
        }
        if size <= 4 {
            world.compare();
        }
    }
    world.compare();
}
