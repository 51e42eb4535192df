//! Settings of a session. This is the only module that reads environment variables.

mod rdma;
mod ucx;

use std::ffi::{OsStr, OsString};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::time::Duration;

use hmc_core::limits;
use hmc_core::types::Rank;
use hmc_hw::ucx::settings::USER_KEYS;
use hmc_hw::verbs::nic_list::NicList;

pub(crate) use self::rdma::Rdma;
pub(crate) use self::ucx::Ucx;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::paths::absolute;
pub use crate::base::paths::uds_path;
use crate::base::secret::SecretPlace;

/// How a session makes progress while no caller waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Progress {
    /// One background thread, parked while idle. Callers that wait make progress themselves.
    #[default]
    Thread,
    /// The application calls `progress()`: only these calls receive puts of peers and wake futures. A thread still answers
    /// heartbeats.
    Manual,
}

/// The settings of a session. Built by [`crate::session::SessionBuilder`].
#[derive(Clone, Debug)]
pub struct Config {
    pub(crate) rank: Rank,
    pub(crate) job: u64,
    /// Where `job` comes from, for messages.
    pub(crate) job_from: &'static str,
    /// Where the secret of this user's sessions is.
    pub(crate) secret: SecretPlace,
    /// Connections over loopback need no proof of the same user.
    pub(crate) insecure_loopback: bool,
    pub(crate) tcp: Option<SocketAddr>,
    pub(crate) uds_dir: Option<PathBuf>,
    /// Machines that prove nothing about themselves are allowed, whatever an address says.
    pub(crate) insecure: bool,
    pub(crate) upstream: bool,
    pub(crate) buffer_bytes: u64,
    /// The buffer's pages are taken when they are touched.
    pub(crate) lazy: bool,
    /// Ranks of the job are below it.
    pub(crate) ranks: u32,
    pub(crate) slots: usize,
    pub(crate) windows: usize,
    pub(crate) deadline: Duration,
    pub(crate) heartbeat: Option<Duration>,
    pub(crate) spin: Duration,
    /// Called between the parks of blocking calls: whether they shall end.
    pub(crate) interrupt: Option<fn() -> bool>,
    pub(crate) progress: Progress,
    pub(crate) redial: bool,
    /// Peers that claim our own rank are let in, under private ranks.
    pub(crate) private_ranks: bool,
    pub(crate) inbox_messages: usize,
    pub(crate) inbox_bytes: usize,
    pub(crate) max_quarantine: u64,
    pub(crate) cma: bool,
    pub(crate) ucx: Ucx,
    pub(crate) rdma: Rdma,
    /// What [`Environment::refused`] says: with any of it no session starts.
    pub(crate) refused: Vec<String>,
}

/// UCX workers of one session, and queue pairs of one link, at the most.
const MAX_CHANNELS: u32 = 16;

/// Settings from the environment. All are optional, and builders override them; docs/ENVIRONMENT.md lists their values.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    /// A sentence for each variable with an invalid value, with that value and the valid ones. If there is any, no session starts,
    /// whatever its builder overrides.
    pub refused: Vec<String>,
    /// `HMC_UDS_DIR`: folder of control sockets.
    pub uds_dir: Option<PathBuf>,
    /// `HMC_SECRET_FILE`: the file that proves the same user on loopback connections; a file in the default folder of control
    /// sockets if it is not set.
    pub secret_file: Option<PathBuf>,
    /// The job, and the variable that names it: `HMC_JOB`, else `SLURM_JOB_ID`, else `TORCHELASTIC_RUN_ID`.
    pub job: Option<(u64, &'static str)>,
    /// `HMC_SPIN_US`: microseconds that a waiter spins before it parks.
    pub spin: Option<Duration>,
    /// `HMC_TIMEOUT`: seconds, the deadline of calls and operations; `inf` for none.
    pub timeout: Option<Duration>,
    /// `HMC_NO_CMA=1`: never use process_vm_readv(2). `0`: as if it were not set.
    pub no_cma: bool,
    /// `XDG_RUNTIME_DIR`, the parent of the default folder of control sockets.
    pub runtime_dir: Option<PathBuf>,
    /// `HMC_UCX=1`: sessions take part in UCX from their start. `0`: as if it were not set.
    pub ucx: bool,
    /// `HMC_UCX_LIB`: libucp, or the folder that holds it.
    pub ucx_lib: Option<PathBuf>,
    /// `UCX_TLS`, UCX's own list of transports.
    pub ucx_tls: Option<String>,
    /// `UCX_NET_DEVICES`, UCX's own list of devices.
    pub ucx_devices: Option<String>,
    /// Those of [`USER_KEYS`] that are set as `UCX_*` variables, which then hold.
    pub ucx_keys: Vec<&'static str>,
    /// `HMC_VERBS_LIB`: libibverbs.
    pub verbs_lib: Option<PathBuf>,
    /// `HMC_OPENCL_LIB`: libOpenCL.
    pub opencl_lib: Option<PathBuf>,
    /// `HMC_RDMA_PORT`: the RDMA device, or device and port (`mlx5_0:1`), or several with commas between.
    pub rdma_port: Option<NicList>,
    /// `HMC_RDMA_GID`: the index of the GID in the port's table.
    pub rdma_gid: Option<u8>,
    /// Folders under which Python packages may be: `VIRTUAL_ENV`, `CONDA_PREFIX`, `$HOME/.local`.
    pub prefixes: Vec<PathBuf>,
}

impl Environment {
    /// Reads the process environment once.
    #[must_use]
    pub fn read() -> Self {
        Self::of(|name| std::env::var_os(name))
    }

    /// Reads the settings of another environment than the process's. Invalid values set nothing and are listed in
    /// [`Environment::refused`].
    #[must_use]
    pub fn of(get: impl Fn(&str) -> Option<OsString>) -> Self {
        let path = |name| get(name).filter(|v| !v.is_empty()).map(PathBuf::from);
        let mut refused = Vec::new();
        let mut switch = |name| {
            let is_on = |v: &str| matches!(v, "" | "0" | "1").then_some(v == "1");
            value(name, get(name), "1 (yes) or 0 (no)", is_on, &mut refused) == Some(true)
        };
        let (no_cma, ucx) = (switch("HMC_NO_CMA"), switch("HMC_UCX"));
        let spin = get("HMC_SPIN_US");
        let micros = |v: &str| v.parse().ok().map(Duration::from_micros);
        let spin =
            value("HMC_SPIN_US", spin, "whole microseconds (0 or more)", micros, &mut refused);
        let timeout = get("HMC_TIMEOUT");
        let time = |v: &str| seconds(v.parse().ok()?);
        let form = "seconds (0 or more; inf: no limit)";
        let timeout = value("HMC_TIMEOUT", timeout, form, time, &mut refused);
        let gid = get("HMC_RDMA_GID").filter(|v| !v.is_empty());
        let index = |v: &str| v.parse().ok();
        let rdma_gid = value("HMC_RDMA_GID", gid, "an index (0 to 255)", index, &mut refused);
        let port = get("HMC_RDMA_PORT").filter(|v| !v.is_empty());
        let nics = |v: &str| v.parse().ok();
        let form =
            "DEVICE or DEVICE:PORT, as in mlx5_0:1, or up to 8 of them as in mlx5_0:1,mlx5_1:1";
        let rdma_port = value("HMC_RDMA_PORT", port, form, nics, &mut refused);
        Self {
            refused,
            uds_dir: path("HMC_UDS_DIR"),
            secret_file: path("HMC_SECRET_FILE"),
            job: ["HMC_JOB", "SLURM_JOB_ID", "TORCHELASTIC_RUN_ID"].into_iter().find_map(|name| {
                let text = get(name)?;
                // `none` is what torchrun says when nobody chose a name.
                (!text.is_empty() && text != "none").then(|| (job_of(&text), name))
            }),
            spin,
            timeout,
            no_cma,
            runtime_dir: path("XDG_RUNTIME_DIR"),
            ucx,
            ucx_lib: path("HMC_UCX_LIB"),
            ucx_tls: get("UCX_TLS").and_then(|v| v.into_string().ok()),
            ucx_devices: get("UCX_NET_DEVICES").and_then(|v| v.into_string().ok()),
            ucx_keys: USER_KEYS
                .into_iter()
                .filter(|key| get(&format!("UCX_{key}")).is_some())
                .collect(),
            verbs_lib: path("HMC_VERBS_LIB"),
            opencl_lib: path("HMC_OPENCL_LIB"),
            rdma_port,
            rdma_gid,
            prefixes: [
                path("VIRTUAL_ENV"),
                path("CONDA_PREFIX"),
                path("HOME").map(|home| home.join(".local")),
            ]
            .into_iter()
            .flatten()
            .chain(["/usr/local".into(), "/usr".into()])
            .collect(),
        }
    }

    /// Returns the folder for control sockets: `HMC_UDS_DIR`, else `$XDG_RUNTIME_DIR/hmc`, else
    /// `/tmp/hmc-<uid>`.
    #[must_use]
    pub fn default_uds_dir(&self) -> PathBuf {
        if let Some(dir) = &self.uds_dir {
            return dir.clone();
        }
        if let Some(dir) = &self.runtime_dir {
            return dir.join("hmc");
        }
        PathBuf::from(format!("/tmp/hmc-{}", rustix::process::geteuid().as_raw()))
    }
}

/// Returns the value of a variable, converted by `parse`. If `parse` fails, adds a sentence with the valid values to `refused`.
fn value<T>(
    name: &str,
    given: Option<OsString>,
    form: &str,
    parse: impl FnOnce(&str) -> Option<T>,
    refused: &mut Vec<String>,
) -> Option<T> {
    let given = given?;
    let parsed = given.to_str().and_then(parse);
    if parsed.is_none() {
        refused.push(format!("{name}={given:?}: give {form}, or unset it"));
    }
    parsed
}

/// Returns a duration of `value` seconds. Infinity and durations that are too long are [`Duration::MAX`], which never passes. Returns
/// `None` for negative values and NaN.
#[must_use]
pub fn seconds(value: f64) -> Option<Duration> {
    // 2^64 seconds and more.
    if value >= 18_446_744_073_709_551_616.0 {
        return Some(Duration::MAX);
    }
    Duration::try_from_secs_f64(value).ok()
}

/// The name of the secret's file in a folder of control sockets.
const SECRET_NAME: &str = "secret";

/// Returns the job that a text names: the number itself, or a hash of any other bytes.
#[must_use]
pub fn job_of(text: impl AsRef<OsStr>) -> u64 {
    let text = text.as_ref();
    text.to_str().and_then(|t| t.parse().ok()).unwrap_or_else(|| {
        let hash = blake3::hash(text.as_bytes());
        hash.as_bytes().first_chunk().map_or(0, |first| u64::from_le_bytes(*first))
    })
}

/// Checks that a rank is one that a process can have.
pub(crate) fn check_rank(rank: u32) -> Result<()> {
    if rank < limits::MAX_PEERS {
        return Ok(());
    }
    let last = limits::MAX_PEERS.saturating_sub(1);
    Err(Error::config(format!("rank {rank} is beyond the last one, {last}")))
}

impl Config {
    pub(crate) fn new(rank: Rank, env: &Environment) -> Self {
        Self {
            rank,
            job: env.job.map_or(0, |(job, _)| job),
            job_from: env.job.map_or("the default", |(_, from)| from),
            secret: match &env.secret_file {
                Some(file) => SecretPlace::named(file),
                None => SecretPlace::Own(absolute(&env.default_uds_dir()).join(SECRET_NAME)),
            },
            insecure_loopback: false,
            tcp: None,
            uds_dir: None,
            insecure: false,
            upstream: false,
            buffer_bytes: 0,
            lazy: false,
            ranks: limits::MAX_PEERS,
            slots: limits::DEFAULT_SLOTS,
            windows: 32,
            deadline: env.timeout.unwrap_or(Duration::from_nanos(limits::DEFAULT_DEADLINE_NS)),
            heartbeat: Some(Duration::from_nanos(limits::HEARTBEAT_NS)),
            spin: env.spin.unwrap_or(Duration::from_micros(20)),
            interrupt: None,
            progress: Progress::Thread,
            redial: true,
            private_ranks: false,
            inbox_messages: 4096,
            inbox_bytes: 4 << 20,
            max_quarantine: 1 << 30,
            cma: !env.no_cma,
            ucx: Ucx {
                wanted: env.ucx,
                library: env.ucx_lib.clone(),
                prefixes: env.prefixes.clone(),
                user_tls: env.ucx_tls.clone(),
                user_devices: env.ucx_devices.clone(),
                user_keys: env.ucx_keys.clone(),
                ..Ucx::default()
            },
            rdma: Rdma::new(env.verbs_lib.clone(), env.rdma_port.clone(), env.rdma_gid),
            refused: env.refused.clone(),
        }
    }

    /// UCX workers of the session, and queue pairs of each link over RDMA verbs.
    pub(crate) fn set_channels(&mut self, channels: u32) {
        self.ucx.workers = Some(channels);
        self.rdma.lanes = usize::try_from(channels).unwrap_or(usize::MAX);
    }

    pub(crate) fn check(&self) -> Result<()> {
        if !self.refused.is_empty() {
            let all = self.refused.join("; ");
            return Err(Error::config(format!("the environment makes no sense: {all}")));
        }
        check_rank(self.rank.0)?;
        if self.slots == 0 || self.slots > limits::MAX_SLOTS {
            return Err(Error::config(format!(
                "{} operations in flight: choose 1 to {}",
                self.slots,
                limits::MAX_SLOTS
            )));
        }
        if self.windows == 0 || self.windows > limits::MAX_WINDOWS_PER_PEER {
            return Err(Error::config(format!(
                "{} windows per peer: choose 1 to {}",
                self.windows,
                limits::MAX_WINDOWS_PER_PEER
            )));
        }
        if let Some(n) = self.ucx.workers.filter(|n| !(1..=MAX_CHANNELS).contains(n)) {
            return Err(Error::config(format!("{n} channels: choose 1 to {MAX_CHANNELS}")));
        }
        if let Some(addr) = self.tcp {
            check_exposure(addr.ip(), self.insecure)?;
        }
        if let Some(dir) = &self.uds_dir {
            uds_path(dir, self.rank)?;
        }
        Ok(())
    }
}

/// The address to listen on that a text names.
///
/// # Errors
/// `InvalidConfig`.
pub(crate) fn listening_address(text: &str) -> Result<SocketAddr> {
    text.parse()
        .map_err(|_| Error::config(format!("`{text}` is no listening address: write IP:PORT")))
}

/// Refuses to use `ip` without credentials unless it is loopback or `insecure` was asked for.
pub(crate) fn check_exposure(ip: IpAddr, insecure: bool) -> Result<()> {
    if ip.to_canonical().is_loopback() || insecure {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::NoCredentials,
        format!(
            "{ip} can be reached from other machines and connections are not authenticated yet: \
             use a loopback address (127.0.0.1), or ask for `insecure` by name on a network that \
             you trust"
        ),
    ))
}

#[cfg(test)]
mod tests {
    mod limits;

    use super::{Environment, check_exposure, job_of, uds_path};
    use crate::base::error::ErrorKind;
    use crate::base::paths::rank_of_socket;
    use hmc_core::types::Rank;
    use std::path::Path;

    #[test]
    fn pending_conns_are_kept_out_by_default() {
        let any = "0.0.0.0".parse().expect("an address");
        let e = check_exposure(any, false).expect_err("not loopback");
        assert_eq!(e.kind(), ErrorKind::NoCredentials);
        assert!(e.to_string().contains("insecure"));
        check_exposure(any, true).expect("asked for");
        check_exposure("::1".parse().expect("an address"), false).expect("loopback");
    }

    #[test]
    fn the_environment_sets_the_deadline() {
        use std::time::Duration;
        let with = |text: &'static str| {
            Environment::of(|name| (name == "HMC_TIMEOUT").then(|| text.into())).timeout
        };
        assert_eq!(with("2.5"), Some(Duration::from_millis(2500)));
        for endless in ["inf", "Infinity", "1e300", "18446744073709551616"] {
            assert_eq!(with(endless), Some(Duration::MAX), "{endless}");
        }
    }

    #[test]
    fn a_value_that_makes_no_sense_is_refused_by_name() {
        let cases: [(&str, &str, &[&str]); 6] = [
            ("HMC_TIMEOUT", "seconds", &["", "-1", "-inf", "nan", "soon", "2s", " 2", "1_000"]),
            ("HMC_SPIN_US", "microseconds", &["", "-1", "1.5", "inf", "18446744073709551616"]),
            ("HMC_NO_CMA", "1 (yes) or 0 (no)", &["yes", "true", "2", " 1", "01"]),
            ("HMC_UCX", "1 (yes) or 0 (no)", &["yes", "on", "ucx"]),
            ("HMC_RDMA_GID", "an index (0 to 255)", &["-1", "256", "one", " 1"]),
            (
                "HMC_RDMA_PORT",
                "as in mlx5_0:1",
                &[":1", "mlx5_0:0", "mlx5_0:", "../x", "a,", "a,b,c,d,e,f,g,h,i"],
            ),
        ];
        for (name, form, wrong) in cases {
            for given in wrong {
                let env = Environment::of(|n| (n == name).then(|| (*given).into()));
                let builder = || crate::api::session::SessionBuilder::of(3, env.clone());
                let told = [
                    builder().check().expect_err(given),
                    builder().deadline(std::time::Duration::from_secs(1)).start().expect_err(given),
                ];
                for e in told {
                    assert_eq!(e.kind(), ErrorKind::InvalidConfig);
                    let (text, variable) = (e.to_string(), format!("{name}={given:?}"));
                    assert!(text.contains(&variable) && text.contains(form), "{text}");
                }
                assert_eq!(
                    (env.timeout, env.spin, env.no_cma, env.ucx),
                    (None, None, false, false)
                );
                assert_eq!((env.rdma_gid, env.rdma_port), (None, None));
            }
        }
        let all = Environment::of(|n| n.starts_with("HMC_").then(|| "?".into()));
        assert_eq!(all.refused.len(), 5, "{:?}", all.refused);
        for (name, right) in [("HMC_NO_CMA", "0"), ("HMC_UCX", ""), ("HMC_RDMA_GID", "")] {
            let env = Environment::of(|n| (n == name).then(|| right.into()));
            assert_eq!(env.refused, [""; 0], "{name}={right}");
        }
    }

    #[test]
    fn the_job_comes_from_the_first_variable_that_names_one() {
        let of = |vars: &[(&str, &str)]| {
            let found = |name: &str| vars.iter().find(|(n, _)| *n == name);
            Environment::of(|name| found(name).map(|(_, v)| v.into())).job
        };
        assert_eq!(of(&[]), None);
        let (hmc, slurm) = (("HMC_JOB", "7"), ("SLURM_JOB_ID", "123456"));
        let torch = ("TORCHELASTIC_RUN_ID", "train-3");
        assert_eq!(of(&[torch, slurm, hmc]), Some((7, "HMC_JOB")));
        assert_eq!(of(&[torch, slurm]), Some((123_456, "SLURM_JOB_ID")));
        assert_eq!(of(&[torch]), Some((job_of("train-3"), "TORCHELASTIC_RUN_ID")));
        assert_ne!(job_of("train-3"), job_of("train-4"));
        assert_eq!(of(&[("TORCHELASTIC_RUN_ID", "none"), ("SLURM_JOB_ID", "")]), None);
        // What is no Unicode names a job as well.
        let odd = <std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(b"\xFF7");
        let get = |name: &str| match name {
            "HMC_JOB" => Some(odd.to_owned()),
            "SLURM_JOB_ID" => Some("5".into()),
            _ => None,
        };
        assert_eq!(Environment::of(get).job, Some((job_of(odd), "HMC_JOB")));
    }

    #[test]
    fn the_name_of_a_socket_contains_its_rank() {
        let path = uds_path(Path::new("/d"), Rank(37)).expect("short");
        assert_eq!(
            path.file_name().and_then(|n| n.to_str()).and_then(rank_of_socket),
            Some(Rank(37))
        );
        for name in
            ["hmc_ctrl_rank_3.lock", "hmc_ctrl_rank_+3.sock", "hmc_ctrl_rank_.sock", "3.sock"]
        {
            assert_eq!(rank_of_socket(name), None, "{name}");
        }
    }

    #[test]
    fn a_long_socket_path_is_refused_not_truncated() {
        let dir = "d".repeat(100);
        let e = uds_path(Path::new(&dir), Rank(1)).expect_err("too long");
        assert!(e.to_string().contains("107"), "{e}");
    }
}
