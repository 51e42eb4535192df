//! Plain copies and flags in memory that two processes map.
//!
//! The pages come from the same pool as ours, so that size, alignment, page size and sharing are
//! equal; the copies are the compiler's `memcpy` and the flags are plain atomics.

use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use hmc_core::types::Access;
use hmc_mem::os::memfd::Mapping;

use crate::error::{Res, text};

/// Shared pages.
#[derive(Debug)]
pub(crate) struct SharedPages(Mapping);

impl SharedPages {
    /// New pages of zeros.
    pub(crate) fn create(bytes: u64) -> Res<Self> {
        Mapping::create(bytes).map(Self).map_err(text)
    }

    /// The pages that process `pid` has as descriptor `fd`.
    pub(crate) fn of_process(pid: u32, fd: i32, bytes: u64) -> Res<Self> {
        // proc(5), /proc/PID/fd: opening the entry opens the same file.
        let file = std::fs::File::options()
            .read(true)
            .write(true)
            .open(format!("/proc/{pid}/fd/{fd}"))
            .map_err(|e| format!("cannot open the pages of process {pid}: {e}"))?;
        Mapping::map_peer(OwnedFd::from(file), bytes, 0, Access::all()).map(Self).map_err(text)
    }

    /// The very pages of the session of process `pid` whose buffer has `bytes` bytes. Where pages lie in
    /// physical memory moves the speed of a copy by some per cent, so both sides of a ratio use the same.
    pub(crate) fn of_session(pid: u32, bytes: u64) -> Res<Self> {
        let folder = format!("/proc/{pid}/fd");
        let mut found = None;
        for entry in std::fs::read_dir(&folder).map_err(text)?.flatten() {
            let is_memfd = std::fs::read_link(entry.path())
                .is_ok_and(|to| to.to_string_lossy().starts_with("/memfd:hmc"));
            // Following the link of a memfd tells of the file itself.
            if !is_memfd || !std::fs::metadata(entry.path()).is_ok_and(|m| m.len() == bytes) {
                continue;
            }
            let fd = entry.file_name().to_string_lossy().parse().map_err(text)?;
            if found.replace(fd).is_some() {
                return Err(format!("process {pid} has several memfds of {bytes} bytes"));
            }
        }
        let fd = found.ok_or_else(|| format!("process {pid} has no memfd of {bytes} bytes"))?;
        Self::of_process(pid, fd, bytes)
    }

    /// The descriptor's number in this process.
    pub(crate) fn fd(&self) -> Res<i32> {
        Ok(self.0.fd().map_err(text)?.as_raw_fd())
    }

    /// Touches every page.
    pub(crate) fn warm(&self) -> Res<()> {
        let all = self.0.extent().whole();
        self.0.bytes().fill(all, 7).map_err(text)
    }

    fn at(&self, offset: usize, len: usize) -> *mut u8 {
        let end = offset.checked_add(len);
        let size = usize::try_from(self.0.extent().len()).unwrap_or(0);
        assert!(end.is_some_and(|end| end <= size), "{offset} + {len} bytes of {size}");
        self.0.bytes().as_ptr().wrapping_add(offset)
    }

    /// `memcpy` of `len` bytes from `from` of `src` to `to` here.
    #[inline]
    pub(crate) fn copy_from(&self, to: usize, src: &Self, from: usize, len: usize) {
        let (dst, src) = (self.at(to, len), src.at(from, len));
        // SAFETY: `at` checked that both ranges lie in pages that stay mapped while `self` and `src`
        // live. They are different mappings of different files, so they do not overlap. The other
        // process takes turns with this one and no Rust reference to the bytes exists.
        unsafe { std::ptr::copy_nonoverlapping(src, dst, std::hint::black_box(len)) };
    }

    /// `memcpy` into private bytes' place: from `src` to `to` here.
    #[inline]
    pub(crate) fn copy_in(&self, to: usize, src: &[u8]) {
        let dst = self.at(to, src.len());
        // SAFETY: `at` checked the range; `src` is a slice outside of the mapping.
        unsafe {
            std::ptr::copy_nonoverlapping(src.as_ptr(), dst, std::hint::black_box(src.len()))
        };
    }

    fn flag(&self, offset: usize) -> &AtomicU64 {
        let at = self.at(offset, 8).cast::<u64>();
        assert!(at.is_aligned(), "a flag at {offset}");
        // SAFETY: `at` checked the range, which stays mapped while `self` lives, and it is aligned.
        // While a flag is used its word is accessed by atomics alone, in both processes.
        unsafe { AtomicU64::from_ptr(at) }
    }

    /// Tells.
    #[inline]
    pub(crate) fn store(&self, offset: usize, value: u64) {
        self.flag(offset).store(value, Ordering::Release);
    }

    /// Spins until the flag has that value. Gives up after a minute.
    #[inline]
    pub(crate) fn wait(&self, offset: usize, value: u64) -> Res<()> {
        let flag = self.flag(offset);
        spin(|| flag.load(Ordering::Acquire) == value)
    }
}

/// Spins until `done`, a minute at the most.
#[inline]
pub(crate) fn spin(mut done: impl FnMut() -> bool) -> Res<()> {
    let mut begun = None;
    loop {
        for _ in 0..1 << 16 {
            if done() {
                return Ok(());
            }
            std::hint::spin_loop();
        }
        let begun = begun.get_or_insert_with(std::time::Instant::now);
        if begun.elapsed().as_secs() >= 60 {
            return Err("nothing came for a minute".to_owned());
        }
    }
}
