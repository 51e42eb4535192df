//! What goes wrong: one line and a status in bounded time, nothing left behind, others unaffected.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::as_conversions,
    clippy::arithmetic_side_effects,
    reason = "tests may panic"
)]

mod common;

use std::ffi::OsStr;
use std::process::Command;
use std::time::Duration;

use common::{
    PATIENCE, Process, Scratch, Server, hmc, hmc_of_a_user, names, noise, run, skipped,
    until_under_way,
};
use hmc_std::{Address, Message, Session, want};
use rustix::process::Signal;

/// Bytes whose transfer through the smallest ring takes seconds.
const LONG: usize = 256 << 20;
/// The smallest ring: one put moves 4 KiB.
const SLOW: [&str; 2] = ["--buffer", "16K"];
/// What "at once" may take on a busy machine.
const SOON: Duration = Duration::from_secs(10);

/// A file whose transfer takes long.
fn long(s: &Scratch) -> std::path::PathBuf {
    let path = s.path("long");
    std::fs::write(&path, vec![0x5a; LONG]).unwrap();
    path
}

#[test]
fn an_unreachable_peer_is_reported() {
    let s = Scratch::new();
    let file = s.file("a", 10);
    let put = |args: &[&str]| Process::start(hmc().arg("put").arg(&file).args(args)).ran();
    // A port that nobody has: bound and let go.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let ran = put(&["--to", &format!("tcp://{port}")]).badly(&["cannot reach rank 0", "refused"]);
    assert!(ran.took < SOON, "{:?}", ran.took);
    let nowhere = s.path("nowhere");
    put(&["--uds", nowhere.to_str().unwrap()]).badly(&["cannot reach", "nowhere"]);
    put(&["--to", "example"]).badly(&["no address", "tcp://HOST:PORT"]);
    put(&["--to", "http://127.0.0.1:80"]).badly(&["`http://127.0.0.1:80` is no address", "tcp://"]);
    put(&["--to", "127.0.0.1:0"]).badly(&["no address", "port 1 to 65535"]);
    put(&["--to", "192.0.2.1:9"]).badly(&["insecure"]);
    let server = Server::start(&s, ["--into".as_ref(), s.dir("to").as_os_str()]);
    put(&["--to", &server.tcp, "--peer", "7"]).badly(&["rank 7"]);
    put(&["--uds", server.uds.to_str().unwrap(), "--peer", "7"]).badly(&["rank 7"]);
    put(&["--to", &server.tcp, "--rank", "0"]).badly(&["rank"]);
    put(&["--to", &server.tcp, "--rank", "5000"]).badly(&["5000", "4095"]);
    assert_eq!(run(["put"]).code, Some(2), "arguments are missing");
}

#[test]
fn a_named_transport_never_falls_back() {
    let s = Scratch::new();
    let file = s.file("a", 10);
    let to = s.dir("to");
    let mut command = hmc();
    command.args(["serve", "--json", "--listen", "127.0.0.1:0", "--into"]).arg(&to);
    let tcp_only = Server::of(&mut command, s.path("unused"));
    let put = |address: &str, via: &str| {
        Process::start(hmc().arg("put").arg(&file).args(["--to", address, "--via", via])).ran()
    };
    put(&tcp_only.tcp, "shm").badly(&["shm"]);
    assert_eq!(names(&to), [""; 0]);
    put(&tcp_only.tcp, "auto").well();
    let mut command = hmc();
    command.args(["serve", "--json", "--uds"]).arg(s.path("u")).arg("--into").arg(&to);
    let uds_only = Server::of(&mut command, s.path("u"));
    let address = format!("uds://{}", uds_only.uds.display());
    put(&address, "tcp").badly(&["tcp"]);
}

#[test]
fn what_is_no_readable_file_is_refused_before_anything_is_sent() {
    let s = Scratch::new();
    let put = |path: &OsStr| run([OsStr::new("put"), path]);
    put(s.path("missing").as_os_str()).badly(&["missing", "no such file"]);
    put(s.dir("folder").as_os_str()).badly(&["folder", "not a regular file"]);
    // The open of a pipe waits for a writer, unless one takes care.
    let pipe = s.path("pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0)
        .unwrap();
    put(pipe.as_os_str()).badly(&["pipe", "not a regular file"]);
    // A link that the user names is followed: that it is one is not what is wrong with it.
    let circle = s.path("circle");
    std::os::unix::fs::symlink(&circle, &circle).unwrap();
    let ran = put(circle.as_os_str()).badly(&["circle", "cannot open it for reading"]);
    assert!(!ran.stderr.contains("not followed"), "{}", ran.stderr);
}

#[test]
fn a_file_that_this_user_may_not_read_is_refused() {
    let Some(mut hmc) = hmc_of_a_user() else {
        return skipped("root may read every file, and there is no setpriv(1) to give that up");
    };
    let s = Scratch::new();
    let closed = s.file("closed", 1);
    std::fs::set_permissions(&closed, std::os::unix::fs::PermissionsExt::from_mode(0o000)).unwrap();
    Process::start(hmc.arg("put").arg(&closed)).ran().badly(&["closed", "ermission"]);
}

#[test]
fn a_server_that_cannot_start_reports_why() {
    let s = Scratch::new();
    let to = s.dir("to");
    let serve =
        |args: &[&OsStr]| Process::start(hmc().args(["serve", "--into"]).arg(&to).args(args)).ran();
    serve(&["--listen".as_ref(), "nonsense".as_ref()]).badly(&["nonsense"]);
    serve(&["--listen".as_ref(), "0.0.0.0:0".as_ref()]).badly(&["insecure"]);
    for buffer in ["1", "129M"] {
        let ran = serve(&["--buffer".as_ref(), buffer.as_ref()]);
        assert_eq!(ran.code, Some(2), "{buffer}: {ran:?}");
        assert!(ran.stderr.contains("16K to 128M"), "{}", ran.stderr);
    }
    let open = s.dir("open");
    std::fs::set_permissions(&open, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    serve(&["--uds".as_ref(), open.as_os_str()]).badly(&["0700"]);
    let long = s.path("l".repeat(120));
    serve(&["--uds".as_ref(), long.as_os_str()]).badly(&["107"]);
    let server = Server::start(&s, ["--into".as_ref(), to.as_os_str()]);
    serve(&["--uds".as_ref(), server.uds.as_os_str()]).badly(&["rank 0"]);
    let missing = s.path("missing");
    run([OsStr::new("serve"), "--into".as_ref(), missing.as_os_str()]).badly(&["missing"]);
}

#[test]
fn a_killed_client_leaves_nothing_and_the_next_is_served() {
    let s = Scratch::new();
    let to = s.dir("to");
    let file = long(&s);
    let server = Server::start(
        &s,
        [SLOW[0].as_ref(), SLOW[1].as_ref(), OsStr::new("--into"), to.as_os_str()],
    );
    for via in ["shm", "tcp"] {
        let mut put = server.put(via, &file);
        until_under_way(&to);
        assert!(put.0.try_wait().unwrap().is_none(), "it was over too soon to tell");
        put.signal(Signal::KILL);
        put.ended();
        let failed = server.event();
        assert_eq!((&failed["event"], &failed["name"]), (&"failed".into(), &"long".into()));
        assert_eq!(names(&to), [""; 0], "the partial file is left");
        let small = s.file(format!("small-{via}"), 10_000);
        server.put(via, &small).ran().well();
        assert_eq!(server.event()["event"], "received");
        std::fs::remove_file(to.join(format!("small-{via}"))).unwrap();
    }
}

#[test]
fn a_killed_server_ends_its_clients() {
    for via in ["shm", "tcp"] {
        let s = Scratch::new();
        let to = s.dir("to");
        let file = long(&s);
        let server = Server::start(
            &s,
            [SLOW[0].as_ref(), SLOW[1].as_ref(), OsStr::new("--into"), to.as_os_str()],
        );
        let put = server.put(via, &file);
        until_under_way(&to);
        server.process.signal(Signal::KILL);
        let ran = put.ran().badly(&["put", "long"]);
        assert!(ran.took < SOON, "{:?}", ran.took);
        // A get of a client whose server dies leaves no partial file either.
        let out = s.dir("out");
        let other = Scratch::new();
        let from = Server::start(&other, [OsStr::new("--share"), s.path("").as_os_str()]);
        let mut get = hmc();
        get.args(["get", "long", "--out"]).arg(&out).args(SLOW).args(from.reach(via));
        let get = Process::start(&mut get);
        until_under_way(&out);
        from.process.signal(Signal::KILL);
        get.ran().badly(&["get long"]);
        assert_eq!(names(&out), [""; 0], "the partial file is left");
    }
}

#[test]
fn a_stopped_server_is_given_up() {
    let s = Scratch::new();
    let to = s.dir("to");
    let file = long(&s);
    let server = Server::start(
        &s,
        [SLOW[0].as_ref(), SLOW[1].as_ref(), OsStr::new("--into"), to.as_os_str()],
    );
    let put = server.put("shm", &file);
    until_under_way(&to);
    server.process.signal(Signal::STOP);
    let ran = put.ran().badly(&["put", "long"]);
    assert!(ran.took < SOON, "heartbeats end it: {:?}", ran.took);
}

#[test]
fn an_interrupt_tidies_up_at_both_ends() {
    let s = Scratch::new();
    let to = s.dir("to");
    let file = long(&s);
    let mut server = Server::start(
        &s,
        [SLOW[0].as_ref(), SLOW[1].as_ref(), OsStr::new("--into"), to.as_os_str()],
    );
    let put = server.put("shm", &file);
    until_under_way(&to);
    put.signal(Signal::INT);
    let ran = put.ran();
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(130), "hmc: interrupted\n"));
    assert_eq!(server.event()["event"], "failed");
    assert_eq!(names(&to), [""; 0]);
    let put = server.put("shm", &file);
    until_under_way(&to);
    server.process.signal(Signal::INT);
    assert_eq!(server.process.ended().code(), Some(130));
    assert_eq!(names(&to), [""; 0], "the partial file is left");
    put.ran().badly(&["put", "long"]);
    assert!(names(&server.uds).iter().all(|n| !n.ends_with(".sock")), "the socket is left");
}

#[test]
fn a_reader_that_leaves_is_no_panic() {
    let mut process = Process::start(hmc().arg("doctor"));
    drop(process.0.stdout.take());
    let ran = process.ran();
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(141), ""));
}

/// A file system of its own, where this process may mount one.
struct Mounted(std::path::PathBuf);

impl Mounted {
    fn small(at: std::path::PathBuf) -> Option<Self> {
        let mount =
            Command::new("mount").args(["-t", "tmpfs", "-o", "size=4m", "none"]).arg(&at).output();
        mount.is_ok_and(|o| o.status.success()).then_some(Self(at))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).output();
    }
}

#[test]
fn a_full_disk_is_reported_at_both_ends() {
    let s = Scratch::new();
    let Some(disk) = Mounted::small(s.dir("disk")) else {
        return skipped("no file system can be mounted here (needs root)");
    };
    let file = s.file("big", 9 << 20);
    let server = Server::start(&s, ["--into".as_ref(), disk.0.as_os_str()]);
    for via in ["shm", "tcp"] {
        server.put(via, &file).ran().badly(&["big", "No space left"]);
        let failed = server.event();
        assert!(failed["why"].as_str().unwrap().contains("No space left"), "{failed}");
        assert_eq!(names(&disk.0), [""; 0], "the partial file is left");
        let small = s.file(format!("small-{via}"), 1 << 20);
        server.put(via, &small).ran().well();
        assert_eq!(server.event()["event"], "received");
        std::fs::remove_file(disk.0.join(format!("small-{via}"))).unwrap();
    }
    // And at the end that fetches.
    let other = Scratch::new();
    let from = Server::start(&other, [OsStr::new("--share"), s.path("").as_os_str()]);
    from.get("shm", "big", &disk.0).ran().badly(&["big", "No space left"]);
    assert!(from.event()["why"].as_str().unwrap().contains("No space left"));
    assert_eq!(names(&disk.0), [""; 0]);
    drop((server, from));
}

/// A client that does not keep to the protocol.
struct Rogue {
    session: Session,
    peer: hmc_std::Peer,
}

impl Rogue {
    fn new(server: &Server) -> Self {
        let session = Session::builder(77).redial(false).start().unwrap();
        let peer = session.connect(&Address::Uds(server.uds.clone())).rank(0).wait().unwrap();
        Self { session, peer }
    }

    fn request(&self, request: &str) -> String {
        self.peer.send(Message::bytes(request.as_bytes())).wait().unwrap();
        let reply = self.peer.recv(want::Bytes).within(PATIENCE).wait().unwrap();
        String::from_utf8(reply).unwrap()
    }
}

fn request(name: &[u8], size: u64) -> String {
    let meta = format!(r#"{{"size":{size},"mode":420,"mtime_s":0,"mtime_ns":0}}"#);
    format!(r#"{{"hmc_file":1,"name":{name:?},"ask":{{"put":{meta}}}}}"#)
}

#[test]
fn requests_that_make_no_sense_are_refused() {
    let s = Scratch::new();
    let to = s.dir("to");
    let server = Server::start(&s, ["--into".as_ref(), to.as_os_str()]);
    let rogue = Rogue::new(&server);
    for name in [&b""[..], b"..", b".", b"../x", b"/etc/x", b"a\0b", b".hmc-part-1-1", &[b'n'; 256]]
    {
        let reply = rogue.request(&request(name, 1));
        assert!(reply.contains("refused"), "{name:?}: {reply}");
        assert_eq!(server.event()["event"], "failed");
    }
    for text in
        ["", "{}", "[1]", "\u{1}", &request(b"x", 1).replace("\"hmc_file\":1", "\"hmc_file\":2")]
    {
        assert!(rogue.request(text).contains("refused"), "{text}");
    }
    // More than a file can have.
    assert!(rogue.request(&request(b"x", u64::MAX)).contains("refused"));
    assert_eq!(names(&to), [""; 0]);
    assert_eq!(names(&s.path("")), ["to", "uds"]);
}

/// Tags of the protocol: a slot is full, and its last words.
const FULL: u64 = 1 << 56;
const END: u64 = 3 << 56;
const ABORT: u64 = 5 << 56;

#[test]
fn slots_that_make_no_sense_end_the_transfer_only() {
    let s = Scratch::new();
    let to = s.dir("to");
    let server = Server::start(&s, ["--into".as_ref(), to.as_os_str()]);
    let rogue = Rogue::new(&server);
    let note = |offset: u64, len: u64, crc: u32| {
        [&offset.to_le_bytes()[..], &len.to_le_bytes(), &crc.to_le_bytes()].concat()
    };
    let notes = [
        note(0, 0, 0),
        note(0, 1001, 0),
        note(u64::MAX, 1, 0),
        note(1000, 1, 0),
        note(0, u64::MAX, 0),
        note(0, 4, 0x1234_5678),
    ];
    for bytes in notes {
        let reply = rogue.request(&request(b"x", 1000));
        let reply: serde_json::Value = serde_json::from_str(&reply).unwrap();
        let label = reply["ready"]["label"].as_u64().unwrap_or_else(|| panic!("{reply}"));
        let window = rogue.peer.window(label).within(PATIENCE).wait().unwrap();
        let mut span = rogue.session.memory().allocate(64).unwrap().take_all().unwrap();
        span.write_at(0, &bytes).unwrap();
        window.put(4096 - 64, span).within(PATIENCE).wait().unwrap();
        rogue.peer.send(Message::Tag(FULL)).wait().unwrap();
        let tag = rogue.peer.recv(want::Tag).within(PATIENCE).wait().unwrap();
        assert_eq!(tag >> 56, ABORT >> 56, "{tag:#x}");
        rogue.peer.send(Message::Tag(ABORT)).wait().unwrap();
        assert_eq!(server.event()["event"], "failed");
    }
    // Words out of turn, and a sum that is not that of the bytes.
    for tag in [FULL | 3, 42, u64::MAX, END | 1] {
        let reply = rogue.request(&request(b"x", 1000));
        assert!(reply.contains("ready"), "{reply}");
        rogue.peer.send(Message::Tag(tag)).wait().unwrap();
        let answer = rogue.peer.recv(want::Tag).within(PATIENCE).wait().unwrap();
        assert_eq!(answer >> 56, ABORT >> 56, "{tag:#x}");
        if tag != END | 1 {
            rogue.peer.send(Message::Tag(ABORT)).wait().unwrap();
        }
        assert_eq!(server.event()["event"], "failed");
    }
    assert_eq!(names(&to), [""; 0], "a partial file is left");
    let file = s.file("good", 5000);
    server.put("shm", &file).ran().well();
    assert_eq!(std::fs::read(to.join("good")).unwrap(), noise(5000));
}
