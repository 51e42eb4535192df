//! Frames of a peer that does not keep to its windows, over TCP: the target owns the memory and checks each.

use hmc_testkit::buffers::BufferTransfers as _;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::time::Duration;

use hmc_core::region::{Epoch, WindowDesc, WindowId};
use hmc_core::types::Access;
use hmc_core::window::WindowFault;
use hmc_core::wire::advert::WindowRole;
use hmc_core::wire::data::{DATA_FRAME_BYTES, DataFlags, DataFrame, DataKind};
use hmc_core::wire::message::ControlMessage;
use hmc_core::work::Failure;
use hmc_std::{Address, Message, Peer, Session, Waited, Window, want::Wanted};
use rustix::net::sockopt::{Timeout, set_socket_timeout};

use super::{Context, Outcome};
use crate::env::until;
use crate::listening::Listening as _;
use crate::raw_frames::read_frame;
use crate::rogue::Rogue;

const LONG: Duration = Duration::from_secs(20);
/// A frame is answered by then.
const ANSWERED_BY: Duration = Duration::from_secs(5);
/// Bytes of the session's own buffer, which is every peer's window.
const BUFFER: u64 = 1 << 16;
/// Hostile peers of one session, each with a rank of its own.
const RANKS: u64 = 4000;
/// What a hostile peer writes.
const FOREIGN: u8 = 0xF0;
/// What is in memory before, and again after its owner has it back.
const OWN: u8 = 0x0F;

/// A session of rank 0 that lets in who proves nothing, and a hostile peer of it.
struct Scene {
    session: Session,
    rogue: Rogue,
    /// The hostile peer, as the session sees it.
    peer: Peer,
    seq: u32,
}

impl Scene {
    fn new() -> Self {
        let session = Session::builder(0).tcp("127.0.0.1:0").insecure_loopback().buffer(BUFFER);
        // It beats by itself: no row of this file waits for its silence.
        let session = session.redial(false).heartbeat(None).start().expect("a session");
        session.buffer().fill(0, BUFFER, OWN).expect("ours");
        let (rogue, peer) = join(&session, 1);
        Self { session, rogue, peer, seq: 0 }
    }

    /// Another hostile peer in place of the one before, with a rank of its own; of another session when ranks run out.
    /// Gives the rank.
    fn again(&mut self, attempt: u64) -> u32 {
        let nth = attempt % RANKS;
        if nth == 0 {
            *self = Self::new();
        }
        let rank = 2 + u32::try_from(nth).expect("small");
        (self.rogue, self.peer) = join(&self.session, rank);
        self.seq = 0;
        rank
    }

    fn frame(&mut self, kind: DataKind, at: &WindowDesc) -> DataFrame {
        self.seq += 1;
        let mut f = DataFrame::new(kind, self.seq);
        (f.window, f.epoch) = (at.window, at.epoch);
        f
    }

    /// A put of `len` bytes at `offset` in one frame.
    fn put(&mut self, at: &WindowDesc, offset: u64, len: u64) -> (DataFrame, Vec<u8>) {
        let mut f = self.frame(DataKind::Write, at);
        (f.flags, f.offset, f.total) = (DataFlags::LAST, offset, len);
        f.len = u32::try_from(len).expect("small");
        (f, vec![FOREIGN; usize::try_from(len).expect("small")])
    }

    /// The same for a get.
    fn get(&mut self, at: &WindowDesc, offset: u64, len: u64) -> DataFrame {
        let mut f = self.frame(DataKind::Read, at);
        (f.offset, f.total) = (offset, len);
        f
    }

    fn send(&mut self, f: &DataFrame, payload: &[u8]) -> bool {
        let bytes = [&f.emit()[..], payload].concat();
        self.rogue.data.write_all(&bytes).is_ok()
    }

    /// Sends a frame and gives the answer, in words.
    fn request(&mut self, f: &DataFrame, payload: &[u8]) -> String {
        match self.send(f, payload) {
            true => answer(&mut self.rogue.data),
            false => "its link ended".to_owned(),
        }
    }

    /// A window of `len` bytes for the hostile peer, and what it is told of it.
    fn expose(
        &mut self,
        access: Access,
        label: u64,
        len: u64,
    ) -> (Window<hmc_std::Span>, WindowDesc) {
        let region = self.session.memory().allocate(len).expect("memory");
        let mut span = region.take_all().expect("free");
        span.fill(OWN);
        let window = self.peer.expose(span, access, label).map_err(|(e, _)| e).expect("exposed");
        loop {
            let (header, payload) = read_frame(&mut self.rogue.control).expect("its window");
            match ControlMessage::parse(header, &payload) {
                Ok(ControlMessage::Advert(a)) if a.role == WindowRole::Named(label) => {
                    return (window, a.region);
                }
                _ => {}
            }
        }
    }

    /// Whether a put that is allowed is done: the row's frames were answered by a session that works.
    fn is_sound(&mut self) -> bool {
        let window = self.rogue.window;
        let (f, bytes) = self.put(&window, 0, 8);
        self.request(&f, &bytes) == "done"
    }
}

/// Joins a session, and waits until that can transfer.
fn join(session: &Session, rank: u32) -> (Rogue, Peer) {
    let at = Address::Tcp(session.tcp_addr().expect("it listens"));
    let rogue = Rogue::join_mute(rank, &at, &at);
    for socket in [&rogue.data, &rogue.control] {
        set_socket_timeout(socket, Timeout::Recv, Some(ANSWERED_BY)).expect("a socket");
    }
    let peer = session.accept(rank).within(LONG).wait().expect("it is connected");
    (rogue, peer)
}

/// The next data frame. `None`: the stream ended, or nothing came.
fn read_data(from: &mut File) -> Option<(DataFrame, Vec<u8>)> {
    let mut head = [0; DATA_FRAME_BYTES];
    from.read_exact(&mut head).ok()?;
    let f = DataFrame::parse(&head).expect("a frame of a session");
    let payload = if f.kind == DataKind::ReadData { f.len } else { 0 };
    let mut bytes = vec![0; usize::try_from(payload).expect("small")];
    from.read_exact(&mut bytes).ok()?;
    Some((f, bytes))
}

/// `done`, why it was refused, or what else came.
fn answer(from: &mut File) -> String {
    match read_data(from) {
        None => "its link ended".to_owned(),
        Some((f, _)) if f.kind == DataKind::Ack => "done".to_owned(),
        Some((f, _)) if f.kind == DataKind::Nack => match f.why() {
            Some(Failure::Window(WindowFault::OutOfWindow(_))) => "OutOfWindow".to_owned(),
            Some(Failure::Window(fault)) => format!("{fault:?}"),
            other => format!("{other:?}"),
        },
        Some((f, bytes)) => format!("{:?} of {} bytes", f.kind, bytes.len()),
    }
}

/// Ranges that do not lie in the window: by one byte, by many, and around the end of 64 bits.
///
/// # Panics
/// When the hostile peer is not let in.
pub fn outside(context: &mut Context) -> Outcome {
    let mut scene = Scene::new();
    let window = scene.rogue.window;
    while context.again(300) {
        let n = 1 + context.rng.below(64);
        let offset = match context.rng.below(4) {
            0 => BUFFER,
            1 => BUFFER + 1 - n,
            2 => u64::MAX - context.rng.below(n),
            _ => BUFFER + 1 + context.rng.below(1 << 40),
        };
        let answer = if context.rng.below(3) == 0 {
            let f = scene.get(&window, offset, n);
            scene.request(&f, &[])
        } else {
            let (f, bytes) = scene.put(&window, offset, n);
            scene.request(&f, &bytes)
        };
        if answer != "OutOfWindow" {
            return context.broken(format!("{n} bytes at {offset} of {BUFFER}: {answer}"));
        }
    }
    let mut all = vec![0; usize::try_from(BUFFER).expect("small")];
    scene.session.buffer().read_at(0, &mut all).expect("ours");
    if all.iter().any(|b| *b != OWN) || !scene.is_sound() {
        return context.broken("a refused put changed memory, or the link does not go on");
    }
    context.held("each was refused as OutOfWindow, no byte changed")
}

/// Names of windows that were not told: another epoch, another random part.
///
/// # Panics
/// When the hostile peer is not let in.
pub fn guessed(context: &mut Context) -> Outcome {
    let mut scene = Scene::new();
    let window = scene.rogue.window;
    while context.again(300) {
        let mut named = window;
        if context.rng.below(2) == 0 {
            named.epoch = Epoch(window.epoch.0.wrapping_add(1 + context.rng.index(1000) as u32));
        } else {
            let random = context.rng.next_u64() >> 16 << 16;
            named.window = WindowId(window.window.0 ^ random.max(1 << 16));
        }
        let answer = if context.rng.below(3) == 0 {
            let f = scene.get(&named, 0, 8);
            scene.request(&f, &[])
        } else {
            let (f, bytes) = scene.put(&named, 8, 8);
            scene.request(&f, &bytes)
        };
        if !["Unknown", "StaleEpoch"].contains(&answer.as_str()) {
            return context.broken(format!("a name that nobody was told: {answer}"));
        }
    }
    let mut bytes = [0; 8];
    scene.session.buffer().read_at(8, &mut bytes).expect("ours");
    if bytes != [OWN; 8] || !scene.is_sound() {
        return context.broken("a refused put changed memory, or the link does not go on");
    }
    context.held("each was refused as unknown or stale, no byte changed")
}

/// Writes into a window for reading, and reads from one for writing.
///
/// # Panics
/// When the hostile peer is not let in.
pub fn without_the_right(context: &mut Context) -> Outcome {
    let mut scene = Scene::new();
    let (reading, read) = scene.expose(Access::READ, 1, 4096);
    let (writing, write) = scene.expose(Access::WRITE, 2, 4096);
    while context.again(200) {
        let (offset, n) = (context.rng.below(4000), 1 + context.rng.below(64));
        let answer = if context.rng.below(2) == 0 {
            let f = scene.get(&write, offset, n);
            scene.request(&f, &[])
        } else {
            let (f, bytes) = scene.put(&read, offset, n);
            scene.request(&f, &bytes)
        };
        if answer != "Access" {
            return context.broken(format!("an access without the right: {answer}"));
        }
    }
    for window in [reading, writing] {
        let mut bytes = [0; 4096];
        window.read_at(0, &mut bytes).expect("ours");
        if bytes.iter().any(|b| *b != OWN) {
            return context.broken("a refused put changed memory");
        }
    }
    match scene.is_sound() {
        true => context.held("each was refused as Access, no byte changed"),
        false => context.broken("the link does not go on"),
    }
}

/// What the owner has back, which is compared with what it wrote there.
fn is_own(span: &hmc_std::Span) -> bool {
    span.as_slice().iter().all(|b| *b == OWN)
}

/// Writes into windows that were taken back.
///
/// # Panics
/// When the hostile peer is not let in.
pub fn revoked(context: &mut Context) -> Outcome {
    let mut scene = Scene::new();
    while context.again(100) {
        let (window, told) = scene.expose(Access::all(), context.attempts(), 4096);
        let (f, bytes) = scene.put(&told, 0, 64);
        let first = scene.request(&f, &bytes);
        assert_eq!(first, "done", "the window is open");
        let mut span = match window.revoke().within(LONG).wait() {
            Ok(span) => span,
            Err(e) => return context.broken(format!("the window does not come back: {e}")),
        };
        span.fill(OWN);
        let (f, bytes) = scene.put(&told, 0, 64);
        let (put, f) = (scene.request(&f, &bytes), scene.get(&told, 0, 64));
        let get = scene.request(&f, &[]);
        let refused = |answer: &str| ["Unknown", "StaleEpoch", "Revoked"].contains(&answer);
        if !refused(&put) || !refused(&get) || !is_own(&span) {
            return context.broken(format!("after the revocation: a put {put}, a get {get}"));
        }
    }
    context.held("each access after the revocation was refused")
}

/// Puts whose window is taken back in their middle.
///
/// # Panics
/// When the hostile peer is not let in.
pub fn late(context: &mut Context) -> Outcome {
    const LEN: u64 = 4096;
    let mut scene = Scene::new();
    while context.again(40) {
        let (window, told) = scene.expose(Access::all(), context.attempts(), LEN);
        let (f, bytes) = scene.put(&told, 0, LEN);
        let (first, rest) = bytes.split_at(1 + context.rng.index(bytes.len() - 1));
        assert!(scene.send(&f, first));
        let mut byte = [0];
        until("its first byte is there", LONG, || {
            window.read_at(0, &mut byte).expect("ours");
            (byte == [FOREIGN]).then_some(())
        });
        let mut span = match window.revoke().within(LONG).wait() {
            Ok(span) => span,
            Err(e) => return context.broken(format!("the window does not come back: {e}")),
        };
        span.fill(OWN);
        assert!(scene.rogue.data.write_all(rest).is_ok());
        let answer = answer(&mut scene.rogue.data);
        if answer != "Revoked" || !is_own(&span) {
            let late = span.as_slice().iter().filter(|b| **b != OWN).count();
            return context.broken(format!("{late} bytes came late, the put was {answer}"));
        }
    }
    context.held("no byte came after the revocation")
}

/// Puts whose last byte does not come: neither a tag nor an answer may say that they are there.
fn early(context: &mut Context, notify: bool) -> Outcome {
    const SOON: Duration = Duration::from_millis(20);
    let mut scene = Scene::new();
    let window = scene.rogue.window;
    while context.again(30) {
        let tag = context.attempts();
        let (mut f, bytes) = scene.put(&window, 0, 4096);
        if notify {
            f.flags |= DataFlags::NOTIFY;
            f.tag = tag;
        }
        let (first, rest) = bytes.split_at(context.rng.index(bytes.len()));
        assert!(scene.send(&f, first));
        let told = if notify {
            scene.peer.recv(Wanted::Notify).within(SOON).wait().is_ok()
        } else {
            set_socket_timeout(&scene.rogue.data, Timeout::Recv, Some(SOON)).expect("a socket");
            let answer = read_data(&mut scene.rogue.data).is_some();
            let all = Some(ANSWERED_BY);
            set_socket_timeout(&scene.rogue.data, Timeout::Recv, all).expect("a socket");
            answer
        };
        if told {
            let (came, of) = (first.len(), bytes.len());
            let what = if notify { "its tag" } else { "its answer" };
            return context.broken(format!("{what} came when {came} of {of} bytes had"));
        }
        assert!(scene.rogue.data.write_all(rest).is_ok());
        let answer = answer(&mut scene.rogue.data);
        let mut got = vec![0; bytes.len()];
        scene.session.buffer().read_at(0, &mut got).expect("ours");
        let right = got == bytes && answer == "done";
        let right = right
            && (!notify
                || scene.peer.recv(Wanted::Notify).within(LONG).wait().ok()
                    == Some(Message::Notify(tag)));
        if !right {
            return context.broken(format!("the whole put was {answer}"));
        }
        scene.session.buffer().fill(0, BUFFER, OWN).expect("ours");
    }
    context.held("nothing was told before the last byte came")
}

/// Tags of puts that are not complete.
///
/// # Panics
/// When the hostile peer is not let in.
pub fn early_tags(context: &mut Context) -> Outcome {
    early(context, true)
}

/// Answers to puts that are not complete.
///
/// # Panics
/// When the hostile peer is not let in.
pub fn early_answers(context: &mut Context) -> Outcome {
    early(context, false)
}

/// Answers to a get that are not what was asked for.
///
/// # Panics
/// When the hostile peer is not let in.
pub fn lying_answers(context: &mut Context) -> Outcome {
    const LEN: u64 = 256;
    const LIES: [&str; 5] = ["early end", "gap", "other get", "no data", "too long"];
    let mut scene = Scene::new();
    while context.again(24) {
        let rank = scene.again(context.attempts());
        let at = context.rng.below(BUFFER / 2);
        let op = scene.peer.start_get_at(at, 0, LEN).expect("posted");
        let Some((asked, _)) = read_data(&mut scene.rogue.data) else {
            return context.broken("the get was not asked for");
        };
        let mut f = DataFrame::new(DataKind::ReadData, asked.seq);
        (f.flags, f.total, f.len) = (DataFlags::LAST, LEN, 256);
        let few = 1 + u32::try_from(context.rng.below(LEN - 1)).expect("small");
        let lie = LIES[usize::try_from(context.attempts()).expect("small") % LIES.len()];
        match lie {
            "early end" => f.len = few,
            "gap" => (f.offset, f.len) = (few.into(), 256 - few),
            "other get" => f.seq = asked.seq.wrapping_add(1),
            "no data" => f = DataFrame::ack(asked.seq, 1),
            _ => (f.offset, f.len, f.flags) = (0, 4096, DataFlags::empty()),
        }
        let payload = vec![FOREIGN; usize::try_from(f.len).expect("small")];
        // The session may have hung up in the middle of it.
        let _ = scene.send(&f, &payload);
        let end = op.wait_for(ANSWERED_BY);
        let dead = |e: &hmc_std::Error| e.kind() == hmc_std::ErrorKind::PeerDead;
        if !matches!(&end, Waited::Ended(Err(e)) if dead(e)) {
            return context.broken(format!("a get that was answered by a lie ({lie}): {end:?}"));
        }
        let mut all = vec![0; usize::try_from(BUFFER).expect("small")];
        scene.session.buffer().read_at(0, &mut all).expect("ours");
        let range = usize::try_from(at).expect("small")..usize::try_from(at + LEN).expect("small");
        all[range].fill(OWN);
        if all.iter().any(|b| *b != OWN) {
            return context.broken(format!("a lie ({lie}) changed memory beside the get's"));
        }
        scene.session.buffer().fill(0, BUFFER, OWN).expect("ours");
        until("the link is over", LONG, || {
            (!scene.session.peer(rank).is_ok_and(|p| p.is_connected())).then_some(())
        });
    }
    context.held("no get succeeded by a lie, no other byte changed")
}

/// A peer of that session that keeps to the protocol.
fn honest_peer(to: &Session) -> (Session, Peer) {
    let honest = Session::builder(4095).insecure_loopback().buffer(4096).start();
    let honest = honest.expect("a session");
    let at = Address::Tcp(to.tcp_addr().expect("it listens"));
    let peer = honest.connect(&at).rank(0).wait().expect("connected");
    (honest, peer)
}

/// Frames with a part of them changed at random, so that they are none, each followed by a put that is one.
///
/// # Panics
/// When the hostile peer is not let in.
pub fn malformed(context: &mut Context) -> Outcome {
    let mut scene = Scene::new();
    let mut honest = honest_peer(&scene.session);
    while context.again(40) {
        let rank = scene.again(context.attempts());
        if context.attempts().is_multiple_of(RANKS) {
            honest = honest_peer(&scene.session);
        }
        let window = scene.rogue.window;
        let (f, _) = scene.put(&window, 0, 0);
        let mut bytes = f.emit();
        while DataFrame::parse(&bytes).is_ok() {
            bytes[context.rng.index(DATA_FRAME_BYTES)] = context.rng.bytes(1)[0];
        }
        let (f, payload) = scene.put(&window, 64, 64);
        let all = [&bytes[..], &f.emit(), &payload].concat();
        let _ = scene.rogue.data.write_all(&all);
        let answer = answer(&mut scene.rogue.data);
        let mut got = [0; 64];
        scene.session.buffer().read_at(64, &mut got).expect("ours");
        if answer != "its link ended" || got != [OWN; 64] {
            return context
                .broken(format!("what followed the malformed {bytes:02x?} was {answer}"));
        }
        until("the link is over", LONG, || {
            (!scene.session.peer(rank).is_ok_and(|p| p.is_connected())).then_some(())
        });
        if let Err(e) = honest.1.put_at(0, 4096, 64) {
            return context.broken(format!("another peer was disturbed: {e}"));
        }
    }
    context.held("each ended its link, nothing after it was executed")
}
