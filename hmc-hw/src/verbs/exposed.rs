//! Windows that are exposed to the peer.

use hmc_core::region::{Epoch, WindowId};
use hmc_core::time::{Duration, Instant};

use super::conn_info::WindowKey;
use super::lane::{Lane, LaneFailure};
use super::objects::{MemoryRegion, MemoryWindow};
use super::region_set::RegionSet;
use super::window_set::WindowSet;

/// How long a revoked window stays open to what the peer has posted already. Accesses that come later end the connection, so this is
/// as long as a live process may be kept from running: less than the silence after which the peer counts as dead.
pub(super) const GRACE: Duration = Duration::from_millis(1000);

/// What lets the peer in.
#[derive(Debug)]
pub(super) enum Entrance {
    /// Registrations of just the window's bytes, with its rights.
    Regions(RegionSet),
    /// Memory windows.
    Windows(WindowSet),
}

impl Entrance {
    fn into_set(self) -> Option<WindowSet> {
        match self {
            Self::Regions(_) => None,
            Self::Windows(set) => Some(set),
        }
    }

    /// Returns `true` if it may be ended now: no bind is under way.
    fn is_settled(&self) -> bool {
        match self {
            Self::Regions(_) => true,
            Self::Windows(set) => set.is_settled(),
        }
    }
}

/// A window of this end.
#[derive(Debug)]
struct ExposedWindow {
    name: (WindowId, Epoch),
    /// A window without bytes has none, nor one that nobody can access any more.
    entrance: Option<Entrance>,
    /// When it was revoked.
    revoked: Option<Instant>,
    /// The peer has said that it uses it no more.
    is_unused: bool,
    /// The peer has its keys, or is not to have them.
    is_told: bool,
}

impl ExposedWindow {
    /// Returns `true` if it was revoked, and the peer has said that it uses it no more or had [`GRACE`] for it.
    fn is_due(&self, now: Instant) -> bool {
        self.revoked.is_some_and(|since| self.is_unused || now.since(since) >= GRACE)
    }

    /// Returns `true` if a bind of it is to be posted, or under way.
    fn is_binding(&self) -> bool {
        match &self.entrance {
            Some(Entrance::Windows(set)) if self.revoked.is_none() => !set.is_bound(),
            Some(entrance) => !entrance.is_settled(),
            None => false,
        }
    }

    /// Returns what the peer receives of it on a link of so many queue pairs, 0 if that is not known yet: with the keys once they are
    /// valid.
    fn key(&self, lanes: usize) -> Option<WindowKey> {
        match &self.entrance {
            Some(Entrance::Windows(set)) => Some(set.key()),
            Some(Entrance::Regions(set)) => Some(set.key(lanes)),
            None => None,
        }
    }

    /// Returns `true` if the peer is to receive its keys, and they are valid on a link of so many queue pairs.
    fn owes_keys(&self, lanes: usize) -> bool {
        match &self.entrance {
            Some(Entrance::Windows(set)) => !self.is_told && set.is_bound(),
            Some(Entrance::Regions(_)) => !self.is_told && lanes != 0,
            None => false,
        }
    }

    fn set(&mut self) -> Option<&mut WindowSet> {
        match &mut self.entrance {
            Some(Entrance::Windows(set)) => Some(set),
            _ => None,
        }
    }
}

/// A window that is over, and whose index may be another one's already.
#[derive(Debug)]
struct EndingWindow {
    name: (WindowId, Epoch),
    entrance: Entrance,
    /// When it was revoked, forgotten or replaced.
    since: Instant,
}

/// The windows that are exposed to one peer, by their indices.
#[derive(Debug, Default)]
pub(super) struct ExposedWindows {
    windows: Vec<Option<ExposedWindow>>,
    /// Binds are to be posted, or under way.
    is_binding: bool,
    /// The peer is to receive keys.
    owes_keys: bool,
    /// Windows whose binds are under way may be among them.
    ending: Vec<EndingWindow>,
    /// Queue pairs of the link, once both ends know how many.
    lanes: usize,
}

impl ExposedWindows {
    fn iter(&self) -> impl Iterator<Item = &ExposedWindow> {
        self.windows.iter().flatten()
    }

    fn iter_mut(&mut self) -> impl Iterator<Item = &mut ExposedWindow> {
        self.windows.iter_mut().flatten()
    }

    /// Adds a window. What lets the peer into the one that was in its place ends with [`Self::take_ended`].
    pub(super) fn open(
        &mut self,
        (id, epoch): (WindowId, Epoch),
        entrance: Option<Entrance>,
        now: Instant,
    ) {
        let index = usize::from(id.index());
        if index >= self.windows.len() {
            self.windows.resize_with(index.saturating_add(1), || None);
        }
        let is_told = entrance.is_none();
        let window =
            ExposedWindow { name: (id, epoch), entrance, revoked: None, is_unused: false, is_told };
        let old = self.windows.get_mut(index).and_then(|place| place.replace(window));
        self.add_ending(old, now);
    }

    /// That window is over.
    fn add_ending(&mut self, window: Option<ExposedWindow>, now: Instant) {
        if let Some(ExposedWindow { name, entrance: Some(entrance), revoked, .. }) = window {
            self.ending.push(EndingWindow { name, entrance, since: revoked.unwrap_or(now) });
        }
        self.recount();
    }

    /// Looks again at what is due, after a change of the windows.
    fn recount(&mut self) {
        let ending = self.ending.iter().any(|ending| !ending.entrance.is_settled());
        self.is_binding = ending || self.iter().any(ExposedWindow::is_binding);
        let owes_keys = self.iter().any(|window| window.owes_keys(self.lanes));
        self.owes_keys = owes_keys;
    }

    fn find(&mut self, id: WindowId, epoch: Epoch) -> Option<&mut ExposedWindow> {
        let entry = self.windows.get_mut(usize::from(id.index()))?.as_mut();
        entry.filter(|window| window.name == (id, epoch))
    }

    /// A window is revoked: it is closed when the peer has said that it uses it no more, or [`GRACE`] later.
    pub(super) fn revoke(&mut self, id: WindowId, epoch: Epoch, now: Instant) {
        if let Some(window) = self.find(id, epoch) {
            window.revoked.get_or_insert(now);
            window.is_told = true;
        }
        self.recount();
    }

    /// The peer says that it uses a revoked window no more: it is closed with [`Self::take_ended`].
    pub(super) fn release(&mut self, id: WindowId, epoch: Epoch) {
        if let Some(window) = self.find(id, epoch) {
            window.is_unused = window.revoked.is_some();
        }
    }

    /// Takes what still lets the peer into windows that are over. Its end is the fence.
    pub(super) fn take_ended(&mut self, now: Instant) -> Vec<Entrance> {
        let (settled, ending): (Vec<_>, Vec<_>) =
            self.ending.drain(..).partition(|ending| ending.entrance.is_settled());
        self.ending = ending;
        let mut ended: Vec<_> = settled.into_iter().map(|ending| ending.entrance).collect();
        for window in self.iter_mut().filter(|window| window.is_due(now)) {
            ended.extend(window.entrance.take_if(|entrance| entrance.is_settled()));
        }
        ended
    }

    /// Returns `true` if some window has been over for [`GRACE`], and a bind of it is still under way.
    pub(super) fn is_stuck(&self, now: Instant) -> bool {
        let is_over = |since| now.since(since) >= GRACE;
        let mut revoked = self.iter().filter(|window| window.entrance.is_some());
        revoked.any(|window| window.revoked.is_some_and(is_over))
            || self.ending.iter().any(|ending| is_over(ending.since))
    }

    /// Returns `true` if some window is over and can still be accessed.
    pub(super) fn has_revoked(&self) -> bool {
        let is_revoked = |w: &ExposedWindow| w.revoked.is_some() && w.entrance.is_some();
        !self.ending.is_empty() || self.iter().any(is_revoked)
    }

    /// Returns `true` if nobody can access that window any more.
    pub(super) fn is_closed(&self, id: WindowId, epoch: Epoch) -> bool {
        let entry = self.windows.get(usize::from(id.index())).and_then(Option::as_ref);
        let is_open = entry.is_some_and(|w| w.name == (id, epoch) && w.entrance.is_some());
        !is_open && !self.ending.iter().any(|ending| ending.name == (id, epoch))
    }

    /// Removes a window. What lets the peer in, if anything, ends with [`Self::take_ended`].
    pub(super) fn forget(&mut self, id: WindowId, epoch: Epoch, now: Instant) {
        let entry = self.windows.get_mut(usize::from(id.index()));
        let window = entry.and_then(|entry| entry.take_if(|window| window.name == (id, epoch)));
        self.add_ending(window, now);
    }

    /// Takes all that lets the peer in.
    pub(super) fn take_all(&mut self) -> Vec<Entrance> {
        let ending = std::mem::take(&mut self.ending).into_iter().map(|ending| ending.entrance);
        (self.is_binding, self.owes_keys) = (false, false);
        ending.chain(self.iter_mut().filter_map(|w| w.entrance.take())).collect()
    }

    /// Takes all memory windows: the link is over.
    pub(super) fn take_sets(&mut self) -> Vec<WindowSet> {
        (self.is_binding, self.owes_keys) = (false, false);
        let is_set = |entrance: &Entrance| matches!(entrance, Entrance::Windows(_));
        let (ending, others): (Vec<_>, Vec<_>) =
            self.ending.drain(..).partition(|ending| is_set(&ending.entrance));
        self.ending = others;
        let ending = ending.into_iter().map(|ending| ending.entrance);
        let open = self.iter_mut().filter_map(|w| w.entrance.take_if(|entrance| is_set(entrance)));
        ending.chain(open).filter_map(Entrance::into_set).collect()
    }

    /// Returns `true` if any can be accessed.
    pub(super) fn has_memory(&self) -> bool {
        !self.ending.is_empty() || self.iter().any(|window| window.entrance.is_some())
    }

    /// Returns `true` if binds are to be posted, or under way.
    #[inline]
    pub(super) fn is_binding(&self) -> bool {
        self.is_binding
    }

    /// Posts binds that are due, as far as there is space. Those of revoked windows are not posted.
    ///
    /// # Errors
    /// [`LaneFailure`].
    pub(super) fn post_binds(&mut self, lanes: &mut [Lane]) -> Result<(), Box<LaneFailure>> {
        let open = self.iter_mut().filter(|window| window.revoked.is_none());
        open.filter_map(ExposedWindow::set).try_for_each(|set| set.post(lanes))
    }

    /// Takes note of binds that have completed.
    pub(super) fn settle(&mut self, lanes: &[Lane]) {
        let ending = self.ending.iter_mut().map(|ending| &mut ending.entrance);
        let open = self.windows.iter_mut().flatten().filter_map(|w| w.entrance.as_mut());
        for entrance in ending.chain(open) {
            if let Entrance::Windows(set) = entrance {
                set.settle(lanes);
            }
        }
        self.recount();
    }

    /// The link has just the queue pairs that had these indices, in that order, and the first `nics` NICs: takes what is for others.
    pub(super) fn connect(
        &mut self,
        kept: &[usize],
        nics: usize,
    ) -> (Vec<MemoryWindow>, Vec<MemoryRegion>) {
        let (mut windows, mut regions) = (Vec::new(), Vec::new());
        for window in self.windows.iter_mut().flatten() {
            match &mut window.entrance {
                Some(Entrance::Windows(set)) => windows.append(&mut set.keep_lanes(kept)),
                Some(Entrance::Regions(set)) => regions.append(&mut set.keep_nics(nics)),
                None => {}
            }
        }
        self.lanes = kept.len();
        self.recount();
        (windows, regions)
    }

    /// Returns `true` if the peer is to receive keys.
    #[inline]
    pub(super) fn owes_keys(&self) -> bool {
        self.owes_keys
    }

    /// Returns what the peer receives of a window, with the keys if they are valid.
    pub(super) fn key_of(&mut self, id: WindowId, epoch: Epoch) -> Option<WindowKey> {
        let lanes = self.lanes;
        let window = self.find(id, epoch)?;
        let key = window.key(lanes)?;
        window.is_told |= !key.keys.is_empty();
        self.recount();
        Some(key)
    }

    /// Takes the keys of a window that the peer does not have yet.
    pub(super) fn take_keys(&mut self) -> Option<WindowKey> {
        if !self.owes_keys {
            return None;
        }
        let (id, epoch) = self.iter().find(|window| window.owes_keys(self.lanes))?.name;
        self.key_of(id, epoch)
    }
}
