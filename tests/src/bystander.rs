//! A process that has nothing to do with HMC, and has memory where another process had it: nothing may change there.

use std::io::{BufRead as _, Write as _};
use std::ptr::NonNull;

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};

/// The first argument of the program of actors, as which it is a bystander and no actor.
pub const NAME: &str = "bystander";
/// Where both have their memory.
pub const AT: usize = 0x2000_0000_0000;
const PAGE: usize = 4096;
/// What a bystander's memory holds.
const MARK: u8 = 0x5E;

/// `len` bytes at [`AT`], in memory, for as long as the process lives.
///
/// # Panics
/// When the system refuses, or something is there.
#[must_use]
pub fn memory(len: usize) -> NonNull<u8> {
    let flags = MapFlags::PRIVATE | MapFlags::FIXED_NOREPLACE | MapFlags::POPULATE;
    let at = std::ptr::without_provenance_mut(AT);
    let prot = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: with FIXED_NOREPLACE no mapping is replaced.
    let at = unsafe { mmap_anonymous(at, len, prot, flags) }.expect("the place is free");
    assert_eq!(at.addr(), AT, "the kernel knows MAP_FIXED_NOREPLACE");
    NonNull::new(at.cast()).expect("not null")
}

/// The bystander: it says `ok ready`, and for each line that it is told how many bytes of its memory have changed.
///
/// # Panics
/// When it has no memory, or nobody listens.
pub fn run(len: usize) {
    let start = memory(len);
    // SAFETY: `memory` mapped that many bytes, which nobody else knows of.
    unsafe { start.as_ptr().write_bytes(MARK, len) };
    let mut out = std::io::stdout().lock();
    writeln!(out, "ok ready").and_then(|()| out.flush()).expect("somebody listens");
    for _ in std::io::stdin().lock().lines().map_while(Result::ok) {
        let is_changed = |at: &usize| {
            // SAFETY: as above; volatile, since another process may have written it.
            let byte = unsafe { start.as_ptr().wrapping_add(*at).read_volatile() };
            byte != MARK
        };
        // What is written comes in pieces of many pages.
        let changed = (0..len).step_by(PAGE).filter(is_changed).count() * PAGE;
        writeln!(out, "ok {changed}").and_then(|()| out.flush()).expect("somebody listens");
    }
}
