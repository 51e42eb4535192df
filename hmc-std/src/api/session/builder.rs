//! The settings of a session to be, and its start.

use std::path::Path;
use std::time::Duration;

use hmc_core::types::Rank;
use hmc_mem::os::limits;

use super::Session;
use crate::api::prepared::Prepared;
use crate::base::config::{Config, Environment, Progress};
use crate::base::error::Result;
use crate::base::secret::SecretPlace;
use crate::memory::Memory;
use crate::transport::domain::Domain;
use crate::transport::registry::CustomDomains;

/// The settings of a session. Nothing is allocated or opened before [`SessionBuilder::start`] or
/// [`SessionBuilder::prepare`].
#[derive(Clone, Debug)]
#[must_use = "call start()"]
pub struct SessionBuilder {
    config: Config,
    environment: Environment,
    tcp: Option<String>,
    custom: CustomDomains,
    memory: Option<Memory>,
}

impl Session {
    /// Returns the settings of a session of that rank. Reads the environment variables of docs/ENVIRONMENT.md
    /// (`HMC_UDS_DIR`, `HMC_SECRET_FILE`, `HMC_JOB`, ...) for defaults; an invalid value fails at the start of the
    /// session.
    pub fn builder(rank: u32) -> SessionBuilder {
        SessionBuilder::of(rank, Environment::read())
    }
}

impl SessionBuilder {
    /// As [`Session::builder`], in that environment.
    pub(crate) fn of(rank: u32, environment: Environment) -> Self {
        let (tcp, custom) = (None, CustomDomains::default());
        Self {
            config: Config::new(Rank(rank), &environment),
            environment,
            tcp,
            custom,
            memory: None,
        }
    }

    /// Listens on a TCP address (`"127.0.0.1:0"`: any free port). Other than loopback addresses
    /// need [`SessionBuilder::insecure`].
    pub fn tcp(mut self, addr: &str) -> Self {
        self.tcp = Some(addr.to_owned());
        self
    }

    /// Listens on a socket in `dir`, which must be private to this user; it is made if needed.
    /// Shared memory needs this on one end.
    pub fn uds(mut self, dir: impl AsRef<Path>) -> Self {
        self.config.uds_dir = Some(dir.as_ref().to_path_buf());
        self
    }

    /// Listens on a socket in the default folder: `HMC_UDS_DIR`, `$XDG_RUNTIME_DIR/hmc` or
    /// `/tmp/hmc-<uid>`.
    pub fn uds_default(mut self) -> Self {
        self.config.uds_dir = Some(self.environment.default_uds_dir());
        self
    }

    /// Bytes of the buffer; 0 (the default) for none.
    pub fn buffer(mut self, bytes: u64) -> Self {
        self.config.buffer_bytes = bytes;
        self
    }

    /// Registers memory with `memory`, which other sessions can use before, during and after the life of this one. By
    /// default the session has its own.
    pub fn memory(mut self, memory: &Memory) -> Self {
        self.memory = Some(memory.clone());
        self
    }

    /// Allocates each page of the buffer at its first access instead of at the start. **If memory is exhausted, that
    /// access ends the process by SIGBUS.** Peers on the same host do not map a lazy buffer, so this process makes
    /// their copies. Memory that UCX allocates is not lazy.
    pub fn lazy(mut self) -> Self {
        self.config.lazy = true;
        self
    }

    /// Checks everything that [`SessionBuilder::prepare`] checks before it allocates memory.
    ///
    /// # Errors
    /// `InvalidConfig`; `NoSpace` if the system has less memory than the buffer needs.
    pub fn check(&self) -> Result<()> {
        self.config.check()?;
        self.custom.check()?;
        if !self.config.lazy {
            limits::Budget::check_now(self.config.buffer_bytes)?;
        }
        Ok(())
    }

    /// Allows connections with other hosts, which are not authenticated: use trusted networks only.
    pub fn insecure(mut self) -> Self {
        self.config.insecure = true;
        self
    }

    /// Accepts nodes of the C++ HMC on the control plane. They are not authenticated.
    pub fn accept_upstream(mut self) -> Self {
        self.config.upstream = true;
        self
    }

    /// Accepts connections over loopback without proof that both ends belong to the same user: any local user, and any
    /// container in this network namespace, can then claim a free rank. Both ends must set it. By default each end
    /// proves that it can read the same secret ([`SessionBuilder::secret_file`]). Unix sockets need no secret, because
    /// the kernel reports the user of the peer.
    pub fn insecure_loopback(mut self) -> Self {
        self.config.insecure_loopback = true;
        self
    }

    /// Sets the file with the secret of this user's sessions: mode 0600, at least 32 bytes, created if it is missing.
    /// Default: `HMC_SECRET_FILE`, else `secret` in the default directory of control sockets. Containers of one user
    /// that share a network namespace but not that directory need a common file.
    pub fn secret_file(mut self, path: impl AsRef<Path>) -> Self {
        self.config.secret = SecretPlace::named(path.as_ref());
        self
    }

    /// Accepts only processes of the same job. Default: the number that `HMC_JOB`, `SLURM_JOB_ID` or
    /// `TORCHELASTIC_RUN_ID` names, in this order ([`job_of`](crate::config::job_of) converts text to a number), else
    /// 0.
    pub fn job(mut self, job: u64) -> Self {
        self.config.job = job;
        self.config.job_from = "the program";
        self
    }

    /// Operations per peer that may be posted and not waited for: 1 to 1024, default 128.
    pub fn slots(mut self, slots: usize) -> Self {
        self.config.slots = slots;
        self
    }

    /// Windows per peer: 1 to 256, default 32. Messages keep up to 12 of them, and groups up to half: each [group](crate::group) one towards
    /// each member on this host, with two file descriptors and 260 KiB of memory. A session that exposes many windows asks for more.
    pub fn windows(mut self, windows: usize) -> Self {
        self.config.windows = windows;
        self
    }

    /// Deadline of every blocking call and of every operation; default 30 s.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.config.deadline = deadline;
        self
    }

    /// Returns the current deadline: that of [`SessionBuilder::deadline`], else that of `HMC_TIMEOUT`, else 30 s.
    #[must_use]
    pub fn call_deadline(&self) -> Duration {
        self.config.deadline
    }

    /// Sets the period of heartbeats (default 500 ms). A peer from which nothing is received for five periods is dead.
    /// With `None` at both ends there are no heartbeats.
    pub fn heartbeat(mut self, period: Option<Duration>) -> Self {
        self.config.heartbeat = period;
        self
    }

    /// Sets how long a blocking call spins before it parks (default 20 us; 0 disables spinning). On a link whose
    /// replies arrive within ten times this period, a call for one operation or message spins that long. After several
    /// waits that outlast the spin, calls on that link park at once and retry spinning ever more rarely.
    pub fn spin(mut self, spin: Duration) -> Self {
        self.config.spin = spin;
        self
    }

    /// Sets a hook that ends blocking calls early: if it returns `true`, they fail with
    /// [`ErrorKind::Interrupted`](crate::error::ErrorKind::Interrupted). For programs whose signal handlers only set a
    /// flag, as Python's do.
    ///
    /// The hook runs on the thread of the call about every 50 ms (a transport's copy of at most 8 MiB can delay it),
    /// never in a call that ends sooner, and may use the session. A panic in it is caught and counts as `true`. On
    /// interruption:
    ///
    /// - A blocking put or get returns; the operation continues and keeps its memory until it ends.
    /// - An operation that was waited for can be waited for again.
    /// - A message of any size is withdrawn, and a dial is cancelled.
    /// - A window that is being revoked stays closed, and its span stays in quarantine.
    /// - [`Session::shutdown`] and [`Peer::disconnect`](crate::peer::Peer::disconnect) close at once.
    ///
    /// Dropping a session does not call the hook.
    pub fn interrupt(mut self, hook: fn() -> bool) -> Self {
        self.config.interrupt = Some(hook);
        self
    }

    /// Sets who makes progress while no call waits.
    pub fn progress(mut self, progress: Progress) -> Self {
        self.config.progress = progress;
        self
    }

    /// Sets whether a lost peer is dialed again (default: yes). The end with the lower rank dials.
    pub fn redial(mut self, redial: bool) -> Self {
        self.config.redial = redial;
        self
    }

    /// Accepts peers that claim this session's own rank, and gives them private ranks, which exceed all ranks of a job
    /// ([`Peer::rank`](crate::peer::Peer::rank)). For programs that identify peers by their addresses, as those of the
    /// C++ HMC do; see [`PeerRank::Alias`](crate::PeerRank::Alias).
    pub fn private_ranks(mut self) -> Self {
        self.config.private_ranks = true;
        self
    }

    /// Sets whether user memory, and long messages of collectives, may be copied by process_vm_readv(2) and process_vm_writev(2)
    /// (default: yes).
    pub fn cma(mut self, cma: bool) -> Self {
        self.config.cma = cma;
        self
    }

    /// Sets the number of messages and bytes that one peer's inbox holds (default 4096 and 4 MiB). An empty inbox
    /// accepts one message of any length. While an inbox is full, nothing more is read from that peer: a call that
    /// waits for another message of it, for one of any size, or in a collective, waits until the application has
    /// received some. Messages of peers that have disconnected are kept until they are received, up to 64 MiB in all,
    /// or up to twice the capacity of one inbox if that is more.
    pub fn inbox(mut self, messages: usize, bytes: usize) -> Self {
        self.config.inbox_messages = messages;
        self.config.inbox_bytes = bytes;
        self
    }

    /// Sets the number of quarantined bytes (default 1 GiB) above which no further memory can be exposed.
    pub fn max_quarantine(mut self, bytes: u64) -> Self {
        self.config.max_quarantine = bytes;
        self
    }

    /// Starts UCX with the session: peers can select `ConnType::Ucx`, and the buffer is memory that UCX's shared-memory
    /// lanes map (over [`ConnType::Shm`](hmc_core::types::ConnType::Shm) this process then makes the peers' copies).
    /// Otherwise a session starts UCX when it first dials a peer over it. libucp is loaded at run time: the library
    /// that `HMC_UCX_LIB` names, else the one that the process has loaded, the system's, or a wheel's. `UCX_*`
    /// variables are honoured. UCX's software lanes do not check bounds at the target: use them among processes that
    /// trust each other.
    pub fn ucx(mut self) -> Self {
        self.config.ucx.wanted = true;
        self
    }

    /// Sets the number of UCX workers among which links to other hosts are distributed: 1 to 16, default 1. The links
    /// of a worker share a lock; each worker takes about 15 ms to start, 4 MB and ten descriptors. A link to a process
    /// on the same host has its own worker if UCX has shared-memory lanes.
    ///
    /// Over RDMA verbs, the number of queue pairs of each link, among which transfers of at least 128 KiB are
    /// distributed; the smaller number of the two ends applies.
    pub fn num_channels(mut self, channels: u32) -> Self {
        self.config.set_channels(channels);
        self
    }

    /// Sets a key of UCX's configuration, without the prefix `UCX_`: `("TLS", "tcp,self")`. It overrides the
    /// environment.
    pub fn ucx_key(mut self, key: &str, value: &str) -> Self {
        self.config.ucx.keys.push((key.to_owned(), value.to_owned()));
        self
    }

    /// Adds a folder that is searched first for a Python package with UCX (`lib/python*/site-packages/libucx`), such as
    /// an interpreter's `sys.prefix`.
    pub fn ucx_prefix(mut self, prefix: impl AsRef<Path>) -> Self {
        self.config.ucx.prefixes.insert(0, prefix.as_ref().to_path_buf());
        self
    }

    /// Passes UCX's log records to `tracing` (target `ucx`) instead of printing them. It applies to the whole process,
    /// from the first such session on. `UCX_LOG_LEVEL` selects the records.
    pub fn ucx_log(mut self) -> Self {
        self.config.ucx.log = true;
        self
    }

    /// Starts the session. When it returns, the listeners accept connections and the buffer is allocated.
    ///
    /// # Errors
    /// `InvalidConfig`, which names the setting or environment variable; `NoCredentials` for an address beyond loopback
    /// without [`SessionBuilder::insecure`]; `DuplicateRank` if a live process has the rank; `NoSpace` for the buffer;
    /// `SystemLimit`.
    pub fn start(self) -> Result<Session> {
        self.prepare()?.start()
    }

    /// Adds a transport of the application. It is used only if both ends have it and it is selected by its
    /// [`ConnType::Custom`](hmc_core::types::ConnType::Custom); `Auto` never selects it. A name has 1 to 64 printable
    /// ASCII characters without spaces and differs from those of the built-in transports. An invalid or duplicate name
    /// or endpoint is `InvalidConfig` at the start.
    pub fn transport(mut self, domain: impl Domain + 'static) -> Self {
        self.custom.push(domain);
        self
    }

    /// Allocates the buffer only. Its bytes can be written before the rank and the addresses are known.
    ///
    /// # Errors
    /// `NoSpace` for the buffer; `Unavailable` with [`SessionBuilder::ucx`] if UCX is missing; `SystemLimit`.
    pub fn prepare(self) -> Result<Prepared> {
        Prepared::new(self.config, self.tcp, self.custom, self.memory.as_ref())
    }
}
