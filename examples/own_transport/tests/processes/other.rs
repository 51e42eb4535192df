//! The other process, and a session of this one that is connected to it.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use hmc_std::{Address, Peer, Session};
use own_transport::domain::MemfileDomain;
use own_transport::name::MEMFILE;

/// Longer than anything takes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A folder of this test alone.
#[derive(Debug)]
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The other process. It is killed when it is dropped.
#[derive(Debug)]
pub(crate) struct Other {
    child: Child,
    lines: Receiver<String>,
    folder: Folder,
}

impl Other {
    /// Starts it, and waits until it listens.
    pub(crate) fn start() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("own-transport-{}-{number}", std::process::id());
        let folder = Folder(std::env::temp_dir().join(name));
        let mut child = Command::new(env!("CARGO_BIN_EXE_own_transport_peer"))
            .arg(&folder.0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the other process starts");
        let out = BufReader::new(child.stdout.take().expect("it is a pipe"));
        let (send, lines) = channel();
        std::thread::spawn(move || {
            out.lines().map_while(Result::ok).try_for_each(|l| send.send(l))
        });
        let other = Self { child, lines, folder };
        other.expect("ready");
        other
    }

    /// A session of rank 0 that is connected to it by the transport of this project.
    pub(crate) fn connect(&self) -> (Session, Peer) {
        let session = Session::builder(0).transport(MemfileDomain).buffer(4 << 20).start();
        let session = session.expect("a session");
        let peer = session.connect(&self.address()).rank(1).over(MEMFILE).within(PATIENCE).wait();
        (session, peer.expect("connected"))
    }

    pub(crate) fn address(&self) -> Address {
        Address::Uds(self.folder.0.clone())
    }

    pub(crate) fn send(&mut self, line: &str) {
        let input = self.child.stdin.as_mut().expect("it is a pipe");
        writeln!(input, "{line}").expect("it reads");
    }

    /// The next line of it.
    pub(crate) fn answer(&self) -> String {
        self.lines.recv_timeout(PATIENCE).expect("it answers")
    }

    pub(crate) fn expect(&self, line: &str) {
        assert_eq!(self.answer(), line);
    }

    /// Ends it by SIGKILL.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("it can be killed");
        self.child.wait().expect("it has ended");
    }

    /// Stops it, and waits until all of its threads are stopped.
    pub(crate) fn stop(&self) {
        self.signal("STOP");
        until("it is stopped", || self.threads().iter().all(|t| is_stopped(t)));
    }

    pub(crate) fn go_on(&self) {
        self.signal("CONT");
    }

    fn threads(&self) -> Vec<PathBuf> {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.child.id())).expect("it lives");
        tasks.map(|t| t.expect("an entry").path()).collect()
    }

    fn signal(&self, name: &str) {
        // The shell's own `kill`, which every system has.
        let line = format!("kill -{name} {}", self.child.id());
        let sent = Command::new("sh").arg("-c").arg(line).status();
        assert!(sent.expect("a shell").success());
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn is_stopped(thread: &Path) -> bool {
    let stat = std::fs::read_to_string(thread.join("stat")).unwrap_or_default();
    // After the name, which may have any bytes.
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
}

/// Looks until `look` says so.
pub(crate) fn until(what: &str, mut look: impl FnMut() -> bool) {
    let began = Instant::now();
    while !look() {
        assert!(began.elapsed() < PATIENCE, "not in time: {what}");
        std::thread::yield_now();
    }
}
