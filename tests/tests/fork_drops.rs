//! What a forked child drops of its parent's objects. Alone in its file: a fork copies whatever other threads hold.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

use std::collections::BTreeMap;
use std::future::Future as _;
use std::task::{Context, Waker};
use std::time::Duration;

use hmc_std::{Access, Piece, Session};
use hmc_testkit::buffers::{BufferMessages as _, BufferTransfers as _};
use hmc_tests::child::in_child;
use hmc_tests::env::TempDir;

/// The descriptors of this process beyond the three usual ones, and what they are of.
fn descriptors() -> BTreeMap<i32, String> {
    let mut all = BTreeMap::new();
    for entry in std::fs::read_dir("/proc/self/fd").unwrap() {
        let entry = entry.unwrap();
        // The folder's own is gone when it is looked at.
        if let Ok(of) = std::fs::read_link(entry.path()) {
            let number: i32 = entry.file_name().into_string().unwrap().parse().unwrap();
            all.insert(number, of.display().to_string());
        }
    }
    all.retain(|number, of| *number > 2 && !of.starts_with("/proc/"));
    all
}

/// As in a program that detaches itself from its terminal: it closes all descriptors, and has its own under the same numbers.
/// Gives what they were of. Pipes stay: the child speaks through one.
fn replace_all() -> BTreeMap<i32, String> {
    let mut were = descriptors();
    were.retain(|_, of| !of.starts_with("pipe:"));
    let null = std::fs::File::open("/dev/null").unwrap();
    for number in were.keys() {
        // SAFETY: dup2(2) takes numbers. Whatever owned the descriptor is not used any more, but for its drop.
        let done = unsafe { libc::dup2(std::os::fd::AsRawFd::as_raw_fd(&null), *number) };
        assert_eq!(done, *number);
    }
    were
}

#[test]
fn what_a_child_drops_closes_none_of_its_descriptors() {
    let dir = TempDir::new();
    let target = Session::builder(1).uds(dir.path()).tcp("127.0.0.1:0").buffer(1 << 16).start();
    let target = target.unwrap();
    let prepared = Session::builder(7).buffer(1 << 16).prepare().unwrap();
    let source = Session::builder(0).buffer(1 << 16).start().unwrap();
    let peer = source.connect(&dir.address()).rank(1).wait().unwrap();
    let back = target.accept(0).within(Duration::from_secs(30)).wait().unwrap();
    let region = source.memory().allocate(1 << 16).unwrap();
    let spare = source.memory().allocate(4096).unwrap();
    let shared = source.memory().allocate(4096).unwrap().share().unwrap();
    let adopted =
        source.memory().register(hmc_std::memory::HeapBytes::from(vec![7; 4096])).unwrap();
    let window = peer.expose(region.take(0, 4096).unwrap(), Access::all(), 1).unwrap();
    let shared_window = peer.expose(shared.range(0, 4096).unwrap(), Access::all(), 2).unwrap();
    let theirs = target.memory().allocate(4096).unwrap().take_all().unwrap();
    let theirs = back.expose(theirs, Access::all(), 3).unwrap();
    let remote = peer.window(3).within(Duration::from_secs(30)).wait().unwrap();
    let plan = remote.put_list(&[Piece::new(shared.range(0, 64).unwrap(), 0)]).prepare().unwrap();
    // Two requests that are awaited, of which one has begun; each has its memory.
    let awaited = || {
        let (remote, shared) = (remote.clone(), shared.clone());
        Box::pin(async move { remote.put(0, shared.range(0, 64)?).notify(5).await })
    };
    let mut futures = [awaited(), awaited()];
    let _ = futures[0].as_mut().poll(&mut Context::from_waker(Waker::noop()));
    // With tags, so that they have slots.
    let op = remote.put(0, shared.range(0, 64).unwrap()).notify(6).start().unwrap();
    let span_op = remote.put(0, region.take(8192, 64).unwrap()).notify(7).start().unwrap();
    let delivery = peer.start_send_at(0, 64).unwrap();
    let group = source.group(&[0, 1]).wait().unwrap();
    let span = region.take(16384, 64).unwrap();
    let ops = (remote, plan, futures, op, span_op);
    let things = (spare, shared, adopted, window, shared_window, theirs, ops);
    let mut all = Some((things, delivery, group, span, region, back, prepared));
    let mut sessions = Some((peer.clone(), source, target));
    let said = in_child(|| {
        let were = replace_all();
        drop(all.take());
        drop(sessions.take());
        let left = descriptors();
        let closed: Vec<&String> =
            were.iter().filter(|(n, _)| !left.contains_key(n)).map(|(_, of)| of).collect();
        format!("of {} it closed {closed:?}", were.len() > 10)
    });
    assert_eq!(said.as_deref(), Ok("of true it closed []"));
    // The parent is as it was.
    peer.put_at(0, 8192, 4096).unwrap();
}
