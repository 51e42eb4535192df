//! The shared state of the modules of one session. There is no state outside of it: two sessions in one process
//! share nothing.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use hmc_core::types::{Access, Incarnation, Rank};
use hmc_core::wire::advert::{RegionAdvert, WindowBacking, WindowRole};
use hmc_core::wire::hello::{Asked, EndpointList, Features, Hello, HostId, LinkToken};
use hmc_core::wire::message::ControlMessage;

use hmc_mem::os::life::LifePage;

use crate::base::clock::{self, Clock};
use crate::base::config::{Config, Progress};
use crate::base::entropy::Entropy;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::event_count::{EventCount, WaitStep};
use crate::base::lock::lock;
use crate::base::private_ranks::FIRST_PRIVATE;
use crate::base::process::Origin;
use crate::base::secret::KeptSecret;
use crate::base::wait_limit::{WaitLimit, WaitStopped};
use crate::callbacks::waker_set::WakerSet;
use crate::callbacks::wakers::Wakers;
use crate::io::reactor::Reactor;
use crate::io::rest_socket::RestSocket;
use crate::link::{Link, LinkObserver, Serves};
use crate::memory::{ConnBuffer, Generations, Region, RegionTable};
use crate::node::link_tokens::LinkTokens;
use crate::node::membership::{Input, Membership};
use crate::quarantine::Tally;
use crate::state::links::Links;
use crate::state::listeners::{CameBy, Listeners};
use crate::state::pending_conns::PendingConns;
use crate::state::reconnect_info::ReconnectInfo;
use crate::state::wait_pool::WaitPool;
use crate::transport::domain::Domain;
use crate::transport::registry::Domains;

/// How often deadlines are looked at while there are peers, at the least. Heartbeats (500 ms) are kept to within this; for the
/// end of a silent peer the next look comes earlier ([`SessionInner::on_timer`]).
const LONGEST_TICK_NS: u64 = 250_000_000;

pub(crate) struct SessionInner {
    /// Names the session among all of the process: part of the names of what it begins.
    pub(crate) id: u64,
    pub(crate) config: Config,
    pub(crate) clock: Clock,
    pub(crate) entropy: Entropy,
    pub(crate) reactor: Arc<Reactor>,
    pub(crate) regions: Arc<RegionTable>,
    pub(crate) buffer: ConnBuffer,
    pub(crate) listeners: Listeners,
    pub(crate) secret: KeptSecret,
    pub(crate) host: HostId,
    /// This process's network namespace; 0: not known.
    pub(crate) netns: u64,
    /// The number of the last incarnation that was begun.
    last_life: AtomicU64,
    pub(crate) registry: Mutex<Membership>,
    /// When the registry wants [`Input::Tick`], for those who look often.
    pub(crate) reconnect_at: AtomicU64,
    pub(crate) pending: Mutex<PendingConns>,
    /// How many pending connections there may be.
    pub(crate) places: usize,
    pub(crate) routes: Mutex<BTreeMap<Rank, ReconnectInfo>>,
    pub(crate) tokens: Mutex<LinkTokens>,
    /// The session's part in each transport.
    pub(crate) domains: Domains,
    pub(crate) links: Links,
    /// A link is over and was not reaped since.
    pub(crate) ended: AtomicBool,
    /// For what is left of links that are over.
    pub(crate) rest_socket: RestSocket,
    /// What calls of `wait_any` leave behind for the next ones.
    pub(crate) wait_pool: WaitPool,
    /// Why peers that are gone went.
    pub(crate) departed: Mutex<BTreeMap<Rank, String>>,
    /// How much cannot be given back yet.
    pub(crate) tally: Arc<Tally>,
    next_serial: AtomicU32,
    /// Held while the link of this session to itself is made: it has one.
    pub(crate) making_own_link: Mutex<()>,
    /// The private rank that is given next.
    pub(crate) next_private: AtomicU32,
    pub(crate) next_pending: AtomicU32,
    /// How often deadlines must be looked at, by the fastest heartbeat in force.
    pub(crate) tick_ns: AtomicU64,
    pub(crate) stopping: AtomicBool,
    /// Everything is closed; only handles are left.
    pub(crate) over: AtomicBool,
    /// All links are being left: no new ones.
    pub(crate) stopping_links: AtomicBool,
    /// A link changed its state, or a message came.
    pub(crate) events: EventCount,
    /// Futures that wait for events.
    pub(crate) event_wakers: WakerSet,
    pub(crate) peers_lost: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) origin: Origin,
    /// By which peers that map our memory see that this process has ended.
    pub(crate) life: Option<Arc<LifePage>>,
    pub(crate) wakers: Arc<Wakers>,
    pub(crate) me: Weak<SessionInner>,
}

/// What a session starts with.
pub(crate) struct SessionInit {
    pub(crate) config: Config,
    pub(crate) clock: Clock,
    pub(crate) entropy: Entropy,
    pub(crate) reactor: Arc<Reactor>,
    pub(crate) regions: Arc<RegionTable>,
    pub(crate) buffer: ConnBuffer,
    pub(crate) listeners: Listeners,
    pub(crate) secret: KeptSecret,
    pub(crate) host: HostId,
    /// Of this process; 0: not known.
    pub(crate) netns: u64,
    pub(crate) incarnation: Incarnation,
    pub(crate) origin: Origin,
    /// Held by the session's thread.
    pub(crate) life: Option<Arc<LifePage>>,
    pub(crate) domains: Domains,
    /// How many connections may be unproven at a time.
    pub(crate) places: usize,
    pub(crate) wakers: Arc<Wakers>,
}

impl SessionInner {
    pub(crate) fn new(parts: SessionInit) -> Arc<Self> {
        let registry = Membership::new(parts.config.rank, parts.config.ranks);
        Arc::new_cyclic(|me| Self {
            id: crate::base::identity::next(),
            netns: parts.netns,
            config: parts.config,
            clock: parts.clock,
            entropy: parts.entropy,
            reactor: parts.reactor,
            regions: parts.regions,
            buffer: parts.buffer,
            listeners: parts.listeners,
            secret: parts.secret,
            host: parts.host,
            last_life: AtomicU64::new(parts.incarnation.0),
            reconnect_at: AtomicU64::new(registry.next_deadline().as_nanos()),
            registry: Mutex::new(registry),
            pending: Mutex::default(),
            places: parts.places,
            routes: Mutex::default(),
            tokens: Mutex::default(),
            domains: parts.domains,
            links: Links::default(),
            ended: AtomicBool::new(false),
            rest_socket: RestSocket::default(),
            wait_pool: WaitPool::new(),
            departed: Mutex::default(),
            tally: Arc::default(),
            next_serial: AtomicU32::new(1),
            making_own_link: Mutex::default(),
            next_private: AtomicU32::new(FIRST_PRIVATE),
            next_pending: AtomicU32::new(1),
            tick_ns: AtomicU64::new(LONGEST_TICK_NS),
            stopping: AtomicBool::new(false),
            over: AtomicBool::new(false),
            stopping_links: AtomicBool::new(false),
            events: EventCount::default(),
            event_wakers: WakerSet::default(),
            peers_lost: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            origin: parts.origin,
            life: parts.life,
            wakers: parts.wakers,
            me: me.clone(),
        })
    }

    pub(crate) fn owner(&self) -> Weak<dyn LinkObserver> {
        let me: Weak<SessionInner> = self.me.clone();
        me
    }

    /// A number for a new incarnation of this end towards some peer: higher than all before, whichever end dials and
    /// whatever the wall clock does meanwhile. A peer that has seen a later incarnation refuses an earlier one.
    pub(crate) fn next_incarnation(&self) -> Incarnation {
        let unix = self.clock.unix_nanos();
        let next = |last: u64| last.saturating_add(1).max(unix);
        let last =
            self.last_life.fetch_update(Ordering::AcqRel, Ordering::Acquire, |n| Some(next(n)));
        Incarnation(last.map_or(unix, next))
    }

    pub(crate) fn next_serial(&self) -> u32 {
        self.next_serial.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Whether no new link may be made.
    pub(crate) fn is_leaving(&self) -> bool {
        self.is_stopping() || self.stopping_links.load(Ordering::Acquire)
    }

    /// The child of a fork may not use its parent's session.
    #[inline]
    pub(crate) fn check_process(&self) -> Result<()> {
        self.origin.check()
    }

    /// What this end says about itself. `expected` is the rank that is dialed.
    pub(crate) fn hello<'a>(
        &self,
        endpoints: &'a EndpointList,
        incarnation: Incarnation,
        expected: Option<Rank>,
    ) -> Result<Hello<'a>> {
        let mut features = Features::BATCHED_ACKS | Features::EAGER;
        features |= Features::GENERATIONS | Features::CTRL_RING | Features::GATHER;
        features |= Features::GROUP_WINDOWS | Features::GATES | Features::COUNTED;
        features.set(Features::CMA | Features::GROUP_READS, self.config.cma);
        features |= self.domains.features();
        Ok(Hello {
            features,
            job: self.config.job,
            rank: self.config.rank,
            incarnation,
            nonce: self.entropy.random()?,
            expected,
            host: self.host,
            heartbeat: self
                .config
                .heartbeat
                .map_or(hmc_core::time::Duration::ZERO, clock::from_std),
            slots: u16::try_from(self.config.slots).unwrap_or(u16::MAX),
            asked: &Asked::ANY,
            proves: false,
            endpoints: endpoints.endpoints(),
        })
    }

    /// Where this end can be reached, for a peer that came so, if it came by a listener; from another network namespace,
    /// if it is `elsewhere`.
    pub(crate) fn endpoints(&self, came_by: Option<CameBy>, elsewhere: bool) -> EndpointList {
        let mut list = EndpointList::new();
        self.listeners.add_endpoints(came_by, elsewhere, &mut list);
        for blob in self.domains.iter().filter_map(Domain::announcement) {
            let _ = list.push(blob);
        }
        list
    }

    /// The newest link of a rank; none in a forked child.
    pub(crate) fn link(&self, rank: Rank) -> Option<Arc<Link>> {
        self.links.of_rank(rank).filter(|_| !self.origin.is_child())
    }

    pub(crate) fn link_by_serial(&self, serial: u32) -> Option<Arc<Link>> {
        self.links.of_serial(serial)
    }

    /// All links that are not over, into storage that is used again and again.
    pub(crate) fn links_into(&self, out: &mut Vec<Arc<Link>>) {
        self.links.open_into(out);
    }

    /// The links that are not over; none in a forked child.
    pub(crate) fn links(&self) -> Vec<Arc<Link>> {
        if self.origin.is_child() { Vec::new() } else { self.links.open() }
    }

    /// The live link to a rank.
    pub(crate) fn live_link(&self, rank: Rank) -> Result<Arc<Link>> {
        self.check_process()?;
        match self.links.of_rank(rank) {
            Some(link) => Ok(link),
            None if lock(&self.departed).contains_key(&rank) => {
                let why = lock(&self.departed).get(&rank).cloned().unwrap_or_default();
                Err(Error::peer_dead(rank, why))
            }
            None => {
                Err(Error::new(ErrorKind::NotFound, format!("rank {rank} was never connected"))
                    .with_remedy("connect to it or wait for it first"))
            }
        }
    }

    /// Makes a link known. A dead one of the same rank is replaced.
    pub(crate) fn publish(&self, link: &Arc<Link>) {
        let period = link.ctrl().machine.heartbeat().as_nanos();
        if period != 0 {
            // Twice a period is often enough to beat in time.
            self.tick_ns.fetch_min(period >> 1, Ordering::Relaxed);
        }
        self.links.insert(link);
        // Of those that came before it what is left is looked at, too.
        self.ended.store(true, Ordering::Release);
        lock(&self.departed).remove(&link.peer);
        // The engine sleeps without a limit while there is no peer: from now on it keeps time.
        self.reactor.wake();
    }

    /// Starts to watch a link's sockets.
    pub(crate) fn watch(&self, link: &Arc<Link>) {
        {
            let mut ctrl = link.ctrl();
            link.update_ctrl_interest(&mut ctrl);
        }
        let mut data = link.data();
        link.update_data_interest(&mut data);
    }

    /// Exposes the buffer to the peer and sends its advert: the last step of this end's part in a link.
    pub(crate) fn announce_buffer(&self, link: &Link) -> Result<()> {
        link.send_wireup()?;
        let region = self.buffer.region();
        let (place, role) = ((0, region.len(), None), WindowRole::Default);
        let advert = self.expose(link, region, place, Access::all(), role, Serves::All)?;
        link.send(&ControlMessage::Advert(advert))
    }

    /// Whether this session made or registered a region. Another one's may have the key of one of ours.
    ///
    /// # Errors
    /// `InvalidConfig` when not.
    pub(crate) fn check_own(&self, region: &Region) -> Result<()> {
        if region.is_of(&self.regions) {
            return Ok(());
        }
        Err(Error::config("the memory belongs to another session of this process")
            .with_remedy("register it with this one"))
    }

    /// Exposes a range of a region to a peer, whose requests reach what `serves` says.
    pub(crate) fn expose(
        &self,
        link: &Link,
        region: &Region,
        (offset, len, generations): (u64, u64, Option<&Generations>),
        access: Access,
        role: WindowRole,
        serves: Serves,
    ) -> Result<RegionAdvert> {
        let slice = region.slice(offset, len)?;
        if let Some(g) = generations {
            self.check_own(g.table())?;
            let covered = g.blocks().window().len();
            if covered != len {
                let what = format!("a window of {len} bytes with generations of {covered} bytes");
                return Err(Error::config(what));
            }
        }
        let entropy = u64::from_le_bytes(self.entropy.random()?);
        let mut space = [0; hmc_core::limits::MAX_ENDPOINT_BYTES];
        let (exposed, note, mapped) = {
            let mut data = link.data();
            let (exposed, note) = data
                .plane()
                .expose(region, (slice, generations), access, entropy, &mut space)
                .map_err(|e| e.with_peer(link.peer))?;
            if serves == Serves::Nothing {
                let _ = data.plane().windows().serve(exposed.window, exposed.epoch, 0, 0);
            }
            // Sends the descriptor, if there is one.
            let mapped = data.plane().offers_pages(exposed.window, exposed.epoch);
            data.plane().flush();
            link.update_data_interest(&mut data);
            (exposed, note, mapped)
        };
        if let Some(note) = note
            && let Err(e) = link.send_note(note)
        {
            link.revoke_unannounced(&exposed);
            return Err(e);
        }
        let backing = match region.mapping() {
            Some(m) if len > 0 && mapped => WindowBacking::Memfd { base: offset, size: m.extent() },
            _ => WindowBacking::Process,
        };
        Ok(RegionAdvert { region: exposed, backing, role })
    }

    /// How long a call of the application waits that takes up to `timeout`.
    pub(crate) fn until(&self, timeout: std::time::Duration) -> WaitLimit {
        WaitLimit::new(self.clock.deadline_in(timeout), self.config.interrupt)
    }

    /// Sleeps until `look` finds something. Drives the session itself where no thread does.
    pub(crate) fn wait_for_event<R>(
        &self,
        until: WaitLimit,
        mut look: impl FnMut(&Self) -> Option<R>,
    ) -> std::result::Result<R, WaitStopped> {
        let manual = self.config.progress == Progress::Manual;
        let mut timer = until.timer();
        self.events.wait_until(|| {
            if let Some(r) = look(self) {
                return WaitStep::Ready(Ok(r));
            }
            if let Err(stop) = timer.check() {
                return WaitStep::Ready(Err(stop));
            }
            let left = clock::left(timer.park_until()).as_nanos();
            let pause = std::time::Duration::from_nanos(left);
            if !manual {
                return WaitStep::Park(pause);
            }
            // Data planes are nobody's but ours.
            self.run_data_planes();
            WaitStep::Park(pause.min(std::time::Duration::from_millis(1)))
        })
    }

    /// Tells those in `wait_for_event`, futures and event loops to look again.
    pub(crate) fn notify_waiters(&self) {
        self.events.notify_all();
        self.wakers.events.set();
        self.event_wakers.wake(&self.wakers);
    }

    /// One round over all data planes, for `Progress::Manual`. Returns whether anything happened.
    pub(crate) fn run_data_planes(&self) -> bool {
        // Every link is run anyway.
        self.reactor.clear_queued();
        let mut busy = self.progress_workers();
        for link in self.links() {
            link.unschedule();
            busy |= link.poll_data(false);
        }
        busy
    }

    pub(crate) fn token_for(&self, serial: u32) -> Result<LinkToken> {
        let token = LinkToken(self.entropy.random()?);
        lock(&self.tokens).insert(token, serial);
        Ok(token)
    }

    pub(crate) fn has_peers(&self) -> bool {
        // One that is over has to be retired: it keeps descriptors and buffers until then.
        !self.links.is_empty() || !lock(&self.pending).is_empty() || self.domains.has_leftovers()
    }

    pub(crate) fn listens(&self) -> bool {
        !self.listeners.is_empty()
    }
}

impl std::fmt::Debug for SessionInner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("rank", &self.config.rank).finish_non_exhaustive()
    }
}

impl LinkObserver for SessionInner {
    fn clock(&self) -> Clock {
        self.clock.clone()
    }

    fn wakers(&self) -> Arc<Wakers> {
        Arc::clone(&self.wakers)
    }

    fn tally(&self) -> Arc<Tally> {
        Arc::clone(&self.tally)
    }

    fn on_event(&self, _link: &Link) {
        self.notify_waiters();
    }

    fn on_closed(&self, link: &Link) {
        let serial = link.serial;
        self.links.close(serial);
        lock(&self.tokens).remove(serial);
        let orderly = link.was_leaving();
        if !orderly {
            self.peers_lost.fetch_add(1, Ordering::Relaxed);
            tracing::info!(peer = link.peer.0, why = link.reason(), "peer lost");
        }
        let redial = !orderly
            && !self.is_leaving()
            && self.config.redial
            && lock(&self.routes).get(&link.peer).is_some_and(|r| r.redial);
        let (rank, incarnation) = (link.peer, link.incarnation);
        self.update_membership(Input::Over { rank, incarnation, redial });
        self.notify_waiters();
        // Its descriptors and buffers go when the background thread comes by.
        self.ended.store(true, Ordering::Release);
        self.reactor.wake();
    }
}

#[cfg(test)]
mod tests;
