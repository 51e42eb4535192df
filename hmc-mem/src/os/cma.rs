//! Copies between the memory of another process and shared bytes here: `process_vm_readv(2)` and
//! `process_vm_writev(2)` ("cross memory attach").
//!
//! Used by the target of a put into, or a get from, user memory, which it cannot export. The other process gives an
//! address of its own memory, and the kernel checks it. This module checks only the local side.

use std::path::Path;

use hmc_core::range::{ByteRange, Extent, Side};
use rustix::process::Pid;

use super::io::{IoError, move_all};
use crate::length::widen;
use crate::shared::{SharedBytes, SharedError};

#[derive(Clone, Copy)]
enum Direction {
    In,
    Out,
}

/// Copies from `address` in process `pid` into `span`, by process_vm_readv(2).
///
/// A process id can be reused after an exit, and refers to another program after execve(2). The caller therefore holds
/// a pidfd and a socket of the peer and checks both before each call. The kernel performs a call in the address space
/// in which it began.
///
/// # Errors
/// [`IoError`]: EPERM for another user, `ptrace_scope` or a sandbox; ESRCH if the process has exited; EFAULT if it has
/// no such memory or no right to it; ENOSYS if this system lacks the call. Some bytes may have been copied.
///
/// # Safety
/// If `pid` is this process, the bytes at `address` may be read as shared bytes: no `&mut` to them is used during the
/// call. (For another process the kernel checks the address, and that process is responsible for its own memory, as for
/// writes through `/proc/self/mem`.)
pub unsafe fn read(
    pid: Pid,
    address: u64,
    into: &SharedBytes<'_>,
    span: ByteRange,
) -> Result<(), IoError> {
    if !into.is_writable() {
        return Err(SharedError::ReadOnly.into());
    }
    // SAFETY: the caller's contract.
    unsafe { run(Direction::In, pid, address, into, span) }
}

/// Copies `span` to `address` in process `pid`, by process_vm_writev(2).
///
/// # Errors
/// Those of [`read`].
///
/// # Safety
/// If `pid` is this process, the bytes at `address` may be written as shared bytes: no reference to them is used during
/// the call. For another process see [`read`].
pub unsafe fn write(
    pid: Pid,
    address: u64,
    from: &SharedBytes<'_>,
    span: ByteRange,
) -> Result<(), IoError> {
    // SAFETY: the caller's contract.
    unsafe { run(Direction::Out, pid, address, from, span) }
}

/// # Safety
/// That of [`read`] or [`write`].
unsafe fn run(
    direction: Direction,
    pid: Pid,
    address: u64,
    bytes: &SharedBytes<'_>,
    span: ByteRange,
) -> Result<(), IoError> {
    let nothing_there = IoError::Os { errno: libc::EFAULT };
    let there = Extent::new(u64::MAX).span(Side::Remote, address, span.len());
    let moved = move_all(bytes, span, there.map_err(|_| nothing_there)?, |at, len, address| {
        // SAFETY: `at` and `len` are a span of a view, writable for `In` as `read` checked; the caller vouches for
        // the other side.
        unsafe { call(direction, pid, address, at, len) }
    })?;
    // process_vm_readv(2): a short count when a later page of the other side is missing.
    if moved == span.len() { Ok(()) } else { Err(nothing_there) }
}

/// # Safety
/// `len` bytes at `at` are mapped, and writable for `Direction::In`; `address` as in [`read`] or [`write`].
unsafe fn call(direction: Direction, pid: Pid, address: u64, at: *mut u8, len: usize) -> isize {
    let here = libc::iovec { iov_base: at.cast(), iov_len: len };
    // An address of the other process, as a number; on these machines a u64 fits.
    let there = usize::try_from(address).unwrap_or(usize::MAX);
    let there = libc::iovec { iov_base: std::ptr::without_provenance_mut(there), iov_len: len };
    let pid = pid.as_raw_nonzero().get();
    match direction {
        // SAFETY: one iovec each, alive during the call. `here` is writable as the caller vouches;
        // `there` is used by the kernel in the process `pid`, as the caller vouches.
        Direction::In => unsafe {
            libc::process_vm_readv(pid, &raw const here, 1, &raw const there, 1, 0)
        },
        // SAFETY: as above; `here` is only read.
        Direction::Out => unsafe {
            libc::process_vm_writev(pid, &raw const here, 1, &raw const there, 1, 0)
        },
    }
}

/// Whether CMA (process_vm_readv(2)) can work on this machine, as far as this can be determined without a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CmaStatus {
    /// Whether the call exists and no sandbox forbids it (tried on this process itself).
    pub works: bool,
    /// `kernel.yama.ptrace_scope`; `None` without Yama. 0 and `None`: any process of the same user. 1: the
    /// peer must allow this process by PR_SET_PTRACER(2const). 2 and 3: only with CAP_SYS_PTRACE, never.
    pub yama_scope: Option<u32>,
}

impl CmaStatus {
    /// Returns the status as an English sentence.
    #[must_use]
    pub const fn verdict(&self) -> &'static str {
        match (self.works, self.yama_scope) {
            (false, _) => "not available: the kernel or a sandbox forbids process_vm_readv",
            (true, None | Some(0)) => "works between processes of one user",
            (true, Some(1)) => "works between processes that allow each other (ptrace_scope 1)",
            (true, Some(_)) => "needs CAP_SYS_PTRACE (kernel.yama.ptrace_scope is 2 or more)",
        }
    }
}

/// Tries CMA on this process and reads the system's policy.
#[must_use]
pub fn probe() -> CmaStatus {
    let from = 0x5au8;
    let mut to = 0u8;
    let address = widen((&raw const from).addr());
    let me = rustix::process::getpid();
    // SAFETY: one byte of this frame to another; nothing else refers to either during the call.
    let moved = unsafe { call(Direction::In, me, address, &raw mut to, 1) };
    let works = moved == 1 && to == from;
    let scope = std::fs::read_to_string(Path::new("/proc/sys/kernel/yama/ptrace_scope"));
    CmaStatus { works, yama_scope: scope.ok().and_then(|s| s.trim().parse().ok()) }
}
