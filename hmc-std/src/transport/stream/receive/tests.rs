//! Frames in, between two ends of one socket pair.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};

use hmc_core::region::WindowId;
use hmc_core::slots::SlotId;
use hmc_core::transport::{Progress as _, Registration as _, Target as _};
use hmc_core::types::{Access, MemoryKind, Rank};
use hmc_core::wire::data::{DataFrame, DataKind};
use hmc_core::work::{CompleteWhen, Opcode, WorkRequest};

use crate::memory::RegionTable;
use crate::node::inbox::{Inbox, Wanted};
use crate::transport::stream::{Offer, StreamDataPlane, StreamSetup};

fn setup(pid: u32, socket: UnixStream, inbox: &Arc<Mutex<Inbox>>) -> StreamSetup {
    socket.set_nonblocking(true).expect("a socket");
    StreamSetup {
        socket: Arc::new(OwnedFd::from(socket).into()),
        peer: Rank(1),
        local: true,
        near: true,
        pid: Some(pid),
        cma: true,
        batched_acks: true,
        generations: true,
        gathers: true,
        windows: 1,
        inbox: Arc::clone(inbox),
    }
}

/// An end whose other end is in that process.
fn plane_to(pid: u32, socket: UnixStream, inbox: &Arc<Mutex<Inbox>>) -> StreamDataPlane {
    StreamDataPlane::new(setup(pid, socket, inbox))
}

fn plane(socket: UnixStream, inbox: &Arc<Mutex<Inbox>>) -> StreamDataPlane {
    plane_to(std::process::id(), socket, inbox)
}

/// Tags of puts whose bytes this end copies by itself come when the copies are done, all in one turn.
#[test]
fn tags_that_follow_queued_copies_fit_into_the_inbox() {
    const LIMIT: usize = 2;
    let (a, b) = UnixStream::pair().expect("a pair");
    let inbox = |limit| Arc::new(Mutex::new(Inbox::new(limit, 1024)));
    let full = inbox(LIMIT);
    let (mut near, mut far) = (plane(a, &inbox(LIMIT)), plane(b, &full));
    post(&mut near, &mut far, 6);
    let mut tags = 0;
    // A turn more for each tag, and some if the system refuses such copies: the bytes are sent then.
    for _ in 0..20 {
        near.poll_peer(true);
        far.poll_peer(true);
        let mut inbox = full.lock().expect("nobody panics");
        assert!(inbox.len() <= LIMIT, "{} tags", inbox.len());
        tags += usize::from(inbox.take(Wanted::Notify).is_some());
    }
    assert_eq!(tags, 6);
}

/// A copy that is refused brings no tag: what waited for its place goes on, although nobody takes a tag.
#[test]
fn refused_copies_give_the_places_of_their_tags_back() {
    let (a, b) = UnixStream::pair().expect("a pair");
    let inbox = || Arc::new(Mutex::new(Inbox::new(1, 1024)));
    let one = inbox();
    // The first process of the system has no memory there, or is not ours to read.
    let (mut near, mut far) = (plane(a, &inbox()), plane_to(1, b, &one));
    post(&mut near, &mut far, 2);
    near.poll_peer(true);
    far.poll_peer(true);
    assert_eq!(one.lock().expect("nobody panics").len(), 0);
    let interest = far.interest();
    assert!(interest.work && interest.connection.read, "{interest:?}");
    far.poll_peer(true);
    assert!(!far.is_paused());
}

/// The peer is asked to copy by itself on a local stream, where both ends allow it, until it says that it cannot.
#[test]
fn the_peer_copies_by_itself_only_where_both_ends_allow_it() {
    let inbox = Arc::new(Mutex::new(Inbox::new(8, 1024)));
    for (local, cma) in [(true, true), (true, false), (false, true), (false, false)] {
        let (socket, _other) = UnixStream::pair().expect("a pair");
        let setup = StreamSetup { local, cma, ..setup(std::process::id(), socket, &inbox) };
        let plane = StreamDataPlane::new(setup);
        assert_eq!(plane.peer(), Rank(1));
        assert_eq!(plane.may_use_refs(), local && cma, "local {local}, CMA {cma}");
        let why = "process_vm_readv(2) is switched off, or refused here";
        assert_eq!(
            plane.refused_refs(),
            (local && !cma).then_some(why),
            "local {local}, CMA {cma}"
        );
    }
    let (a, b) = UnixStream::pair().expect("a pair");
    // The first process of the system has no memory there, or is not ours to read.
    let (mut near, mut far) = (plane(a, &inbox), plane_to(1, b, &inbox));
    post(&mut near, &mut far, 1);
    assert!(near.may_use_refs());
    for _ in 0..4 {
        far.poll_peer(true);
        near.poll_peer(true);
    }
    assert!(!near.may_use_refs());
    let why = near.refused_refs().expect("the peer refused");
    assert!(why.starts_with("the peer may not call process_vm_readv(2)"), "{why}");
}

/// Pages that wait to be offered are not offered once their window is taken back.
#[test]
fn the_pages_of_a_revoked_window_are_not_offered() {
    let (a, b) = UnixStream::pair().expect("a pair");
    let inbox = Arc::new(Mutex::new(Inbox::new(1, 1024)));
    let (mut near, mut far) = (plane(a, &inbox), plane(b, &inbox));
    let region = Arc::new(RegionTable::default()).allocate(4096).expect("memory");
    near.add_memory(&region);
    let part = region.slice(0, 64).expect("in range");
    let window = near.windows().expose(part, MemoryKind::Cpu, Access::WRITE, 7).expect("a place");
    let other = WindowId(window.window.0 ^ 1);
    for id in [window.window, other] {
        let mut frame = DataFrame::new(DataKind::Region, 0);
        (frame.window, frame.epoch) = (id, window.epoch);
        let fd = region.mapping().expect("pages").fd().expect("a memfd");
        near.offer(Offer { frame, fd: fd.try_clone_to_owned().expect("a descriptor") });
    }
    near.revoke(window.window, window.epoch).expect("exposed");
    near.flush();
    while far.poll_peer(true) {}
    let arrived: Vec<_> = std::iter::from_fn(|| far.take_arrival()).map(|a| a.window).collect();
    assert_eq!(arrived, [other]);
}

/// Posts so many puts, each with a tag, from `near` to a window of `far`.
fn post(near: &mut StreamDataPlane, far: &mut StreamDataPlane, puts: u16) {
    let table = Arc::new(RegionTable::default());
    let [source, target] = [(); 2].map(|()| table.allocate(4096).expect("memory"));
    near.add_memory(&source);
    far.add_memory(&target);
    let part = |region: &crate::memory::Region| region.slice(0, 64).expect("in range");
    let window = far.windows().expose(part(&target), MemoryKind::Cpu, Access::WRITE, 7);
    let remote = window.expect("a place").slice(0, 64).expect("in range");
    for index in 0..puts {
        let op = SlotId { index, generation: 1 };
        let opcode = Opcode::PutNotify { tag: index.into() };
        let (when, local) = (CompleteWhen::Visible, part(&source));
        let work = WorkRequest { op, opcode, when, local, remote };
        near.submit(&work, true, 64).expect("space");
    }
}
