//! Paths of files and folders.

use std::path::{Path, PathBuf};

use hmc_core::limits;
use hmc_core::types::Rank;
use rustix::fs::Mode;
use rustix::io::Errno;

use crate::base::error::{Error, Limit, Result};

/// The same file wherever this process goes later.
pub(crate) fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf())
}

/// Makes sure that `dir` is a folder (no link) of this user that nobody else may enter.
pub(crate) fn private_dir(dir: &Path) -> Result<()> {
    match rustix::fs::mkdir(dir, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(e) => return Err(Error::io(format_args!("cannot make {}", dir.display()), e)),
    }
    let stat = rustix::fs::lstat(dir)
        .map_err(|e| Error::io(format_args!("cannot look at {}", dir.display()), e))?;
    let is_dir = rustix::fs::FileType::from_raw_mode(stat.st_mode).is_dir();
    let ours = stat.st_uid == rustix::process::geteuid().as_raw();
    let closed = stat.st_mode & 0o077 == 0;
    if is_dir && ours && closed {
        return Ok(());
    }
    let what = if !is_dir {
        "is not a folder"
    } else if !ours {
        "belongs to another user"
    } else {
        "can be entered by other users"
    };
    Err(Error::config(format!("{} {what}", dir.display())).with_remedy(
        "control sockets need a folder of your own with mode 0700 (chmod 700, or name another one)",
    ))
}

const SOCKET_PREFIX: &str = "hmc_ctrl_rank_";
const SOCKET_SUFFIX: &str = ".sock";

/// The rank whose control socket bears that name, if it is the name of one.
pub(crate) fn rank_of_socket(name: &str) -> Option<Rank> {
    let rank = name.strip_prefix(SOCKET_PREFIX)?.strip_suffix(SOCKET_SUFFIX)?;
    let digits = rank.bytes().all(|b| b.is_ascii_digit());
    rank.parse().ok().filter(|_| digits).map(Rank)
}

/// The socket of `rank` in `dir`, named as the C++ HMC names it.
///
/// # Errors
/// `InvalidConfig` when the path does not fit a socket address (107 bytes, unix(7)).
pub fn uds_path(dir: &Path, rank: Rank) -> Result<PathBuf> {
    let path = dir.join(format!("{SOCKET_PREFIX}{rank}{SOCKET_SUFFIX}"));
    let len = path.as_os_str().len();
    if len > limits::MAX_UDS_PATH_BYTES {
        let limit = Limit::new("bytes of a socket's path", len, limits::MAX_UDS_PATH_BYTES);
        return Err(Error::config(format!(
            "the socket path {} has {len} bytes, the system allows {}",
            path.display(),
            limit.have
        ))
        .with_limit(limit)
        .with_remedy("choose a shorter folder"));
    }
    Ok(path)
}

/// The same as an absolute path, which leads there from every folder, as peers have others; the path as it was given where
/// only that fits a socket address.
///
/// # Errors
/// As [`uds_path`].
pub(crate) fn socket_path(dir: &Path, rank: Rank) -> Result<PathBuf> {
    uds_path(&absolute(dir), rank).or_else(|_| uds_path(dir, rank))
}
