//! The side that is measured against: a session with a buffer, in a process of its own.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hmc_std::Session;
use serde::{Deserialize, Serialize};

use super::options::Options;
use crate::connect::{PeerArgs, Via};
use crate::failure::{Failure, Result};
use crate::output;
use crate::signal::Stop;

/// How often the passive side looks whether it should end.
const LOOK: Duration = Duration::from_millis(100);
/// How long the process may take to end by itself.
const GOODBYE: Duration = Duration::from_secs(2);

/// What the passive side says when it listens.
#[derive(Debug, Serialize, Deserialize)]
struct Listening {
    pid: u32,
    rank: u32,
    tcp: Option<String>,
    uds: Option<String>,
    buffer: u64,
}

/// Listens until a signal comes or, when asked for, until stdin ends.
pub(super) fn serve(options: &Options, stop: &Stop) -> Result<()> {
    let rank = options.reach.rank.unwrap_or(options.reach.peer);
    let mut builder = Session::builder(rank).buffer(options.buffer).redial(false);
    // Many operations of a peer may be under way.
    builder = builder.slots(1024);
    if options.reach.via == Via::Ucx {
        builder = builder.ucx();
    }
    if let Some(addr) = &options.listen {
        builder = builder.tcp(addr);
    }
    let environment = hmc_std::config::Environment::read();
    let uds = match (&options.reach.uds, &options.listen) {
        (Some(dir), _) => Some(dir.clone()),
        (None, None) => Some(environment.default_uds_dir()),
        (None, Some(_)) => None,
    };
    if let Some(dir) = &uds {
        builder = builder.uds(dir);
    }
    if options.reach.insecure {
        builder = builder.insecure();
    }
    let session = builder.start()?;
    stop.tidy_first();
    let listening = Listening {
        pid: std::process::id(),
        rank,
        tcp: crate::connect::tcp_listener(&session),
        uds: uds.map(|d| d.display().to_string()),
        buffer: options.buffer,
    };
    if options.json {
        output::json(&listening)?;
    } else {
        let addresses = [
            listening.uds.as_ref().map(|d| format!("--uds {d}")),
            listening.tcp.as_ref().map(|a| format!("--to tcp://{a}")),
        ];
        let addresses: Vec<String> = addresses.into_iter().flatten().collect();
        output::text(&format!("hmc perf {} --peer {rank}", addresses.join(" or ")))?;
    }
    let ended = Arc::new(AtomicBool::new(false));
    if options.with_stdin {
        let ended = Arc::clone(&ended);
        // Ends with the process that holds the other end of the pipe, however that ends. Nobody
        // waits for this thread: it cannot be woken.
        let reader = std::thread::Builder::new().spawn(move || {
            let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
            ended.store(true, Ordering::Release);
        });
        reader.map_err(|e| Failure::new(format!("cannot start a thread: {e}")))?;
    }
    while !stop.is_set() && !ended.load(Ordering::Acquire) {
        std::thread::park_timeout(LOOK);
    }
    let _ = session.shutdown().within(Duration::from_secs(1)).wait();
    if stop.is_set() { Err(Failure::interrupted()) } else { Ok(()) }
}

/// A passive side of our own. Ended, and its folder removed, when dropped.
#[derive(Debug)]
pub(super) struct PeerProcess {
    process: std::process::Child,
    scratch: PathBuf,
    listening: Listening,
}

impl PeerProcess {
    /// Starts this program again and waits until it listens.
    pub(super) fn start(reach: &PeerArgs, buffer: u64) -> Result<Self> {
        let program = std::env::current_exe()
            .map_err(|e| Failure::new(format!("cannot find this program's own file: {e}")))?;
        let scratch = std::env::temp_dir().join(format!("hmc-perf-{}", std::process::id()));
        let mut command = Command::new(program);
        command
            .args(["perf", "--serve", "--with-stdin", "--json", "--uds"])
            .arg(&scratch)
            .args(["--buffer", &buffer.max(1).to_string()])
            .args(["--peer", &reach.peer.to_string()]);
        match reach.via {
            Via::Tcp => {
                command.args(["--listen", "127.0.0.1:0"]);
            }
            Via::Ucx => {
                command.args(["--via", "ucx"]);
            }
            Via::Auto | Via::Shm | Via::Rdma => {}
        }
        let mut process = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|e| Failure::new(format!("cannot start the peer's process: {e}")))?;
        // One line, or the end: the process says either within the deadlines of its session.
        let mut line = String::new();
        if let Some(out) = process.stdout.as_mut() {
            let _ = BufReader::new(out).read_line(&mut line);
        }
        match serde_json::from_str(&line) {
            Ok(listening) => Ok(Self { process, scratch, listening }),
            Err(_) => {
                let _ = process.kill();
                let mut why = String::new();
                if let Some(err) = process.stderr.as_mut() {
                    let _ = err.take(4096).read_to_string(&mut why);
                }
                let _ = process.wait();
                let _ = std::fs::remove_dir_all(&scratch);
                let why = why.trim().trim_start_matches("hmc: ");
                Err(Failure::new(format!("the peer's process did not start: {why}")))
            }
        }
    }

    /// Sets where it is.
    pub(super) fn set_address(&self, reach: &mut PeerArgs) {
        match &self.listening.tcp {
            Some(addr) => reach.to = Some(format!("tcp://{addr}")),
            None => reach.uds = Some(self.scratch.clone()),
        }
    }
}

impl Drop for PeerProcess {
    fn drop(&mut self) {
        // Its stdin ends with this.
        drop(self.process.stdin.take());
        let patience = std::time::Instant::now();
        while let Ok(None) = self.process.try_wait() {
            if patience.elapsed() > GOODBYE {
                let _ = self.process.kill();
                let _ = self.process.wait();
                break;
            }
            std::thread::park_timeout(Duration::from_millis(5));
        }
        let _ = std::fs::remove_dir_all(&self.scratch);
    }
}
