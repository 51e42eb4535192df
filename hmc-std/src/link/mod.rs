//! One connection to one incarnation of a peer: its control connection, its data plane, its inbox.
//!
//! The files are in three layers: the parts of a link, the link itself (here), and its methods by subject. [`data`]
//! and [`ctrl`] are the two halves, each with its own lock. `poll` is one poll of both; `wait` lets a waiting
//! caller drive them. No thread holds a lock while parked. Lock order: ctrl before data before inbox. A closed link
//! stays closed: a peer that reconnects gets a new link, and old ids of operations return `PeerDead`.

mod close;
mod copies;
pub(crate) mod ctrl;
mod ctrl_wakes;
pub(crate) mod data;
pub(crate) mod deferred;
#[cfg(test)]
pub(crate) mod ends;
mod fairness;
mod follow_ups;
mod idle_waits;
mod notes;
pub(crate) mod op_resources;
pub(crate) mod park_waker;
mod poll;
mod received;
mod rest;
pub(crate) mod rndv;
mod schedule;
mod send;
pub(crate) mod spin_policy;
pub(crate) mod transfer_list;
mod types;
mod unfenced;
mod wait;
mod wait_scope;
pub(crate) mod wait_set;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};

use hmc_core::slots::SlotId;
use hmc_core::time::Instant;
use hmc_core::types::{ConnType, Incarnation, Rank};
use hmc_core::wire::hello::Features;
use hmc_mem::leader::LeaderLock;
use hmc_mem::slot::SlotWord;

use crate::base::clock::Clock;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::lock::lock;
use crate::callbacks::waker_set::WakerSet;
use crate::callbacks::wakers::Wakers;
use crate::io::reactor::Reactor;
use crate::io::socket::Socket;
use crate::node::inbox::{Inbox, Message, SharedInbox};
use crate::quarantine::Tally;
use ctrl::CtrlState;
use data::DataState;
pub use types::Choice;
pub(crate) use types::{Counters, LinkState, Serves, Tick, increment};
pub(crate) use wait_scope::WaitScope;

/// [`LinkState::Leaving`] where the data plane has ended, or nothing can be sent any more: such a link is not found ready.
const CLOSING: u8 = 3;

/// What a link tells its session.
pub(crate) trait LinkObserver: Send + Sync {
    /// The link became ready, or its peer started to leave, or messages came.
    fn on_event(&self, link: &Link);
    /// The link is over. Called once, without locks held.
    fn on_closed(&self, link: &Link);
    /// By which the session decides.
    fn clock(&self) -> Clock;
    /// What calls the wakers of the application.
    fn wakers(&self) -> Arc<Wakers>;
    /// How much of the session's memory cannot be given back yet.
    fn tally(&self) -> Arc<Tally>;
}

/// What a new link is made of.
pub(crate) struct LinkInit {
    pub(crate) session: u64,
    pub(crate) serial: u32,
    pub(crate) peer: Rank,
    pub(crate) incarnation: Incarnation,
    /// This end dialed.
    pub(crate) dialed: bool,
    /// The peer says that it runs on this system.
    pub(crate) near: bool,
    pub(crate) choices: Vec<Choice>,
    pub(crate) spin: std::time::Duration,
    pub(crate) reactor: Arc<Reactor>,
    pub(crate) owner: Weak<dyn LinkObserver>,
    pub(crate) ctrl: CtrlState,
    pub(crate) data: DataState,
    pub(crate) data_socket: Option<Arc<Socket>>,
    pub(crate) inbox: SharedInbox,
}

pub(crate) struct Link {
    session: u64,
    pub(crate) serial: u32,
    pub(crate) peer: Rank,
    pub(crate) incarnation: Incarnation,
    /// The peer says that it runs on this system.
    pub(crate) near: bool,
    /// Of the peer's end of the control connection, over TCP.
    pub(crate) address: Option<SocketAddr>,
    conn: OnceLock<ConnType>,
    choices: Mutex<Vec<Choice>>,
    leaving: AtomicBool,
    /// [`Link::close`] was called.
    over: AtomicBool,
    /// The peer sent BYE: it waits for ours.
    peer_left: AtomicBool,
    /// Of the session.
    clock: Clock,
    born: Instant,
    /// How late its ticks were since, in all, if the peer is one of this system.
    late_ns: AtomicU64,
    pub(crate) spin: std::time::Duration,
    pub(crate) spin_policy: spin_policy::SpinPolicy,
    idle_waits: idle_waits::IdleWaits,
    pub(crate) reactor: Arc<Reactor>,
    pub(crate) owner: Weak<dyn LinkObserver>,
    /// Of the session, which may be over.
    pub(crate) wakers: Arc<Wakers>,
    pub(crate) counters: Counters,
    ctrl: Mutex<CtrlState>,
    ctrl_wakes: ctrl_wakes::CtrlWakes,
    data: Mutex<DataState>,
    /// Whether the data plane has a shared worker.
    has_worker: AtomicBool,
    /// For those who must not wait until the driver has copied all there is.
    data_fairness: fairness::Fairness,
    words: Arc<[SlotWord]>,
    ctrl_socket: Arc<Socket>,
    data_socket: OnceLock<Arc<Socket>>,
    inbox: SharedInbox,
    leader_lock: LeaderLock,
    follow_ups: follow_ups::FollowUps,
    /// Of callers that wait for several links.
    pub(crate) park_wakers: park_waker::WakerList,
    /// Members of a group put into a window of this end: a frame of any kind may tell of it.
    pub(crate) has_channels: AtomicBool,
    rndv: rndv::Rndv,
    /// What the peer offers beyond the basics.
    features: Features,
    /// The peer agrees on windows for collectives.
    pub(crate) has_group_windows: bool,
    /// Both ends may read the other's memory in collectives.
    pub(crate) has_group_reads: bool,
    /// Futures that wait for space: a slot, a place among the messages under way, or in the control connection.
    space: WakerSet,
    state: AtomicU8,
    queued: AtomicBool,
    /// This end dialed, or `accept` gave it before.
    pub(crate) is_given: AtomicBool,
    reason: OnceLock<String>,
    me: Weak<Link>,
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link")
            .field("serial", &self.serial)
            .field("peer", &self.peer)
            .field("conn", &self.conn())
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}

impl Link {
    pub(crate) fn new(parts: LinkInit) -> Arc<Self> {
        let address = parts.ctrl.socket().peer_address();
        Self::new_at(parts, address)
    }

    fn new_at(mut parts: LinkInit, address: Option<SocketAddr>) -> Arc<Self> {
        let has_worker = parts.data.plane().worker().is_some();
        let clock = parts.owner.upgrade().map_or_else(Clock::default, |owner| owner.clock());
        let features = parts.ctrl.machine.features();
        let data_socket = OnceLock::new();
        if let Some(socket) = parts.data_socket {
            let _ = data_socket.set(socket);
        }
        Arc::new_cyclic(|me| Self {
            session: parts.session,
            serial: parts.serial,
            peer: parts.peer,
            incarnation: parts.incarnation,
            near: parts.near,
            address,
            conn: OnceLock::new(),
            choices: Mutex::new(parts.choices),
            leaving: AtomicBool::new(false),
            over: AtomicBool::new(false),
            peer_left: AtomicBool::new(false),
            born: clock.now(),
            clock,
            late_ns: AtomicU64::new(0),
            spin: parts.spin,
            spin_policy: spin_policy::SpinPolicy::default(),
            idle_waits: idle_waits::IdleWaits::default(),
            reactor: parts.reactor,
            wakers: parts.owner.upgrade().map_or_else(Wakers::closed, |owner| owner.wakers()),
            owner: parts.owner,
            counters: Counters::default(),
            ctrl_socket: Arc::clone(parts.ctrl.socket()),
            ctrl: Mutex::new(parts.ctrl),
            ctrl_wakes: ctrl_wakes::CtrlWakes::default(),
            words: parts.data.words(),
            has_worker: AtomicBool::new(has_worker),
            data: Mutex::new(parts.data),
            data_fairness: fairness::Fairness::default(),
            data_socket,
            inbox: parts.inbox,
            leader_lock: LeaderLock::new(),
            follow_ups: follow_ups::FollowUps::default(),
            park_wakers: park_waker::WakerList::default(),
            has_channels: AtomicBool::new(false),
            rndv: rndv::Rndv::default(),
            features,
            has_group_windows: features.contains(Features::GROUP_WINDOWS),
            has_group_reads: features.contains(Features::GROUP_READS),
            space: WakerSet::default(),
            state: AtomicU8::new(0),
            queued: AtomicBool::new(false),
            is_given: AtomicBool::new(parts.dialed),
            reason: OnceLock::new(),
            me: me.clone(),
        })
    }

    pub(crate) fn state(&self) -> LinkState {
        match self.state.load(Ordering::Acquire) {
            0 => LinkState::Opening,
            1 => LinkState::Ready,
            2 | CLOSING => LinkState::Leaving,
            _ => LinkState::Dead,
        }
    }

    /// Whether the data plane has a shared worker, which makes progress that no socket of the link tells of.
    pub(crate) fn has_worker(&self) -> bool {
        self.has_worker.load(Ordering::Acquire)
    }

    /// Moves the state forward; it never goes back. Returns whether it moved.
    pub(crate) fn advance(&self, to: LinkState) -> bool {
        let to = match to {
            LinkState::Opening => 0,
            LinkState::Ready => 1,
            LinkState::Leaving => 2,
            LinkState::Dead => 4,
        };
        self.state.fetch_max(to, Ordering::AcqRel) < to
    }

    /// Whether only what the peer has sent on the control connection is still received, or not even that.
    fn is_closing(&self) -> bool {
        self.state.load(Ordering::Acquire) >= CLOSING
    }

    /// The transport that moves the bytes, once it is known.
    pub(crate) fn conn(&self) -> Option<ConnType> {
        self.conn.get().copied()
    }

    /// Notes the transport and why it was chosen. Once.
    pub(crate) fn choose(&self, conn: ConnType, why: String) {
        if self.conn.set(conn).is_ok() && self.choices().is_empty() {
            lock(&self.choices).push(Choice { conn, chosen: true, why });
        }
    }

    pub(crate) fn choices(&self) -> Vec<Choice> {
        lock(&self.choices).clone()
    }

    /// Whether the link ended after one side sent BYE.
    pub(crate) fn was_leaving(&self) -> bool {
        self.leaving.load(Ordering::Acquire)
    }

    pub(crate) fn reason(&self) -> &str {
        self.reason.get().map_or("the connection ended", String::as_str)
    }

    /// The error for using a link that is over or leaving.
    pub(crate) fn gone(&self) -> Error {
        if self.is_closing() {
            Error::peer_dead(self.peer, self.closing_reason())
        } else {
            Error::new(ErrorKind::Closed, "the connection is closing: no new operations")
                .with_peer(self.peer)
        }
    }

    /// Whether new operations may be posted.
    pub(crate) fn check_open(&self) -> Result<()> {
        match self.state() {
            LinkState::Opening | LinkState::Ready => Ok(()),
            LinkState::Leaving | LinkState::Dead => Err(self.gone()),
        }
    }

    pub(crate) fn data(&self) -> MutexGuard<'_, DataState> {
        lock(&self.data)
    }

    /// The data half, between two pieces that whoever drives the link copies.
    pub(crate) fn data_fairly(&self) -> MutexGuard<'_, DataState> {
        self.data_fairness.lock(&self.data)
    }

    pub(crate) fn ctrl(&self) -> MutexGuard<'_, CtrlState> {
        lock(&self.ctrl)
    }

    pub(crate) fn inbox(&self) -> MutexGuard<'_, Inbox> {
        lock(&self.inbox)
    }

    pub(crate) fn ctrl_socket(&self) -> &Arc<Socket> {
        &self.ctrl_socket
    }

    pub(crate) fn data_socket(&self) -> Option<&Arc<Socket>> {
        self.data_socket.get()
    }

    pub(crate) fn inbox_handle(&self) -> SharedInbox {
        Arc::clone(&self.inbox)
    }

    /// Gives an accepted link its data plane, which arrives on a second connection.
    pub(crate) fn attach(
        &self,
        socket: Arc<Socket>,
        plane: crate::transport::data_plane::AnyDataPlane,
    ) -> bool {
        if self.data_socket.set(socket).is_err() {
            return false;
        }
        self.has_worker.store(plane.worker().is_some(), Ordering::Release);
        self.data().set_plane(plane);
        true
    }

    /// When [`Link::tick`] ends it, if nothing comes before.
    pub(crate) fn ends_at(&self) -> Instant {
        if self.state() == LinkState::Dead { Instant::NEVER } else { self.ctrl().machine.ends_at() }
    }

    /// Whether an operation is certainly still running; looked up without a lock.
    pub(crate) fn is_running(&self, op: SlotId) -> bool {
        let word = self.words.get(usize::from(op.index));
        word.is_some_and(|w| w.is_pending(op.generation))
    }

    /// What to add to the error of a wait in vain when nothing of the peer is read, because its inbox is full.
    pub(crate) fn full_inbox(&self) -> &'static str {
        if self.inbox().is_awaited() {
            " while the inbox of this peer is full, so that nothing more of it is read (receive some of its messages, or raise \
             `SessionBuilder::inbox`)"
        } else {
            ""
        }
    }

    /// What to add to the error of a message that found no slot, because too many outcomes are kept. The caller does not hold the
    /// lock of the data half.
    pub(crate) fn full_outcomes(&self) -> &'static str {
        if self.data().is_outcome_store_full() {
            " while as many operations to this peer as may be kept have ended that nobody waited for (wait for some)"
        } else {
            ""
        }
    }

    /// The futures that wait for space. Look for it after a waker was added.
    pub(crate) fn space(&self) -> &WakerSet {
        &self.space
    }

    /// There may be space: futures that wait for it look again, and callers that wait for several links.
    pub(crate) fn announce_space(&self) {
        self.space.wake(&self.wakers);
        self.park_wakers.wake(&self.wakers);
    }

    /// Puts a message into the inbox.
    pub(crate) fn deliver(&self, m: Message<'static>) {
        self.inbox().push(m);
    }
}

#[cfg(test)]
mod tests {
    use hmc_core::time::{Duration, Instant};
    use hmc_core::types::{ConnType, Rank};

    use super::ends::{INBOX, alone, pair, pair_that_beats};
    use super::{CLOSING, Choice, LinkState, lock};
    use crate::base::error::ErrorKind;
    use crate::node::inbox::{Message, Wanted};
    use crate::transport::data_plane::AnyDataPlane;
    use std::sync::Arc;
    use std::sync::atomic::Ordering;

    #[test]
    fn the_state_of_a_link_only_goes_forward() {
        let states = [LinkState::Opening, LinkState::Ready, LinkState::Leaving, LinkState::Dead];
        for (at, from) in states.into_iter().enumerate() {
            for (to, state) in states.into_iter().enumerate() {
                let end = alone(1, 1);
                assert_eq!(
                    (end.link.state(), end.link.advance(from)),
                    (LinkState::Opening, at > 0)
                );
                assert_eq!(end.link.advance(state), to > at, "{from:?} to {state:?}");
                assert_eq!(end.link.state(), if to > at { state } else { from });
            }
        }
    }

    #[test]
    fn the_error_of_a_call_on_a_link_that_ends_reports_how_far_it_is() {
        let end = alone(6, 1);
        assert_eq!(end.link.check_open().map_err(|e| e.kind()), Ok(()));
        end.link.check_ready();
        assert_eq!(end.link.check_open().map_err(|e| e.kind()), Ok(()));
        assert!(end.link.advance(LinkState::Leaving));
        let e = end.link.check_open().expect_err("it leaves");
        assert_eq!((e.kind(), e.peer()), (ErrorKind::Closed, Some(Rank(6))));
        end.link.state.store(CLOSING, Ordering::Relaxed);
        assert_eq!(end.link.state(), LinkState::Leaving);
        assert_eq!(end.link.gone().kind(), ErrorKind::PeerDead);
        assert!(end.link.advance(LinkState::Dead));
        let e = end.link.check_open().expect_err("it is over");
        assert_eq!((e.kind(), e.peer()), (ErrorKind::PeerDead, Some(Rank(6))));
        assert!(e.to_string().contains("the connection ended"), "{e}");
    }

    #[test]
    fn the_transport_is_chosen_once_and_its_reason_kept_where_none_was_given() {
        let end = alone(1, 1);
        assert_eq!((end.link.conn(), end.link.choices().len()), (None, 0));
        assert!(!end.link.was_leaving());
        end.link.choose(ConnType::Tcp, "it was dialed".into());
        end.link.choose(ConnType::Shm, "too late".into());
        let why = "it was dialed".to_owned();
        assert_eq!(end.link.conn(), Some(ConnType::Tcp));
        assert_eq!(end.link.choices(), [Choice { conn: ConnType::Tcp, chosen: true, why }]);
        // AbortReason others were passed over was noted by whoever dialed.
        let dialed = alone(1, 2);
        lock(&dialed.link.choices).extend(end.link.choices());
        dialed.link.choose(ConnType::Tcp, String::new());
        assert_eq!(dialed.link.choices(), end.link.choices());
        let text = format!("{:?}", end.link);
        assert!(text.contains("serial: 1") && text.contains("Opening"), "{text}");
    }

    #[test]
    fn a_link_has_one_data_connection() {
        let (near, far) = pair(ConnType::Tcp);
        let other = Arc::clone(far.link.ctrl_socket());
        assert!(!near.link.attach(Arc::clone(&other), AnyDataPlane::none()));
        assert_eq!(near.link.data().plane().kind(), Some(ConnType::Tcp), "the plane stays");
        let end = alone(1, 1);
        assert!(end.link.attach(other, AnyDataPlane::none()));
        assert!(end.link.data_socket().is_some());
    }

    #[test]
    fn a_wait_in_vain_reports_an_inbox_that_is_full() {
        let end = alone(1, 1);
        for n in 0..INBOX.0 {
            assert!(end.link.inbox().admits(1, 0), "{n} messages");
            end.link.deliver(Message::Int(1));
        }
        assert_eq!(end.link.full_inbox(), "");
        assert!(!end.link.inbox().admits(1, 0));
        let text = end.link.full_inbox();
        assert!(text.contains("inbox of this peer is full") && text.contains("inbox`"), "{text}");
        assert!(end.link.inbox().take(Wanted::Int).is_some() && end.link.inbox().stop_awaiting());
        assert_eq!(end.link.full_inbox(), "");
    }

    #[test]
    fn a_link_that_is_over_has_no_time_to_end_at() {
        let (end, _far) = pair_that_beats(Duration::from_millis(100));
        let at = end.link.ctrl().machine.ends_at();
        assert!(at < Instant::NEVER && end.link.ends_at() == at);
        end.link.close(false, "for a test");
        assert_eq!(end.link.ends_at(), Instant::NEVER);
    }
}
