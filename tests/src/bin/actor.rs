//! A process for tests: it holds sessions and does what it is told, one line at a time.
//!
//! Answers are `ok ...` or `err KIND text`. It ends when its standard input does. It never decides
//! anything by itself.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::indexing_slicing,
    reason = "only tests use this program; it may panic"
)]

use hmc_testkit::buffers::{BufferMessages as _, BufferTransfers as _};
use std::collections::HashMap;
use std::io::{BufRead as _, Write as _};
use std::time::{Duration, Instant};

use hmc_core::types::Access;
use hmc_std::{
    Address, ConnType, Error, ErrorKind, Message, Op, Peer, Progress, Region, Remote, Result,
    Session, SessionBuilder, Span, Waited, Window, want::Wanted,
};
use hmc_tests::bystander;
use hmc_tests::child::{go_on_as_a_child, in_a_child};
use hmc_tests::counting::Counting;
use hmc_tests::files;
use hmc_tests::group_fixture::Blocks;
use hmc_tests::listening::Listening as _;
use hmc_tests::planted;
use hmc_tests::random_collectives;

#[global_allocator]
static ALLOCATOR: Counting = Counting::new();

#[derive(Default)]
struct Actor {
    sessions: HashMap<u32, Session>,
    /// The session that commands are for.
    at: u32,
    ops: Vec<Op>,
    gets: Vec<Op<Span>>,
    windows: HashMap<u64, Window<hmc_std::Span>>,
    remote: HashMap<u64, Remote>,
    peers: HashMap<u32, Peer>,
    under_way: Option<files::UnderWay>,
}

fn bad(what: &str) -> Error {
    Error::new(ErrorKind::InvalidConfig, format!("bad command: {what}"))
}

fn number(text: Option<&&str>) -> Result<u64> {
    text.and_then(|t| t.parse().ok()).ok_or_else(|| bad("a number is missing"))
}

fn rank(text: Option<&&str>) -> Result<u32> {
    number(text).map(|n| u32::try_from(n).unwrap_or(u32::MAX))
}

fn millis(text: Option<&&str>) -> Result<Duration> {
    Ok(Duration::from_millis(number(text)?))
}

/// A session as `key=value` settings describe it.
fn build(words: &[&str]) -> Result<(u32, SessionBuilder)> {
    let mut rank = 0;
    let mut b = Session::builder(0);
    for word in words {
        if let ("rank", n) = word.split_once('=').unwrap_or((word, "")) {
            rank = n.parse().map_err(|_| bad(word))?;
            b = Session::builder(rank);
        }
    }
    for word in words {
        let (key, value) = word.split_once('=').unwrap_or((word, ""));
        let n: u64 = value.parse().unwrap_or(0);
        b = match key {
            "rank" => b,
            "uds" => b.uds(value),
            "tcp" => b.tcp(value),
            "buffer" => b.buffer(n),
            "slots" => b.slots(usize::try_from(n).unwrap_or(0)),
            "job" => b.job(n),
            "deadline" => b.deadline(Duration::from_millis(n)),
            "heartbeat" => b.heartbeat((n > 0).then_some(Duration::from_millis(n))),
            "manual" => b.progress(Progress::Manual),
            "upstream" => b.accept_upstream(),
            "redial" => b.redial(n != 0),
            "cma" => b.cma(n != 0),
            "insecure" => b.insecure(),
            "insecure_loopback" => b.insecure_loopback(),
            "ucx" => b.ucx(),
            "tls" => b.ucx_key("TLS", value),
            "devices" => b.ucx_key("NET_DEVICES", value),
            _ => return Err(bad(word)),
        };
    }
    Ok((rank, b))
}

fn conn(name: Option<&&str>) -> Result<ConnType> {
    Ok(match name.copied() {
        Some("shm") => ConnType::Shm,
        Some("ucx") => ConnType::Ucx,
        Some("rdma") => ConnType::Rdma,
        Some("tcp") => ConnType::Tcp,
        Some("auto") => ConnType::Auto,
        _ => return Err(bad("auto, shm, tcp, ucx or rdma")),
    })
}

impl Actor {
    fn session(&self) -> Result<&Session> {
        self.sessions.get(&self.at).ok_or_else(|| bad("no session"))
    }

    /// Memory of its own, or `adopted`.
    fn region(&self, len: u64, kind: Option<&&str>) -> Result<Region> {
        if kind == Some(&"adopted") {
            return self.session()?.memory().register(hmc_std::memory::HeapBytes::from(
                vec![0; usize::try_from(len).unwrap_or(0)],
            ));
        }
        self.session()?.memory().allocate(len)
    }

    /// The peer of that rank: the same life of it until `connect` or `meet` gives another.
    fn peer(&mut self, rank: u32) -> Result<Peer> {
        if let Some(p) = self.peers.get(&rank) {
            return Ok(p.clone());
        }
        let p = self.session()?.peer(rank)?;
        self.peers.insert(rank, p.clone());
        Ok(p)
    }

    fn add_peer(&mut self, peer: Peer) -> String {
        let conn = peer.explain().conn.map_or("none", |c| c.name()).to_owned();
        self.peers.insert(peer.rank().0, peer);
        conn
    }

    /// Connects to the ranks 0, 1, ... at `addresses`, waits for those that connect to this one, and for all `count`.
    fn join(&self, count: u32, timeout: Duration, addresses: &[&str]) -> Result<String> {
        let (s, own) = (self.session()?, addresses.len() as u32);
        for (to, address) in (0..).zip(addresses) {
            s.connect(&address.parse()?).rank(to).within(timeout).wait()?;
        }
        for from in own + 1..count {
            s.accept(from).within(timeout).wait()?;
        }
        let ranks: Vec<u32> = (0..count).collect();
        s.group(&ranks).wait()?.barrier().within(timeout).wait().map(|()| String::new())
    }

    /// `count` operations of `len` bytes each, all at once.
    fn begin(&mut self, put: bool, w: &[&str]) -> Result<String> {
        let peer = self.peer(rank(w.first())?)?;
        let (lo, ro, len) = (number(w.get(1))?, number(w.get(2))?, number(w.get(3))?);
        let count = number(w.get(4)).unwrap_or(1);
        for _ in 0..count {
            let op =
                if put { peer.start_put_at(lo, ro, len)? } else { peer.start_get_at(lo, ro, len)? };
            self.ops.push(op);
        }
        Ok(self.ops.len().to_string())
    }

    /// Waits for all operations. Says how each ended and how long all took, in microseconds.
    fn wait(&mut self, timeout: Duration) -> Result<String> {
        let start = Instant::now();
        let mut said = Vec::new();
        for op in std::mem::take(&mut self.ops) {
            said.push(match op.wait_for(timeout) {
                Waited::Ended(Ok(_)) => "Ok".to_owned(),
                Waited::Ended(Err(e)) => format!("{:?}", e.kind()),
                Waited::Limit => format!("{:?}", ErrorKind::DeadlineExceeded),
                Waited::Interrupted => format!("{:?}", ErrorKind::Interrupted),
            });
        }
        Ok(format!("{} {}", start.elapsed().as_micros(), said.join(" ")))
    }

    /// Ends this process, or its session.
    fn end(&mut self, how: &str) -> Result<String> {
        match how {
            // SAFETY: _exit(2) ends the process at once: nothing of it runs any more.
            "exit" => unsafe { libc::_exit(0) },
            "kill" => {
                let me = rustix::process::getpid();
                rustix::process::kill_process(me, rustix::process::Signal::KILL)
                    .map_err(|e| bad(&e.to_string()))?;
                Ok(String::new())
            }
            "close" => {
                self.peers.clear();
                let session = self.sessions.remove(&self.at).ok_or_else(|| bad("no session"))?;
                session.shutdown().within(Duration::from_secs(1)).wait().map(|()| String::new())
            }
            _ => Err(bad(how)),
        }
    }

    fn obey(&mut self, words: &[&str]) -> Result<String> {
        let (verb, w) = words.split_first().ok_or_else(|| bad("nothing"))?;
        match *verb {
            "start" => {
                let (rank, builder) = build(w)?;
                let session = builder.start()?;
                let at = session.tcp_addr().map_or("-".to_owned(), |a| a.to_string());
                self.at = rank;
                self.sessions.insert(rank, session);
                Ok(at)
            }
            "use" => {
                self.at = rank(w.first())?;
                self.peers.clear();
                self.session().map(|_| String::new())
            }
            "end" => {
                let timeout = millis(w.first())?;
                self.windows.clear();
                self.gets.clear();
                self.peers.clear();
                match self.sessions.remove(&self.at) {
                    Some(s) => s.shutdown().within(timeout).wait().map(|()| String::new()),
                    None => Err(bad("no session")),
                }
            }
            "connect" => {
                let address: Address = w.get(1).ok_or_else(|| bad("an address"))?.parse()?;
                let timeout = millis(w.get(3))?;
                let to = rank(w.first())?;
                let peer = self
                    .session()?
                    .connect(&address)
                    .rank(to)
                    .over(conn(w.get(2))?)
                    .within(timeout)
                    .wait()?;
                Ok(self.add_peer(peer))
            }
            "meet" => {
                let peer =
                    self.session()?.accept(rank(w.first())?).within(millis(w.get(1))?).wait()?;
                Ok(self.add_peer(peer))
            }
            "join" => {
                self.join(rank(w.first())?, millis(w.get(1))?, w.get(2..).unwrap_or_default())
            }
            "fill" => {
                let value = u8::try_from(number(w.get(2))? & 0xFF).unwrap_or(0);
                self.session()?.buffer().fill(number(w.first())?, number(w.get(1))?, value)?;
                Ok(String::new())
            }
            "crc" => {
                let crc = self.session()?.buffer().crc32c(number(w.first())?, number(w.get(1))?)?;
                Ok(crc.to_string())
            }
            "put" | "get" => {
                let peer = self.peer(rank(w.first())?)?;
                let (lo, ro, len) = (number(w.get(1))?, number(w.get(2))?, number(w.get(3))?);
                // So often; once if nothing is said.
                for _ in 0..w.get(4).map_or(Ok(1), |_| number(w.get(4)))? {
                    if *verb == "put" {
                        peer.put_at(lo, ro, len)?
                    } else {
                        peer.get_at(lo, ro, len)?
                    }
                }
                Ok(String::new())
            }
            // send_data | recv_data RANK OFFSET LEN: blocks
            "send_data" | "recv_data" => {
                let peer = self.peer(rank(w.first())?)?;
                let (at, len) = (number(w.get(1))?, number(w.get(2))?);
                if *verb == "send_data" {
                    return peer.send_data_at(at, len).map(|()| len.to_string());
                }
                peer.recv_data_at(at, len).map(|n| n.to_string())
            }
            // collect NAME LEN RANK RANK ..: blocks of LEN bytes in a group of these ranks, for ever
            "collect" => {
                let block = usize::try_from(number(w.get(1))?).unwrap_or(0);
                let ranks =
                    w.iter().skip(2).map(|r| rank(Some(r))).collect::<Result<Vec<u32>>>()?;
                let group = self.session()?.group(&ranks).wait()?;
                let mut blocks = Blocks::new(block, ranks.len());
                loop {
                    blocks.collect(&group, w.first().copied().unwrap_or_default()).wait()?;
                }
            }
            // random SEED ROUNDS RANK RANK .. | send_late LEN TIMES STEP RANK RANK ..: in a group, or groups, of these ranks
            "random" | "send_late" => {
                random_collectives::obey(self.session()?, verb, w).map_err(|what| bad(&what))
            }
            // No process reads this one's memory, but one with CAP_SYS_PTRACE.
            "forbid_reads" => {
                let no = rustix::process::DumpableBehavior::NotDumpable;
                let set = rustix::process::set_dumpable_behavior(no);
                set.map(|()| String::new()).map_err(|e| bad(&e.to_string()))
            }
            "put_nb" => self.begin(true, w),
            "get_nb" => self.begin(false, w),
            "wait" => self.wait(millis(w.first())?),
            "send" => {
                self.peer(rank(w.first())?)?.send(Message::Tag(number(w.get(1))?)).wait()?;
                Ok(String::new())
            }
            // listen RANK: receives messages until the peer is gone, on a thread of its own
            "listen" => {
                let peer = self.peer(rank(w.first())?)?;
                std::thread::spawn(move || {
                    while peer.recv(Wanted::Any).within(Duration::from_secs(60)).wait().is_ok() {}
                });
                Ok(String::new())
            }
            // tags RANK FIRST COUNT exit|kill|close: sends tags, then ends at once
            "tags" => {
                let peer = self.peer(rank(w.first())?)?;
                let (first, count) = (number(w.get(1))?, number(w.get(2))?);
                for tag in first..first + count {
                    peer.send(Message::Tag(tag)).wait()?;
                }
                self.end(w.get(3).copied().unwrap_or_default())
            }
            "recv" => {
                let peer = self.peer(rank(w.first())?)?;
                match peer.recv(Wanted::Any).within(millis(w.get(1))?).wait()? {
                    Message::Tag(n) | Message::Notify(n) => Ok(n.to_string()),
                    Message::Int(n) => Ok(n.to_string()),
                    Message::Bytes(bytes) => Ok(format!("{} bytes", bytes.len())),
                }
            }
            "expose" => {
                // expose RANK LABEL LEN VALUE adopted|own
                let peer = self.peer(rank(w.first())?)?;
                let (label, len, value) = (number(w.get(1))?, number(w.get(2))?, number(w.get(3))?);
                let fill = u8::try_from(value & 0xFF).unwrap_or(0);
                let mut span = self.region(len, w.get(4))?.take_all()?;
                span.fill(fill);
                let window = peer.expose(span, Access::all(), label).map_err(|(e, _)| e)?;
                self.windows.insert(label, window);
                Ok(String::new())
            }
            "revoke" => {
                let window = self.windows.remove(&number(w.first())?);
                let span = window
                    .ok_or_else(|| bad("no window"))?
                    .revoke()
                    .within(millis(w.get(1))?)
                    .wait()?;
                Ok(span.crc32c().to_string())
            }
            "find" => {
                let peer = self.peer(rank(w.first())?)?;
                let label = number(w.get(1))?;
                let window = peer.window(label).within(millis(w.get(2))?).wait()?;
                let len = window.len();
                self.remote.insert(label, window);
                Ok(len.to_string())
            }
            "put_window" => {
                // put_window RANK LABEL LEN VALUE [TIMES [adopted]]: blocks
                let (label, len, value) = (number(w.get(1))?, number(w.get(2))?, number(w.get(3))?);
                let window = self.remote.get(&label).ok_or_else(|| bad("no window"))?;
                let mut span = self.region(len, w.get(5))?.take_all()?;
                span.fill(u8::try_from(value & 0xFF).unwrap_or(0));
                for _ in 0..number(w.get(4)).unwrap_or(1) {
                    let op = window.put(0, span).start()?;
                    if op.wait_for(Duration::from_secs(20)).ended().is_none() {
                        return Err(bad("it runs for ever"));
                    }
                    span = op.wait()?.memory;
                }
                Ok(String::new())
            }
            // get_fixed RANK LABEL LEN [asked]: into memory where a bystander has its own; answers when the copy has begun, or
            // has been asked for
            "get_fixed" => {
                let peer = self.peer(rank(w.first())?)?;
                let (label, len) = (number(w.get(1))?, number(w.get(2))?);
                let window = peer.window(label).within(Duration::from_secs(20)).wait()?;
                let len = usize::try_from(len).unwrap_or(0);
                let start = bystander::memory(len);
                // SAFETY: mapped for as long as the process lives, and known to nobody else.
                let region = unsafe { self.session()?.memory().register_raw(start, len) }?;
                let op = window.get(0, region.take_all()?).start()?;
                self.gets.push(op);
                // SAFETY: as above; volatile, since another process writes it.
                while w.get(3).is_none() && unsafe { start.as_ptr().read_volatile() } == 0 {
                    std::hint::spin_loop();
                }
                Ok(String::new())
            }
            // held: bytes that peers may still use, here and in a child that is made now
            "held" => {
                let bytes = || hmc_std::held().iter().map(|h| h.bytes).sum::<u64>();
                let (here, there) = (bytes(), in_a_child(|| u8::from(bytes() != 0)));
                Ok(format!("{here} in the child {there}"))
            }
            // become LEN: execve(2); a bystander with memory at the same place takes over
            "become" => {
                use std::os::unix::process::CommandExt as _;
                let program = std::env::current_exe().map_err(|_| bad("no program"))?;
                let e = std::process::Command::new(program).arg(bystander::NAME).args(w).exec();
                Err(bad(&e.to_string()))
            }
            // As the return of `main` does, with all that lives: sessions, and threads that use them.
            // SAFETY: no other thread of this process calls exit(3), or changes what it looks at.
            "leave" => unsafe { libc::exit(0) },
            // put_on RANK LEN: puts as long as it can, on a thread of its own
            "put_on" => {
                let (peer, len) = (self.peer(rank(w.first())?)?, number(w.get(1))?);
                std::thread::spawn(move || while peer.put_at(0, 0, len).is_ok() {});
                Ok(String::new())
            }
            "leave_child" => {
                // It has all descriptors of this process, and ends with it.
                // SAFETY: the child makes system calls alone.
                if unsafe { libc::fork() } == 0 {
                    // SAFETY: a number, of a signal.
                    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
                    loop {
                        // SAFETY: it takes nothing.
                        unsafe { libc::pause() };
                    }
                }
                Ok(String::new())
            }
            "progress" => Ok(self.session()?.progress().to_string()),
            "connected" => Ok(self
                .session()?
                .peer(rank(w.first())?)
                .is_ok_and(|p| p.is_connected())
                .to_string()),
            "peers" => Ok(self.session()?.peers().len().to_string()),
            "stats" => {
                let s = self.session()?.stats();
                Ok(format!("{} {}", s.peers_lost, s.strangers_refused))
            }
            "files" => {
                files::limit(number(w.first())?);
                Ok(String::new())
            }
            // under_way 1|0: many descriptors are sent, and received by nobody; they are back
            "under_way" => {
                self.under_way = (number(w.first())? > 0).then(files::UnderWay::begin);
                Ok(String::new())
            }
            "allocations" => Ok(ALLOCATOR.count().to_string()),
            "live" => Ok(ALLOCATOR.live().to_string()),
            "drain" => {
                // What a peer that may be gone has sent, all of it.
                let mut count = 0;
                let Ok(peer) = self.session()?.peer(rank(w.first())?) else {
                    return Ok("0".into());
                };
                while peer.recv(Wanted::Any).within(Duration::ZERO).wait().is_ok() {
                    count += 1;
                }
                Ok(count.to_string())
            }
            // fork: goes on as a child without sessions; this process ends as the child does.
            "fork" => {
                go_on_as_a_child();
                std::mem::forget(std::mem::take(self));
                Ok(String::new())
            }
            "echo" => Ok(w.join(" ")),
            other => Err(bad(other)),
        }
    }
}

fn main() {
    planted::activate();
    let mut args = std::env::args().skip(1);
    if args.next().as_deref() == Some(bystander::NAME) {
        return bystander::run(args.next().and_then(|len| len.parse().ok()).unwrap_or(0));
    }
    hmc_tests::links::record();
    let mut actor = Actor::default();
    for line in std::io::stdin().lock().lines() {
        let Ok(line) = line else { return };
        let words: Vec<&str> = line.split_whitespace().collect();
        let answer = match actor.obey(&words) {
            Ok(said) => format!("ok {said}"),
            Err(e) => format!("err {:?} {}", e.kind(), e.to_string().replace('\n', " ")),
        };
        let mut out = std::io::stdout().lock();
        if writeln!(out, "{answer}").and_then(|()| out.flush()).is_err() {
            return;
        }
    }
}
