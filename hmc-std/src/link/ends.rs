//! Links for tests: two ends over sockets, without sessions and without threads. Nothing happens but in calls of the test.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration as StdDuration;

use hmc_core::ctrl::conn::{AcceptConfig, ControlConn, CxxPolicy};
use hmc_core::ctrl::io::ControlOutput;
use hmc_core::limits::{FRAME_HEADER_BYTES, MAX_HELLO_BYTES};
use hmc_core::queue::Transfer;
use hmc_core::region::WindowDesc;
use hmc_core::slots::SlotId;
use hmc_core::time::{Duration, Instant};
use hmc_core::types::{Access, ConnType, Incarnation, Rank};
use hmc_core::wire::header::Header;
use hmc_core::wire::hello::{Asked, EndpointList, Features, Hello, HostId, LinkToken};
use hmc_core::work::{CompleteWhen, Opcode};

use super::ctrl::CtrlState;
use super::data::DataState;
use super::deferred::Deferred;
use super::op_resources::OpResources;
use super::{Link, LinkInit, LinkObserver};
use crate::base::clock::{self, Clock};
use crate::base::config::Progress;
use crate::callbacks::wakers::Wakers;
use crate::io::reactor::Reactor;
use crate::io::rest_socket::RestSocket;
use crate::io::socket::Socket;
use crate::memory::{Region, RegionTable};
use crate::node::inbox::{Inbox, SharedInbox};
use crate::quarantine::Tally;
use crate::transport::data_plane::AnyDataPlane;
use crate::transport::shm::ShmDataPlane;
use crate::transport::stream::{StreamDataPlane, StreamSetup};
use crate::transport::with_stream::WithStream;
use crate::transport::with_stream::tests::scripted::Scripted;
use crate::transport::worker::Worker;

/// Messages that an inbox of a test has space for, and their bytes.
pub(crate) const INBOX: (usize, usize) = (4, 4096);
/// Operations that one end can have.
const SLOTS: usize = 8;

/// What a link reports to its session, counted.
pub(crate) struct EventCounts {
    pub(crate) events: AtomicU32,
    pub(crate) over: AtomicU32,
    /// Events of threads that a leader does not wait for.
    unawaited: AtomicU32,
    wakers: Arc<Wakers>,
    tally: Arc<Tally>,
}

impl LinkObserver for EventCounts {
    fn on_event(&self, link: &Link) {
        self.events.fetch_add(1, Ordering::Relaxed);
        if link.follow_ups.is_empty() {
            self.unawaited.fetch_add(1, Ordering::Relaxed);
        }
    }
    fn on_closed(&self, _: &Link) {
        self.over.fetch_add(1, Ordering::Relaxed);
    }
    fn clock(&self) -> Clock {
        Clock::default()
    }
    fn wakers(&self) -> Arc<Wakers> {
        Arc::clone(&self.wakers)
    }
    fn tally(&self) -> Arc<Tally> {
        Arc::clone(&self.tally)
    }
}

/// One end of a link, and what it reported.
pub(crate) struct End {
    pub(crate) link: Arc<Link>,
    pub(crate) counts: Arc<EventCounts>,
    pub(crate) regions: Arc<RegionTable>,
}

impl End {
    fn new(parts: impl FnOnce(Weak<dyn LinkObserver>) -> LinkInit) -> Self {
        let [events, over, unawaited] = [(); 3].map(|()| AtomicU32::new(0));
        // What is woken is woken in the test's own calls.
        let wakers = Wakers::new(true);
        let counts =
            Arc::new(EventCounts { events, over, unawaited, wakers, tally: Arc::default() });
        let owner: Arc<dyn LinkObserver> = Arc::<EventCounts>::clone(&counts);
        let link = Link::new(parts(Arc::downgrade(&owner)));
        Self { link, counts, regions: Arc::default() }
    }

    /// Events that it reported while a leader would have slept.
    pub(crate) fn unawaited_events(&self) -> u32 {
        self.counts.unawaited.load(Ordering::Relaxed)
    }

    /// A region of this end, all of which the peer may read and write.
    pub(crate) fn expose(&self, len: u64) -> (Region, WindowDesc) {
        let region = self.regions.allocate(len).expect("memory");
        let slice = region.slice(0, len).expect("all of it");
        let mut data = self.link.data();
        let exposed = data.plane().expose(&region, (slice, None), Access::all(), 7, &mut []);
        data.plane().flush();
        (region, exposed.expect("a window").0)
    }

    /// Begins to put a byte at the beginning of a window of the other end.
    pub(crate) fn put(&self, window: &WindowDesc, byte: u8) -> SlotId {
        self.put_when(CompleteWhen::Visible, window, byte)
    }

    /// As [`End::put`], complete at that point.
    pub(crate) fn put_when(&self, when: CompleteWhen, window: &WindowDesc, byte: u8) -> SlotId {
        self.post((Opcode::Put, when), window, byte)
    }

    /// As [`End::put`], with a tag that follows the byte.
    pub(crate) fn put_notify(&self, window: &WindowDesc, tag: u64) -> SlotId {
        self.post((Opcode::PutNotify { tag }, CompleteWhen::Visible), window, 0)
    }

    fn post(
        &self,
        (opcode, when): (Opcode, CompleteWhen),
        window: &WindowDesc,
        byte: u8,
    ) -> SlotId {
        let region = self.regions.allocate(1).expect("memory");
        let local = region.slice(0, 1).expect("a byte");
        region.bytes().write_at(local.span, &[byte]).expect("it fits");
        let remote = window.slice(0, 1).expect("a byte");
        let t = Transfer { opcode, when, local, remote };
        let mut after = Deferred::default();
        let mut data = self.link.data();
        let op = data.post(&t, Instant::NEVER, &mut OpResources::region(region)).expect("posted");
        data.progress(&mut after);
        op
    }

    /// Receives and executes until nothing happens.
    pub(crate) fn run_until_idle(&self) {
        while self.link.poll_data(false) || self.link.poll_ctrl(false) {}
    }

    /// How often the link reported events and its end to the session.
    pub(crate) fn event_counts(&self) -> (u32, u32) {
        (self.counts.events.load(Ordering::Relaxed), self.counts.over.load(Ordering::Relaxed))
    }
}

/// A stream to a peer that neither reads nor sends anything.
pub(crate) fn silent_peer() -> (StreamDataPlane, UnixStream) {
    let (ours, theirs) = UnixStream::pair().expect("a pair");
    ours.set_nonblocking(true).expect("a socket");
    let stream = StreamDataPlane::new(StreamSetup {
        socket: Arc::new(OwnedFd::from(ours).into()),
        peer: Rank(1),
        local: false,
        near: false,
        pid: None,
        cma: false,
        batched_acks: true,
        generations: true,
        gathers: true,
        windows: 8,
        inbox: Arc::new(Mutex::new(Inbox::new(16, 4096))),
    });
    (stream, theirs)
}

fn inbox() -> SharedInbox {
    Arc::new(Mutex::new(Inbox::new(INBOX.0, INBOX.1)))
}

fn sockets() -> (Arc<Socket>, Arc<Socket>) {
    let (a, b) = UnixStream::pair().expect("a pair");
    let socket = |s: UnixStream| {
        s.set_nonblocking(true).expect("it does not block");
        Arc::new(Socket::from(OwnedFd::from(s)))
    };
    (socket(a), socket(b))
}

fn parts(
    peer: u32,
    serial: u32,
    owner: Weak<dyn LinkObserver>,
    ctrl: CtrlState,
    data: DataState,
) -> LinkInit {
    LinkInit {
        dialed: false,
        session: 1,
        serial,
        peer: Rank(peer),
        incarnation: Incarnation(1),
        near: false,
        choices: Vec::new(),
        spin: StdDuration::ZERO,
        reactor: Arc::new(Reactor::new(Progress::Thread).expect("a reactor")),
        owner,
        ctrl,
        data,
        data_socket: None,
        inbox: inbox(),
    }
}

/// The first byte of a region.
pub(crate) fn first_byte(region: &Region) -> u8 {
    let mut byte = [0];
    let at = region.slice(0, 1).expect("a byte");
    region.bytes().read_at(at.span, &mut byte).expect("it is there");
    byte[0]
}

/// A link to nobody: its control connection never sends anything, and it has no data plane.
pub(crate) fn alone(peer: u32, serial: u32) -> End {
    lonely(peer, serial, false)
}

fn lonely(peer: u32, serial: u32, near: bool) -> End {
    let socket = RestSocket::socket().expect("a socket");
    let control = ControlConn::dial_cxx(Rank(0), Rank(peer), clock::now()).expect("it fits");
    let ctrl = CtrlState::new(socket, control, CtrlState::new_framer());
    let data = DataState::new(AnyDataPlane::none(), 1, true, false);
    End::new(|owner| LinkInit { near, ..parts(peer, serial, owner, ctrl, data) })
}

/// As [`alone`]; the peer says that it runs on this system.
pub(crate) fn near_alone(peer: u32, serial: u32) -> End {
    lonely(peer, serial, true)
}

fn hello(rank: u32, heartbeat: Duration, endpoints: &EndpointList) -> Hello<'_> {
    Hello {
        features: Features::empty(),
        job: 0,
        rank: Rank(rank),
        incarnation: Incarnation(1),
        nonce: [0; 16],
        expected: None,
        host: HostId([0; 16]),
        heartbeat,
        slots: 1,
        asked: &Asked::ANY,
        proves: false,
        endpoints: endpoints.endpoints(),
    }
}

/// Has `to` receive what `from` sends.
fn transmit(from: &mut ControlConn, to: &mut ControlConn, now: Instant) {
    while let Some(output) = from.poll_output() {
        let ControlOutput::Transmit(frame) = output else { continue };
        let (header, payload) = frame.as_bytes().split_at(FRAME_HEADER_BYTES);
        let header = header.first_chunk().expect("a header");
        let header = Header::parse(header, MAX_HELLO_BYTES).expect("a frame");
        to.receive(header, payload, now).expect("what is expected");
    }
}

/// Two machines that have met: ranks 0 and 1.
pub(crate) fn met(heartbeat: Duration, now: Instant) -> (ControlConn, ControlConn) {
    let list = EndpointList::new();
    let mut dialer = ControlConn::dial(&hello(0, heartbeat, &list), now).expect("it fits");
    let acceptor = AcceptConfig { rank: Rank(1), job: 0, cxx: CxxPolicy::Refused };
    let mut acceptor = ControlConn::accepted(&acceptor, now);
    transmit(&mut dialer, &mut acceptor, now);
    acceptor.accept(&hello(1, heartbeat, &list), LinkToken([0; 16]), now).expect("it said hello");
    transmit(&mut acceptor, &mut dialer, now);
    (dialer, acceptor)
}

/// Two ends that know each other's ranks, 0 and 1, over that transport: shared memory, or a stream. They never spin.
pub(crate) fn pair(conn: ConnType) -> (End, End) {
    pair_that_spins(conn, StdDuration::ZERO)
}

/// As [`pair`], of whose waiters each spins for so long.
pub(crate) fn pair_that_spins(conn: ConnType, spin: StdDuration) -> (End, End) {
    pair_of(conn, spin, Duration::ZERO, None)
}

/// As [`pair`], over a stream, with heartbeats of that period.
pub(crate) fn pair_that_beats(heartbeat: Duration) -> (End, End) {
    pair_of(ConnType::Tcp, StdDuration::ZERO, heartbeat, None)
}

/// As [`pair`], over a stream, of which the first has a data plane beside it whose progress that worker makes. `has_posted`: it says
/// once that something was posted there.
pub(crate) fn pair_with_worker(worker: &Worker, has_posted: bool) -> (End, End) {
    let scripted = Some((Some(worker.clone()), has_posted));
    pair_of(ConnType::Tcp, StdDuration::ZERO, Duration::ZERO, scripted)
}

/// As [`pair`], over a stream; the second is inside each window of the first that is revoked.
pub(crate) fn pair_that_stays_inside() -> (End, End) {
    pair_of(ConnType::Tcp, StdDuration::ZERO, Duration::ZERO, Some((None, false)))
}

fn pair_of(
    conn: ConnType,
    spin: StdDuration,
    heartbeat: Duration,
    scripted: Option<(Option<Worker>, bool)>,
) -> (End, End) {
    let (ours, theirs) = met(heartbeat, clock::now());
    let ((ctrl, far_ctrl), (data, far_data)) = (sockets(), sockets());
    let end = |peer, control, ctrl, data: Arc<Socket>, scripted: Option<(Option<Worker>, bool)>| {
        End::new(|owner| {
            let inbox = inbox();
            let stream = StreamDataPlane::new(StreamSetup {
                socket: Arc::clone(&data),
                peer: Rank(peer),
                local: conn == ConnType::Shm,
                near: false,
                pid: None,
                cma: false,
                batched_acks: true,
                generations: true,
                gathers: true,
                windows: 8,
                inbox: Arc::clone(&inbox),
            });
            let plane = match scripted {
                Some((worker, has_posted)) => {
                    let plane = Scripted { has_posted, ..Scripted::default() };
                    AnyDataPlane::new(WithStream::new(plane, stream, worker, false))
                }
                None if conn == ConnType::Shm => {
                    let plane = ShmDataPlane::new(stream, None, Features::CTRL_RING)
                        .expect("a page of words");
                    let rings = plane.rings();
                    AnyDataPlane::new(plane).with_rings(rings)
                }
                None => AnyDataPlane::new(stream),
            };
            let ctrl = CtrlState::new(ctrl, control, CtrlState::new_framer());
            let state = DataState::new(plane, SLOTS, true, false);
            let parts = parts(peer, 1, owner, ctrl, state);
            LinkInit { data_socket: Some(data), inbox, spin, ..parts }
        })
    };
    let (near, far) =
        (end(1, ours, ctrl, data, scripted), end(0, theirs, far_ctrl, far_data, None));
    for (me, other) in [(&near, &far), (&far, &near), (&near, &far)] {
        me.link.choose(conn, String::new());
        me.run_until_idle();
        other.run_until_idle();
        me.link.check_ready();
    }
    (near, far)
}

/// Two ends, of which the first stopped its data plane for a full inbox, which has space again: there is work of which no
/// socket tells. Two tags wait to be taken.
#[allow(clippy::arithmetic_side_effects, reason = "tests may panic")]
pub(crate) fn stopped() -> (End, End) {
    let (near, far) = pair(ConnType::Tcp);
    let (_region, window) = near.expose(1);
    for tag in 0..INBOX.0 + 2 {
        far.put_notify(&window, u64::try_from(tag).expect("small"));
    }
    near.link.poll_data(false);
    assert!(near.link.data().is_paused() && !near.link.data().has_work());
    near.link.inbox().drop_all();
    assert!(near.link.data().has_work());
    (near, far)
}
