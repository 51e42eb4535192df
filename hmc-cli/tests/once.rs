//! `hmc serve --once` ends with the status of its one transfer: 0 when the file is in place, 1 with the reason whatever else
//! became of it.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::as_conversions,
    clippy::arithmetic_side_effects,
    reason = "tests may panic"
)]

mod common;

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::ChildStdout;
use std::time::Duration;

use common::raw::END;
use common::{PATIENCE, Process, Ran, Scratch, hmc, names, until_under_way};
use hmc_std::{Address, Message, Peer, Session, want};
use rustix::process::Signal;
use serde_json::Value;

/// Bytes whose transfer through the smallest ring takes seconds.
const LONG: usize = 256 << 20;

/// A running `hmc serve --once`.
struct Once {
    process: Process,
    out: BufReader<ChildStdout>,
    uds: PathBuf,
    tcp: String,
}

impl Once {
    /// It takes files into `to`, and offers those of `from`, through the smallest ring.
    fn start(s: &Scratch, to: &Path, from: &Path) -> Self {
        let uds = s.path("uds");
        let mut command = hmc();
        command.args(["serve", "--once", "--json", "--buffer", "16K", "--listen", "127.0.0.1:0"]);
        command.arg("--uds").arg(&uds).arg("--into").arg(to).arg("--share").arg(from);
        let mut process = Process::start(&mut command);
        let mut out = BufReader::new(process.0.stdout.take().unwrap());
        let mut first = String::new();
        out.read_line(&mut first).unwrap();
        let listening: Value = serde_json::from_str(&first).unwrap();
        let tcp = format!("tcp://{}", listening["tcp"].as_str().unwrap());
        Self { process, out, uds, tcp }
    }

    /// A client that does `verb` with `what`, over a transport.
    fn client(&self, verb: &[&str], what: &Path, via: &str) -> Process {
        let mut command = hmc();
        command.args(verb).arg(what).args(["--via", via, "--json"]);
        if via == "tcp" {
            command.args(["--to", &self.tcp]);
        } else {
            command.arg("--uds").arg(&self.uds);
        }
        Process::start(&mut command)
    }

    /// How it ended; its output is what came after the first line.
    fn ended(self) -> Ran {
        let Self { process, mut out, .. } = self;
        let mut ran = process.ran();
        out.read_to_string(&mut ran.stdout).unwrap();
        ran
    }

    /// It ended with status 1, and both the event and the one line on stderr say why.
    #[track_caller]
    fn failed(self, words: &[&str]) {
        let ran = self.ended().badly(words);
        let event = ran.json();
        assert_eq!(event["event"], "failed", "{event}");
        let why = event["why"].as_str().unwrap();
        assert!(ran.stderr.contains(why), "{why}: {}", ran.stderr);
    }
}

/// A scratch with folders for what comes and what is offered, and a file there whose transfer takes long.
fn scratch() -> (Scratch, PathBuf, PathBuf, PathBuf) {
    let s = Scratch::new();
    let (to, from) = (s.dir("to"), s.dir("from"));
    let long = from.join("long");
    std::fs::write(&long, vec![0x5a; LONG]).unwrap();
    (s, to, from, long)
}

#[test]
fn a_whole_transfer_is_success() {
    for via in ["shm", "tcp"] {
        let s = Scratch::new();
        let (to, from) = (s.dir("to"), s.dir("from"));
        let file = s.file("a", 100_000);
        let server = Once::start(&s, &to, &from);
        server.client(&["put"], &file, via).ran().well();
        let ran = server.ended().well();
        assert_eq!(ran.json()["event"], "received");
        assert_eq!(names(&to), ["a"]);
        let server = Once::start(&s, &to, &to);
        let out = s.path(format!("back-{via}"));
        server.client(&["get", "a", "--out"], &out, via).ran().well();
        assert_eq!(server.ended().well().json()["event"], "sent");
    }
}

#[test]
fn a_client_that_exits_in_the_middle_is_a_failure() {
    for via in ["shm", "tcp"] {
        let (s, to, from, long) = scratch();
        let server = Once::start(&s, &to, &from);
        let mut put = server.client(&["put"], &long, via);
        until_under_way(&to);
        put.signal(Signal::KILL);
        put.ended();
        server.failed(&["the peer is gone"]);
        assert_eq!(names(&to), [""; 0], "the partial file is left");
        let server = Once::start(&s, &to, &from);
        let out = s.dir("out");
        // Through a ring of the client's.
        let mut get = server.client(&["get", "long", "--buffer", "16K", "--out"], &out, via);
        until_under_way(&out);
        get.signal(Signal::KILL);
        get.ended();
        server.failed(&["the peer is gone"]);
    }
}

#[test]
fn a_client_that_is_interrupted_or_falls_silent_is_a_failure() {
    for signal in [Signal::INT, Signal::STOP] {
        let (s, to, from, long) = scratch();
        let server = Once::start(&s, &to, &from);
        let put = server.client(&["put"], &long, "tcp");
        until_under_way(&to);
        put.signal(signal);
        server.failed(&["rank"]);
        assert_eq!(names(&to), [""; 0], "the partial file is left");
    }
}

#[test]
fn a_request_that_is_refused_is_a_failure() {
    let s = Scratch::new();
    let (to, from) = (s.dir("to"), s.dir("from"));
    let file = s.file("a", 10);
    std::fs::write(to.join("a"), b"before").unwrap();
    let server = Once::start(&s, &to, &from);
    server.client(&["put"], &file, "shm").ran().badly(&["exists"]);
    server.failed(&["refused", "exists"]);
    let server = Once::start(&s, &to, &from);
    server.client(&["get", "missing", "--out"], &s.path("x"), "shm").ran().badly(&["missing"]);
    server.failed(&["refused", "missing"]);
}

/// A client of that rank made of a session.
fn by_hand(server: &Once, rank: u32) -> (Session, Peer) {
    let session = Session::builder(rank).redial(false).start().unwrap();
    let peer = session.connect(&Address::Uds(server.uds.clone())).rank(0).wait().unwrap();
    (session, peer)
}

fn request(name: &str, size: u64) -> String {
    let meta = format!(r#"{{"size":{size},"mode":420,"mtime_s":0,"mtime_ns":0}}"#);
    format!(r#"{{"hmc_file":1,"name":{:?},"ask":{{"put":{meta}}}}}"#, name.as_bytes())
}

/// A transfer that succeeds after the first one has failed, before the server looked, changes nothing.
#[test]
fn the_first_transfer_to_end_is_the_one() {
    let s = Scratch::new();
    let (to, from) = (s.dir("to"), s.dir("from"));
    let server = Once::start(&s, &to, &from);
    let (_session, peer) = by_hand(&server, 77);
    peer.send(Message::bytes(request("..", 0).as_bytes())).wait().unwrap();
    peer.send(Message::bytes(request("empty", 0).as_bytes())).wait().unwrap();
    // The second one's bytes: none, of which the sum is 0.
    peer.send(Message::Tag(END)).wait().unwrap();
    let reply = peer.recv(want::Bytes).within(PATIENCE).wait().unwrap();
    assert!(String::from_utf8(reply).unwrap().contains("refused"));
    server.failed(&["refused"]);
    assert_eq!(names(&to), [""; 0], "a second file was taken");
    // The same of two clients: the second one is served, since it came before the server looked.
    let server = Once::start(&s, &to, &from);
    let ((_first, first), (_second, second)) = (by_hand(&server, 77), by_hand(&server, 78));
    first.send(Message::bytes(request("..", 0).as_bytes())).wait().unwrap();
    first.recv(want::Bytes).within(PATIENCE).wait().unwrap();
    second.send(Message::bytes(request("empty", 0).as_bytes())).wait().unwrap();
    second.send(Message::Tag(END)).wait().unwrap();
    let ran = server.ended().badly(&["refused"]);
    let first = ran.stdout.lines().next().unwrap();
    assert!(first.contains("\"failed\"") && first.contains("\"peer\":77"), "{}", ran.stdout);
}

/// A client that asks and ends before the server has looked: its transfer was the one, and has failed.
#[test]
fn a_client_that_ended_before_it_was_served_is_a_failure() {
    let s = Scratch::new();
    let (to, from) = (s.dir("to"), s.dir("from"));
    let server = Once::start(&s, &to, &from);
    let (session, peer) = by_hand(&server, 77);
    server.process.signal(Signal::STOP);
    peer.send(Message::bytes(request("a", 10).as_bytes())).wait().unwrap();
    // Nobody answers the goodbye.
    let _ = peer.disconnect().within(Duration::from_millis(10)).wait();
    drop((peer, session));
    server.process.signal(Signal::CONT);
    server.failed(&["rank 77"]);
    assert_eq!(names(&to), [""; 0]);
}
