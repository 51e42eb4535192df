//! A word in a shared page that shows others that a process has ended, before its parent can wait for it:
//! [`LifePage`], [`PeerLife`].
//!
//! A thread that lives as long as the owner of the page locks a robust, process-shared mutex. If that thread ends
//! without unlocking it, with its process or alone, the kernel sets FUTEX_OWNER_DIED in the mutex's word
//! (get_robust_list(2)) while the thread exits, so before a wait for the process can return. Peers read the word
//! with one load; they map the page read-only, and never lock.

use std::marker::PhantomData;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use hmc_core::range::ByteRange;
use hmc_core::types::Access;

use super::fork::ForkGuard;
use super::memfd::Mapping;
use crate::error::MemError;
use crate::sync::{AtomicU32, Ordering};

/// Bytes of the page.
const PAGE_BYTES: u64 = 4096;
/// Bytes of a mutex's word.
const WORD_BYTES: u64 = 4;
/// Set by the kernel in the word of a thread that has ended (linux/futex.h).
const OWNER_DIED: u32 = 0x4000_0000;
/// Which thread holds it (linux/futex.h).
const OWNER: u32 = 0x3fff_ffff;
/// PTHREAD_MUTEX_ROBUST and PTHREAD_PROCESS_SHARED of glibc and of musl.
const YES: libc::c_int = 1;
const _: () =
    assert!(size_of::<libc::pthread_mutex_t>() <= 4096, "the mutex is all that the page holds");

/// The head of a thread's list of robust mutexes (linux/futex.h).
#[repr(C)]
struct RobustList {
    newest: *mut u8,
    /// From an entry to its word.
    offset: libc::c_long,
    pending: *mut u8,
}

/// A page that shows peers whether the thread that holds it still exists. Initially no thread holds it.
#[derive(Debug)]
pub struct LifePage {
    page: Mapping,
    /// Where the word is, once it was held.
    word: OnceLock<ByteRange>,
    /// Somebody holds it, or ended holding it. Who tries a robust mutex whose holder has ended gets it, and takes the mark off
    /// it by that: so nobody tries.
    taken: AtomicBool,
    process: ForkGuard,
}

/// The page is held by the thread that created this value, until the value is dropped or the thread ends. In a forked
/// child a drop has no effect.
#[derive(Debug)]
pub struct Held {
    life: Arc<LifePage>,
    /// A mutex is unlocked by the thread that locked it.
    _thread: PhantomData<*mut ()>,
}

fn check(call: &'static str, errno: libc::c_int) -> Result<(), MemError> {
    if errno == 0 { Ok(()) } else { Err(MemError::Os { call, errno }) }
}

impl LifePage {
    /// Creates a page that no thread holds. Peers can map it for reading only.
    ///
    /// # Errors
    /// Those of [`Mapping::create`] and [`Mapping::seal_future_write`]; `Os` if the C library lacks robust mutexes.
    pub fn new() -> Result<Self, MemError> {
        let page = Mapping::builder().huge(false).create(PAGE_BYTES)?;
        page.seal_future_write()?;
        let (taken, process) = (AtomicBool::new(false), ForkGuard::new()?);
        let life = Self { page, word: OnceLock::new(), taken, process };
        let mut attr = std::mem::MaybeUninit::<libc::pthread_mutexattr_t>::uninit();
        // SAFETY: `attr` is writable memory for an attribute object.
        check("pthread_mutexattr_init", unsafe {
            libc::pthread_mutexattr_init(attr.as_mut_ptr())
        })?;
        // SAFETY: `attr` was initialised.
        let shared = unsafe { libc::pthread_mutexattr_setpshared(attr.as_mut_ptr(), YES) };
        check("pthread_mutexattr_setpshared", shared)?;
        // SAFETY: `attr` was initialised.
        let robust = unsafe { libc::pthread_mutexattr_setrobust(attr.as_mut_ptr(), YES) };
        check("pthread_mutexattr_setrobust", robust)?;
        // SAFETY: the page is writable, longer than a mutex and aligned to 4096; nobody else knows of it; `attr` was initialised.
        let made = unsafe { libc::pthread_mutex_init(life.mutex(), attr.as_ptr()) };
        check("pthread_mutex_init", made)?;
        // SAFETY: `attr` was initialised and is not used any more.
        let _ = unsafe { libc::pthread_mutexattr_destroy(attr.as_mut_ptr()) };
        Ok(life)
    }

    fn mutex(&self) -> *mut libc::pthread_mutex_t {
        self.page.bytes().as_ptr().cast()
    }

    /// Holds the page for the calling thread, until the returned value is dropped or the thread ends.
    ///
    /// # Errors
    /// `Os` if it is already held, or its holder ended (the mark is permanent); in a forked child; or if the kernel
    /// keeps no list of robust mutexes.
    pub fn hold(self: Arc<Self>) -> Result<Held, MemError> {
        if self.process.is_child() || self.taken.swap(true, Ordering::Acquire) {
            return Err(MemError::Os { call: "pthread_mutex_trylock", errno: libc::EBUSY });
        }
        // SAFETY: the mutex was initialised in `new`, and its page lives as long as `self`. Whoever held it let go of it
        // (`taken`), and no other process can write to it: it is free.
        let locked =
            check("pthread_mutex_trylock", unsafe { libc::pthread_mutex_trylock(self.mutex()) });
        if let Err(e) = locked {
            self.taken.store(false, Ordering::Release);
            return Err(e);
        }
        let held = Held { life: self, _thread: PhantomData };
        // An error drops `held`, which unlocks.
        let word = held.find_word()?;
        let _ = held.life.word.set(word);
        Ok(held)
    }

    /// Returns the position of the word in the page, and the page's descriptor, for a peer. `None` if no thread holds
    /// the page.
    #[must_use]
    pub fn offer(&self) -> Option<(ByteRange, BorrowedFd<'_>)> {
        Some((*self.word.get()?, self.page.fd().ok()?))
    }
}

impl Held {
    /// The word that the kernel will mark: it is the newest on this thread's list.
    fn find_word(&self) -> Result<ByteRange, MemError> {
        let mut head: *mut RobustList = std::ptr::null_mut();
        let mut len: libc::size_t = 0;
        // SAFETY: get_robust_list(2) of the calling thread writes a pointer and a length through valid pointers.
        let done =
            unsafe { libc::syscall(libc::SYS_get_robust_list, 0, &raw mut head, &raw mut len) };
        let none = MemError::Os { call: "get_robust_list", errno: libc::ENOSYS };
        if done != 0 || len < size_of::<RobustList>() {
            return Err(none);
        }
        let Some(head) = NonNull::new(head) else { return Err(none) };
        // SAFETY: the C library registered the head for this thread, as long as that lives; only this thread changes it.
        let list = unsafe { head.read() };
        // The lowest bit of an entry says of what kind its mutex is.
        let entry = list.newest.addr() & !1;
        let word = entry.wrapping_add_signed(isize::try_from(list.offset).unwrap_or(0));
        let bytes = self.life.page.bytes();
        let at = word.wrapping_sub(bytes.as_ptr().addr());
        let span =
            bytes.span(u64::try_from(at).unwrap_or(u64::MAX), WORD_BYTES).map_err(|_| none)?;
        // SAFETY: gettid(2) has no preconditions.
        let me = unsafe { libc::syscall(libc::SYS_gettid) };
        let now = word_at(&self.life.page, span)?;
        // SAFETY: `word_at` gave a word of the page, which lives as long as `self`.
        let owner = unsafe { now.as_ref() }.load(Ordering::Relaxed) & OWNER;
        if i64::from(owner) == me {
            Ok(span)
        } else {
            Err(MemError::Os { call: "get_robust_list", errno: libc::ENOSYS })
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if self.life.process.is_child() {
            // The mutex is the parent's, and its page is not here.
            return;
        }
        if std::thread::panicking() {
            // Its thread is about to end: peers are to be told. The page stays as long as the process.
            std::mem::forget(Arc::clone(&self.life));
            return;
        }
        // SAFETY: this thread locked it (a `Held` stays on its thread), and the page lives as long as `self`.
        let _ = unsafe { libc::pthread_mutex_unlock(self.life.mutex()) };
        self.life.taken.store(false, Ordering::Release);
    }
}

/// The word of a page at `span`.
fn word_at(page: &Mapping, span: ByteRange) -> Result<NonNull<AtomicU32>, MemError> {
    let (at, _) = page.bytes().locate(span).map_err(MemError::from)?;
    let word = NonNull::new(at.cast::<AtomicU32>()).filter(|w| w.is_aligned());
    word.ok_or(MemError::Unaligned { value: span.offset(), align: WORD_BYTES })
}

/// A peer's page, mapped for reading.
#[derive(Debug)]
pub struct PeerLife {
    word: NonNull<AtomicU32>,
    /// Keeps `word` mapped.
    _page: Mapping,
}

// SAFETY: the word is read by atomic loads only, and stays mapped as long as the value lives, whichever thread has it.
unsafe impl Send for PeerLife {}
// SAFETY: as above.
unsafe impl Sync for PeerLife {}

impl PeerLife {
    /// Maps a page whose word is at `offset` bytes.
    ///
    /// # Errors
    /// Those of [`Mapping::map_peer`]; `Shared` or `Unaligned` if no word can be at `offset`.
    pub fn map(fd: OwnedFd, offset: u64) -> Result<Self, MemError> {
        let page = Mapping::map_peer(fd, PAGE_BYTES, 0, Access::READ)?;
        let span = page.bytes().span(offset, WORD_BYTES)?;
        Ok(Self { word: word_at(&page, span)?, _page: page })
    }

    /// Returns `true` permanently once the holder has ended, which precedes the return of any wait for its process.
    #[must_use]
    #[inline]
    pub fn has_ended(&self) -> bool {
        // SAFETY: the word lies in the page that `self` keeps mapped, is aligned, and this process only reads it.
        let word = unsafe { self.word.as_ref() };
        // Acquire: what is done because it lives is not done before the look.
        word.load(Ordering::Acquire) & OWNER_DIED != 0
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may panic")]
mod tests {
    use super::{LifePage, PeerLife};
    use crate::os::fork::tests::in_child;
    use std::sync::Arc;

    fn peer(life: &LifePage) -> PeerLife {
        let (word, fd) = life.offer().unwrap();
        PeerLife::map(fd.try_clone_to_owned().unwrap(), word.offset()).unwrap()
    }

    #[test]
    fn a_holder_that_releases_has_not_ended() {
        let life = Arc::new(LifePage::new().unwrap());
        assert!(life.offer().is_none());
        let held = Arc::clone(&life).hold().unwrap();
        let peer = peer(&life);
        assert!(!peer.has_ended());
        assert!(Arc::clone(&life).hold().is_err(), "it is held");
        drop(held);
        assert!(!peer.has_ended());
        drop(Arc::clone(&life).hold().unwrap());
    }

    #[test]
    fn a_thread_that_panics_has_ended() {
        let life = Arc::new(LifePage::new().unwrap());
        let holder = Arc::clone(&life);
        let thread = std::thread::spawn(move || {
            let _held = holder.hold().unwrap();
            panic!("a planted panic");
        });
        thread.join().unwrap_err();
        let peer = peer(&life);
        assert!(peer.has_ended());
        // Nor does it live again because somebody else wants the page, who would have it on its list of mutexes for ever.
        assert!(Arc::clone(&life).hold().is_err());
        assert!(peer.has_ended());
        drop(life);
        drop(Arc::new(LifePage::new().unwrap()).hold().unwrap());
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri has no fork(2)")]
    fn a_child_of_the_holder_releases_nothing() {
        let life = Arc::new(LifePage::new().unwrap());
        let mut held = Some(Arc::clone(&life).hold().unwrap());
        let status = in_child(|| {
            drop(held.take());
            Arc::clone(&life).hold().is_err()
        });
        assert_eq!(status, 0, "{status:#x}");
        assert!(!peer(&life).has_ended());
        drop(held);
        drop(life.hold().unwrap());
    }

    #[test]
    fn a_page_without_a_word_there_is_refused() {
        let life = Arc::new(LifePage::new().unwrap());
        let _held = Arc::clone(&life).hold().unwrap();
        let (_, fd) = life.offer().unwrap();
        for offset in [4093, 4096, u64::MAX, 2] {
            assert!(PeerLife::map(fd.try_clone_to_owned().unwrap(), offset).is_err(), "{offset}");
        }
    }
}
