//! The child of a fork may not use its parent's objects, and does the parent no harm. Alone in its file: a fork copies
//! whatever other threads hold.

#![allow(clippy::unwrap_used, clippy::arithmetic_side_effects, reason = "tests may panic")]

use std::collections::BTreeSet;
use std::future::{Future as _, IntoFuture as _};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use hmc_std::memory::SharedBytes;
use hmc_std::{
    Access, Address, CompleteWhen, ConnType, Element, ErrorKind, Exchange, Message, PeerRank,
    Piece, Reduce, Session, Waited, Who, wait_any,
    want::{self, Wanted},
};
use hmc_testkit::buffers::{BufferMessages as _, BufferTransfers as _};
use hmc_tests::child::in_child;
use hmc_tests::env::TempDir;

/// How a call in the child ended.
#[derive(Debug, PartialEq)]
enum Said {
    /// By the error that says so.
    Forked,
    /// It has no error: what it gave is right in a child, or was copied before.
    Plain,
    /// Anything else.
    Wrong(String),
}

fn forked<T>(result: Result<T, impl Into<hmc_std::Error>>) -> Said {
    match result.map_err(Into::into) {
        Err(e) if e.kind() == ErrorKind::Forked => Said::Forked,
        Err(e) => Said::Wrong(e.to_string()),
        Ok(_) => Said::Wrong("it succeeded".to_owned()),
    }
}

fn plain(right: bool) -> Said {
    if right { Said::Plain } else { Said::Wrong("another value".to_owned()) }
}

fn polled<T>(poll: Poll<Result<T, impl Into<hmc_std::Error>>>) -> Said {
    match poll {
        Poll::Ready(result) => forked(result),
        Poll::Pending => Said::Wrong("it waits".to_owned()),
    }
}

fn waited<T>(waited: Waited<hmc_std::Result<T>>) -> Said {
    waited.ended().map_or(Said::Wrong("it waits".to_owned()), forked)
}

/// Ends the threads that keep the session busy.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The public methods of the types that belong to a session, as their sources have them.
fn methods() -> BTreeSet<String> {
    const TYPES: &[&str] = &[
        "ConnBuffer",
        "Failed",
        "Group",
        "Listener",
        "Memory",
        "LocalRange",
        "Op",
        "Peer",
        "Plan",
        "Prepared",
        "Region",
        "Remote",
        "Request",
        "Session",
        "Span",
        "Window",
    ];
    let mut found = BTreeSet::new();
    let mut folders =
        vec![std::path::PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../hmc-std/src"))];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let mut of = None;
            for line in std::fs::read_to_string(&path).unwrap().lines() {
                if let Some(name) = implemented(line) {
                    of = TYPES.contains(&name.as_str()).then_some(name);
                } else if line == "}" {
                    of = None;
                }
                let call = ["    pub fn ", "    pub unsafe fn ", "    pub const fn "];
                let call = call.iter().find_map(|p| line.strip_prefix(p));
                if let (Some(of), Some(call)) = (&of, call) {
                    let name: String =
                        call.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
                    found.insert(format!("{of}::{name}"));
                }
            }
        }
    }
    found
}

/// The first type or trait after the generics of an `impl`.
fn implemented(line: &str) -> Option<String> {
    let rest = line.strip_prefix("impl")?;
    let mut depth = 0;
    let after = rest.find(|c| {
        depth += i32::from(c == '<') - i32::from(c == '>');
        depth == 0 && c == ' '
    })?;
    let name = rest.get(after + 1..)?.chars();
    Some(name.take_while(|c| c.is_alphanumeric()).collect())
}

/// Calls every public method in a child, while threads of the parent take and release locks of the session.
#[test]
#[allow(clippy::too_many_lines, reason = "a table")]
fn every_method_refuses_a_forked_child_and_the_parent_goes_on() {
    let dir = TempDir::new();
    let target = Session::builder(1).uds(dir.path()).tcp("127.0.0.1:0").buffer(1 << 20).start();
    let target = target.unwrap();
    let mut prepared = Session::builder(0).buffer(1 << 20).prepare().unwrap();
    let source = prepared.start().unwrap();
    let extra = Session::builder(5).buffer(0).start().unwrap();
    let peer = source.connect(&dir.address()).rank(1).wait().unwrap();
    let back = target.accept(0).within(Duration::from_secs(30)).wait().unwrap();
    peer.put_at(0, 0, 4096).unwrap();
    let before = target.buffer().crc32c(8192, 1 << 19).unwrap();

    let (secs, now) = (Duration::from_secs(1), Duration::ZERO);
    let events = source.events().unwrap();
    let region = source.memory().allocate(1 << 16).unwrap();
    let shared = source.memory().allocate(1 << 16).unwrap().share().unwrap();
    let adopted = source
        .memory()
        .register(hmc_std::memory::HeapBytes::from(vec![7; 4096]))
        .unwrap()
        .share()
        .unwrap();
    let window = peer.expose(region.take(0, 4096).unwrap(), Access::all(), 1).unwrap();
    let shared_window = peer.expose(shared.range(0, 4096).unwrap(), Access::all(), 2).unwrap();
    let theirs = back.expose(
        target.memory().allocate(1 << 16).unwrap().take_all().unwrap(),
        Access::all(),
        3,
    );
    let theirs = theirs.unwrap();
    let own = peer.buffer().unwrap();
    let remote = peer.window(3).within(Duration::from_secs(30)).wait().unwrap();
    let range = shared.range(0, 64).unwrap();
    let pieces = [Piece::new(range, 8192), Piece::new(range, 16384)];
    let plan = remote.put_list(&pieces).prepare().unwrap();
    let generations = source.memory().generations(1, 1).unwrap();
    // With a tag, so that they have slots: small copies into mapped memory are over when they are started.
    let post = || remote.put(0, range).notify(1).start().unwrap();
    let (op, mut other_op) = (post(), post());
    let span = |at: u64| region.take(at, 64).unwrap();
    let span_op = remote.put(0, span(8192)).notify(1).start().unwrap();
    let other_span_op = remote.put(0, span(8320)).notify(1).start().unwrap();
    let delivery = peer.start_send_at(0, 64).unwrap();
    let other_delivery = peer.start_send_at(0, 64).unwrap();
    let mut spans: Vec<_> = (0..20).map(|i| region.take(16384 + i * 64, 64).unwrap()).collect();
    let group = source.group(&[0, 1]).wait().unwrap();
    let file: std::fs::File =
        rustix::fs::memfd_create("fork", rustix::fs::MemfdFlags::CLOEXEC).unwrap().into();
    let vec_at = adopted.as_ptr();
    let listener = target.info().listeners.remove(0);

    let stop = AtomicBool::new(false);
    std::thread::scope(|threads| {
        let _stop = Stop(&stop);
        for _ in 0..2 {
            threads.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    peer.put_at(4096, 4096, 64).unwrap();
                    let _ = (source.stats(), peer.explain(), region.take(0, 1), target.stats());
                }
            });
        }
        let table = || {
            let mut said: Vec<(&str, Said)> = Vec::new();
            let mut out = [0u8; 8];
            let mut cx = Context::from_waker(Waker::noop());
            macro_rules! table {
                ($($name:literal: $call:expr;)*) => { $(said.push(($name, $call));)* };
            }
            let mut next = || spans.pop().unwrap();
            table! {
                "Session::builder": plain(true);
                "Session::info": plain(source.info().id != target.info().id && source.info().connecting.is_empty());
                "Session::buffer": plain(source.buffer().len() == 1 << 20);
                "Session::events": forked(source.events());
                "Events::clear": forked(events.clear());
                "Session::rank": plain(source.rank().0 == 0);
                "Session::connect": forked(source.connect(&dir.address()).rank(1).wait());
                "Session::connect": forked(source.connect(&dir.address()).within(secs).wait());
                "Session::connect": forked(source.connect(&dir.address()).rank(PeerRank::Alias(1)).within(secs).wait());
                "Session::accept": forked(source.accept(Who::Namesake).or_unread().within(secs).wait());
                "Session::connect": forked(source.connect(&dir.address()).rank(PeerRank::Cxx(1)).within(secs).wait());
                "Session::peer": forked(source.peer(0));
                "Session::peer": forked(source.peer(1));
                "Session::accept": forked(source.accept(1).within(secs).wait());
                "Session::accept": forked(source.accept(1).or_unread().within(secs).wait());
                "Session::peers": plain(source.peers().is_empty());
                "Memory::allocate": forked(source.memory().allocate(1));
                "Memory::generations": forked(source.memory().generations(64, 8));
                "Generations::len": plain(generations.len() == 1);
                "Generations::is_empty": plain(!generations.is_empty());
                "Generations::block_len": plain(generations.block_len() == 1);
                "Generations::get": forked(generations.get(0));
                "Generations::advance": forked(generations.advance(0));
                "Memory::register": forked(source.memory().register(hmc_std::memory::HeapBytes::from(vec![1])));
                // SAFETY: the byte is there as long as the table.
                "Memory::register_raw": forked(unsafe { source.memory().register_raw((&mut out[0]).into(), 1) });
                "Region::share": forked(region.clone().share());
                "Session::stats": plain(source.stats().peers.is_empty());
                "Session::find_ucx_registration": forked(source.find_ucx_registration(&region));
                "Session::progress": plain(!source.progress());
                "Session::group": forked(source.group(&[0, 1]).wait());
                "Session::listen": forked(source.listen(&Address::tcp(([127, 0, 0, 1], 0))));
                "Session::listen": forked(source.listen(&dir.address()));
                "Listener::address": plain(matches!(listener.address(), Address::Tcp(_)));
                "Listener::close": plain({ listener.close(); true });
                "Session::shutdown": forked(source.shutdown().within(secs).wait());
                "Peer::rank": plain(peer.rank().0 == 1);
                "Peer::is_connected": plain(!peer.is_connected());
                "Peer::explain": plain(peer.explain().conn.is_none() && peer.explain().session == source.info().id);
                "Peer::disconnect": forked(peer.disconnect().within(secs).wait());
                "Peer::buffer": forked(peer.buffer());
                "Peer::window": forked(peer.window(3).within(secs).wait());
                "Peer::window": polled(pin!(peer.window(3).into_future()).poll(&mut cx));
                "Peer::send": forked(peer.send(Message::Tag(1)).wait());
                "Peer::send": polled(pin!(peer.send(Message::Tag(1)).into_future()).poll(&mut cx));
                "Peer::recv": forked(peer.recv(Wanted::Any).within(secs).wait());
                "Peer::recv": polled(pin!(peer.recv(want::Notify).into_future()).poll(&mut cx));
                "Session::recv": forked(source.recv(1, want::Tag).wait());
                "Session::recv": forked(source.recv(Who::Any, want::Tag).wait());
                "Session::recv": polled(pin!(source.recv(Who::Any, want::Any).into_future()).poll(&mut cx));
                "Session::connect": polled(pin!(source.connect(&dir.address()).rank(1).into_future()).poll(&mut cx));
                "Session::accept": polled(pin!(source.accept(Who::Any).into_future()).poll(&mut cx));
                "Session::shutdown": polled(pin!(source.shutdown().into_future()).poll(&mut cx));
                "Session::group": polled(pin!(source.group(&[0, 1]).into_future()).poll(&mut cx));
                "Request::rank": forked(source.connect(&dir.address()).rank(1).wait());
                "Request::over": forked(source.connect(&dir.address()).over(ConnType::Tcp).wait());
                "Request::or_unread": forked(source.accept(Who::Any).or_unread().wait());
                "Memory::new": plain(hmc_std::Memory::new().is_ok_and(|m| m.allocate(64).is_ok()));
                "Session::memory": forked(source.memory().register(hmc_std::memory::HeapBytes::from(vec![1])));
                "Peer::disconnect": polled(pin!(peer.disconnect().into_future()).poll(&mut cx));
                "Peer::send_data": forked(peer.send_data(next()).start());
                "Peer::send_data": polled(pin!(peer.send_data(next()).into_future()).poll(&mut cx));
                "Peer::send_data": polled(pin!(peer.send_data(&[1]).into_future()).poll(&mut cx));
                "Peer::recv_data": forked(peer.recv_data(next()).start());
                "Peer::recv_data": polled(pin!(peer.recv_data(next()).into_future()).poll(&mut cx));
                "Peer::recv_data": polled(pin!(peer.recv_data(&mut [0]).into_future()).poll(&mut cx));
                "Peer::send_data": forked(peer.send_data(&[1]).wait());
                "Peer::recv_data": forked(peer.recv_data(&mut out).wait().map(|d| d.bytes));
                "Peer::expose": forked(peer.expose(next(), Access::all(), 9).map_err(|(e, _)| e));
                "Peer::expose": forked(peer.expose(shared.range(0, 1).unwrap(), Access::all(), 9));
                "Peer::expose_blocks": forked(peer.expose_blocks(next(), Access::all(), 9, &generations).map_err(|(e, _)| e));
                "Peer::expose_blocks": forked(peer.expose_blocks(&shared, Access::all(), 9, &generations));
                "Region::len": plain(region.len() == 1 << 16);
                "Region::is_empty": plain(!region.is_empty());
                "Region::place": plain(region.place() == hmc_std::Place::HOST);
                "Region::is_mappable": plain(region.is_mappable());
                "Region::take": forked(region.take(60000, 8));
                "Region::take_all": forked(region.take_all());
            }
            for remote in [&own, &remote] {
                table! {
                    "Remote::len": plain(remote.len() >= 1 << 16);
                    "Remote::is_mapped": plain(remote.is_mapped());
                    "Remote::put": forked(remote.put(0, range).wait());
                    "Remote::put": polled(pin!(remote.put(0, range).into_future()).poll(&mut cx));
                    "Remote::put": forked(remote.put(0, next()).wait());
                    "Remote::put": polled(pin!(remote.put(0, next()).into_future()).poll(&mut cx));
                    "Remote::put": forked(remote.put(0, &[1]).wait());
                    "Remote::put": polled(pin!(remote.put(0, &[1]).into_future()).poll(&mut cx));
                    "Remote::get": forked(remote.get(0, range).wait());
                    "Remote::get": forked(remote.get(0, next()).wait());
                    "Remote::get": forked(remote.get(0, &mut out).wait());
                    "Remote::put_list": forked(remote.put_list(&pieces).wait());
                    "Remote::put_list": polled(pin!(remote.put_list(&pieces).into_future()).poll(&mut cx));
                    "Remote::get_list": forked(remote.get_list(&pieces).wait());
                    "Request::wait": forked(remote.put(0, range).notify(1).wait());
                    "Request::within": forked(remote.get(0, range).within(secs).wait());
                    "Request::start": forked(remote.put(0, range).start());
                    "Request::start": forked(remote.get(0, next()).start());
                    "Request::start": forked(remote.put_list(&pieces).start());
                    "Request::when": forked(remote.put(0, range).when(CompleteWhen::Local).wait());
                    "Request::start_blocking": forked(remote.put(0, range).start_blocking());
                    "Request::start_blocking": forked(remote.get_list(&pieces).start_blocking());
                    "Request::notify": forked(remote.put(0, range).notify(1).start());
                    "Request::notify": forked(remote.put(0, &[1]).notify(1).wait());
                    "Request::notify": forked(remote.put_list(&pieces).notify(1).wait());
                    "Request::prepare": forked(remote.put_list(&pieces).prepare());
                    "Request::expect": forked(remote.put(0, range).expect(0).wait());
                    "Request::expect": forked(remote.get(0, &mut out).expect(0).wait());
                }
            }
            table! {
                "LocalRange::len": plain(range.len() == 64);
                "LocalRange::is_empty": plain(!range.is_empty());
                "Piece::repeat": plain(remote.put_list(&[pieces[0].repeat(2, 0, 0)]).prepare().is_err());
                "Piece::expect": plain(remote.put_list(&[pieces[0].expect(0)]).prepare().is_err());
                "Plan::len": plain(plan.len() == 2);
                "Plan::is_empty": plain(!plan.is_empty());
                "Plan::again": forked(plan.again().wait());
                "Plan::again": forked(plan.again().notify(1).start());
                "Plan::again": polled(pin!(plan.again().into_future()).poll(&mut cx));
            }
            let mut span = next();
            table! {
                "Span::len": plain(span.len() == 64);
                "Span::is_empty": plain(!span.is_empty());
                "Span::offset": plain(span.offset() >= 16384);
                "Span::region": plain(span.region().len() == 1 << 16);
                "Span::read_at": forked(span.read_at(0, &mut out));
                "Span::write_at": forked(span.write_at(0, &out));
                // Their pages are not there: an access of the bytes faults, which the next test shows.
                "Span::as_slice": plain(span.as_slice().len() == 64);
                "Span::as_mut_slice": plain(span.as_mut_slice().len() == 64);
                "Span::fill": plain(true);
                "Span::crc32c": plain(true);
                "Span::split_at": plain(span.split_at(8).is_err());
                "Span::join": plain(next().join(next()).is_err());
            }
            for buffer in [source.buffer(), &shared, &adopted] {
                table! {
                    "ConnBuffer::check_process": forked(buffer.check_process());
                    "ConnBuffer::as_ptr": plain(!buffer.as_ptr().is_null());
                    "ConnBuffer::len": plain(buffer.len() >= 4096);
                    "ConnBuffer::is_empty": plain(!buffer.is_empty());
                    "ConnBuffer::range": plain(buffer.range(0, 8).is_ok_and(|r| r.len() == 8));
                    "ConnBuffer::all": plain(buffer.all().len() == buffer.len());
                    "ConnBuffer::write_at": forked(buffer.write_at(0, &[9]));
                    "ConnBuffer::read_at": forked(buffer.read_at(0, &mut out));
                    // SAFETY: eight bytes of this frame, of which there are no references meanwhile.
                    "ConnBuffer::write_from": forked(unsafe { buffer.write_from(0, (&raw const out).cast(), 8) });
                    // SAFETY: as above.
                    "ConnBuffer::read_to": forked(unsafe { buffer.read_to(0, (&raw mut out).cast(), 8) });
                    "ConnBuffer::copy_within": forked(buffer.copy_within(0, 8, 8));
                    "ConnBuffer::fill": forked(buffer.fill(0, 8, 9));
                    "ConnBuffer::crc32c": forked(buffer.crc32c(0, 8));
                    "ConnBuffer::load_flag": forked(buffer.load_flag(0));
                    "ConnBuffer::store_flag": forked(buffer.store_flag(0, 9));
                    "ConnBuffer::fill_from": forked(buffer.fill_from(0, 8, &file, 0));
                    "ConnBuffer::write_to": forked(buffer.write_to(0, 8, &file, 0));
                }
            }
            // SAFETY: the application's own memory is inherited: it is this process's own copy.
            said.push(("Memory::register", plain(unsafe { vec_at.read() } == 7)));
            let mut window = window;
            table! {
                "Window::len": plain(window.len() == 4096);
                "Window::is_empty": plain(!window.is_empty());
                "Window::read_at": forked(window.read_at(0, &mut out));
                "Window::write_at": forked(window.write_at(0, &out));
                "Window::crc32c": forked(window.crc32c(0, 8));
                "Window::write_to": forked(window.write_to(0, 8, &file, 0));
                "Window::revoke": forked(window.revoke().within(secs).wait());
                "Window::revoke": forked(shared_window.revoke().within(secs).wait());
                "wait_any": forked(wait_any(&[&op, &other_op], secs));
                "Op::wait_for": waited(op.wait_for(secs));
                "Op::wait_for": waited(op.wait_for(now));
                "Op::poll_ended": polled(op.poll_ended(&mut cx));
                "Op::name": plain(op.name().is_some());
                "Op::cancel": plain({ op.cancel(); true });
                "Op::wait": forked(op.wait());
                "Op::poll": polled(pin!(&mut other_op).poll(&mut cx));
                "Op::poll": polled(pin!(other_span_op).poll(&mut cx));
            }
            let failed = span_op.wait().unwrap_err();
            table! {
                "Failed::kind": plain(failed.kind() == ErrorKind::Forked);
                "Failed::error": plain(failed.error().kind() == ErrorKind::Forked);
                "Failed::reclaim": forked(failed.reclaim().within(secs).wait());
                "Op::cancel": plain({ delivery.cancel(); true });
                "Op::wait_for": waited(delivery.wait_for(now));
                "Op::poll_ended": polled(delivery.poll_ended(&mut cx));
                "Op::name": plain(delivery.name().is_none());
                "Op::wait": forked(delivery.wait());
                "Op::poll": polled(pin!(other_delivery).poll(&mut cx));
                "Group::len": plain(group.len() == 2);
                "Group::ranks": plain(group.ranks() == [0, 1]);
                "Group::position": plain(group.position() == 0);
                "Group::broken": group.broken().map_or(plain(false), |e| forked::<()>(Err(e)));
                "Group::barrier": forked(group.barrier().wait());
                "Group::broadcast": forked(group.broadcast(0, &mut out).wait());
                "Group::broadcast_view": forked(group.broadcast_view(0, SharedBytes::of_mut(&mut out)).wait());
                "Group::gather_view": forked(group.gather_view(1, SharedBytes::of(&[1]), SharedBytes::of_mut(&mut [])).wait());
                "Group::scatter_view": forked(group.scatter_view(1, SharedBytes::of(&[]), SharedBytes::of_mut(&mut out)).wait());
                "Group::allgather_view": forked(group.allgather_view(SharedBytes::of(&[1; 4]), SharedBytes::of_mut(&mut out)).wait());
                "Group::alltoall_view": forked(group.alltoall_view(SharedBytes::of(&[1; 8]), SharedBytes::of_mut(&mut out), Exchange::Auto).wait());
                "Group::reduce_scatter_view": forked(group.reduce_scatter_view(Element::U8, Reduce::Sum, SharedBytes::of(&[1; 16]), SharedBytes::of_mut(&mut out)).wait());
                "Group::allreduce_view": forked(group.allreduce_view(Element::U8, Reduce::Sum, SharedBytes::of_mut(&mut out)).wait());
                "Group::gather": forked(group.gather(1, &[1], &mut []).wait());
                "Group::scatter": forked(group.scatter(1, &[], &mut out).wait());
                "Group::allgather": forked(group.allgather(&[1; 4], &mut out).wait());
                "Group::alltoall": forked(group.alltoall(&[1; 8], &mut out, Exchange::Auto).wait());
                "Group::alltoallv": forked(group.alltoallv(&[&[1], &[2]], &mut [&mut [0], &mut [0]]).wait());
                "Group::reduce_scatter": forked(group.reduce_scatter(Element::U8, Reduce::Sum, &[1; 16], &mut out).wait());
                "Group::allreduce": forked(group.allreduce(Element::U8, Reduce::Sum, &mut out).wait());
                "Prepared::buffer": plain(prepared.buffer().len() == 1 << 20);
                "Prepared::beside": forked(prepared.beside());
                "Prepared::set_rank": plain({ prepared.set_rank(3); true });
                "Prepared::set_job": plain({ prepared.set_job(1); true });
                "Prepared::listen_tcp": plain({ prepared.listen_tcp("127.0.0.1:0"); true });
                "Prepared::listen_uds": plain({ prepared.listen_uds(dir.path()); true });
                "Prepared::clear_listeners": plain({ prepared.clear_listeners(); true });
                "Prepared::set_num_channels": plain({ prepared.set_num_channels(1); true });
                "Prepared::allow_insecure": plain({ prepared.allow_insecure(); true });
                "Prepared::secret_file": plain({ prepared.secret_file(dir.path().join("secret")); true });
                "Prepared::insecure_loopback": plain({ prepared.insecure_loopback(); true });
                "Prepared::accept_upstream": plain({ prepared.accept_upstream(); true });
                "Prepared::private_ranks": plain({ prepared.private_ranks(); true });
                "Prepared::use_ucx": plain({ prepared.use_ucx(false); true });
                "Prepared::start": forked(prepared.start());
                "Session::shutdown": forked(extra.shutdown().within(secs).wait());
            }
            let called: BTreeSet<String> =
                said.iter().map(|(name, _)| (*name).to_owned()).collect();
            let missing = methods().into_iter().filter(|m| !called.contains(m));
            let missing = missing.map(|m| format!("{m} is not in the table\n"));
            let wrong = said.iter().filter_map(|(name, said)| match said {
                Said::Wrong(what) => Some(format!("{name}: {what}\n")),
                Said::Forked | Said::Plain => None,
            });
            let all: String = missing.chain(wrong).collect();
            format!("{all}{} calls", said.len())
        };
        let said = in_child(table).expect("no signal");
        let calls = said.strip_suffix(" calls").and_then(|n| n.parse::<usize>().ok());
        assert!(calls.is_some_and(|n| n > 150), "{said}");
        // Whatever the threads held at that moment: no call waits for it.
        for _ in 0..20 {
            let said = in_child(|| {
                let stats = source.stats().peers.len() + target.stats().peers.len();
                let lists = source.peers().len()
                    + target.info().listeners.len()
                    + source.info().connecting.len();
                let all = [
                    plain(stats + lists == 0 && peer.explain().conn.is_none()),
                    forked(peer.put_at(0, 0, 64)),
                    forked(region.take(60000, 8)),
                    forked(region.clone().take_all()),
                    forked(source.memory().allocate(64)),
                    forked(source.peer(1)),
                    forked(peer.recv_data(&mut [0]).wait().map(|d| d.bytes)),
                ];
                drop(peer.clone());
                format!("{:?}", all.iter().find(|said| matches!(said, Said::Wrong(_))))
            });
            assert_eq!(said.as_deref(), Ok("None"));
        }
    });
    // The parent is as it was: its bytes, its link, its socket's file.
    assert_eq!(target.buffer().crc32c(8192, 1 << 19).unwrap(), before);
    drop(theirs);
    source.buffer().fill(0, 4096, 3).unwrap();
    peer.put_at(0, 8192, 4096).unwrap();
    peer.send(Message::Tag(7)).wait().unwrap();
    assert_eq!(target.recv(0, want::Tag).wait().map(|m| m.1).unwrap(), 7);
    let third = Session::builder(2).buffer(4096).start().unwrap();
    third.connect(&dir.address()).rank(1).wait().expect("the socket's file is still there");
}
