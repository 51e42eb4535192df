//! Descriptors are used up, here or on their way: links that are there go on, by the slower path where pages are not mapped.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Duration;

use hmc_core::types::Access;
use hmc_std::{Peer, Session};
use hmc_testkit::buffers::BufferTransfers as _;
use hmc_tests::actor::Actor;
use hmc_tests::env::{TempDir, count_of, cpu_of, skipped, until};
use hmc_tests::files::UnderWay;

const ACTOR: &str = env!("CARGO_BIN_EXE_actor");
const LONG: Duration = Duration::from_secs(20);
const LEN: u64 = 1 << 16;
/// Nobody else in the tests: the kernel counts what is under way by user.
const USER: u32 = 65_533;

/// A session here and an actor, linked over shm; the actor has no descriptor left.
fn crowded() -> (Actor, Session, Peer, TempDir) {
    let dir = TempDir::new();
    let s = Session::builder(0).uds(dir.path()).buffer(LEN).start().unwrap();
    let mut actor = Actor::session(ACTOR, &format!("rank=1 buffer={LEN}"));
    assert_eq!(
        actor.request(&format!("connect 0 uds://{} shm 20000", dir.path().display())),
        "shm"
    );
    let peer = s.accept(1).within(LONG).wait().unwrap();
    // All below the limit are in use: those above it, if any, do not help.
    actor.request(&format!("files {}", count_of(actor.pid(), "fd")));
    let e = actor.try_request("expose 0 1 4096 1 own").expect_err("no descriptor");
    assert!(e.starts_with("SystemLimit"), "{e}");
    (actor, s, peer, dir)
}

/// The kernel drops the descriptor of a new window on its way into a full table: the window is reached through the stream.
#[test]
fn a_window_that_finds_no_descriptor_is_reached_through_the_stream() {
    let (mut actor, s, peer, _dir) = crowded();
    let others = mappings(std::process::id());
    let mut span = s.memory().allocate(LEN).unwrap().take_all().unwrap();
    let file = &mappings(std::process::id()) - &others;
    span.fill(1);
    let window = peer.expose(span, Access::all(), 7).map_err(|(e, _)| e).expect("exposed");
    assert_eq!(actor.request("find 0 7 20000"), LEN.to_string());
    actor.request(&format!("put_window 0 7 {LEN} 9 3 adopted"));
    assert_eq!(actor.request("connected 0"), "true");
    assert!(peer.is_connected());
    // What is mapped stays so.
    actor.request(&format!("put 0 0 0 {LEN}"));
    peer.put_at(0, 0, LEN).expect("the other way");
    let span = window.revoke().within(LONG).wait().expect("revoked");
    let mut bytes = vec![0; usize::try_from(LEN).unwrap()];
    span.read_at(0, &mut bytes).unwrap();
    assert!(bytes.iter().all(|b| *b == 9), "the put is there whole");
    // With descriptors again, the next window is mapped.
    actor.request("files 100000");
    let _window = peer.expose(span, Access::all(), 8).map_err(|(e, _)| e).expect("exposed");
    until("it is mapped", LONG, || (!mappings(actor.pid()).is_disjoint(&file)).then_some(()));
}

/// A message that is received into windows of its own, offered while the sender has no descriptor left.
#[test]
fn a_message_finds_its_way_without_descriptors() {
    let (mut actor, _s, peer, _dir) = crowded();
    actor.request(&format!("fill 0 {LEN} 6"));
    actor.send(&format!("send_data 0 0 {LEN}"));
    let mut bytes = vec![0; usize::try_from(LEN).unwrap()];
    assert_eq!(peer.recv_data(&mut bytes).wait().map(|d| d.bytes).expect("received"), LEN);
    assert_eq!(actor.answer().expect("sent"), LEN.to_string());
    assert!(bytes.iter().all(|b| *b == 6));
    assert_eq!(actor.request("connected 0"), "true");
}

/// While more descriptors of a user are under way than a process may have open, the kernel takes no more of them (unix(7)):
/// a window that is exposed then is reached through the stream, and mapped as soon as the kernel takes its descriptor.
#[test]
fn descriptors_that_the_kernel_does_not_take_are_sent_later() {
    if std::fs::metadata("/proc/self").unwrap().uid() != 0 {
        return skipped("only root can start processes of a user without others");
    }
    let Some(place) = TempDir::for_all_users() else {
        return skipped("other users can enter no folder for temporary files");
    };
    let program = place.runnable(ACTOR);
    let home = place.path().join("home");
    std::fs::create_dir(&home).unwrap();
    let private = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    std::fs::set_permissions(&home, private).unwrap();
    std::os::unix::fs::chown(&home, Some(USER), Some(USER)).unwrap();
    let uds = home.display().to_string();
    let start = |rank: u32| {
        let mut actor = spawn(&program, &uds);
        actor.request(&format!("start rank={rank} uds={uds} buffer={LEN}"));
        actor
    };
    let (mut owner, mut user) = (start(1), start(0));
    assert_eq!(user.request(&format!("connect 1 uds://{uds} shm 20000")), "shm");
    owner.request("meet 0 20000");
    let files = count_of(owner.pid(), "fd") + 16;
    assert!(files < UnderWay::COUNT);
    owner.request(&format!("files {files}"));
    owner.request("under_way 1");
    let mapped = mappings(user.pid());
    owner.request(&format!("expose 0 7 {LEN} 1 own"));
    assert_eq!(user.request("find 1 7 20000"), LEN.to_string());
    user.request(&format!("put_window 1 7 {LEN} 9 1 adopted"));
    assert!(mappings(user.pid()).is_subset(&mapped), "it cannot be mapped yet");
    // The other way, and what was mapped before.
    user.request(&format!("put 1 0 0 {LEN}"));
    owner.request(&format!("put 0 0 0 {LEN}"));
    let before = cpu_of(owner.pid());
    let e = user.try_request("recv 1 1000").expect_err("nobody sends");
    assert!(e.starts_with("DeadlineExceeded"), "{e}");
    let used = cpu_of(owner.pid()) - before;
    assert!(used < Duration::from_millis(200), "{used:?} of processor time in a second of waiting");
    owner.request("under_way 0");
    until("the window is mapped", LONG, || {
        (!mappings(user.pid()).is_subset(&mapped)).then_some(())
    });
    user.request(&format!("put_window 1 7 {LEN} 8 1 adopted"));
    for (actor, other) in [(&mut owner, 0), (&mut user, 1)] {
        assert_eq!(actor.request(&format!("connected {other}")), "true");
    }
}

fn spawn(program: &Path, uds: &str) -> Actor {
    Actor::spawn_as(program.to_str().unwrap(), USER, &[("HMC_UDS_DIR", uds)])
}

/// Memory that sessions made and that process maps, by its files: what an earlier call still held may go meanwhile.
fn mappings(pid: u32) -> BTreeSet<String> {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let ours = maps.lines().filter(|line| line.contains("/memfd:hmc"));
    // proc_pid_maps(5): the fifth field is the inode.
    ours.map(|line| line.split_whitespace().nth(4).unwrap().to_owned()).collect()
}
