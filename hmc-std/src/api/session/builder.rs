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

/// Settings of a session to be.
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
    /// A session of that rank. Reads the environment (`HMC_UDS_DIR`, `HMC_SECRET_FILE`, `HMC_JOB`, ...)
    /// for defaults.
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

    /// Registers memory with `memory`, which other sessions may use too, before, meanwhile and afterwards. Without it the
    /// session has one of its own.
    pub fn memory(mut self, memory: &Memory) -> Self {
        self.memory = Some(memory.clone());
        self
    }

    /// Takes the buffer's pages when they are touched, and none at the start. **A system that is full then ends the process by
    /// SIGBUS**, at whichever access comes too late. Peers of this host do not map such a buffer: what they put is copied by
    /// this process. Memory of UCX's own making is not lazy.
    pub fn lazy(mut self) -> Self {
        self.config.lazy = true;
        self
    }

    /// What [`SessionBuilder::prepare`] would refuse before it takes any memory.
    ///
    /// # Errors
    /// `InvalidConfig`; `NoSpace` when the system has less memory than the buffer needs.
    pub fn check(&self) -> Result<()> {
        self.config.check()?;
        self.custom.check()?;
        if !self.config.lazy {
            limits::Budget::check_now(self.config.buffer_bytes)?;
        }
        Ok(())
    }

    /// Allows connections with machines that prove nothing about themselves.
    pub fn insecure(mut self) -> Self {
        self.config.insecure = true;
        self
    }

    /// Lets nodes of the C++ HMC connect, on the control plane. They prove nothing.
    pub fn accept_upstream(mut self) -> Self {
        self.config.upstream = true;
        self
    }

    /// Connections over loopback need no proof that both ends belong to the same user: any local user, and every container in
    /// this network namespace, may claim a free rank. Both ends must allow it. Without this each proves that it can read the
    /// same secret ([`SessionBuilder::secret_file`]); local sockets do without, the kernel knows their users.
    pub fn insecure_loopback(mut self) -> Self {
        self.config.insecure_loopback = true;
        self
    }

    /// The file with the secret of this user's sessions, mode 0600, at least 32 bytes; it is made if it is missing. Default:
    /// `HMC_SECRET_FILE`, else `secret` in the default folder of control sockets. Containers of one user that share a network
    /// namespace and no such folder need one that they share.
    pub fn secret_file(mut self, path: impl AsRef<Path>) -> Self {
        self.config.secret = SecretPlace::named(path.as_ref());
        self
    }

    /// Only processes of the same job may connect. Default: the number that `HMC_JOB`, `SLURM_JOB_ID` or
    /// `TORCHELASTIC_RUN_ID` names, in this order ([`job_of`](crate::config::job_of) makes one of a text), else 0.
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

    /// Windows per peer: 1 to 256, default 32.
    pub fn windows(mut self, windows: usize) -> Self {
        self.config.windows = windows;
        self
    }

    /// Deadline of every blocking call and of every operation; default 30 s.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.config.deadline = deadline;
        self
    }

    /// The deadline as it is set now: 30 s, what `HMC_TIMEOUT` says, or [`SessionBuilder::deadline`]'s.
    #[must_use]
    pub fn call_deadline(&self) -> Duration {
        self.config.deadline
    }

    /// Period of heartbeats (default 500 ms); a peer silent for five of them is dead. `None` wants
    /// none: there are none if both ends want none.
    pub fn heartbeat(mut self, period: Option<Duration>) -> Self {
        self.config.heartbeat = period;
        self
    }

    /// How long a waiter spins before it sleeps; default 20 us, 0 for never. A waiter for one operation or message spins ten
    /// times as long on a link whose answers come within that. Where spins are in vain time after time it sleeps at once, and tries
    /// again ever more rarely.
    pub fn spin(mut self, spin: Duration) -> Self {
        self.config.spin = spin;
        self
    }

    /// Has `hook` asked whether blocking calls shall end early: when it answers true, they end with
    /// [`ErrorKind::Interrupted`](crate::error::ErrorKind::Interrupted). For programs whose signals only leave a note,
    /// as Python's do.
    ///
    /// It is asked on the thread of the call, every 50 ms (transports' copies of at most 8 MiB permitting) and never by
    /// a call that ends sooner; it may use the session. A panic of it is caught and counts as `true`. What is interrupted: a blocking put or get runs on, unnamed,
    /// and holds its memory until it has ended; an operation that was waited for can be waited for again; a message of
    /// any size is withdrawn; a dial is given up; a window that is being revoked stays closed and its span in
    /// quarantine; [`Session::shutdown`] and
    /// [`Peer::disconnect`](crate::peer::Peer::disconnect) close at once. Dropping a session asks nobody.
    pub fn interrupt(mut self, hook: fn() -> bool) -> Self {
        self.config.interrupt = Some(hook);
        self
    }

    /// Who drives the session when nobody waits.
    pub fn progress(mut self, progress: Progress) -> Self {
        self.config.progress = progress;
        self
    }

    /// Whether a lost peer is dialed again (default yes; the lower rank of the two does it).
    pub fn redial(mut self, redial: bool) -> Self {
        self.config.redial = redial;
        self
    }

    /// Lets peers in that claim this session's own rank, under private ranks ([`Peer::rank`](crate::peer::Peer::rank) tells
    /// them; they are beyond all ranks of a job). For programs that tell peers apart by their addresses, as those of the
    /// C++ HMC do; see [`Request::named`](crate::Request::named).
    pub fn private_ranks(mut self) -> Self {
        self.config.private_ranks = true;
        self
    }

    /// Whether copies by process_vm_readv(2) may be used for adopted memory (default yes).
    pub fn cma(mut self, cma: bool) -> Self {
        self.config.cma = cma;
        self
    }

    /// Messages and bytes that may wait in one peer's inbox: default 4096 and 4 MiB; one message may wait in an empty inbox
    /// however long it is. While an inbox is full nothing more of that peer is read, so that who waits for another message of
    /// it, for one of any size or in a collective waits until some are received. Messages of peers that are gone are kept
    /// until they are received, up to 64 MiB in all, or twice what one inbox takes where that is more.
    pub fn inbox(mut self, messages: usize, bytes: usize) -> Self {
        self.config.inbox_messages = messages;
        self.config.inbox_bytes = bytes;
        self
    }

    /// Bytes that may be quarantined before no more are exposed; default 1 GiB.
    pub fn max_quarantine(mut self, bytes: u64) -> Self {
        self.config.max_quarantine = bytes;
        self
    }

    /// Takes part in UCX from the start: peers can ask for `ConnType::Ucx`, and the buffer is memory that UCX's lanes of
    /// shared memory map (peers over [`ConnType::Shm`](hmc_core::types::ConnType::Shm) then reach it by copies of this
    /// process). Without this a session begins with UCX when it dials a peer over it. libucp is loaded at run time:
    /// `HMC_UCX_LIB` names it, else what the process has loaded, the system's, or a wheel's is used. `UCX_*` variables
    /// hold. Software lanes of UCX check no bounds at the target: use it among processes that trust each other.
    pub fn ucx(mut self) -> Self {
        self.config.ucx.wanted = true;
        self
    }

    /// Workers of UCX that links to other hosts are spread over: 1 to 16, default 1. Links of one worker share a lock; each
    /// worker takes some 15 ms to start, 4 MB and ten descriptors. A link to a process of this host has one of its own
    /// where UCX has lanes of shared memory.
    ///
    /// Over RDMA verbs, queue pairs of each link, over which transfers of 128 KiB and more are spread; the smaller number of both
    /// ends counts.
    pub fn num_channels(mut self, channels: u32) -> Self {
        self.config.set_channels(channels);
        self
    }

    /// Sets a key of UCX's own configuration, without `UCX_`: `("TLS", "tcp,self")`. It comes before the environment.
    pub fn ucx_key(mut self, key: &str, value: &str) -> Self {
        self.config.ucx.keys.push((key.to_owned(), value.to_owned()));
        self
    }

    /// One more folder under which a Python package with UCX may be (`lib/python*/site-packages/libucx`), looked at before the
    /// others: an interpreter's `sys.prefix`.
    pub fn ucx_prefix(mut self, prefix: impl AsRef<Path>) -> Self {
        self.config.ucx.prefixes.insert(0, prefix.as_ref().to_path_buf());
        self
    }

    /// Hands UCX's own messages to `tracing` (target `ucx`) instead of having it print them: for the whole process, from
    /// the first such session on. `UCX_LOG_LEVEL` says which there are.
    pub fn ucx_log(mut self) -> Self {
        self.config.ucx.log = true;
        self
    }

    /// Starts the session. Its listeners are up and its buffer is there when this returns.
    ///
    /// # Errors
    /// `InvalidConfig` names the setting, or the variable of the environment; `NoCredentials` for an address beyond loopback;
    /// `DuplicateRank` when a live process has the rank; `NoSpace` for the buffer; `SystemLimit`.
    pub fn start(self) -> Result<Session> {
        self.prepare()?.start()
    }

    /// Adds a transport of your own. It is used where it is named, at both ends, by the
    /// [`ConnType::Custom`](hmc_core::types::ConnType::Custom) that is its kind: `Auto` never chooses it. A name or an endpoint
    /// that cannot be such a transport's, or that two of them have, is `InvalidConfig` at the start. A name has 1 to 64 printable
    /// ASCII characters, none of them a space, and is not that of a transport of this library.
    pub fn transport(mut self, domain: impl Domain + 'static) -> Self {
        self.custom.push(domain);
        self
    }

    /// Makes the buffer and nothing else: its bytes can be written before rank and addresses are known.
    ///
    /// # Errors
    /// `NoSpace` for the buffer; `Unavailable` with [`SessionBuilder::ucx`] and no UCX; `SystemLimit`.
    pub fn prepare(self) -> Result<Prepared> {
        Prepared::new(self.config, self.tcp, self.custom, self.memory.as_ref())
    }
}
