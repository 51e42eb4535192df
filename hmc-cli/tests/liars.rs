//! Receivers of files that lie in their last word: the sender takes no other sum than its own for success, nor a word out of
//! its turn.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::as_conversions,
    clippy::arithmetic_side_effects,
    reason = "tests may panic"
)]

mod common;

use std::ffi::OsStr;
use std::path::Path;

use common::raw::{ABORT, DONE, EMPTIED, FULL, LEN, VALUE};
use common::raw::{empty, layout, received, request_file, ring, tag};
use common::{PATIENCE, Process, Scratch, Server, hmc, names};
use hmc_std::{Address, Message, Peer, Session};
use serde_json::json;

/// `hmc put` of a file to a receiver that does `act` with it.
fn put(s: &Scratch, file: &Path, act: impl FnOnce(&Peer)) -> common::Ran {
    let uds = s.path("uds");
    let session = Session::builder(0).uds(&uds).start().unwrap();
    let mut command = hmc();
    command.arg("put").arg(file).arg("--uds").arg(&uds).args(["--rank", "9", "--json"]);
    let client = Process::start(&mut command);
    let peer = session.accept(9).within(PATIENCE).wait().unwrap();
    let request = received(&peer);
    assert_eq!(request["ask"]["put"]["size"], LEN);
    let _window = ring(&session, &peer, 5);
    let reply = json!({"ready": {"label": 5, "layout": layout()}});
    peer.send(Message::bytes(reply.to_string().as_bytes())).wait().unwrap();
    act(&peer);
    client.ran()
}

#[test]
fn a_put_takes_no_other_sum_for_success() {
    let s = Scratch::new();
    let file = s.file("a", LEN);
    // The receiver is honest: what is refused below is refused for the lie alone.
    let ran =
        put(&s, &file, |peer| peer.send(Message::Tag(DONE | empty(peer))).wait().unwrap()).well();
    assert_eq!(ran.json()["bytes"], LEN);
    let wrong = |bits: u64| {
        put(&s, &file, |peer| peer.send(Message::Tag(DONE | empty(peer) ^ bits)).wait().unwrap())
    };
    for bits in [1, 1 << 31] {
        wrong(bits).badly(&["the receiver gave up", "the checksums differ"]);
    }
    // No sum of 32 bits at all.
    wrong(1 << 32).badly(&["the receiver gave up", "do not understand each other"]);
}

/// As one whose file cannot have its name.
#[test]
fn a_put_reports_why_its_receiver_gave_up_at_the_end() {
    const EXISTS: u64 = 4097;
    let s = Scratch::new();
    let file = s.file("a", LEN);
    let ran = put(&s, &file, |peer| {
        empty(peer);
        peer.send(Message::Tag(ABORT | EXISTS)).wait().unwrap();
    });
    ran.badly(&["the receiver gave up: a file of that name exists"]);
}

#[test]
fn a_put_takes_no_end_before_its_bytes_are_emptied() {
    let s = Scratch::new();
    let file = s.file("a", LEN);
    let early = put(&s, &file, |peer| {
        assert_eq!(tag(peer), FULL);
        peer.send(Message::Tag(DONE | 7)).wait().unwrap();
        // The sender has given up, and waits for the last word.
        while tag(peer) >> 56 == FULL >> 56 {}
        peer.send(Message::Tag(DONE | 7)).wait().unwrap();
    });
    early.badly(&["gave up", "do not understand each other"]);
    // More slots than were filled, and the same ones again.
    for emptied in [5, VALUE, 0] {
        let ran = put(&s, &file, |peer| {
            assert_eq!(tag(peer), FULL);
            peer.send(Message::Tag(EMPTIED | emptied)).wait().unwrap();
            while tag(peer) >> 56 == FULL >> 56 {}
            peer.send(Message::Tag(DONE | 7)).wait().unwrap();
        });
        ran.badly(&["gave up", "do not understand each other"]);
    }
}

/// As one whose file was cut short meanwhile.
#[test]
fn a_get_reports_why_its_sender_gave_up() {
    const SHRANK: u64 = 4098;
    let s = Scratch::new();
    let (uds, back) = (s.path("uds"), s.dir("back"));
    let session = Session::builder(0).uds(&uds).start().unwrap();
    let mut command = hmc();
    command.args(["get", "a", "--json", "--out"]).arg(&back).arg("--uds").arg(&uds);
    let client = Process::start(command.args(["--rank", "9"]));
    let peer = session.accept(9).within(PATIENCE).wait().unwrap();
    assert!(received(&peer)["ask"]["get"].is_object());
    let meta = json!({"size": LEN, "mode": 0o644, "mtime_s": 0, "mtime_ns": 0});
    peer.send(Message::bytes(json!({"sending": meta}).to_string().as_bytes())).wait().unwrap();
    peer.send(Message::Tag(ABORT | SHRANK)).wait().unwrap();
    // The receiver's last word.
    assert_eq!(tag(&peer), ABORT | SHRANK);
    client.ran().badly(&["the sender gave up: the file became shorter while it was read"]);
    assert_eq!(names(&back), [""; 0]);
}

#[test]
fn a_server_takes_no_other_sum_for_success() {
    let s = Scratch::new();
    let from = s.dir("from");
    s.file(from.join("a"), LEN);
    let server = Server::start(&s, [OsStr::new("--share"), from.as_os_str()]);
    let session = Session::builder(77).redial(false).start().unwrap();
    let peer = session.connect(&Address::Uds(server.uds.clone())).rank(0).wait().unwrap();
    for (label, lie) in [(1, 0), (2, 1)] {
        let _window = ring(&session, &peer, label);
        request_file(&peer, "a", label);
        assert!(received(&peer)["sending"].is_object());
        peer.send(Message::Tag(DONE | empty(&peer) ^ lie)).wait().unwrap();
        let event = server.event();
        if lie == 0 {
            assert_eq!(event["event"], "sent", "{event}");
        } else {
            assert_eq!(event["event"], "failed", "{event}");
            let why = event["why"].as_str().unwrap();
            assert!(why.contains("the receiver gave up: the checksums differ"), "{why}");
        }
    }
}
