//! Limits and properties of this machine: memory, locked memory, descriptors, huge pages, the host's identity.
//!
//! Each call reads /proc and /sys; only the page size is kept. An unreadable file is "unknown" (`None`), never a
//! failure: `doctor` shows it, and [`Budget`] ignores it.

use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::process::{Resource, getrlimit};

use crate::error::{MemError, MemLimit};

/// The memory that may be allocated now, in bytes, and the limit that determines it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    have: u64,
    limit: MemLimit,
}

impl Budget {
    /// Returns the minimum of MemAvailable (proc_meminfo(5)) and the rest of each control group of this process. A
    /// value that cannot be read does not limit. Takes tens of microseconds.
    #[must_use]
    pub fn read() -> Self {
        Self::read_under(Path::new("/"))
    }

    /// Reads like [`Self::read`], with /proc and /sys below `root`.
    #[must_use]
    pub fn read_under(root: &Path) -> Self {
        Self::least(mem_available(root), cgroup_left(root))
    }

    /// Checks whether `need` bytes may be allocated now. If sysinfo(2) reports more than eight times as many free
    /// bytes, MemAvailable is not read, because it is at least the free memory less the kernel's reserve.
    ///
    /// # Errors
    /// [`MemError::NoSpace`].
    pub fn check_now(need: u64) -> Result<(), MemError> {
        let plenty = free_bytes() >> 3 > need;
        let have = if plenty { None } else { mem_available(Path::new("/")) };
        Self::least(have, cgroup_left(Path::new("/"))).check(need)
    }

    /// What the smaller of the two leaves; `None` does not limit.
    fn least(mem_available: Option<u64>, cgroup: Option<u64>) -> Self {
        let all = Self { have: mem_available.unwrap_or(u64::MAX), limit: MemLimit::MemAvailable };
        match cgroup {
            Some(have) if have < all.have => Self { have, limit: MemLimit::Cgroup },
            _ => all,
        }
    }

    /// Returns the number of bytes that may be allocated.
    #[must_use]
    pub const fn have(&self) -> u64 {
        self.have
    }

    /// Returns the limit that determines it.
    #[must_use]
    pub const fn limit(&self) -> MemLimit {
        self.limit
    }

    /// Checks whether `need` bytes may be allocated.
    ///
    /// # Errors
    /// [`MemError::NoSpace`] if `need` exceeds [`Self::have`].
    pub const fn check(&self, need: u64) -> Result<(), MemError> {
        if need > self.have {
            return Err(MemError::NoSpace { need, have: self.have, limit: self.limit });
        }
        Ok(())
    }
}

/// Most files here are shorter.
const SHORT_BYTES: usize = 4096;

/// What `f` finds in a file. A short one takes no memory but the stack's.
fn read<R>(path: &Path, f: impl FnOnce(&str) -> Option<R>) -> Option<R> {
    let file = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mut bytes = [0; SHORT_BYTES];
    let mut len: usize = 0;
    // Some of /proc give one line at a time.
    while let Some(space) = bytes.get_mut(len..).filter(|space| !space.is_empty()) {
        match rustix::io::read(&file, space).ok()? {
            0 => return f(std::str::from_utf8(bytes.get(..len)?).ok()?),
            n => len = len.saturating_add(n),
        }
    }
    f(&std::fs::read_to_string(path).ok()?)
}

fn number(path: &Path) -> Option<u64> {
    read(path, |text| text.trim().parse().ok())
}

/// The number in a line `name: 123 kB` or `name 123`, in the file's unit.
fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let rest = line.strip_prefix(name)?;
        let rest = rest.strip_prefix([':', ' '])?;
        rest.split_whitespace().next()?.parse().ok()
    })
}

/// What the limit of this process's address space leaves, in bytes (proc_pid_statm(5)); `None` when none limits.
pub(super) fn address_space_left() -> Option<u64> {
    let limit = getrlimit(Resource::As).current?;
    let pages: u64 =
        read(Path::new("/proc/self/statm"), |text| text.split_whitespace().next()?.parse().ok())?;
    Some(limit.saturating_sub(pages.saturating_mul(page_size())))
}

/// Memory that nobody uses, in bytes; 0 where it cannot be told.
fn free_bytes() -> u64 {
    let info = rustix::system::sysinfo();
    info.freeram.saturating_mul(u64::from(info.mem_unit))
}

/// `MemAvailable` of /proc/meminfo (proc_meminfo(5)), in bytes.
fn mem_available(root: &Path) -> Option<u64> {
    read(&root.join("proc/meminfo"), |text| field(text, "MemAvailable"))?.checked_mul(1024)
}

/// What the tightest control group above this process leaves, in bytes. `None` when none limits.
fn cgroup_left(root: &Path) -> Option<u64> {
    read(&root.join("proc/self/cgroup"), |mine| left_of_groups(mine, root))
}

/// As [`cgroup_left`], of the groups that /proc/self/cgroup names.
fn left_of_groups(mine: &str, root: &Path) -> Option<u64> {
    // One buffer for all paths: to join and split them as paths costs more than to read the files.
    let mut dir = root.join("sys/fs/cgroup").into_os_string().into_vec();
    let sys = dir.len();
    let mut least: Option<u64> = None;
    // cgroups(7): lines `id:controllers:path`; v2 has id 0 and no controllers.
    for line in mine.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(group)) = (parts.next(), parts.next(), parts.next())
        else {
            continue;
        };
        let (mounts, files): (&[&str], &GroupFiles) = if controllers.is_empty() {
            (&["", "unified"], &V2)
        } else if controllers.split(',').any(|c| c == "memory") {
            (&["memory"], &V1)
        } else {
            continue;
        };
        for mount in mounts {
            dir.truncate(sys);
            append(&mut dir, mount);
            let top = dir.len();
            append(&mut dir, group);
            // Inside a container the path may not exist below the mount: then the mount is the group.
            loop {
                if let Some(left) = files.left(&mut dir) {
                    least = Some(least.map_or(left, |l| l.min(left)));
                }
                if dir.len() <= top {
                    break;
                }
                let parent = dir.iter().rposition(|b| *b == b'/').unwrap_or(top);
                dir.truncate(parent.max(top));
            }
        }
    }
    least
}

/// Appends the components of `path` to `dir`, each with a slash before it.
fn append(dir: &mut Vec<u8>, path: &str) {
    for part in path.split('/').filter(|part| !part.is_empty()) {
        dir.push(b'/');
        dir.extend_from_slice(part.as_bytes());
    }
}

/// What `f` makes of the file `name` in `dir`.
fn file<R>(dir: &mut Vec<u8>, name: &str, f: impl FnOnce(&Path) -> R) -> R {
    let len = dir.len();
    append(dir, name);
    let result = f(Path::new(OsStr::from_bytes(dir)));
    dir.truncate(len);
    result
}

/// The files of a control group's memory controller.
struct GroupFiles {
    max: &'static str,
    current: &'static str,
    /// The field of `memory.stat` that counts file pages which the kernel takes back at no cost.
    reclaimable: &'static str,
}

/// Documentation/admin-guide/cgroup-v2.rst.
const V2: GroupFiles =
    GroupFiles { max: "memory.max", current: "memory.current", reclaimable: "inactive_file" };
/// Documentation/admin-guide/cgroup-v1/memory.rst.
const V1: GroupFiles = GroupFiles {
    max: "memory.limit_in_bytes",
    current: "memory.usage_in_bytes",
    reclaimable: "total_inactive_file",
};

impl GroupFiles {
    /// What one group leaves; `None` when it has no limit (`max`, or v1's 2^63 rounded to pages).
    fn left(&self, dir: &mut Vec<u8>) -> Option<u64> {
        let max = file(dir, self.max, number).filter(|max| *max < 1 << 62)?;
        let current = file(dir, self.current, number)?;
        let cache = file(dir, "memory.stat", |stat| read(stat, |t| field(t, self.reclaimable)));
        let cache = cache.unwrap_or(0);
        Some(max.saturating_sub(current.saturating_sub(cache)))
    }
}

/// Returns the base page size, in bytes.
#[must_use]
pub fn page_size() -> u64 {
    crate::length::widen(rustix::param::page_size())
}

/// Returns the soft limit of open descriptors (`RLIMIT_NOFILE`).
#[must_use]
pub fn nofile() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Returns the soft limit of locked memory, in bytes (`RLIMIT_MEMLOCK`; `u64::MAX`: unlimited).
#[must_use]
pub fn memlock() -> u64 {
    getrlimit(Resource::Memlock).current.unwrap_or(u64::MAX)
}

/// Returns the number of free reserved huge pages of 2 MiB.
#[must_use]
pub fn free_huge_pages() -> u64 {
    let dir = Path::new("/sys/kernel/mm/hugepages/hugepages-2048kB");
    let free = number(&dir.join("free_hugepages")).unwrap_or(0);
    // Promised to others already.
    free.saturating_sub(number(&dir.join("resv_hugepages")).unwrap_or(0))
}

/// The word in brackets of a file such as `always [madvise] never`.
fn chosen(path: &str) -> Option<String> {
    read(Path::new(path), |text| {
        let (_, rest) = text.split_once('[')?;
        Some(rest.split_once(']')?.0.to_owned())
    })
}

/// The policy of transparent huge pages for shared memory (Documentation/admin-guide/mm/transhuge.rst).
fn shmem_huge() -> Option<String> {
    chosen("/sys/kernel/mm/transparent_hugepage/shmem_enabled")
}

fn grants(policy: Option<&str>) -> bool {
    matches!(policy, Some("advise" | "always" | "within_size" | "force"))
}

/// Whether a memfd that asks for huge pages may get them.
pub(crate) fn shmem_huge_granted() -> bool {
    grants(shmem_huge().as_deref())
}

/// Returns the identity of this boot of the kernel. Two processes with the same one run on one host.
#[must_use]
pub fn boot_id() -> Option<String> {
    read(Path::new("/proc/sys/kernel/random/boot_id"), |text| Some(text.trim().to_owned()))
}

/// Bytes of the mapping that starts at `at` which huge pages hold (proc_pid_smaps(5): ShmemPmdMapped).
pub(crate) fn huge_mapped(at: u64) -> u64 {
    let found = read(Path::new("/proc/self/smaps"), |text| huge_kib(text, at));
    found.unwrap_or(0).saturating_mul(1024)
}

/// What `smaps` says of the mapping that starts at `at`, in KiB.
fn huge_kib(smaps: &str, at: u64) -> Option<u64> {
    let head = format!("{at:x}-");
    let mut lines = smaps.lines().skip_while(|line| !line.starts_with(&head));
    lines.find_map(|line| field(line, "ShmemPmdMapped"))
}

/// The limits of memory and descriptors that `doctor` prints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostLimits {
    /// The base page, in bytes.
    pub page_size: u64,
    /// What a region may take now, and what limits it.
    pub budget: Budget,
    /// `MemAvailable`, in bytes.
    pub mem_available: Option<u64>,
    /// What the tightest control group leaves, in bytes; `None`: none limits.
    pub cgroup_left: Option<u64>,
    /// Locked memory, in bytes.
    pub memlock: u64,
    /// Open descriptors.
    pub nofile: u64,
    /// Free reserved pages of 2 MiB.
    pub free_huge_pages: u64,
    /// The policy of transparent huge pages for shared memory: `never`, `advise`, ...
    pub shmem_huge: Option<String>,
    /// Bytes free in /dev/shm. HMC does not use it; others on the host do.
    pub dev_shm_free: Option<u64>,
    /// This boot.
    pub boot_id: Option<String>,
}

impl HostLimits {
    /// Reads all of them.
    #[must_use]
    pub fn read() -> Self {
        let root = Path::new("/");
        Self {
            page_size: page_size(),
            budget: Budget::read(),
            mem_available: mem_available(root),
            cgroup_left: cgroup_left(root),
            memlock: memlock(),
            nofile: nofile(),
            free_huge_pages: free_huge_pages(),
            shmem_huge: shmem_huge(),
            dev_shm_free: rustix::fs::statvfs("/dev/shm")
                .ok()
                .map(|fs| fs.f_bavail.saturating_mul(fs.f_frsize)),
            boot_id: boot_id(),
        }
    }

    /// Returns how shared regions of at least 2 MiB get huge pages.
    ///
    /// # Errors
    /// Why they do not, and the setting to change.
    pub fn huge_pages(&self) -> Result<&'static str, &'static str> {
        if self.free_huge_pages > 0 {
            return Ok("reserved huge pages are free (hugetlb)");
        }
        match self.shmem_huge.as_deref() {
            policy if grants(policy) => Ok("transparent huge pages for shared memory on request"),
            Some(_) => Err("write `advise` to /sys/kernel/mm/transparent_hugepage/shmem_enabled"),
            None => Err("this kernel has no transparent huge pages for shared memory"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{HostLimits, huge_kib, shmem_huge_granted};

    #[test]
    fn huge_pages_are_reserved_or_granted_or_a_remedy_is_reported() {
        let told = |free: u64, policy: Option<&str>| {
            let shmem_huge = policy.map(str::to_owned);
            HostLimits { free_huge_pages: free, shmem_huge, ..HostLimits::read() }.huge_pages()
        };
        assert!(told(1, None).is_ok_and(|s| s.contains("reserved")));
        assert!(told(0, Some("advise")).is_ok_and(|s| s.contains("transparent")));
        assert!(told(0, Some("never")).is_err_and(|s| s.contains("write `advise`")));
        assert!(told(0, None).is_err_and(|s| s.contains("this kernel has no")));
    }

    #[test]
    fn huge_pages_are_granted_as_the_kernel_reports() {
        let path = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let granting = ["[advise]", "[always]", "[within_size]", "[force]"];
        let granted = text.split_whitespace().any(|word| granting.contains(&word));
        assert_eq!(shmem_huge_granted(), granted, "{text}");
    }

    /// As in proc_pid_smaps(5).
    #[test]
    fn huge_pages_are_those_of_the_mapping_that_starts_there() {
        let smaps = "7f00-7f80 rw-s 0 00:01 7 /memfd:a\nSize: 8 kB\nShmemPmdMapped: 0 kB\n\
                     7f80-7fff rw-s 0 00:01 8 /memfd:b\nSize: 8 kB\nShmemPmdMapped: 2048 kB\n";
        assert_eq!(huge_kib(smaps, 0x7f80), Some(2048));
        assert_eq!(huge_kib(smaps, 0x7f00), Some(0));
        assert_eq!(huge_kib(smaps, 0x7fff), None);
    }
}
