//! What the process tests share: folders that go away, servers that are ended, runs that are bounded.
#![allow(dead_code, reason = "each test program uses its part")]

pub(crate) mod raw;

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};
use serde_json::Value;

/// How long a run of `hmc` may take before it counts as hanging.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A folder of one test, private to this user.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new() -> Self {
        use std::os::unix::fs::DirBuilderExt as _;
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("hmc-cli-{}-{number}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::DirBuilder::new().mode(0o700).create(&dir).unwrap();
        Self(dir)
    }

    pub(crate) fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.0.join(name)
    }

    /// A folder in it.
    pub(crate) fn dir(&self, name: &str) -> PathBuf {
        let dir = self.path(name);
        std::fs::create_dir_all(&dir).unwrap();
        dir
    }

    /// A file in it, of pseudo-random bytes.
    pub(crate) fn file(&self, name: impl AsRef<Path>, len: usize) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, noise(len)).unwrap();
        path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Bytes that do not repeat within any slot.
pub(crate) fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64 ^ len as u64;
    let mut out = Vec::with_capacity(len + 8);
    while out.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        out.extend(state.to_le_bytes());
    }
    out.truncate(len);
    out
}

/// What a run did.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) took: Duration,
}

impl Ran {
    /// It worked and said nothing on stderr.
    #[track_caller]
    pub(crate) fn well(self) -> Self {
        assert_eq!((self.code, self.stderr.as_str()), (Some(0), ""), "{}", self.stdout);
        self
    }

    /// It failed with status 1 and one line, which has these words.
    #[track_caller]
    pub(crate) fn badly(self, words: &[&str]) -> Self {
        assert_eq!(self.code, Some(1), "{self:?}");
        assert_eq!(self.stderr.lines().count(), 1, "one line: {}", self.stderr);
        assert!(self.stderr.starts_with("hmc: "), "{}", self.stderr);
        for word in words {
            assert!(self.stderr.contains(word), "`{word}` is not in: {}", self.stderr);
        }
        self
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|e| panic!("{e}: {}", self.stdout))
    }
}

/// A process that is ended when the test ends, however that ends.
pub(crate) struct Process(pub(crate) Child);

impl Process {
    pub(crate) fn start(command: &mut Command) -> Self {
        Self(command.spawn().unwrap())
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.0.id()).unwrap()).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Its status; a panic when it hangs.
    #[track_caller]
    pub(crate) fn ended(&mut self) -> ExitStatus {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.0.try_wait().unwrap() {
                return status;
            }
            assert!(begun.elapsed() < PATIENCE, "the process hangs");
            std::thread::park_timeout(Duration::from_millis(2));
        }
    }

    /// Its status and output.
    #[track_caller]
    pub(crate) fn ran(mut self) -> Ran {
        let begun = Instant::now();
        let status = self.ended();
        let mut ran = Ran {
            code: status.code(),
            stdout: String::new(),
            stderr: String::new(),
            took: begun.elapsed(),
        };
        if let Some(mut out) = self.0.stdout.take() {
            out.read_to_string(&mut ran.stdout).unwrap();
        }
        if let Some(mut err) = self.0.stderr.take() {
            err.read_to_string(&mut ran.stderr).unwrap();
        }
        ran
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// `hmc` with its outputs caught.
pub(crate) fn hmc() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hmc"));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.env_remove("HMC_UDS_DIR");
    command
}

/// `hmc` as a user whom the permissions of files bind; root without the rights that let it pass them by, if that can be had.
pub(crate) fn hmc_of_a_user() -> Option<Command> {
    if !rustix::process::geteuid().is_root() {
        return Some(hmc());
    }
    let without = |program: &OsStr| {
        let mut command = Command::new("setpriv");
        command.arg("--bounding-set=-dac_override,-dac_read_search").arg(program);
        command
    };
    if !without("true".as_ref()).output().is_ok_and(|out| out.status.success()) {
        return None;
    }
    let mut command = without(env!("CARGO_BIN_EXE_hmc").as_ref());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.env_remove("HMC_UDS_DIR");
    Some(command)
}

/// Says, where `cargo xtask` counts it, that a test was not run and why. Not by `println!`, which the harness keeps to itself.
pub(crate) fn skipped(why: &str) {
    use std::io::Write as _;
    // In one piece: other tests print too.
    std::io::stdout().write_all(format!("\nSKIPPED: {why}\n").as_bytes()).unwrap();
}

/// Runs `hmc` to its end.
#[track_caller]
pub(crate) fn run<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Ran {
    Process::start(hmc().args(args)).ran()
}

/// A running `hmc serve --json`.
pub(crate) struct Server {
    pub(crate) process: Process,
    pub(crate) uds: PathBuf,
    pub(crate) tcp: String,
    events: Receiver<String>,
}

impl Server {
    /// Listens on a free TCP port and in the folder `uds` of the scratch.
    pub(crate) fn start<S: AsRef<OsStr>>(
        scratch: &Scratch,
        args: impl IntoIterator<Item = S>,
    ) -> Self {
        let uds = scratch.path("uds");
        let mut command = hmc();
        command.args(["serve", "--json", "--listen", "127.0.0.1:0", "--uds"]).arg(&uds).args(args);
        Self::of(&mut command, uds)
    }

    pub(crate) fn of(command: &mut Command, uds: PathBuf) -> Self {
        let mut process = Process::start(command.stderr(Stdio::inherit()));
        let mut out = BufReader::new(process.0.stdout.take().unwrap());
        let mut first = String::new();
        out.read_line(&mut first).unwrap();
        let listening: Value =
            serde_json::from_str(&first).expect("the server says where it listens");
        assert_eq!(listening["event"], "listening");
        assert_eq!(listening["pid"], process.0.id());
        let tcp = listening["tcp"].as_str().map(|a| format!("tcp://{a}")).unwrap_or_default();
        let (send, events) = channel();
        std::thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                if send.send(line).is_err() {
                    return;
                }
            }
        });
        Self { process, uds, tcp, events }
    }

    /// The next event.
    #[track_caller]
    pub(crate) fn event(&self) -> Value {
        let line = self.events.recv_timeout(PATIENCE).expect("an event");
        serde_json::from_str(&line).unwrap()
    }

    /// How a client reaches it over a transport.
    pub(crate) fn reach(&self, via: &str) -> Vec<String> {
        let (option, value) = match via {
            "tcp" => ("--to", self.tcp.clone()),
            _ => ("--uds", self.uds.to_str().unwrap().to_owned()),
        };
        vec![option.to_owned(), value, "--via".to_owned(), via.to_owned()]
    }

    /// Starts a put.
    pub(crate) fn put(&self, via: &str, file: &Path) -> Process {
        Process::start(hmc().arg("put").arg(file).args(self.reach(via)).arg("--json"))
    }

    /// Starts a get.
    pub(crate) fn get(&self, via: &str, name: &str, out: &Path) -> Process {
        let mut command = hmc();
        command.args(["get", name, "--json", "--out"]).arg(out).args(self.reach(via));
        Process::start(&mut command)
    }
}

/// The names in a folder.
pub(crate) fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).unwrap();
    let mut names: Vec<String> =
        entries.map(|e| e.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// Waits until a condition holds.
#[track_caller]
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "waited in vain: {what}");
        std::thread::park_timeout(Duration::from_millis(1));
    }
}

/// Waits until a transfer into `dir` is under way: its partial file holds bytes.
#[track_caller]
pub(crate) fn until_under_way(dir: &Path) {
    use std::os::unix::fs::MetadataExt as _;
    until("a partial file with bytes", || {
        let entries = std::fs::read_dir(dir).unwrap();
        entries.flatten().any(|e| {
            let part = e.file_name().to_string_lossy().starts_with(".hmc-part-");
            part && e.metadata().is_ok_and(|m| m.blocks() > 0)
        })
    });
}
