//! The place of a window that is used again and again under a peer that does nothing but retry.

use hmc_testkit::buffers::{BufferTransfers as _, Ends};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hmc_core::region::WindowId;
use hmc_core::wire::advert::WindowRole;
use hmc_core::wire::data::{DATA_FRAME_BYTES, DataFrame, DataKind};
use hmc_core::wire::message::ControlMessage;
use hmc_mem::os::fd_passing::{recv_with_fd, send_fd};
use hmc_mem::os::io::IoOutcome;
use hmc_mem::os::memfd::Mapping;
use hmc_std::{Access, ConnType, Peer, Session, Window};

use super::{Context, Outcome};
use crate::env::{TempDir, bound};
use crate::pair::Pair;
use crate::raw_frames::read_frame;
use crate::rogue::Rogue;

/// For how long a window that was just opened may let nobody in.
const ENTERED_BY: Duration = Duration::from_secs(5);
/// A revocation of a healthy peer takes less.
const REVOKED_BY: Duration = Duration::from_secs(2);

/// Puts through the newest window until that is gone, and then goes on for a while: its refusals and the owner's next
/// opening meet at the word.
fn retry(ends: &Ends, entered: &AtomicU64, round: u64) {
    while ends.put_at(0, 0, 8).is_ok() {
        entered.store(round, Ordering::Release);
    }
    for _ in 0..50 {
        let _ = ends.put_at(0, 0, 8);
    }
}

/// The initiator: retries through each new window. Why it ended, if not because all was over.
fn initiate(
    session: &Session,
    peer: &Peer,
    entered: &AtomicU64,
    over: &AtomicBool,
) -> Result<(), String> {
    for round in 1.. {
        let window = loop {
            match peer.window(round).within(Duration::from_millis(200)).wait() {
                Ok(window) => break window,
                Err(_) if over.load(Ordering::Acquire) => return Ok(()),
                Err(_) => {}
            }
        };
        let ends = Ends { local: session.buffer().clone(), remote: window };
        if let Err(e) = ends.put_at(0, 0, 8) {
            return Err(format!("round {round}: a window that was just opened refuses: {e}"));
        }
        entered.store(round, Ordering::Release);
        retry(&ends, entered, round);
    }
    Ok(())
}

/// Opens, waits until the peer is inside, and revokes, as often as it is asked to.
///
/// # Panics
/// When two cannot be connected.
pub fn retries(context: &mut Context) -> Outcome {
    let pair = Pair::new(ConnType::Shm, 4096);
    let region = pair.receiver().memory().allocate(4096).expect("memory");
    let (entered, over) = (AtomicU64::new(0), AtomicBool::new(false));
    let to_target = pair.sender().peer(1).expect("connected");
    let mut slowest = Duration::ZERO;
    let end = std::thread::scope(|s| {
        let initiator = s.spawn(|| initiate(pair.sender(), &to_target, &entered, &over));
        let mut own = || -> Result<(), String> {
            while context.again(400) {
                let round = context.attempts();
                let span = region.take_all().expect("it came back");
                let window: Window<hmc_std::Span> =
                    pair.b.expose(span, Access::all(), round).map_err(|(e, _)| e).expect("exposed");
                let begun = Instant::now();
                while entered.load(Ordering::Acquire) < round {
                    if initiator.is_finished() {
                        return Ok(());
                    }
                    if begun.elapsed() > ENTERED_BY {
                        return Err(format!("round {round}: the peer never got in"));
                    }
                    std::thread::yield_now();
                }
                let begun = Instant::now();
                if let Err(e) = window.revoke().within(REVOKED_BY * 2).wait() {
                    return Err(format!("round {round}: revoking a healthy peer's window: {e}"));
                }
                slowest = slowest.max(begun.elapsed());
            }
            Ok(())
        };
        let end = own();
        over.store(true, Ordering::Release);
        end.and(initiator.join().expect("it goes on"))
    });
    match end {
        Err(why) => context.broken(why),
        Ok(()) if slowest >= bound(REVOKED_BY) => {
            context.broken(format!("a revocation took {slowest:?}"))
        }
        Ok(()) => context.held(format!("the slowest revocation took {slowest:?}")),
    }
}

/// Bytes of the page of window words, and where a peer counts its heartbeats in it (`hmc-std/src/transport/shm`).
const PAGE_BYTES: u64 = 4096;
const BEAT_AT: u64 = 2048;
/// The name under which the page travels.
const PAGE_ID: WindowId = WindowId(u64::MAX);
/// One initiator inside, in a word (`hmc_mem::gate`).
const INSIDE: u64 = 1 << 32;

/// The next frame of a session's data stream, with the descriptor that it carries.
fn frame_with_fd(from: &File) -> (DataFrame, OwnedFd) {
    let mut bytes = [0; DATA_FRAME_BYTES];
    loop {
        match recv_with_fd(from, &mut bytes) {
            Ok((IoOutcome::Bytes(n), Some(Ok(fd)))) if n == DATA_FRAME_BYTES => {
                return (DataFrame::parse(&bytes).expect("a frame of a session"), fd);
            }
            Ok((IoOutcome::WouldBlock, _)) => std::thread::yield_now(),
            other => panic!("no frame with a descriptor: {other:?}"),
        }
    }
}

/// Exchanges the pages of window words over shared memory: the session's, and that which it has of us.
fn exchange(rogue: &Rogue) -> (Mapping, Mapping) {
    let ours = Mapping::builder().huge(false).create(PAGE_BYTES).expect("a page");
    let mut f = DataFrame::new(DataKind::Region, 0);
    (f.window, f.total) = (PAGE_ID, PAGE_BYTES);
    let sent = send_fd(&rogue.data, ours.fd().expect("a memfd"), &f.emit());
    assert_eq!(sent, Ok(IoOutcome::Bytes(DATA_FRAME_BYTES)));
    loop {
        let (f, fd) = frame_with_fd(&rogue.data);
        if f.window == PAGE_ID {
            let theirs = Mapping::map_peer(fd, PAGE_BYTES, 0, Access::all()).expect("a page");
            return (theirs, ours);
        }
    }
}

/// A peer over shared memory that stands between the two steps of a refused entry, at the word, while its owner opens the
/// window's place again, and then takes the second step.
///
/// # Panics
/// When the peer is not let in.
pub fn refused(context: &mut Context) -> Outcome {
    let dir = TempDir::new();
    let session = Session::builder(0).uds(dir.path()).buffer(4096).redial(false).start();
    let session = session.expect("a session");
    let mut rogue = Rogue::join(1, &dir.address(), &dir.address());
    let (theirs, ours) = exchange(&rogue);
    let peer = session.accept(1).within(REVOKED_BY * 5).wait().expect("it is connected");
    let region = session.memory().allocate(4096).expect("memory");
    let mut at_word: Option<u64> = None;
    while context.again(50) {
        let label = context.attempts();
        let beat = ours.bytes().atomic_u64(BEAT_AT).expect("in the page");
        beat.fetch_add(1, Ordering::Relaxed);
        // The first step, while the place is closed.
        let word = at_word.map(|at| theirs.bytes().atomic_u64(at).expect("in the page"));
        if let Some(word) = word {
            word.fetch_add(INSIDE, Ordering::AcqRel);
        }
        let span = region.take_all().expect("it came back");
        let window = peer.expose(span, Access::all(), label).map_err(|(e, _)| e).expect("exposed");
        if let Some(word) = word {
            word.fetch_sub(INSIDE, Ordering::AcqRel);
        }
        let index = loop {
            let (header, payload) = read_frame(&mut rogue.control).expect("its window");
            match ControlMessage::parse(header, &payload) {
                Ok(ControlMessage::Advert(a)) if a.role == WindowRole::Named(label) => {
                    break a.region.window.index();
                }
                _ => {}
            }
        };
        // Its pages: what is never read fills the socket.
        drop(frame_with_fd(&rogue.data));
        let at = u64::from(index) * 8;
        if at_word.is_some_and(|before| before != at) {
            return Outcome::skipped("the place was not used again");
        }
        at_word = Some(at);
        let begun = Instant::now();
        if let Err(e) = window.revoke().within(REVOKED_BY).wait() {
            return context.broken(format!("revoking with nobody inside, round {label}: {e}"));
        }
        let took = begun.elapsed();
        if took >= REVOKED_BY / 2 {
            return context.broken(format!("revoking with nobody inside took {took:?}"));
        }
    }
    context.held("the place was opened under a peer that was refused, and came back each time")
}
