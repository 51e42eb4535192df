//! Peers that send frames of one kind as fast as they can and read nothing.

use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use hmc_core::range::Extent;
use hmc_core::region::{Epoch, WindowDesc, WindowId};
use hmc_core::rndv::{RndvId, RndvMsg};
use hmc_core::types::{Access, MemoryKind, Rank};
use hmc_core::wire::advert::{
    ENDPOINT_UCX, ENDPOINT_UCX_KEY, EndpointBlob, RegionAdvert, WindowBacking, WindowRole,
};
use hmc_core::wire::data::{DATA_FRAME_BYTES, DataFlags, DataFrame, DataKind};
use hmc_core::wire::held::of_message;
use hmc_core::wire::hello::LinkToken;
use hmc_core::wire::message::{ControlKind, ControlMessage};
use hmc_core::wire::proof::{Challenge, Proof};
use hmc_core::wire::reject::RejectReason;
use hmc_hw::ucx::library::{Library, Search};
use hmc_std::Address;

use super::{Context, Outcome};
use crate::actor::Actor;
use crate::env::{TempDir, count_of, status_of, until};
use crate::raw_frames::{frame, hello};
use crate::rogue::{AmSender, Rogue, pour};

const LONG: Duration = Duration::from_secs(20);
/// What a session may hold beside what a row says.
pub const BESIDE: usize = 1 << 20;
/// What the inbox of these sessions takes: its messages, its bytes, and a frame that is being received.
pub const INBOX: usize = 4096 * 64 + (4 << 20) + (2 << 20);
/// Frames that are sent at a time.
pub const BATCH: u32 = 512;

/// The `n`th frame of a kind.
///
/// # Panics
/// Never: the numbers are small.
#[must_use]
pub fn message(kind: ControlKind, n: u32) -> Vec<u8> {
    let long = vec![7; 9000];
    let (window, epoch) = (WindowId((u64::from(n) % 256) | (u64::from(n) << 16)), Epoch(n + 1));
    let region = |window| WindowDesc {
        window,
        epoch,
        extent: Extent::new(4096),
        access: Access::all(),
        kind: MemoryKind::Cpu,
    };
    let id = RndvId(n % 64);
    let note = match n % 4 {
        0 => RndvMsg::Offer { id, len: 1 << 20 },
        1 => RndvMsg::Filled { id, seq: u64::from(n) },
        _ => RndvMsg::Credit { id, seq: u64::from(n) },
    };
    match kind {
        ControlKind::HelloV1 => hmc_core::wire::cxx::hello_v1(Rank(n % 4096)).to_vec(),
        ControlKind::Hello => hello(n % 4096, 0, 0),
        ControlKind::Welcome => {
            let mut bytes = hello(n % 4096, 0, 0);
            // The same words, as an answer: they may not come from a dialer.
            bytes[8] = 2;
            bytes[4] = bytes[4].wrapping_add(16);
            bytes.extend([0; 16]);
            bytes
        }
        ControlKind::Reject => frame(&ControlMessage::Reject(RejectReason::Busy)),
        ControlKind::Attach => frame(&ControlMessage::Attach {
            rank: Rank(n % 4096),
            token: LinkToken([1; 16]),
            channel: 2,
        }),
        ControlKind::AttachAck => frame(&ControlMessage::AttachAck),
        ControlKind::Challenge => frame(&ControlMessage::Challenge(Challenge {
            rank: Rank(n % 4096),
            nonce: [1; 16],
            proof: Proof([2; 32]),
        })),
        ControlKind::Proof => frame(&ControlMessage::Proof(Proof([2; 32]))),
        ControlKind::Endpoint => frame(&ControlMessage::Endpoint(EndpointBlob {
            kind: ENDPOINT_UCX_KEY,
            bytes: &long[..8000],
        })),
        ControlKind::Advert => frame(&ControlMessage::Advert(RegionAdvert {
            region: region(window),
            backing: WindowBacking::Process,
            role: WindowRole::Named(u64::from(n)),
        })),
        ControlKind::Int32 => frame(&ControlMessage::Int32(5)),
        ControlKind::Tag => frame(&ControlMessage::Tag(u64::from(n))),
        ControlKind::Struct => {
            frame(&ControlMessage::Struct(&long[..usize::try_from(n % 9000).expect("small")]))
        }
        ControlKind::Notify => frame(&ControlMessage::Notify { tag: u64::from(n), window }),
        ControlKind::Ping => frame(&ControlMessage::Ping(u64::from(n))),
        ControlKind::Pong => frame(&ControlMessage::Pong(u64::from(n))),
        ControlKind::Revoke => frame(&ControlMessage::Revoke { window, epoch }),
        ControlKind::Revoked => frame(&ControlMessage::Revoked { window, epoch }),
        ControlKind::Rndv => frame(&ControlMessage::Rndv(note)),
        ControlKind::Eager => frame(&ControlMessage::Eager {
            id: RndvId(n),
            bytes: &long[..usize::try_from(n % 4097).expect("small")],
        }),
        ControlKind::Bye => frame(&ControlMessage::Bye),
    }
}

/// The `n`th data frame of a kind.
#[must_use]
pub fn data_frame(kind: DataKind, n: u32, at: &WindowDesc, memory: u64) -> Vec<u8> {
    let mut f = DataFrame::new(kind, n);
    (f.window, f.epoch) = (at.window, at.epoch);
    let mut payload = 0;
    match kind {
        DataKind::Write => {
            (f.flags, f.len, f.total, payload) = (DataFlags::LAST, 8, 8, 8);
            // Every other one is refused.
            f.offset = if n.is_multiple_of(2) { 0 } else { u64::MAX >> 1 };
        }
        DataKind::Read => f.total = 65_536,
        DataKind::ReadData => (f.len, f.total, payload) = (8, 8, 8),
        DataKind::Ack => f.total = 1,
        DataKind::Nack => {
            return DataFrame::nack(n, hmc_core::work::Failure::Unsupported).emit().to_vec();
        }
        DataKind::WriteRef => (f.flags, f.total, f.addr) = (DataFlags::LAST, 4096, memory),
        DataKind::ReadRef => (f.total, f.addr) = (4096, memory),
        DataKind::Region => {
            (f.window, f.epoch) =
                (WindowId(u64::from(n % 256) | (u64::from(n) << 16)), Epoch(n + 1));
            (f.total, f.addr, f.tag) = (4096, 4096, 3);
        }
        // Of the most frames, each a put; every other one is refused.
        DataKind::Gather => {
            let writes = (0..63).map(|i| data_frame(DataKind::Write, n * 63 + i, at, memory));
            let writes: Vec<Vec<u8>> = writes.collect();
            let heads = writes.iter().flat_map(|w| w[..DATA_FRAME_BYTES].to_vec());
            let bodies = writes.iter().flat_map(|w| w[DATA_FRAME_BYTES..].to_vec());
            return DataFrame::gather(63).emit().into_iter().chain(heads).chain(bodies).collect();
        }
    }
    let mut bytes = f.emit().to_vec();
    bytes.resize(bytes.len() + payload, 0);
    bytes
}

/// A session, where it listens, and the next rank of those who come.
#[derive(Debug)]
pub struct Scene {
    /// The session's process.
    pub actor: Actor,
    dir: TempDir,
    rank: u32,
}

/// What a flood came to.
#[derive(Clone, Copy, Debug)]
pub struct Flooded {
    /// Frames that were sent.
    pub sent: u32,
    /// Links on which they were.
    pub links: u32,
    /// Bytes by which the session's memory grew.
    pub grown: usize,
    /// What the rows allow, beside [`BESIDE`].
    pub limit: usize,
    /// Bytes by which its resident pages grew.
    pub pages: u64,
    /// Bytes that it did not give back.
    pub left: usize,
}

impl Flooded {
    /// Whether memory grew by more than it may.
    #[must_use]
    pub const fn is_over(&self) -> bool {
        self.grown > self.limit + BESIDE
    }
}

impl Scene {
    /// A session that listens for `via`.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn new(program: &str, via: Via) -> Self {
        let dir = TempDir::new();
        let settings = format!(
            "rank=0 tcp=127.0.0.1:0 insecure_loopback=1 uds={} buffer=65536 {}",
            dir.path().display(),
            match via {
                Via::Ucx => "ucx tls=tcp",
                Via::Upstream => "upstream",
                Via::Tcp | Via::Uds | Via::Shm => "",
            }
        );
        // UCX says on standard output that it could not reach a peer that has gone.
        let quiet = [("UCX_LOG_LEVEL", "fatal")];
        Self { actor: Actor::session_with(program, &settings, &quiet), dir, rank: 0 }
    }

    fn join(&mut self, via: Via) -> Rogue {
        self.rank += 1;
        let (tcp, uds) = (self.actor.address(), self.dir.address());
        let (control, data): (&Address, &Address) = match via {
            Via::Tcp => (&tcp, &tcp),
            Via::Uds => (&uds, &tcp),
            Via::Shm => (&uds, &uds),
            Via::Ucx => (&tcp, &tcp),
            Via::Upstream => return Rogue::join_upstream(self.rank, &tcp),
        };
        if via != Via::Ucx {
            return Rogue::join(self.rank, control, data);
        }
        let mut rogue = Rogue::join_as(self.rank, control, data, ENDPOINT_UCX);
        rogue.connect_ucx(library().expect("looked for before"));
        until("its link is open", LONG, || {
            rogue.am.iter_mut().for_each(AmSender::poll);
            (self.actor.request("peers") != "0").then_some(())
        });
        rogue.am.iter_mut().for_each(AmSender::wait_open);
        rogue
    }

    fn live(&mut self) -> usize {
        self.actor.request("live").parse().expect("small")
    }

    /// Sends what `next` gives for a while, and says how far memory grew at most.
    ///
    /// # Panics
    /// When the peer is not let in, or what it made the session hold stays.
    pub fn flood(
        &mut self,
        via: Via,
        limit: usize,
        time: Duration,
        mut next: impl FnMut(&mut Rogue, u32) -> Option<()>,
    ) -> Flooded {
        // What a first link pays once.
        drop(self.join(via));
        self.wait_for_end();
        let (before, files) = (self.live(), count_of(self.actor.pid(), "fd"));
        let resident = |s: &Self| status_of(s.actor.pid(), "VmRSS");
        let (first, mut peak) = (resident(self), 0_u64);
        let (mut most, mut sent, mut links) = (before, 0, 0);
        let start = Instant::now();
        while start.elapsed() < time && links < 20 {
            let mut rogue = self.join(via);
            links += 1;
            while start.elapsed() < time && next(&mut rogue, sent).is_some() {
                sent += BATCH;
                most = most.max(self.live());
                peak = peak.max(resident(self));
            }
            most = most.max(self.live());
        }
        let grown = most.saturating_sub(before);
        // Over shm the rogue shows no page of words, so that its link ends after 5 s; the inbox of each is kept.
        let kept = if via == Via::Shm && limit == INBOX { links } else { 1 };
        let limit = limit * usize::try_from(kept).expect("small");
        let ranks = self.rank - links..=self.rank;
        if via == Via::Upstream {
            // Only its control connection reports its end, which is read when the inbox has space.
            until("its messages are received", LONG, || {
                self.drain(ranks.clone());
                (self.actor.request("peers") == "0").then_some(())
            });
        }
        self.wait_for_end();
        self.drain(ranks);
        let mut left = 0;
        until("what it held is given back", LONG, || {
            left = self.live().saturating_sub(before);
            (left <= BESIDE / 4 && count_of(self.actor.pid(), "fd") <= files).then_some(())
        });
        let pages = peak.saturating_sub(first) << 10;
        Flooded { sent, links, grown, limit, pages, left }
    }

    fn drain(&mut self, ranks: RangeInclusive<u32>) {
        for rank in ranks {
            self.actor.request(&format!("drain {rank}"));
        }
    }

    fn wait_for_end(&mut self) {
        until("its links are over", LONG, || (self.actor.request("peers") == "0").then_some(()));
    }
}

/// What its control connection and its data stream are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Via {
    /// Both over TCP.
    Tcp,
    /// A local socket and TCP.
    Uds,
    /// Both over local sockets.
    Shm,
    /// By messages over TCP lanes.
    Ucx,
    /// The dialect of the C++ HMC over TCP: a control connection alone.
    Upstream,
}

/// The UCX of this machine, as hmc-std finds it.
#[must_use]
pub fn library() -> Option<&'static Library> {
    let named = std::env::var_os("HMC_UCX_LIB").filter(|name| !name.is_empty()).map(Into::into);
    Library::load(&Search { named, ..Search::default() }).ok()
}

/// Sends frames of one kind on the control connection.
///
/// # Panics
/// As [`Scene::flood`] does.
pub fn of_kind(scene: &mut Scene, via: Via, kind: ControlKind, time: Duration) -> Flooded {
    let limit = of_message(kind).bytes(INBOX);
    let (mut bytes, mut at) = (Vec::new(), 0);
    scene.flood(via, limit, time, |rogue, n| {
        if at == bytes.len() {
            bytes = (n..n + BATCH).flat_map(|n| message(kind, n)).collect();
            at = 0;
        }
        let poured = pour(&mut rogue.control, &bytes, at);
        // Another link begins with a whole frame.
        at = poured.unwrap_or(bytes.len());
        poured.map(|_| ())
    })
}

/// Messages that are answered, PING and REVOKE, without reading the answers.
///
/// # Panics
/// As [`Scene::flood`] does.
pub fn answers(context: &mut Context) -> Outcome {
    let mut most = 0;
    let mut frames = 0;
    for via in [Via::Uds, Via::Tcp] {
        let mut scene = Scene::new(&context.actor, via);
        for kind in [ControlKind::Ping, ControlKind::Revoke] {
            let flooded = of_kind(&mut scene, via, kind, Duration::from_millis(600));
            context.count(flooded.sent.into());
            frames += u64::from(flooded.sent);
            most = most.max(flooded.grown);
            if flooded.is_over() {
                let Flooded { grown, limit, .. } = flooded;
                return context.broken(format!(
                    "{kind:?} over {via:?}: {grown} bytes, the limit is {limit} and {BESIDE}"
                ));
            }
        }
    }
    context.held(format!("memory grew by {most} bytes at most beside {frames} frames"))
}

/// Long frames of which little comes: memory grows with what has come.
///
/// # Panics
/// When the peer is not let in.
pub fn announced(context: &mut Context) -> Outcome {
    /// Bytes of each frame that come, and that it announces.
    const COMES: usize = 4096;
    const ANNOUNCED: u32 = 1 << 20;
    let mut scene = Scene::new(&context.actor, Via::Tcp);
    // What a first link pays once.
    drop(scene.join(Via::Tcp));
    scene.wait_for_end();
    let mut worst = 0;
    while context.again(8) {
        let mut rogue = scene.join(Via::Tcp);
        until("it is a peer", LONG, || (scene.actor.request("peers") == "1").then_some(()));
        let before = scene.live();
        let mut bytes = frame(&ControlMessage::Struct(&[7; COMES]));
        bytes[4..8].copy_from_slice(&ANNOUNCED.to_le_bytes());
        pour(&mut rogue.control, &bytes, 0).expect("space");
        // It has read them when it has answered what it is asked on the data stream, and later on.
        let mut grown = 0;
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(100) {
            grown = grown.max(scene.live().saturating_sub(before));
        }
        worst = worst.max(grown);
        // Storage grows by doubling.
        if grown > 4 * COMES + (64 << 10) {
            return context.broken(format!("{grown} bytes for {COMES} of {ANNOUNCED}"));
        }
        drop(rogue);
        scene.wait_for_end();
    }
    context.held(format!("{worst} bytes at most for {COMES} of {ANNOUNCED}"))
}
