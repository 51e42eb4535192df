//! Peers that send frames of one kind as fast as they can and read nothing: what they make a session hold is limited by
//! the row of that kind (`hmc_core::wire::held`), and is given back when their link ends.
//!
//! Each kind for `HMC_TEST_FLOOD_MS` milliseconds (100 by default, of PING and REVOKE eight times as long); 10,000 is the
//! whole test.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "tests may panic"
)]

use std::fs::File;
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use hmc_core::kinds::{Access, MemoryKind, Rank};
use hmc_core::region::{Epoch, RemoteRegion, WindowId};
use hmc_core::relay::{self, Note, RelayId, Why};
use hmc_core::span::Extent;
use hmc_core::wire::advert::{
    Backing, ENDPOINT_UCX, ENDPOINT_UCX_KEY, EndpointBlob, RegionAdvert, Role,
};
use hmc_core::wire::data::{DATA_FRAME_BYTES, DataFlags, DataFrame, DataKind};
use hmc_core::wire::held::{Held, of_data, of_message};
use hmc_core::wire::hello::LinkToken;
use hmc_core::wire::message::{Message, MessageKind};
use hmc_core::wire::proof::{Challenge, Proof};
use hmc_core::wire::reject::RejectReason;
use hmc_hw::ucx::library::{Library, Search};
use hmc_mem::os::io::Moved;
use hmc_mem::os::pass::send_fd;
use hmc_std::Address;
use hmc_tests::actor::Actor;
use hmc_tests::raw::{frame, hello};
use hmc_tests::rogue::{Rogue, Soft, pour};
use hmc_tests::scene::{TempDir, count_of, number, skipped, status_of, until};

const ACTOR: &str = env!("CARGO_BIN_EXE_actor");
const LONG: Duration = Duration::from_secs(20);
/// What a session may hold beside what a row says.
const BESIDE: usize = 1 << 20;
/// What the inbox of these sessions takes: its messages, its bytes, and a frame that is being received.
const INBOX: usize = 4096 * 64 + (4 << 20) + (2 << 20);
/// Frames that are sent at a time.
const BATCH: u32 = 512;

fn time() -> Duration {
    Duration::from_millis(number("HMC_TEST_FLOOD_MS", 100))
}

/// The `n`th frame of a kind.
fn message(kind: MessageKind, n: u32) -> Vec<u8> {
    let long = vec![7; 9000];
    let (window, epoch) = (WindowId((u64::from(n) % 256) | (u64::from(n) << 16)), Epoch(n + 1));
    let region = |window| RemoteRegion {
        window,
        epoch,
        extent: Extent::new(4096),
        access: Access::all(),
        kind: MemoryKind::Cpu,
    };
    let id = RelayId(n % 64);
    let note = match n % 4 {
        0 => Note::Offer { id, len: 1 << 20 },
        1 => Note::Filled { id, seq: u64::from(n) },
        _ => Note::Credit { id, seq: u64::from(n) },
    };
    match kind {
        MessageKind::HelloV1 => hmc_core::wire::upstream::hello_v1(Rank(n % 4096)).to_vec(),
        MessageKind::Hello => hello(n % 4096, 0, 0),
        MessageKind::Welcome => {
            let mut bytes = hello(n % 4096, 0, 0);
            // The same words, as an answer: they may not come from a dialer.
            bytes[8] = 2;
            bytes[4] = bytes[4].wrapping_add(16);
            bytes.extend([0; 16]);
            bytes
        }
        MessageKind::Reject => frame(&Message::Reject(RejectReason::Busy)),
        MessageKind::Attach => {
            frame(&Message::Attach { rank: Rank(n % 4096), token: LinkToken([1; 16]), channel: 2 })
        }
        MessageKind::AttachAck => frame(&Message::AttachAck),
        MessageKind::Challenge => frame(&Message::Challenge(Challenge {
            rank: Rank(n % 4096),
            nonce: [1; 16],
            proof: Proof([2; 32]),
        })),
        MessageKind::Proof => frame(&Message::Proof(Proof([2; 32]))),
        MessageKind::Endpoint => {
            frame(&Message::Endpoint(EndpointBlob { kind: ENDPOINT_UCX_KEY, bytes: &long[..8000] }))
        }
        MessageKind::Advert => frame(&Message::Advert(RegionAdvert {
            region: region(window),
            backing: Backing::Process,
            role: Role::Named(u64::from(n)),
        })),
        MessageKind::Int32 => frame(&Message::Int32(5)),
        MessageKind::Tag => frame(&Message::Tag(u64::from(n))),
        MessageKind::Struct => frame(&Message::Struct(&long[..usize::try_from(n % 9000).unwrap()])),
        MessageKind::Notify => frame(&Message::Notify { tag: u64::from(n), window }),
        MessageKind::Ping => frame(&Message::Ping(u64::from(n))),
        MessageKind::Pong => frame(&Message::Pong(u64::from(n))),
        MessageKind::Revoke => frame(&Message::Revoke { window, epoch }),
        MessageKind::Revoked => frame(&Message::Revoked { window, epoch }),
        MessageKind::Relay => frame(&Message::Relay(note)),
        MessageKind::Bye => frame(&Message::Bye),
    }
}

/// The `n`th data frame of a kind.
fn data_frame(kind: DataKind, n: u32, at: &RemoteRegion, memory: u64) -> Vec<u8> {
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
    }
    let mut bytes = f.emit().to_vec();
    bytes.resize(bytes.len() + payload, 0);
    bytes
}

/// A session, where it listens, and the next rank of those who come.
struct Scene {
    actor: Actor,
    dir: TempDir,
    rank: u32,
}

impl Scene {
    fn new(via: Via) -> Self {
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
        Self { actor: Actor::session_with(ACTOR, &settings, &quiet), dir, rank: 0 }
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
        rogue.meet(library().expect("looked for before"));
        until("its link is open", LONG, || {
            rogue.soft.iter_mut().for_each(Soft::turn);
            (self.actor.ask("peers") != "0").then_some(())
        });
        rogue.soft.iter_mut().for_each(Soft::settle);
        rogue
    }

    fn live(&mut self) -> usize {
        self.actor.ask("live").parse().unwrap()
    }

    /// Sends what `next` gives for a while, and says how far memory grew at most.
    fn flood(
        &mut self,
        via: Via,
        limit: usize,
        what: &str,
        time: Duration,
        mut next: impl FnMut(&mut Rogue, u32) -> Option<()>,
    ) {
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
        let limit = limit * usize::try_from(kept).unwrap();
        let ranks = self.rank - links..=self.rank;
        if via == Via::Upstream {
            // Nothing but its control connection tells of its end, which is read when there is room.
            until("its messages are received", LONG, || {
                self.drain(ranks.clone());
                (self.actor.ask("peers") == "0").then_some(())
            });
        }
        self.wait_for_end();
        self.drain(ranks);
        let mut left = 0;
        until("what it held is given back", LONG, || {
            left = self.live().saturating_sub(before);
            (left <= BESIDE / 4 && count_of(self.actor.pid(), "fd") <= files).then_some(())
        });
        println!(
            "{via:?} {what}: {sent} frames on {links} links, {grown} bytes of {limit} and {BESIDE}, {left} left"
        );
        if via == Via::Ucx {
            // What UCX and the allocator keep: 0.1 to 0.5 MiB.
            let pages = peak.saturating_sub(first) << 10;
            println!("{via:?} {what}: {pages} bytes resident more");
            let limit = u64::try_from(limit + 4 * BESIDE).unwrap();
            assert!(pages <= limit, "{via:?} {what}: {pages} bytes resident more, {limit} may be");
        }
        assert!(
            grown <= limit + BESIDE,
            "{via:?} {what}: grew by {grown} bytes, the limit is {limit} and {BESIDE}"
        );
    }

    fn drain(&mut self, ranks: RangeInclusive<u32>) {
        for rank in ranks {
            self.actor.ask(&format!("drain {rank}"));
        }
    }

    fn wait_for_end(&mut self) {
        until("its links are over", LONG, || (self.actor.ask("peers") == "0").then_some(()));
    }
}

/// What its control connection and its data stream are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Via {
    Tcp,
    Uds,
    Shm,
    /// By messages over TCP lanes.
    Ucx,
    /// The dialect of the C++ HMC over TCP: a control connection alone.
    Upstream,
}

/// The UCX of this machine, as hmc-std finds it.
fn library() -> Option<&'static Library> {
    let named = std::env::var_os("HMC_UCX_LIB").filter(|name| !name.is_empty()).map(Into::into);
    Library::load(&Search { named, ..Search::default() }).ok()
}

fn control_floods(via: Via) {
    let mut scene = Scene::new(via);
    for kind in MessageKind::ALL {
        let limit = of_message(kind).bytes(INBOX);
        let (mut bytes, mut at) = (Vec::new(), 0);
        // Answers to these are what piles up: long enough for more than the limit of them.
        let factor = if matches!(kind, MessageKind::Ping | MessageKind::Revoke) { 8 } else { 1 };
        scene.flood(via, limit, &format!("{kind:?}"), time() * factor, |rogue, n| {
            if at == bytes.len() {
                bytes = (n..n + BATCH).flat_map(|n| message(kind, n)).collect();
                at = 0;
            }
            let poured = pour(&mut rogue.control, &bytes, at);
            // Another link begins with a whole frame.
            at = poured.unwrap_or(bytes.len());
            poured.map(|_| ())
        });
    }
}

/// Messages of any size that are offered and withdrawn: each is answered by a last word, which nobody reads. They come by so
/// few at a time that no more are under way than may be.
#[test]
fn messages_that_are_withdrawn_over_a_local_socket() {
    let mut scene = Scene::new(Via::Uds);
    let limit = of_message(MessageKind::Relay).bytes(INBOX);
    let pair = |n: u32| {
        let end = Note::End { id: RelayId(n), from: relay::Role::Sender, how: Err(Why::Cancelled) };
        [Note::Offer { id: RelayId(n), len: 1 }, end]
            .map(|note| frame(&Message::Relay(note)))
            .concat()
    };
    let (mut link, mut number, mut bytes, mut at) = (None, 0, Vec::new(), 0);
    scene.flood(Via::Uds, limit, "messages withdrawn", time() * 16, |rogue, _| {
        if link.replace(rogue.window.window) != Some(rogue.window.window) {
            // Each link counts its own.
            (number, at) = (0, bytes.len());
        }
        if at == bytes.len() {
            bytes = (number..number + 4).flat_map(pair).collect();
            (number, at) = (number + 4, 0);
        }
        at = pour(&mut rogue.control, &bytes, at)?;
        Some(())
    });
}

#[test]
fn control_frames_over_tcp() {
    control_floods(Via::Tcp);
}

#[test]
fn control_frames_over_a_local_socket() {
    control_floods(Via::Uds);
}

#[test]
fn control_frames_beside_shared_memory() {
    control_floods(Via::Shm);
}

#[test]
fn frames_in_the_dialect_of_the_cxx_hmc() {
    control_floods(Via::Upstream);
}

/// What is answered.
const REQUESTS: [DataKind; 5] =
    [DataKind::Write, DataKind::Read, DataKind::WriteRef, DataKind::ReadRef, DataKind::Region];
const ANSWERS: [DataKind; 3] = [DataKind::ReadData, DataKind::Ack, DataKind::Nack];

fn data_floods(via: Via, kinds: &[DataKind]) {
    let mut scene = Scene::new(via);
    let memory = vec![3u8; 4096];
    let address = u64::try_from(memory.as_ptr().expose_provenance()).unwrap();
    let null = File::open("/dev/null").unwrap();
    for &kind in kinds {
        let limit = of_data(kind).bytes(INBOX);
        let (mut bytes, mut at) = (Vec::new(), 0);
        scene.flood(via, limit, &format!("{kind:?}"), time(), |rogue, n| {
            if kind == DataKind::Region && via == Via::Shm {
                return (n..n + BATCH).try_for_each(|n| {
                    let frame = data_frame(kind, n, &rogue.window, address);
                    match send_fd(&rogue.data, &null, &frame) {
                        Ok(Moved::Bytes(sent)) if sent == frame.len() => Some(()),
                        Ok(Moved::WouldBlock) => Some(()),
                        _ => None,
                    }
                });
            }
            if let Some(soft) = &mut rogue.soft {
                for n in n..n + BATCH {
                    let bytes = data_frame(kind, n, &rogue.window, address);
                    let (frame, data) = bytes.split_at(DATA_FRAME_BYTES);
                    soft.say(frame, data)?;
                }
                return (!rogue.is_over()).then_some(());
            }
            if at == bytes.len() {
                let one = |n| data_frame(kind, n, &rogue.window, address);
                bytes = (n..n + BATCH).flat_map(one).collect();
                at = 0;
            }
            let poured = pour(&mut rogue.data, &bytes, at);
            at = poured.unwrap_or(bytes.len());
            poured.map(|_| ())
        });
    }
    drop(memory);
}

#[test]
fn data_frames_over_tcp() {
    data_floods(Via::Tcp, &REQUESTS);
    data_floods(Via::Tcp, &ANSWERS);
}

#[test]
fn data_frames_beside_shared_memory() {
    data_floods(Via::Shm, &REQUESTS);
    data_floods(Via::Shm, &ANSWERS);
}

/// Beside UCX, by messages: what a peer sends there, and on the control connection of such a link. What UCX keeps for
/// itself shows in the process's pages.
#[test]
fn frames_beside_ucx() {
    if library().is_none() {
        return skipped("floods over UCX: there is none here");
    }
    data_floods(Via::Ucx, &ANSWERS);
    control_floods(Via::Ucx);
}

/// The same of what is answered, to a peer that does not read, and goes.
#[test]
fn requests_beside_ucx() {
    let Some(library) = library() else {
        return skipped("floods over UCX: there is none here");
    };
    let version = library.version();
    if (version.major, version.minor) < (1, 14) {
        return skipped(
            "floods of requests: UCX up to 1.13 ends the process (docs/UCX.md, known limits)",
        );
    }
    data_floods(Via::Ucx, &REQUESTS);
}

/// Rows are small: no peer costs more than its inbox and two megabytes of names.
#[test]
fn every_kind_has_a_limit() {
    for kind in MessageKind::ALL {
        let bytes = of_message(kind).bytes(0);
        assert!(bytes <= 2 << 20, "{kind:?}: {bytes}");
        assert!(of_message(kind) != Held::Lines { count: 0, bytes: 0 });
    }
    assert!(REQUESTS.iter().chain(&ANSWERS).all(|kind| of_data(*kind).bytes(0) <= 1 << 20));
}
