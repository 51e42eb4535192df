//! `cargo xtask demo`: two real processes move a real file through registered buffers, and say who
//! moved it, why that way, how fast, and whether it arrived.
//!
//! The processes are the program `hmc`, built for this: one serves, one puts. The receiver computes
//! the checksum from its own region; the sender's, and a comparison of the two files byte by byte,
//! are held against it. A transport that was asked for by name is used or the demo fails. Nothing is
//! left behind: the folder and the processes end with this command, also when it fails.

use crate::shell;
use crate::tree;
use crate::verdict::Verdict;
use serde_json::Value;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Bytes of the file that is made when none is named.
const USUAL_BYTES: u64 = 256 << 20;
/// How long a process may take to end when it was asked to.
const GOODBYE: Duration = Duration::from_secs(3);
/// Puts of 8 bytes that are timed.
const SMALL_PUTS: u32 = 20_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Via {
    /// The best transport that both processes have
    Auto,
    /// Shared memory, or fail
    Shm,
    /// TCP, or fail
    Tcp,
    /// UCX, or fail
    Ucx,
    /// RDMA verbs, or fail
    Rdma,
}

impl Via {
    const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Shm => "shm",
            Self::Tcp => "tcp",
            Self::Ucx => "ucx",
            Self::Rdma => "rdma",
        }
    }
}

#[derive(clap::Args)]
pub(crate) struct Options {
    /// The file to move [default: 256 MiB of random bytes, made for this]
    #[arg(long, value_name = "PATH")]
    file: Option<PathBuf>,
    /// Transport of the bytes; a named one never falls back
    #[arg(long, value_enum, default_value_t = Via::Auto)]
    via: Via,
}

/// Moves the file and prints what happened.
pub(crate) fn run(options: &Options) -> Verdict {
    let hosts = Hosts::default();
    let moved = build()
        .and_then(|program| {
            demonstrate(&program, options.via, options.file.as_deref(), USUAL_BYTES, &hosts)
                .map(|()| program)
        })
        .and_then(|program| small_puts(&program, options.via));
    Verdict::from_result(moved)
}

/// Moves `bytes` random bytes with that program between two hosts, as a demo does.
pub(super) fn moved_by(program: &Path, via: Via, bytes: u64, hosts: &Hosts) -> Verdict {
    Verdict::from_result(demonstrate(program, via, None, bytes, hosts))
}

/// Two hosts that share a file system. The default is this host, twice.
#[derive(Default)]
pub(super) struct Hosts {
    pub(super) receiver: Host,
    pub(super) sender: Host,
    /// The IP address of the receiver. Without one the sender uses the control socket, or 127.0.0.1.
    pub(super) address: Option<&'static str>,
}

/// How a program is started on a host.
#[derive(Default)]
pub(super) struct Host {
    /// The words before the program.
    pub(super) prefix: Vec<&'static str>,
    /// Variables of its environment.
    pub(super) variables: Vec<(&'static str, &'static str)>,
}

impl Host {
    /// A command that starts `program` there.
    fn command(&self, program: &Path) -> Command {
        let mut words = self.prefix.iter().map(OsStr::new).chain([program.as_os_str()]);
        let mut command = Command::new(words.next().unwrap_or_default());
        command.args(words).envs(self.variables.iter().copied());
        command
    }
}

/// A folder that is removed when the demo ends.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Result<Self, String> {
        use std::os::unix::fs::DirBuilderExt;
        let dir = std::env::temp_dir().join(format!("hmc-demo-{}", std::process::id()));
        let made = std::fs::DirBuilder::new().mode(0o700).create(&dir);
        made.map_err(|e| format!("cannot make {}: {e}", dir.display()))?;
        Ok(Self(dir))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What cannot be removed now cannot be removed later either.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A process that is ended when the demo ends.
struct Process {
    child: Child,
    out: Option<BufReader<std::process::ChildStdout>>,
}

impl Process {
    fn start(command: &mut Command) -> Result<Self, String> {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|e| format!("cannot start `{}`: {e}", shell::shown(command)))?;
        let out = child.stdout.take().map(BufReader::new);
        Ok(Self { child, out })
    }

    /// The next line that it prints, as JSON. The reason is on stderr if there is none.
    fn line(&mut self) -> Result<Value, String> {
        let mut line = String::new();
        if let Some(out) = self.out.as_mut() {
            out.read_line(&mut line).map_err(|e| format!("cannot read the output of hmc: {e}"))?;
        }
        serde_json::from_str(&line).map_err(|_| {
            format!("process {} said nothing more; its own words are above", self.child.id())
        })
    }

    /// Waits for its end, which the deadlines of its session bound.
    fn end(&mut self) -> Result<(), String> {
        let status = self.child.wait().map_err(|e| e.to_string())?;
        if status.success() {
            return Ok(());
        }
        Err(format!("process {} ended with {status}", self.child.id()))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(Some(_))) {
            return;
        }
        let pid = i32::try_from(self.child.id()).ok();
        if let Some(pid) = pid.and_then(rustix::process::Pid::from_raw) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        let begun = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) {
            if begun.elapsed() > GOODBYE {
                let _ = self.child.kill();
                let _ = self.child.wait();
                return;
            }
            std::thread::park_timeout(Duration::from_millis(5));
        }
    }
}

fn demonstrate(
    program: &Path,
    via: Via,
    file: Option<&Path>,
    bytes: u64,
    hosts: &Hosts,
) -> Result<(), String> {
    let scratch = Scratch::new()?;
    let dir = &scratch.0;
    let (source, from) = match file {
        Some(path) => (path.to_path_buf(), "yours"),
        None => (make_file(&dir.join("random.bin"), bytes)?, "random bytes, made for this"),
    };
    let size = std::fs::metadata(&source)
        .map_err(|e| format!("cannot look at {}: {e}", source.display()))?
        .len();
    let inbox = dir.join("inbox");
    std::fs::create_dir(&inbox).map_err(|e| format!("cannot make {}: {e}", inbox.display()))?;
    let uds = dir.join("uds");

    let mut serve = hosts.receiver.command(program);
    serve.args(["serve", "--json", "--once", "--into"]).arg(&inbox);
    serve.args(["--listen", &format!("{}:0", hosts.address.unwrap_or("127.0.0.1"))]);
    match hosts.address {
        Some(_) => serve.arg("--insecure"),
        None => serve.arg("--uds").arg(&uds),
    };
    if via == Via::Ucx {
        serve.arg("--ucx");
    }
    let mut receiver = Process::start(&mut serve)?;
    let listening = receiver.line()?;
    let tcp = text(&listening, "tcp");

    let mut put = hosts.sender.command(program);
    put.args(["put", "--json", "--via", via.name()]);
    if via == Via::Tcp || hosts.address.is_some() {
        put.arg("--to").arg(format!("tcp://{tcp}"));
    } else {
        put.arg("--uds").arg(&uds);
    }
    if hosts.address.is_some() {
        put.arg("--insecure");
    }
    put.arg("--").arg(&source);
    let mut sender = Process::start(&mut put)?;
    println!("file       {} ({size} bytes, {from})", source.display());
    println!("sender     process {}, `hmc put --via {}`", sender.child.id(), via.name());
    let folder = match hosts.address {
        Some(_) => String::new(),
        None => format!(" and in {}", uds.display()),
    };
    println!("receiver   process {}, `hmc serve` at tcp://{tcp}{folder}", receiver.child.id());
    let sent = sender.line()?;
    let received = receiver.line()?;
    sender.end()?;
    receiver.end()?;
    explain(via, &sent, &received)?;
    verify(&source, &sent, &received)
}

/// Builds the program `hmc` and returns its path.
fn build() -> Result<PathBuf, String> {
    println!("building hmc (release)");
    let mut command = shell::cargo();
    command
        .current_dir(tree::root())
        .args(["build", "--quiet", "--release", "--package", "hmc-cli", "--bin", "hmc"])
        .args(["--message-format", "json-render-diagnostics"])
        .stdin(Stdio::null())
        .stderr(Stdio::inherit());
    let out =
        command.output().map_err(|e| format!("cannot start `{}`: {e}", shell::shown(&command)))?;
    if !out.status.success() {
        return Err(format!("hmc does not build: {}", out.status));
    }
    // One JSON object in a line; that of the program names its file.
    String::from_utf8_lossy(&out.stdout)
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .find_map(|m| Some(PathBuf::from(m.get("executable")?.as_str()?)))
        .ok_or_else(|| "cargo did not say where it put hmc".to_owned())
}

/// Fills a file with so many random bytes: a stream of BLAKE3 from a seed of the system.
pub(super) fn make_file(path: &Path, bytes: u64) -> Result<PathBuf, String> {
    let failed = |e: std::io::Error| format!("cannot write {}: {e}", path.display());
    let mut seed = [0; 32];
    rustix::rand::getrandom(&mut seed, rustix::rand::GetRandomFlags::empty())
        .map_err(|e| format!("no random numbers from the system: {e}"))?;
    let mut stream = blake3::Hasher::new_keyed(&seed).finalize_xof();
    let mut file = std::fs::File::create(path).map_err(failed)?;
    let mut block = vec![0; 1 << 20];
    let mut left = bytes;
    while left > 0 {
        stream.fill(&mut block);
        let piece = block.get(..usize::try_from(left).unwrap_or(usize::MAX)).unwrap_or(&block);
        file.write_all(piece).map_err(failed)?;
        left = left.saturating_sub(1 << 20);
    }
    Ok(path.to_path_buf())
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value.get(name).and_then(Value::as_str).unwrap_or("")
}

fn number(value: &Value, name: &str) -> f64 {
    value.get(name).and_then(Value::as_f64).unwrap_or(0.0)
}

/// Prints the transport, the reason for it, and the rate.
pub(super) fn explain(via: Via, sent: &Value, received: &Value) -> Result<(), String> {
    let (here, there) = (text(sent, "transport"), text(received, "transport"));
    println!(
        "transport  {here}, as told by the transport that moved the bytes (receiver: {there})"
    );
    let route = sent.get("route");
    let considered = route.and_then(|r| r.get("considered")).and_then(Value::as_array);
    for c in considered.into_iter().flatten() {
        let chosen = c.get("chosen").and_then(Value::as_bool).unwrap_or(false);
        let mark = if chosen { "chosen" } else { "not chosen" };
        println!("           {}: {mark}: {}", text(c, "transport"), text(c, "why"));
    }
    if let Some(route) = route {
        println!("           trust: {}", text(route, "trust"));
    }
    println!(
        "moved      {:.0} bytes in {:.3} s: {:.2} GB/s, file to file, checksums included",
        number(sent, "bytes"),
        number(sent, "seconds"),
        number(sent, "gb_per_s")
    );
    if here != there {
        return Err(format!("the sender says {here}, the receiver {there}"));
    }
    if via != Via::Auto && here != via.name() {
        return Err(format!("{} was asked for and {here} was used", via.name()));
    }
    Ok(())
}

/// Holds the receiver's checksum against the sender's, and the files against each other.
pub(super) fn verify(source: &Path, sent: &Value, received: &Value) -> Result<(), String> {
    let (theirs, ours) = (text(received, "crc32c"), text(sent, "crc32c"));
    println!("receiver   crc32c {theirs}, computed from its own region");
    println!("sender     crc32c {ours}");
    if theirs != ours || theirs.is_empty() {
        return Err("the checksums differ".to_owned());
    }
    let copy = Path::new(text(received, "path"));
    if !same(source, copy)? {
        return Err(format!("{} differs from {}", copy.display(), source.display()));
    }
    println!("verified   checksums equal, files equal byte by byte");
    Ok(())
}

/// Whether two files have the same bytes.
fn same(a: &Path, b: &Path) -> Result<bool, String> {
    let open = |p: &Path| {
        let file = std::fs::File::open(p);
        file.map(|f| BufReader::with_capacity(1 << 20, f))
            .map_err(|e| format!("cannot open {}: {e}", p.display()))
    };
    let (mut a, mut b) = (open(a)?, open(b)?);
    loop {
        let (x, y) =
            (a.fill_buf().map_err(|e| e.to_string())?, b.fill_buf().map_err(|e| e.to_string())?);
        let n = x.len().min(y.len());
        if n == 0 {
            return Ok(x.is_empty() && y.is_empty());
        }
        if x.get(..n) != y.get(..n) {
            return Ok(false);
        }
        a.consume(n);
        b.consume(n);
    }
}

/// Times puts of 8 bytes between two more processes.
fn small_puts(program: &Path, via: Via) -> Result<(), String> {
    let mut perf = Command::new(program);
    perf.args(["perf", "--json", "--op", "put", "--sizes", "8", "--via", via.name()]);
    perf.args(["--iters", &SMALL_PUTS.to_string()]);
    let mut process = Process::start(&mut perf)?;
    let report = process.line()?;
    let mut rest = Vec::new();
    if let Some(out) = process.out.as_mut() {
        out.read_to_end(&mut rest).map_err(|e| e.to_string())?;
    }
    process.end()?;
    let row = report.get("rows").and_then(|r| r.get(0)).ok_or("hmc perf measured nothing")?;
    println!(
        "small put  8 bytes until the target can read them: {:.2} us (half of {SMALL_PUTS}), {:.2} us (99 of 100), over {}",
        number(row, "p50_us"),
        number(row, "p99_us"),
        text(&report, "transport")
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Scratch, Via, explain, same, verify};
    use serde_json::json;

    #[test]
    fn files_are_the_same_only_when_they_are() {
        let scratch = Scratch::new().unwrap();
        let file = |name: &str, bytes: &[u8]| {
            let path = scratch.0.join(name);
            std::fs::write(&path, bytes).unwrap();
            path
        };
        let long = vec![7; 3_000_000];
        let mut other = long.clone();
        other[2_999_999] = 8;
        let a = file("a", &long);
        assert!(same(&a, &file("b", &long)).unwrap());
        assert!(!same(&a, &file("c", &other)).unwrap());
        assert!(!same(&a, &file("d", &long[1..])).unwrap());
        assert!(same(&file("e", b""), &file("f", b"")).unwrap());
        let told = |crc| json!({"crc32c": crc, "path": a});
        verify(&a, &told("01"), &told("01")).unwrap();
        verify(&a, &told("01"), &told("02")).unwrap_err();
        verify(&a, &told(""), &told("")).unwrap_err();
    }

    #[test]
    fn another_transport_than_requested_is_a_failure() {
        let told = |transport| json!({"transport": transport});
        explain(Via::Auto, &told("shm"), &told("shm")).unwrap();
        explain(Via::Shm, &told("tcp"), &told("tcp")).unwrap_err();
        explain(Via::Auto, &told("shm"), &told("tcp")).unwrap_err();
    }
}
