//! Protects a forked child from its parent's memory, and identifies objects of the parent.
//!
//! [`ForkGuard`] names the process that made an object. Its mark is a page that the kernel gives to a child as
//! zeros (madvise(2), MADV_WIPEONFORK), so that children of a plain clone(2) are recognised too.
//!
//! [`Reserved`] is an address range whose pages children do not inherit (MADV_DONTFORK). Without a reservation, the
//! child's next mapping could use these addresses, and an address from before the fork (a slice, a Python buffer)
//! would read other memory. A handler of pthread_atfork(3) therefore maps the range without any access in the
//! child, before the child's own code runs, so an access to such an address faults. The handler reads a table
//! without a lock and allocates nothing.
//!
//! Both are process-wide state: the mark and the table. No object of one session is reached through them.

use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use rustix::mm::{Advice, MapFlags, ProtFlags};

use super::pages::{self, no_space, os};
use crate::error::MemError;

/// The smallest page of the supported systems, in bytes: what is mapped, rounded up by the kernel.
const PAGE: usize = 4096;

/// The page with the number of this process, once it is there. Never unmapped.
static MARK: AtomicPtr<u64> = AtomicPtr::new(ptr::null_mut());

/// The number that was given last. A child inherits it, so that its number is none of its ancestors'.
static LAST: AtomicU64 = AtomicU64::new(0);

/// The process that created an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForkGuard {
    process: u64,
}

impl ForkGuard {
    /// Returns the guard of this process.
    ///
    /// # Errors
    /// `NoSpace` for the page of the mark; `Os` if the kernel lacks MADV_WIPEONFORK (before Linux 4.14).
    pub fn new() -> Result<Self, MemError> {
        let mark = mark()?;
        // SAFETY: the page is never unmapped, aligned, and read and written atomically from here on.
        let word = unsafe { AtomicU64::from_ptr(mark) };
        let process = word.load(Ordering::Acquire);
        if process != 0 {
            return Ok(Self { process });
        }
        // The first object of this process: a child finds zero here.
        let next = LAST.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        let process = match word.compare_exchange(0, next, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => next,
            Err(other) => other,
        };
        Ok(Self { process })
    }

    /// Returns `true` in a child that was forked after the value was created.
    #[must_use]
    #[inline]
    pub fn is_child(&self) -> bool {
        let mark = MARK.load(Ordering::Relaxed);
        // SAFETY: the value exists, so the page does; it is aligned, never unmapped, and read and written atomically: in a
        // child one thread may write its number here while another one looks.
        let word = unsafe { AtomicU64::from_ptr(mark) };
        // Relaxed: the compiler does not know fork(2), so it carries no value over it; nothing else hangs on this one.
        let process = word.load(Ordering::Relaxed);
        process != self.process
    }
}

/// The page of the mark, mapped at its first use.
fn mark() -> Result<*mut u64, MemError> {
    let there = MARK.load(Ordering::Acquire);
    if !there.is_null() {
        return Ok(there);
    }
    let page = pages::zeros(PAGE)?;
    pages::advise(&page, Advice::LinuxWipeOnFork).map_err(|e| os("madvise(MADV_WIPEONFORK)", e))?;
    let at = page.at.as_ptr().cast::<u64>();
    match MARK.compare_exchange(ptr::null_mut(), at, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => {
            std::mem::forget(page);
            Ok(at)
        }
        // Another thread was first; this page goes.
        Err(other) => Ok(other),
    }
}

/// One range of the table. `start` is [`FREE`], [`CLAIMED`], or the address, written after `len`.
struct Entry {
    start: AtomicUsize,
    len: AtomicUsize,
}

const FREE: usize = 0;
const CLAIMED: usize = 1;

/// Entries of the first block; each later block has twice as many as the one before.
const FIRST: usize = 64;
/// Enough for more mappings than a process can have.
const BLOCKS: usize = 20;

static TABLE: [AtomicPtr<Entry>; BLOCKS] = [const { AtomicPtr::new(ptr::null_mut()) }; BLOCKS];
/// Where to look for a free entry first.
static NEXT: AtomicUsize = AtomicUsize::new(0);
/// Whether the handler is installed.
static INSTALLED: AtomicBool = AtomicBool::new(false);

/// The entries of a block, if it is there.
fn block(n: usize) -> Option<&'static [Entry]> {
    let at = TABLE.get(n)?.load(Ordering::Acquire);
    if at.is_null() {
        return None;
    }
    // SAFETY: a boxed slice of `size_of_block(n)` entries that was leaked in `grow` and is never freed.
    Some(unsafe { std::slice::from_raw_parts(at, size_of_block(n)) })
}

const fn size_of_block(n: usize) -> usize {
    // `n` is less than BLOCKS.
    FIRST << n
}

/// Adds the next block. `false` when there is none left.
fn grow() -> bool {
    let Some(n) = (0..BLOCKS).find(|n| block(*n).is_none()) else { return false };
    let fresh: Box<[Entry]> = (0..size_of_block(n))
        .map(|_| Entry { start: AtomicUsize::new(FREE), len: AtomicUsize::new(0) })
        .collect();
    let fresh = Box::into_raw(fresh);
    let place = TABLE.get(n).map(|place| {
        let null = ptr::null_mut();
        place.compare_exchange(null, fresh.cast(), Ordering::AcqRel, Ordering::Acquire)
    });
    if !matches!(place, Some(Ok(_))) {
        // SAFETY: from `Box::into_raw` above, and nobody else has it.
        drop(unsafe { Box::from_raw(fresh) });
    }
    true
}

/// A free entry, claimed. `None` when the table cannot grow any more.
fn claim() -> Option<&'static Entry> {
    let take = |e: &Entry| {
        let claimed = e.start.compare_exchange(FREE, CLAIMED, Ordering::AcqRel, Ordering::Relaxed);
        claimed.is_ok()
    };
    loop {
        let entries = || (0..BLOCKS).map_while(block).flatten().enumerate();
        let from = NEXT.load(Ordering::Relaxed);
        let found = entries()
            .skip(from)
            .find(|(_, e)| take(e))
            .or_else(|| entries().take(from).find(|(_, e)| take(e)));
        if let Some((n, entry)) = found {
            NEXT.store(n.saturating_add(1), Ordering::Relaxed);
            return Some(entry);
        }
        if !grow() {
            return None;
        }
    }
}

/// An address range that is reserved in forked children: every access in a child faults.
#[derive(Debug)]
pub struct Reserved {
    entry: &'static Entry,
    process: ForkGuard,
}

impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:#x}", self.start.load(Ordering::Relaxed))
    }
}

impl Reserved {
    /// Excludes the pages of `len` bytes at `start` from forked children, and reserves their addresses there, until the
    /// value is dropped. Drop it before the pages are unmapped.
    ///
    /// # Errors
    /// `Unaligned` if the range is not whole pages; `Os` if the kernel refuses; `NoSpace`.
    ///
    /// # Safety
    /// Until the value is dropped, the range is mapped and contains no memory of other owners.
    pub unsafe fn new(start: *mut u8, len: usize) -> Result<Self, MemError> {
        install()?;
        let process = ForkGuard::new()?;
        let page = super::limits::page_size();
        for value in [start.addr(), len] {
            let value = crate::length::widen(value);
            if !value.is_multiple_of(page) {
                return Err(MemError::Unaligned { value, align: page });
            }
        }
        let full = || no_space(0, "pthread_atfork", rustix::io::Errno::NOMEM);
        let entry = claim().ok_or_else(full)?;
        // SAFETY: whole pages that are mapped, as the caller vouches; the advice leaves the contents as they are.
        let advised = unsafe { rustix::mm::madvise(start.cast(), len, Advice::LinuxDontFork) };
        if let Err(e) = advised {
            entry.start.store(FREE, Ordering::Release);
            return Err(os("madvise(MADV_DONTFORK)", e));
        }
        // Only now: in a child of this moment the range is a hole. A child of the moment before has no entry, and the
        // caller has handed out no address yet.
        entry.len.store(len, Ordering::Relaxed);
        entry.start.store(start.addr(), Ordering::Release);
        Ok(Self { entry, process })
    }
}

impl Reserved {
    /// Returns `true` in a child that was forked after the value was created; the range is reserved there permanently.
    #[must_use]
    pub fn is_inherited(&self) -> bool {
        self.process.is_child()
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        // In a child the entry may be another range's already.
        if !self.is_inherited() {
            self.entry.start.store(FREE, Ordering::Release);
        }
    }
}

/// Installs the handler. Two threads may do so at once: the second run in a child finds an empty table.
fn install() -> Result<(), MemError> {
    if INSTALLED.load(Ordering::Acquire) {
        return Ok(());
    }
    // SAFETY: the handler is a function without captures that calls only what may be called in a child of a process
    // with threads: mmap(2), write(2), abort(3).
    let failed = unsafe { libc::pthread_atfork(None, None, Some(reserve_in_child)) };
    if failed != 0 {
        return Err(MemError::Os { call: "pthread_atfork", errno: failed });
    }
    INSTALLED.store(true, Ordering::Release);
    Ok(())
}

/// Fills the holes. Runs in the child, in its only thread, before fork(2) returns.
extern "C" fn reserve_in_child() {
    for entry in (0..BLOCKS).map_while(block).flatten() {
        let start = entry.start.load(Ordering::Acquire);
        if start == FREE || start == CLAIMED {
            continue;
        }
        let len = entry.len.load(Ordering::Relaxed);
        let at = ptr::without_provenance_mut::<std::ffi::c_void>(start);
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED_NOREPLACE;
        // SAFETY: MAP_FIXED_NOREPLACE replaces nothing: the range is a hole, or the call fails.
        let mapped = unsafe { rustix::mm::mmap_anonymous(at, len, ProtFlags::empty(), flags) };
        // Kernels before 4.17 do not know the flag, and give another address where the range is used.
        if mapped != Ok(at) {
            let what =
                b"hmc: the memory of the parent process could not be kept out of a forked child\n";
            // SAFETY: write(2) of a constant. If it fails, the process ends without the words.
            let _ = unsafe { libc::write(libc::STDERR_FILENO, what.as_ptr().cast(), what.len()) };
            std::process::abort();
        }
        // This process's child inherits the reservation as it is.
        entry.start.store(FREE, Ordering::Release);
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::{ForkGuard, Reserved};
    use crate::os::pages;

    pub(in crate::os) fn in_child(body: impl FnOnce() -> bool) -> i32 {
        // SAFETY: fork(2); the child runs `body`, which allocates nothing, and ends by `_exit`.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            let code = i32::from(!body());
            // SAFETY: _exit(2) takes a number.
            unsafe { libc::_exit(code) };
        }
        let mut status = 0;
        // SAFETY: waitpid(2) on the child made above; `status` is a valid place for the answer.
        let waited = unsafe { libc::waitpid(pid, &raw mut status, 0) };
        assert_eq!(waited, pid);
        status
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri has no madvise(2) and no fork(2)")]
    fn a_child_is_another_process_and_so_is_its_child() {
        let here = ForkGuard::new().expect("a page");
        assert!(!here.is_child());
        assert_eq!(ForkGuard::new().expect("there"), here);
        let status = in_child(|| {
            let Ok(child) = ForkGuard::new() else { return false };
            let grandchild = in_child(|| here.is_child() && child.is_child());
            here.is_child() && !child.is_child() && grandchild == 0
        });
        assert_eq!(status, 0, "{status:#x}");
        assert!(!here.is_child());
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri has no madvise(2) and no fork(2)")]
    fn a_child_and_its_child_find_the_range_reserved() {
        let len = 1 << 16;
        let mut all = Vec::new();
        // More than the first block of the table has.
        for _ in 0..200 {
            let pins = pages::zeros(len).expect("memory");
            // SAFETY: the range stays mapped until `all` goes, whose fields go in order: the reservation first.
            let reserved = unsafe { Reserved::new(pins.at.as_ptr(), len) };
            all.push((reserved.expect("space"), pins));
        }
        let reserved = |at: *mut u8| {
            // mincore(2): ENOMEM for a hole. A child's own mapping at that address fails.
            let page = 4096;
            let mut vec = [0u8; 1];
            // SAFETY: mincore(2) writes one byte for one page.
            let known = unsafe { libc::mincore(at.cast(), page, vec.as_mut_ptr()) } == 0;
            // SAFETY: NULL is not written to; write(2) to a bad descriptor or from unreadable memory fails.
            let readable = unsafe { libc::access(at.cast(), libc::F_OK) };
            let errno = std::io::Error::last_os_error().raw_os_error();
            known && readable == -1 && errno == Some(libc::EFAULT)
        };
        let starts: Vec<*mut u8> = all.iter().map(|(_, p)| p.at.as_ptr()).collect();
        let status = in_child(|| {
            let here = starts.iter().all(|at| reserved(*at));
            here && in_child(|| starts.iter().all(|at| reserved(*at))) == 0
        });
        assert_eq!(status, 0, "{status:#x}");
        all.remove(0);
        // In order: the first is gone, the others are there.
        let status = in_child(|| starts.iter().map(|at| reserved(*at)).eq((0..200).map(|i| i > 0)));
        assert_eq!(status, 0, "{status:#x}");
    }
}
