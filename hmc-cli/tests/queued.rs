//! A client that asks again before its transfer has ended: the server takes its requests in turn.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::as_conversions,
    clippy::arithmetic_side_effects,
    reason = "tests may panic"
)]

mod common;

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader};
use std::time::Duration;

use common::raw::{DONE, LEN, empty, received, request_file, ring};
use common::{Process, Scratch, Server, hmc};
use hmc_std::{Address, Message, Session, want::Wanted};
use rustix::process::Signal;

#[test]
fn requests_that_wait_for_their_turn_are_all_answered() {
    let s = Scratch::new();
    let from = s.dir("from");
    s.file(from.join("a"), LEN);
    let server = Server::start(&s, [OsStr::new("--share"), from.as_os_str()]);
    let session = Session::builder(77).redial(false).start().unwrap();
    let peer = session.connect(&Address::Uds(server.uds.clone())).rank(0).wait().unwrap();
    let _window = ring(&session, &peer, 1);
    request_file(&peer, "a", 1);
    assert!(received(&peer)["sending"].is_object());
    // The ring is smaller than the file: until it is emptied the first transfer is under way. The server keeps 16.
    let absent: Vec<String> = (0..40).map(|n| format!("absent {n}.")).collect();
    absent.iter().for_each(|name| request_file(&peer, name, 1));
    peer.send(Message::Tag(DONE | empty(&peer))).wait().unwrap();
    for (n, name) in absent.iter().enumerate() {
        let refused = received(&peer);
        let why = refused["refused"].as_str().unwrap();
        // Those that it kept; how many of the others it kept later depends on when it received them.
        assert!(why.contains(name) || n >= 16 && why.contains("ask again"), "{n}: {refused}");
    }
    request_file(&peer, "a", 1);
    assert!(received(&peer)["sending"].is_object(), "it is served as before");
}

/// Whoever asks without end and goes leaves the server at once, and it tells of it in a few lines.
#[test]
fn requests_without_end_keep_nobody_else_waiting() {
    let s = Scratch::new();
    let from = s.dir("from");
    s.file(from.join("a"), LEN);
    let server = Server::start(&s, [OsStr::new("--share"), from.as_os_str()]);
    let flood = Session::builder(77).redial(false).start().unwrap();
    let peer = flood.connect(&Address::Uds(server.uds.clone())).rank(0).wait().unwrap();
    let _window = ring(&flood, &peer, 1);
    request_file(&peer, "a", 1);
    assert!(received(&peer)["sending"].is_object());
    (0..20_000).for_each(|_| peer.send(Message::bytes(b"{}")).wait().unwrap());
    drop((peer, flood));
    server.put("shm", &s.file("b", 10)).ran().badly(&["only shares files"]);
    let mut told = 0;
    while server.event()["peer"] == 77 {
        told += 1;
    }
    // The transfer; and should the server not know yet that its client is gone, 16 that it kept and one line for all that it
    // sometimes did not.
    assert!((1..1_000).contains(&told), "{told} events");
}

/// The next process of a rank has its own answers, whatever the server still does for the one before.
#[test]
fn requests_of_a_ranks_next_process_are_its_own() {
    let s = Scratch::new();
    let uds = s.path("uds");
    let from = s.dir("from");
    s.file(from.join("a"), LEN);
    let mut command = hmc();
    command.args(["serve", "--json", "--uds"]).arg(&uds).arg("--share").arg(&from);
    let mut server = Process::start(&mut command);
    let mut out = BufReader::new(server.0.stdout.take().unwrap());
    rustix::pipe::fcntl_setpipe_size(out.get_ref(), 4096).unwrap();
    out.read_line(&mut String::new()).unwrap();
    let client = || {
        let session = Session::builder(77).redial(false).start().unwrap();
        let peer = session.connect(&Address::Uds(uds.clone())).rank(0).wait().unwrap();
        (session, peer)
    };
    let (first, peer) = client();
    // Nobody reads what the server prints: before long it serves this rank no further.
    let served = |n| {
        request_file(&peer, &format!("{n}{}", "x".repeat(200)), 1);
        peer.recv(Wanted::Bytes).within(Duration::from_secs(1)).wait().is_ok()
    };
    assert!((0..1_000).any(|n| !served(n)), "the server waits for its reader");
    drop((peer, first));
    let (second, peer) = client();
    let _window = ring(&second, &peer, 1);
    request_file(&peer, "a", 1);
    let reader = std::thread::spawn(move || out.lines().map_while(Result::ok).count());
    assert!(received(&peer)["sending"].is_object());
    drop((peer, second));
    server.signal(Signal::TERM);
    server.ended();
    reader.join().unwrap();
}
