//! What this machine has, tried and not only asked. For `hmc doctor` and for applications that want
//! to say it themselves. Nothing is left behind.

mod opencl;

use std::path::{Path, PathBuf};

use hmc_core::limits;
use hmc_core::types::Rank;
use hmc_hw::verbs::library::{Library, Search};
use hmc_hw::verbs::select::SelectError;
use hmc_hw::verbs::survey::survey;
use hmc_mem::os::cma;
use hmc_mem::os::limits::HostLimits;
use hmc_mem::os::memfd::{HUGE_PAGE, Mapping, PageKind};

pub use self::opencl::{OpenClDeviceFacts, OpenClFacts, opencl};
use crate::base::config::{Config, Environment};
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::paths::{private_dir, uds_path};

/// Limits and grants of the system, as it states them.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Host {
    /// The base page, in bytes.
    pub page_size: u64,
    /// Bytes that a region may take now: the least of the next two.
    pub budget: u64,
    /// `MemAvailable`, in bytes.
    pub mem_available: Option<u64>,
    /// What the tightest control group leaves, in bytes; `None` when none limits.
    pub cgroup_left: Option<u64>,
    /// Locked memory (`ulimit -l`), in bytes; `u64::MAX` for no limit.
    pub memlock: u64,
    /// Open files (`ulimit -n`).
    pub nofile: u64,
    /// Reserved huge pages of 2 MiB that are free.
    pub free_huge_pages: u64,
    /// The policy of transparent huge pages for shared memory (`never`, `advise`, ...).
    pub shmem_huge: Option<String>,
    /// Whether regions of 2 MiB and more can have huge pages; else what to do.
    pub huge_pages: std::result::Result<&'static str, &'static str>,
}

/// What copies between processes (process_vm_readv(2)) can do here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Cma {
    /// Whether the call works on this process itself: no sandbox forbids it.
    pub works: bool,
    /// `kernel.yama.ptrace_scope`, if the kernel has it.
    pub yama_scope: Option<u32>,
    /// What that means, in words.
    pub verdict: &'static str,
}

/// What a shareable region got when one was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemfdFacts {
    /// Bytes of the region.
    pub bytes: u64,
    /// Bytes of it that huge pages hold.
    pub huge_bytes: u64,
    /// Whether the pages come from the reserved pool (hugetlb).
    pub reserved: bool,
    /// Whether it can be sealed so that peers cannot write (F_SEAL_FUTURE_WRITE, Linux 5.1).
    pub future_write_seal: bool,
}

/// Reads the system's limits.
#[must_use]
pub fn host() -> Host {
    let h = HostLimits::read();
    Host {
        page_size: h.page_size,
        budget: h.budget.have(),
        mem_available: h.mem_available,
        cgroup_left: h.cgroup_left,
        memlock: h.memlock,
        nofile: h.nofile,
        free_huge_pages: h.free_huge_pages,
        shmem_huge: h.shmem_huge.clone(),
        huge_pages: h.huge_pages(),
    }
}

/// Tries process_vm_readv(2) on this process.
#[must_use]
pub fn cma() -> Cma {
    let status = cma::probe();
    Cma { works: status.works, yama_scope: status.yama_scope, verdict: status.verdict() }
}

/// Makes a sealed memfd of one huge page, fills it, seals it against later writers and drops it.
///
/// # Errors
/// `NoSpace`, `SystemLimit`, `Io`: shared memory cannot be had here, and why.
pub fn memfd() -> Result<MemfdFacts> {
    let mapping = Mapping::create(HUGE_PAGE)?;
    let bytes = mapping.bytes();
    let whole = mapping.extent().whole();
    bytes.fill(whole, 0x5a).map_err(hmc_mem::error::MemError::from)?;
    let reserved = mapping.pages() == PageKind::Reserved;
    let huge_bytes = mapping.huge_bytes();
    let future_write_seal = mapping.seal_future_write().is_ok();
    Ok(MemfdFacts { bytes: HUGE_PAGE, huge_bytes, reserved, future_write_seal })
}

/// The file by whose secret loopback connections prove the same user, which is made if it is missing.
///
/// # Errors
/// `NoCredentials` when it cannot be read or made, or others can read it.
pub fn secret() -> Result<PathBuf> {
    let place = Config::new(Rank(0), &Environment::read()).secret;
    place.secret()?;
    Ok(place.path().to_path_buf())
}

/// Checks that control sockets can be made in `dir`: it is (or can be made) a private folder, its
/// path leaves space for a socket's name, and files can be made in it.
///
/// # Errors
/// `InvalidConfig` or `Io`, with what to do.
pub fn uds_dir(dir: &Path) -> Result<()> {
    let last = Rank(limits::MAX_PEERS.saturating_sub(1));
    uds_path(dir, last)?;
    let was_there = dir.exists();
    private_dir(dir)?;
    let trial = dir.join(format!(".hmc-probe-{}", std::process::id()));
    let made = std::fs::OpenOptions::new().write(true).create_new(true).open(&trial);
    let result = made.map(drop).map_err(|e| {
        Error::new(ErrorKind::Io, format!("cannot make files in {}: {e}", dir.display()))
            .with_remedy("name another folder")
            .with_source(e)
    });
    let _ = std::fs::remove_file(&trial);
    if !was_there {
        let _ = std::fs::remove_dir(dir);
    }
    result
}

/// The UCX of this machine, as a session would find it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct UcxFacts {
    /// Its release, as the library itself says.
    pub version: String,
    /// The file that was loaded.
    pub path: std::path::PathBuf,
    /// Kinds of device memory that it was built and started for: `cuda`, `rocm`.
    pub devices: Vec<&'static str>,
    /// Transports and devices that it may use here, as it names them: `tcp/eth0`, `rc_mlx5/mlx5_0:1`.
    pub transports: Vec<String>,
}

/// Loads UCX and opens its devices, as a session that takes part in it does.
///
/// # Errors
/// `Unavailable` when there is none that can be used, with what to do about it.
pub fn ucx() -> Result<UcxFacts> {
    let config =
        crate::base::config::Config::new(Rank(0), &crate::base::config::Environment::read());
    let context = crate::transport::ucx::open(&config.ucx)?;
    let kinds = context.memory_kinds();
    // ucs/memory/memory_type.h
    let devices = [("cuda", 1), ("rocm", 3)].into_iter().filter(|(_, bit)| kinds >> bit & 1 == 1);
    Ok(UcxFacts {
        version: context.library().version().to_string(),
        path: context.library().path().to_owned(),
        devices: devices.map(|(name, _)| name).collect(),
        transports: context.transports(),
    })
}

/// RDMA verbs as sessions find them.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RdmaFacts {
    /// libibverbs, as it was loaded.
    pub path: PathBuf,
    /// Each device that cannot be used, each port, and each GID, with the reason why it is used or not.
    pub devices: Vec<String>,
    /// The ports and GIDs that a session uses, and why these, or why it can use none.
    pub port: std::result::Result<String, String>,
}

/// Loads libibverbs and looks at all devices, ports and GIDs, as a session does for its first link over RDMA verbs.
///
/// # Errors
/// `Unavailable` when there is no libibverbs that can be used, or no kernel with RDMA, with what to do about it.
pub fn rdma() -> Result<RdmaFacts> {
    let config = Config::new(Rank(0), &Environment::read()).rdma;
    let library = Library::load(&Search { named: config.library })?;
    let reports = survey(library, config.nics.gid()).map_err(SelectError::Device)?;
    let mut devices = Vec::new();
    for report in reports {
        let name = report.info.name;
        match report.outcome {
            Err(e) => devices.push(format!("{name}: {e}")),
            Ok((_, ports)) => devices.extend(ports.iter().map(|port| {
                let number = port.number;
                match &port.outcome {
                    Err(e) => format!("{name}:{number}: {e}"),
                    Ok((attrs, choice)) => {
                        let gids = choice.to_string().replace('\n', "; ");
                        format!("{name}:{number}, {}, {}: {gids}", attrs.link, attrs.state)
                    }
                }
            })),
        }
    }
    let ports = config.nics.open(library).map(|ports| {
        let ports: Vec<_> = ports.iter().map(ToString::to_string).collect();
        format!("{} ({})", ports.join("; "), config.nics.reason())
    });
    let port = ports.map_err(|e| e.to_string());
    Ok(RdmaFacts { path: library.path().to_owned(), devices, port })
}

#[cfg(test)]
mod tests {
    use super::{host, memfd, uds_dir};
    use std::os::unix::fs::DirBuilderExt as _;

    #[test]
    fn facts_are_found_and_nothing_is_left() {
        assert!(host().page_size.is_power_of_two());
        let facts = memfd().expect("memory");
        assert_eq!(facts.bytes, 2 << 20);
        assert!(!facts.reserved || host().free_huge_pages > 0, "{facts:?}");
        let dir = std::env::temp_dir().join(format!("hmc-probe-{}", std::process::id()));
        uds_dir(&dir).expect("can be made");
        assert!(!dir.exists(), "the folder was left behind");
        uds_dir(&dir.join("d".repeat(100))).expect_err("the path is too long");
        std::fs::DirBuilder::new().mode(0o700).create(&dir).expect("new");
        uds_dir(&dir).expect("it can be used");
        assert_eq!(std::fs::read_dir(&dir).expect("it stays").count(), 0);
        std::fs::write(dir.join(format!(".hmc-probe-{}", std::process::id())), []).expect("ours");
        uds_dir(&dir).expect_err("no file can be made");
        std::fs::remove_dir_all(&dir).expect("clean");
    }
}
