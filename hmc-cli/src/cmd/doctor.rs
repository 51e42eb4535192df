//! `hmc doctor`: what works on this machine, what does not, why, and what to do. It tries each thing
//! instead of guessing, and leaves nothing behind.

use std::path::{Path, PathBuf};
use std::time::Duration;

use hmc_std::config::Environment;
use hmc_std::{ConnType, Session, probe};
use serde::Serialize;

use crate::connect;
use crate::failure::{Failure, Result};
use crate::output;
use crate::units::human;

/// How long a trial may take.
const TRIAL: Duration = Duration::from_secs(10);
/// Bytes that a trial moves: enough to be cut into pieces.
const TRIAL_BYTES: u64 = 3 << 20;
/// Open files below which a session with many peers runs short.
const FEW_FILES: u64 = 1024;
/// Memory below which the usual buffers do not fit.
const LITTLE_MEMORY: u64 = 256 << 20;

/// What `hmc doctor` is told.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Folder of control sockets to examine [default: the user's own]
    #[arg(long, value_name = "DIR")]
    uds: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum State {
    /// It works.
    Works,
    /// It does not; nothing depends on it.
    Without,
    /// It does not, and transfers need it.
    Fails,
    /// Not in this version.
    Absent,
}

#[derive(Debug, Serialize)]
struct Finding {
    name: &'static str,
    state: State,
    what: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    remedy: Option<String>,
}

#[derive(Debug, Serialize)]
struct Report {
    version: &'static str,
    healthy: bool,
    findings: Vec<Finding>,
}

fn works(name: &'static str, what: impl Into<String>) -> Finding {
    Finding { name, state: State::Works, what: what.into(), remedy: None }
}

fn without(name: &'static str, what: impl Into<String>, remedy: &str) -> Finding {
    Finding { name, state: State::Without, what: what.into(), remedy: Some(remedy.to_owned()) }
}

fn fails(name: &'static str, what: impl Into<String>, remedy: &str) -> Finding {
    Finding { name, state: State::Fails, what: what.into(), remedy: Some(remedy.to_owned()) }
}

/// Examines the machine. Fails when something that transfers need does not work.
pub(crate) fn run(options: &Options) -> Result<()> {
    let environment = Environment::read();
    let dir = options.uds.clone().unwrap_or_else(|| environment.default_uds_dir());
    let mut findings = vec![
        variables(&environment),
        trial("loopback", "a session's transfers within itself", ConnType::Loopback),
        trial("shm", "transfers between processes of this host by shared memory", ConnType::Shm),
        trial("tcp", "transfers over TCP", ConnType::Tcp),
        memfd(),
        uds(&dir),
        same_user(),
    ];
    findings.extend(system());
    findings.push(ucx());
    findings.push(verbs());
    findings.push(opencl());
    findings.extend(absent());
    let healthy = findings.iter().all(|f| f.state != State::Fails);
    let report = Report { version: env!("CARGO_PKG_VERSION"), healthy, findings };
    if options.json {
        output::json(&report)?;
    } else {
        output::text(&table(&report))?;
    }
    if healthy {
        return Ok(());
    }
    let failed = report.findings.iter().filter(|f| f.state == State::Fails);
    let names: Vec<&str> = failed.map(|f| f.name).collect();
    Err(Failure::new(format!("does not work here: {}", names.join(", "))))
}

fn table(report: &Report) -> String {
    let mut out = format!("hmc {} on this machine\n", report.version);
    for f in &report.findings {
        let mark = match f.state {
            State::Works => "ok",
            State::Without => "--",
            State::Fails => "FAILS",
            State::Absent => "n/a",
        };
        out.push_str(&format!("  {mark:<6}{:<14}{}\n", f.name, f.what));
        if let Some(remedy) = &f.remedy {
            out.push_str(&format!("  {:<20}to do: {remedy}\n", ""));
        }
    }
    out.push_str(if report.healthy {
        "All that transfers need works."
    } else {
        "Something that transfers need does not work."
    });
    out
}

/// With a variable that makes no sense no session starts, and all trials below fail.
fn variables(environment: &Environment) -> Finding {
    if environment.refused.is_empty() {
        return works(
            "environment",
            "every HMC_ variable that is set has a value that it can have",
        );
    }
    fails(
        "environment",
        environment.refused.join("; "),
        "correct or unset it; docs/ENVIRONMENT.md has the values",
    )
}

/// Really moves bytes over a transport, between two sessions of this process.
fn trial(name: &'static str, purpose: &str, conn: ConnType) -> Finding {
    match moved(conn) {
        Ok(Moved { transport, .. }) => {
            let bytes = human(TRIAL_BYTES);
            works(name, format!("{purpose}: {bytes} moved and verified ({transport})"))
        }
        Err(f) => {
            let remedy = match conn {
                ConnType::Shm => "see memfd and uds below; /tmp must be writable",
                ConnType::Tcp => {
                    "see secret below; check that 127.0.0.1 is up (ip link set lo up) and no firewall drops it"
                }
                _ => "see memory and files below",
            };
            fails(name, format!("{purpose}: {f}"), remedy)
        }
    }
}

/// A folder that goes when it is dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        // Short: a socket's path has at most 107 bytes. The session makes it, private.
        Self(std::env::temp_dir().join(format!("hmc-dr-{}", std::process::id())))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A transfer that was verified.
#[derive(Debug)]
struct Moved {
    /// The transport that it went over.
    transport: &'static str,
    /// What the session says of the choice.
    why: String,
}

fn moved(conn: ConnType) -> Result<Moved> {
    let scratch = Scratch::new();
    let start = |rank: u32| {
        let builder = Session::builder(rank).buffer(2 * TRIAL_BYTES).redial(false);
        if conn == ConnType::Ucx { builder.ucx() } else { builder }
    };
    let source = start(1).deadline(TRIAL).start()?;
    let target = match conn {
        ConnType::Loopback => None,
        ConnType::Shm => Some(start(0).uds(&scratch.0).start()?),
        _ => Some(start(0).tcp("127.0.0.1:0").start()?),
    };
    let peer = match &target {
        None => source.peer(source.rank().0)?,
        Some(t) => {
            let listeners = t.info().listeners;
            let listener = listeners.first();
            let address =
                listener.ok_or_else(|| Failure::new("the session does not listen"))?.address();
            source.connect(address).rank(0).over(conn).within(TRIAL).wait()?
        }
    };
    let pattern: Vec<u8> = (0..TRIAL_BYTES).map(|i| (i % 251) as u8).collect();
    source.buffer().write_at(0, &pattern)?;
    let sent = source.buffer().range(0, TRIAL_BYTES)?;
    peer.buffer()?.put(TRIAL_BYTES, sent).wait()?;
    let there = target.as_ref().unwrap_or(&source).buffer();
    if there.crc32c(TRIAL_BYTES, TRIAL_BYTES)? != source.buffer().crc32c(0, TRIAL_BYTES)? {
        return Err(Failure::new("other bytes arrived than were sent"));
    }
    let chosen = peer.explain().choices.into_iter().find(|choice| choice.chosen);
    let why = chosen.map(|choice| choice.why).unwrap_or_default();
    Ok(Moved { transport: connect::transport(&peer), why })
}

fn memfd() -> Finding {
    match probe::memfd() {
        Ok(facts) if facts.future_write_seal => {
            works("memfd", "sealed shared memory; read-only windows are sealed by the kernel")
        }
        Ok(_) => without(
            "memfd",
            "sealed shared memory, but read-only windows go through the socket",
            "a kernel of 5.1 or later has F_SEAL_FUTURE_WRITE",
        ),
        Err(e) => fails("memfd", e.to_string(), "allow memfd_create(2) and memory to this process"),
    }
}

fn uds(dir: &Path) -> Finding {
    match probe::uds_dir(dir) {
        Ok(()) => works("uds", format!("control sockets can be made in {}", dir.display())),
        Err(e) => fails("uds", e.to_string(), "name another folder: --uds DIR or HMC_UDS_DIR"),
    }
}

fn same_user() -> Finding {
    match probe::secret() {
        Ok(file) => works(
            "secret",
            format!(
                "loopback connections prove the same user by the secret in {}; a session that accepts the dialect of the C++ HMC \
                 (accept_upstream) cannot ask for that, and lets any local user claim a free rank",
                file.display()
            ),
        ),
        Err(e) => fails("secret", e.to_string(), "name a file of your own: HMC_SECRET_FILE"),
    }
}

/// Limits and grants of the system.
fn system() -> Vec<Finding> {
    let host = probe::host();
    let cma = probe::cma();
    let mut out = Vec::new();
    let group = host.cgroup_left.map_or("no control group limits it".to_owned(), |left| {
        format!("the control group leaves {}", human(left))
    });
    let available = host.mem_available.map_or("unknown".to_owned(), human);
    let memory = format!("{available} available, {group}");
    out.push(if host.budget < LITTLE_MEMORY {
        fails("memory", memory, "free memory, or raise the control group's memory.max")
    } else {
        works("memory", memory)
    });
    out.push(match (host.huge_pages, probe::memfd()) {
        (_, Ok(facts)) if facts.huge_bytes > 0 => {
            let from = if facts.reserved { "reserved (hugetlb)" } else { "transparent" };
            works("huge pages", format!("regions of 2 MiB and more get them: {from}"))
        }
        (Ok(told), _) => without(
            "huge pages",
            format!("{told}, but a trial got none; regions use pages of {}", human(host.page_size)),
            "memory may be too fragmented: reserve some (vm.nr_hugepages)",
        ),
        (Err(remedy), _) => {
            without("huge pages", format!("regions use pages of {}", human(host.page_size)), remedy)
        }
    });
    let thp = host.shmem_huge.as_deref().unwrap_or("not in this kernel");
    out.push(works(
        "thp",
        format!("shmem_enabled is `{thp}`; {} huge pages reserved and free", host.free_huge_pages),
    ));
    let lock = if host.memlock == u64::MAX { "no limit".to_owned() } else { human(host.memlock) };
    out.push(works("memlock", format!("{lock} (shared memory and TCP lock nothing)")));
    let files = format!("{} open files; a peer takes up to 4", host.nofile);
    out.push(if host.nofile < FEW_FILES {
        without("open files", files, "ulimit -n 4096 for sessions with hundreds of peers")
    } else {
        works("open files", files)
    });
    let scope = cma.yama_scope.map_or("no Yama".to_owned(), |s| format!("ptrace_scope {s}"));
    let text = format!("{} ({scope})", cma.verdict);
    out.push(if cma.works {
        works("cma", text)
    } else {
        without("cma", text, "memory of the application's own is then copied through a socket; allow process_vm_readv")
    });
    out
}

/// UCX as a session would find it, and a transfer over it.
fn ucx() -> Finding {
    const REMEDY: &str = "nothing, unless `--via ucx` is wanted; docs/UCX.md has the rest";
    let facts = match probe::ucx() {
        Ok(facts) => facts,
        Err(e) => return without("ucx", e.to_string(), REMEDY),
    };
    let reach = match facts.devices.as_slice() {
        [] => "host memory only".to_owned(),
        devices => format!("host memory, {}", devices.join(", ")),
    };
    let what = format!(
        "UCX {} at {}: {reach}; {}",
        facts.version,
        facts.path.display(),
        facts.transports.join(", ")
    );
    match moved(ConnType::Ucx) {
        Ok(_) => works("ucx", what),
        Err(e) => without("ucx", format!("{what}; a transfer failed: {e}"), REMEDY),
    }
}

/// RDMA verbs as a session would find them, with every device, port and GID, and a transfer over them.
fn verbs() -> Finding {
    const REMEDY: &str = "nothing, unless `--via rdma` is wanted; docs/RDMA.md has the rest";
    const WINDOWS: &str = "windows: ";
    let facts = match probe::rdma() {
        Ok(facts) => facts,
        Err(e) => return without("verbs", e.to_string(), REMEDY),
    };
    let devices = facts.devices.join(". ");
    let what = format!("libibverbs at {}: {devices}", facts.path.display());
    match facts.port {
        Err(e) => without("verbs", format!("{what}. {e}"), REMEDY),
        Ok(port) => match moved(ConnType::Rdma) {
            Ok(Moved { why, .. }) => {
                // The last of what the transport says of itself.
                let windows = why.find(WINDOWS).and_then(|at| why.get(at..)).unwrap_or_default();
                works("verbs", format!("{what}. Used: {port}; {windows}"))
            }
            Err(e) => without("verbs", format!("{what}. {port}: a transfer failed: {e}"), REMEDY),
        },
    }
}

/// OpenCL's devices, each tried by itself: sessions do not use them yet.
fn opencl() -> Finding {
    const REMEDY: &str =
        "nothing: sessions move host memory only so far; docs/DEVICES.md has the rest";
    let facts = match probe::opencl() {
        Ok(facts) => facts,
        Err(e) => return without("opencl", e.to_string(), REMEDY),
    };
    let devices = facts.devices.iter().map(|device| {
        let tried = match &device.trial {
            Ok(()) => "1 MiB copied to it and back".to_owned(),
            Err(why) => format!("a trial failed: {why}"),
        };
        format!("{} {}, {}: {tried}", device.id, device.name, human(device.total_bytes))
    });
    let faults = facts.faults.iter().map(|fault| format!("a driver failed: {fault}"));
    let devices: Vec<_> = devices.chain(faults).collect();
    let path = facts.path.display();
    if devices.is_empty() {
        return without("opencl", format!("libOpenCL at {path} has no device"), REMEDY);
    }
    let what = format!("libOpenCL at {path}: {}", devices.join("; "));
    if facts.faults.is_empty() && facts.devices.iter().all(|device| device.trial.is_ok()) {
        works("opencl", what)
    } else {
        without("opencl", what, REMEDY)
    }
}

fn absent() -> [Finding; 1] {
    let finding = |name, what: &str| Finding {
        name,
        state: State::Absent,
        what: format!("{what}: not in this version"),
        remedy: None,
    };
    [finding("gpus", "memory of GPUs and NPUs in sessions")]
}

#[cfg(test)]
mod tests {
    use super::{Report, Scratch, State, absent, fails, moved, table, trial, without, works};
    use hmc_std::ConnType;

    #[test]
    fn a_trial_moves_bytes_over_the_transport_that_it_is_of() {
        for (conn, name) in
            [(ConnType::Loopback, "loopback"), (ConnType::Shm, "shm"), (ConnType::Tcp, "tcp")]
        {
            assert_eq!(moved(conn).unwrap().transport, name);
            let finding = trial("the trial", "what for", conn);
            assert_eq!((finding.name, finding.state), ("the trial", State::Works));
            let said = format!("what for: 3.0 MiB moved and verified ({name})");
            assert_eq!(finding.what, said);
        }
    }

    #[test]
    fn the_folder_of_a_trial_goes_with_it() {
        let scratch =
            Scratch(std::env::temp_dir().join(format!("hmc-dr-t-{}", std::process::id())));
        let path = scratch.0.clone();
        std::fs::create_dir(&path).unwrap();
        drop(scratch);
        assert!(!path.exists());
    }

    #[test]
    fn a_table_has_a_mark_and_a_remedy_for_each_finding() {
        let mut findings =
            vec![works("a", "good"), without("b", "less", "add"), fails("c", "bad", "mend")];
        findings.extend(absent());
        let mut report = Report { version: "1.2.3", healthy: false, findings };
        let lines = "hmc 1.2.3 on this machine
  ok    a             good
  --    b             less
                      to do: add
  FAILS c             bad
                      to do: mend
  n/a   gpus          memory of GPUs and NPUs in sessions: not in this version
";
        assert_eq!(table(&report), format!("{lines}Something that transfers need does not work."));
        report.healthy = true;
        assert_eq!(table(&report), format!("{lines}All that transfers need works."));
    }
}
