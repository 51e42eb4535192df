//! A failed setup call: its name, its object, its errno, and the remedy.

use std::fmt;
use std::io;

use hmc_mem::os::limits;

/// Where to raise the limit of locked memory.
const RAISE: &str = "raise it: `ulimit -l unlimited` (limits.conf: memlock; systemd: LimitMEMLOCK=infinity; docker: --ulimit memlock=-1)";

/// A call of libibverbs failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerbsError {
    /// The step that failed: "opening", "registering memory".
    pub call: &'static str,
    /// The errno value.
    pub errno: i32,
    /// The object of the step.
    pub what: String,
    /// Bytes that the step wanted to lock; 0 if that is not known.
    pub need: u64,
    /// The limit of locked memory at that time; `u64::MAX`: none.
    pub limit: u64,
}

impl VerbsError {
    /// A step failed, with an errno value that its call returned.
    #[must_use]
    pub fn new(call: &'static str, what: impl Into<String>, errno: i32) -> Self {
        Self { call, errno, what: what.into(), need: 0, limit: limits::memlock() }
    }

    /// A step failed whose call returned no object, and set errno.
    #[must_use]
    pub fn last(call: &'static str, what: impl Into<String>) -> Self {
        Self::new(call, what, io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO))
    }

    /// Adds the bytes that the step wanted to lock.
    #[must_use]
    pub fn needing(self, need: u64) -> Self {
        Self { need, ..self }
    }

    /// Returns what the reader can do about it, or `None` if the text is complete.
    #[must_use]
    pub fn remedy(&self) -> Option<String> {
        let fixed = match self.errno {
            libc::EACCES | libc::EPERM => {
                "the devices are /dev/infiniband/uverbs*: become a member of their group (`ls -l /dev/infiniband`, \
                 `usermod -aG`), or pass them into the container (docker: --device /dev/infiniband/uverbs0)"
            }
            libc::ENOMEM => return Some(self.memory()),
            libc::ENOSYS => {
                "this kernel has no RDMA: load its modules (`modprobe ib_uverbs`, and the driver of the device)"
            }
            libc::ENODEV | libc::ENOENT | libc::ENXIO => {
                "the device is gone or not there: see `ibv_devices`, and the kernel log (`dmesg`)"
            }
            libc::EIO => {
                "the device failed: see the kernel log (`dmesg`), reset the device or choose another"
            }
            libc::EMFILE | libc::ENFILE => "raise `ulimit -n` or close links",
            libc::ENOSPC => {
                "the device has no more of these objects: close links, see `ibv_devinfo -v`"
            }
            libc::EFAULT => {
                "the memory is not mapped, or of a kind that the device cannot pin: memory of a GPU needs the \
                 peer-memory module of its vendor, or dma-buf"
            }
            libc::EOPNOTSUPP => {
                "the device or its driver cannot do it: see `ibv_devinfo -v`, install a later rdma-core"
            }
            libc::EINVAL => {
                "the device refuses the attributes: compare with its limits (`ibv_devinfo -v`)"
            }
            libc::ENETUNREACH | libc::EHOSTUNREACH | libc::ETIMEDOUT => {
                "no path leads to the peer's address: see `ip route get` and `ping` from this port's interface"
            }
            _ => return None,
        };
        Some(fixed.to_owned())
    }

    /// The remedy for memory that is used up.
    fn memory(&self) -> String {
        match (self.limit, self.need) {
            (u64::MAX, _) => "memory is used up: free some, or register less".to_owned(),
            (have, 0) => format!(
                "the limit of locked memory is {have} bytes, and all of it may be used; {RAISE}; or the device has no more of these \
                 objects: see `ibv_devinfo -v`"
            ),
            (have, need) => format!(
                "it needs {need} bytes of locked memory, and the limit is {have}, of which some may be used; {RAISE}"
            ),
        }
    }
}

impl fmt::Display for VerbsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.call)?;
        if !self.what.is_empty() {
            write!(f, " ({})", self.what)?;
        }
        write!(f, ": {}", io::Error::from_raw_os_error(self.errno))?;
        self.remedy().map_or(Ok(()), |remedy| write!(f, ": {remedy}"))
    }
}

impl std::error::Error for VerbsError {}

/// Turns what a call returned, 0 or an errno value, into a result.
///
/// # Errors
/// [`VerbsError`].
#[inline]
pub(super) fn check(call: &'static str, what: &str, returned: i32) -> Result<(), VerbsError> {
    if returned == 0 { Ok(()) } else { Err(failed(call, what, returned)) }
}

/// Some providers return -1 and set errno, as the manual pages of old releases have it.
#[cold]
pub(super) fn failed(call: &'static str, what: &str, returned: i32) -> VerbsError {
    if returned > 0 { VerbsError::new(call, what, returned) } else { VerbsError::last(call, what) }
}

#[cfg(test)]
mod tests {
    use super::{VerbsError, check};

    fn error(errno: i32) -> VerbsError {
        VerbsError { limit: u64::MAX, ..VerbsError::new("opening", "mlx5_0", errno) }
    }

    #[test]
    fn an_error_says_which_step_failed_on_what_and_why() {
        let text = error(libc::EACCES).to_string();
        assert!(text.starts_with("opening (mlx5_0): Permission denied (os error 13): "), "{text}");
        assert!(text.contains("/dev/infiniband/uverbs*"), "{text}");
        let text = VerbsError::new("listing devices", "", libc::ENOSYS).to_string();
        assert!(text.starts_with("listing devices: Function not implemented"), "{text}");
        assert!(text.contains("modprobe ib_uverbs"), "{text}");
        assert_eq!(error(libc::EEXIST).to_string(), "opening (mlx5_0): File exists (os error 17)");
    }

    #[test]
    fn what_can_be_met_has_a_remedy() {
        for errno in [
            libc::EACCES,
            libc::EPERM,
            libc::ENOMEM,
            libc::ENOSYS,
            libc::ENODEV,
            libc::EIO,
            libc::EMFILE,
            libc::ENOSPC,
            libc::EFAULT,
            libc::EOPNOTSUPP,
            libc::EINVAL,
            libc::EHOSTUNREACH,
        ] {
            assert!(error(errno).remedy().is_some(), "{errno}");
        }
    }

    #[test]
    fn used_up_memory_names_the_limit_and_the_need() {
        let limited = VerbsError { limit: 65_536, ..error(libc::ENOMEM) };
        let text = limited.to_string();
        assert!(text.contains("the limit of locked memory is 65536 bytes"), "{text}");
        let text = limited.needing(1 << 20).to_string();
        assert!(
            text.contains("needs 1048576 bytes of locked memory, and the limit is 65536"),
            "{text}"
        );
        assert!(text.contains("ulimit -l unlimited"), "{text}");
        let text = error(libc::ENOMEM).needing(4096).to_string();
        assert!(text.ends_with("memory is used up: free some, or register less"), "{text}");
    }

    #[test]
    fn a_call_returns_zero_an_errno_value_or_minus_one() {
        assert_eq!(check("a", "b", 0), Ok(()));
        let e = check("a", "b", libc::EINVAL).unwrap_err();
        assert_eq!((e.call, e.what.as_str(), e.errno), ("a", "b", libc::EINVAL));
        // SAFETY: the descriptor is none, so nothing is closed.
        let returned = unsafe { libc::close(-1) };
        assert_eq!(check("a", "b", returned).unwrap_err().errno, libc::EBADF);
    }
}
