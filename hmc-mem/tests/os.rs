//! The Linux rooms: mappings and seals, budgets, forks, copies between processes, sockets, descriptors.
#![cfg(all(target_os = "linux", feature = "std", not(loom)))]
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "tests may panic"
)]

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use hmc_core::kinds::Access;
use hmc_core::span::{Extent, Side, Span};
use hmc_mem::error::{MemError, MemLimit};
use hmc_mem::os::cma::{self, CmaError};
use hmc_mem::os::io::{self, IoError, Moved, Part, Place};
use hmc_mem::os::limits::{self, Budget, HostLimits};
use hmc_mem::os::memfd::{HUGE_PAGE, Mapping, Pages};
use hmc_mem::os::pass;
use hmc_mem::owned::{Owned, Shared};
use hmc_mem::shared::SharedError;
use hmc_mem::word::{Drain, WindowWord};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::process::Pid;

const RW: Access = Access::READ.union(Access::WRITE);

fn span(offset: u64, len: u64) -> Span {
    Extent::new(u64::MAX).span(Side::Local, offset, len).unwrap()
}

fn read(m: &Mapping, at: u64, len: u64) -> Vec<u8> {
    let mut into = vec![0; len.try_into().unwrap()];
    m.bytes().read_at(span(at, len), &mut into).unwrap();
    into
}

fn dup(m: &Mapping) -> OwnedFd {
    m.fd().unwrap().try_clone_to_owned().unwrap()
}

#[test]
fn a_peer_sees_what_is_written_and_the_other_way() {
    for len in [1u64, 4096, 5000, HUGE_PAGE, HUGE_PAGE + 4097, 5 * HUGE_PAGE] {
        let ours = Mapping::create(len).unwrap();
        assert_eq!(ours.extent().len(), len);
        assert!(read(&ours, 0, len).iter().all(|b| *b == 0), "fresh pages are zeros");
        let theirs = Mapping::map_peer(dup(&ours), len, 0, RW).unwrap();
        ours.bytes().fill(span(0, len), 7).unwrap();
        assert!(read(&theirs, 0, len).iter().all(|b| *b == 7));
        theirs.bytes().write_at(span(len - 1, 1), &[9]).unwrap();
        assert_eq!(read(&ours, len - 1, 1), [9]);
    }
}

#[test]
fn a_part_of_a_memfd_is_mapped_from_its_offset() {
    let page = limits::page_size();
    let ours = Mapping::create(4 * page).unwrap();
    ours.bytes().fill(span(2 * page, page), 3).unwrap();
    let theirs = Mapping::map_peer(dup(&ours), page + 5, 2 * page, RW).unwrap();
    assert!(read(&theirs, 0, page).iter().all(|b| *b == 3));
    assert_eq!(read(&theirs, page, 5), [0; 5]);
    let odd = Mapping::map_peer(dup(&ours), page, 7, RW);
    assert_eq!(odd.unwrap_err(), MemError::Unaligned { value: 7, align: page });
}

#[test]
fn an_empty_region_is_legal() {
    let empty = Mapping::create(0).unwrap();
    assert!(empty.extent().is_empty());
    assert_eq!(empty.fd().unwrap_err(), MemError::NotExportable);
    empty.bytes().write_at(span(0, 0), &[]).unwrap();
    assert!(matches!(empty.bytes().write_at(span(0, 1), &[1]), Err(SharedError::Range(_))));
    empty.prefault().unwrap();
    empty.fresh_over(span(0, 0)).unwrap();
    let ours = Mapping::create(10).unwrap();
    assert!(Mapping::map_peer(dup(&ours), 0, 0, RW).unwrap().extent().is_empty());
    assert!(Owned::<Mapping>::create(0).unwrap().as_slice().is_empty());
}

#[test]
fn a_peer_can_neither_shrink_nor_grow_what_we_mapped() {
    let ours = Mapping::create(10_000).unwrap();
    let fd = dup(&ours);
    for size in [0, 4096, 1 << 20] {
        assert_eq!(rustix::fs::ftruncate(&fd, size), Err(Errno::PERM));
    }
    assert_eq!(read(&ours, 9_999, 1), [0]);
}

#[test]
fn a_region_exported_for_reading_cannot_be_written_by_a_peer() {
    let ours = Mapping::create(4096).unwrap();
    ours.seal_future_write().unwrap();
    let fd = dup(&ours);
    assert_eq!(rustix::io::pwrite(&fd, &[1], 0), Err(Errno::PERM));
    assert!(matches!(
        Mapping::map_peer(dup(&ours), 4096, 0, RW).unwrap_err(),
        MemError::Os { call: "mmap", .. }
    ));
    let reader = Mapping::map_peer(fd, 4096, 0, Access::READ).unwrap();
    assert_eq!(reader.bytes().write_at(span(0, 1), &[1]), Err(SharedError::ReadOnly));
    let reader = Shared::new(reader);
    assert!(!reader.bytes().is_writable());
    ours.bytes().fill(span(0, 4096), 5).unwrap();
    let mut got = [0; 1];
    reader.bytes().read_at(span(4095, 1), &mut got).unwrap();
    assert_eq!(got, [5]);
    assert_eq!(
        ours.seal_seals().unwrap_err(),
        MemError::Os { call: "fcntl(F_ADD_SEALS)", errno: libc::EPERM }
    );
}

#[test]
fn what_could_vanish_is_not_mapped() {
    let make = |size: u64, seals: SealFlags, commit: bool| {
        let fd =
            rustix::fs::memfd_create("t", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&fd, size).unwrap();
        if commit {
            rustix::fs::fallocate(&fd, rustix::fs::FallocateFlags::empty(), 0, size).unwrap();
        }
        rustix::fs::fcntl_add_seals(&fd, seals).unwrap();
        fd
    };
    let both = SealFlags::SHRINK | SealFlags::GROW;
    for seals in [SealFlags::empty(), SealFlags::SHRINK, SealFlags::GROW] {
        let got = Mapping::map_peer(make(8192, seals, true), 8192, 0, RW).unwrap_err();
        assert_eq!(got, MemError::NotSealed { have: seals.bits(), need: both.bits() });
    }
    let got = Mapping::map_peer(make(8192, both, true), 8193, 0, RW).unwrap_err();
    assert_eq!(got, MemError::ShortFile { claim: 8193, size: 8192 });
    let got = Mapping::map_peer(make(8192, both, true), 4096, u64::MAX - 4095, RW).unwrap_err();
    assert_eq!(got, MemError::ShortFile { claim: u64::MAX, size: 8192 });
    let got = Mapping::map_peer(make(8192, both, false), 8192, 0, RW).unwrap_err();
    assert_eq!(got, MemError::Sparse { claim: 8192, committed: 0 });
    assert!(Mapping::map_peer(make(8192, both, true), 8192, 0, RW).is_ok());
    let (socket, _other) = UnixStream::pair().unwrap();
    let got = Mapping::map_peer(socket.into(), 1, 0, RW).unwrap_err();
    assert_eq!(got, MemError::NotSealed { have: 0, need: both.bits() });
}

#[test]
fn too_much_is_refused_before_anything_is_taken() {
    let got = Mapping::builder().budget(Budget::of(1 << 20)).create((1 << 20) + 1).unwrap_err();
    assert_eq!(
        got,
        MemError::NoSpace { need: (1 << 20) + 1, have: 1 << 20, limit: MemLimit::Caller }
    );
    assert!(Mapping::builder().budget(Budget::of(1 << 20)).create(1 << 20).is_ok());
    assert!(matches!(Mapping::create(1 << 45).unwrap_err(), MemError::NoSpace { .. }));
    assert!(matches!(Mapping::create(u64::MAX).unwrap_err(), MemError::TooLong { .. }));
    assert!(got.to_string().contains("1048577") && got.to_string().contains("smaller region"));
}

#[test]
fn budgets_come_from_the_tightest_of_memory_and_control_groups() {
    let root = std::env::temp_dir().join(format!("hmc-mem-limits-{}", std::process::id()));
    let put = |path: &str, text: &str| {
        let path = root.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    assert_eq!(Budget::read_under(&root).have(), u64::MAX);
    put("proc/meminfo", "MemTotal: 99 kB\nMemAvailable:   1000 kB\n");
    let got = Budget::read_under(&root);
    assert_eq!((got.have(), got.limit()), (1_024_000, MemLimit::MemAvailable));
    // v2: the parent is tighter than the group itself; cached file pages count as free.
    put("proc/self/cgroup", "0::/a/b\n");
    put("sys/fs/cgroup/a/b/memory.max", "max\n");
    put("sys/fs/cgroup/a/memory.max", "500000\n");
    put("sys/fs/cgroup/a/memory.current", "450000\n");
    put("sys/fs/cgroup/a/memory.stat", "anon 1\ninactive_file 30000\n");
    let got = Budget::read_under(&root);
    assert_eq!((got.have(), got.limit()), (80_000, MemLimit::Cgroup));
    // v1: no limit is 2^63 less a page; then a limit, in a container whose path is not below the mount.
    put("proc/self/cgroup", "4:memory:/x/y\n0::/\n");
    put("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    put("sys/fs/cgroup/memory/memory.usage_in_bytes", "100\n");
    assert_eq!(Budget::read_under(&root).limit(), MemLimit::MemAvailable);
    put("sys/fs/cgroup/memory/memory.limit_in_bytes", "40\n");
    assert_eq!(Budget::read_under(&root).have(), 0);
    std::fs::remove_dir_all(&root).unwrap();
    let host = HostLimits::read();
    assert!(host.budget.have() > 0 && host.page_size >= 4096 && host.nofile > 0);
    assert_eq!(host.boot_id.map(|b| b.len()), Some(36));
}

#[test]
fn huge_pages_are_used_where_the_system_grants_them() {
    let m = Mapping::create(4 * HUGE_PAGE).unwrap();
    let host = HostLimits::read();
    if m.pages() == Pages::Transparent && host.shmem_huge.as_deref() == Some("advise") {
        println!("huge {} of {}", m.huge_bytes(), m.extent().len());
        let theirs = Mapping::map_peer(dup(&m), m.extent().len(), 0, RW).unwrap();
        theirs.prefault().unwrap();
        assert!(theirs.huge_bytes() <= m.extent().len());
    }
    assert_eq!(Mapping::builder().huge(false).create(4 * HUGE_PAGE).unwrap().pages(), Pages::Small);
}

#[test]
fn creation_is_quick() {
    for (len, bound) in
        [(1u64 << 20, Duration::from_millis(1)), (128 << 20, Duration::from_millis(100))]
    {
        let best = (0..5)
            .map(|_| {
                let begun = Instant::now();
                drop(Mapping::create(len).unwrap());
                begun.elapsed()
            })
            .min()
            .unwrap();
        println!("create_and_drop {len} bytes {} us", best.as_micros());
        // Under load from other tests the best of five may still suffer.
        assert!(best < bound * 3, "{len} bytes took {best:?}");
    }
}

#[test]
fn fresh_pages_cut_a_peer_off_and_keep_the_bytes() {
    let page = limits::page_size();
    for len in [4 * page, 2 * HUGE_PAGE + 100] {
        let ours = Mapping::create(len).unwrap();
        let theirs = Mapping::map_peer(dup(&ours), len, 0, RW).unwrap();
        ours.bytes().fill(span(0, len), 1).unwrap();
        for wrong in [span(1, page), span(0, page + 1)] {
            assert!(matches!(ours.fresh_over(wrong), Err(MemError::Unaligned { .. })));
        }
        assert!(ours.fd().is_ok());
        ours.fresh_over(span(page, page)).unwrap();
        theirs.bytes().fill(span(0, len), 2).unwrap();
        assert_eq!(read(&ours, 0, 1), [2]);
        assert!(read(&ours, page, page).iter().all(|b| *b == 1), "cut off, bytes kept");
        assert!(read(&ours, 2 * page, len - 2 * page).iter().all(|b| *b == 2));
        assert_eq!(ours.fd().unwrap_err(), MemError::NotExportable);
        ours.fresh_over(span(2 * page, len - 2 * page)).unwrap();
        theirs.bytes().fill(span(0, len), 3).unwrap();
        assert_eq!(read(&ours, len - 1, 1), [2]);
    }
}

/// Runs `child` in a forked process and gives its exit status, or 128 + signal.
fn forked(child: impl FnOnce() -> i32) -> i32 {
    // SAFETY: the child of a threaded process makes only system calls and plain memory accesses (see each
    // use) and ends with _exit.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let code = child();
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(code) };
    }
    wait(pid)
}

fn wait(pid: i32) -> i32 {
    let mut status = 0;
    // SAFETY: `pid` is our child; `status` is a live int.
    let got = unsafe { libc::waitpid(pid, &raw mut status, 0) };
    assert_eq!(got, pid);
    if libc::WIFSIGNALED(status) { 128 + libc::WTERMSIG(status) } else { libc::WEXITSTATUS(status) }
}

#[test]
fn a_forked_child_does_not_inherit_the_pages() {
    let ours = Mapping::create(4096).unwrap();
    // msync(2): ENOMEM for pages that are not mapped. The child makes that one system call.
    let probe = || {
        // SAFETY: asks about one page; changes nothing.
        let r = unsafe { libc::msync(ours.bytes().as_ptr().cast(), 4096, libc::MS_ASYNC) };
        i32::from(r != 0)
    };
    assert_eq!(probe(), 0, "mapped in the parent");
    assert_eq!(forked(probe), 1, "not mapped in the child");
    ours.fresh_over(span(0, 4096)).unwrap();
    assert_eq!(forked(probe), 1, "nor are fresh pages");
}

#[test]
fn owned_memory_is_borrowed_until_it_is_shared() {
    let mut owned = Owned::<Mapping>::create(100).unwrap();
    owned.as_mut_slice()[42] = 6;
    assert_eq!(owned.as_slice().iter().map(|b| u32::from(*b)).sum::<u32>(), 6);
    let shared = owned.into_shared();
    assert_eq!(read(shared.backing(), 42, 1), [6]);
    // SAFETY: no other process has the descriptor, and this thread is the only one with the mapping.
    let part = unsafe { hmc_mem::owned::borrow_private_mut(shared.bytes(), span(40, 3)) }.unwrap();
    part[0] = 8;
    assert_eq!(read(&shared.into_backing(), 40, 3), [8, 0, 6]);
}

#[test]
fn a_killed_peer_inside_a_window_does_not_hold_the_owner() {
    let ours = Mapping::create(4096).unwrap();
    ours.seal_seals().unwrap();
    let w = WindowWord::new(ours.bytes().word(0).unwrap());
    w.reset(7);
    w.open(7).unwrap();
    // The pages are not inherited: the child maps them by descriptor and dies inside the window.
    let fd = ours.fd().unwrap().as_raw_fd();
    let code = forked(|| {
        // SAFETY: maps one page of an inherited descriptor at an address of the kernel's choice.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                4096,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                fd,
                0,
            )
        };
        let Some(at) = std::ptr::NonNull::new(at.cast::<u64>()) else {
            return 1;
        };
        // SAFETY: the page was just mapped and is only used through this word.
        let word = unsafe { hmc_mem::sync::Word64::from_raw(at) };
        i32::from(WindowWord::new(word).enter(7).is_err())
    });
    assert_eq!(code, 0);
    w.close();
    let begun = Instant::now();
    assert_eq!(w.wait_drained(Duration::from_millis(80)), Drain::TimedOut { inside: 1 });
    assert!(begun.elapsed() < Duration::from_secs(2));
    w.reset(8);
    assert!(w.is_drained());
}

#[test]
fn another_process_leaves_and_wakes_the_owner() {
    let ours = Mapping::create(4096).unwrap();
    let w = WindowWord::new(ours.bytes().word(8).unwrap());
    w.reset(1);
    w.open(1).unwrap();
    w.enter(1).unwrap();
    let theirs = Mapping::map_peer(dup(&ours), 4096, 0, RW).unwrap();
    std::thread::scope(|s| {
        let owner = s.spawn(|| w.wait_drained(Duration::from_secs(20)));
        let other = WindowWord::new(theirs.bytes().word(8).unwrap());
        while other.is_open(1) {
            std::thread::yield_now();
        }
        // Through another mapping of the same page, as another process has it: needs a shared futex.
        other.leave();
        assert_eq!(owner.join().unwrap(), Drain::Drained);
    });
}

#[test]
fn cma_copies_between_processes() {
    let status = cma::probe();
    if !status.works {
        println!("skipped: {}", status.verdict());
        return;
    }
    let len = (2u64 << 20) + 123;
    let theirs = vec![7u8; len.try_into().unwrap()];
    let address = u64::try_from(theirs.as_ptr().addr()).unwrap();
    let (ours, theirs_end) = UnixStream::pair().unwrap();
    // SAFETY: the child blocks in read(2) until the parent hangs up, then leaves.
    let child = unsafe { libc::fork() };
    if child == 0 {
        drop(ours);
        let mut byte = [0u8; 1];
        let fd = theirs_end.as_raw_fd();
        // SAFETY: reads at most one byte into a live array.
        unsafe { libc::read(fd, byte.as_mut_ptr().cast(), 1) };
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(0) };
    }
    drop(theirs_end);
    let pid = Pid::from_raw(child).unwrap();
    let here = Mapping::create(len).unwrap();
    let view = here.bytes();
    let pull = |address, span| {
        // SAFETY: `pid` is the child, another process, whose copy of the vector nothing uses.
        unsafe { cma::read(pid, address, &view, span, || true) }
    };
    pull(address, span(0, len)).unwrap();
    assert!(read(&here, 0, len).iter().all(|b| *b == 7));
    view.fill(span(0, 10), 9).unwrap();
    // SAFETY: as above.
    unsafe { cma::write(pid, address + 5, &view, span(0, 10), || true) }.unwrap();
    pull(address, span(100, 20)).unwrap();
    assert_eq!(read(&here, 100, 20), [[7; 5].as_slice(), &[9; 10], &[7; 5]].concat());
    assert_eq!(theirs[5], 7, "our own copy of the vector is ours");
    assert_eq!(pull(16, span(0, 8)), Err(CmaError::BadAddress { done: 0 }));
    assert_eq!(pull(u64::MAX, span(0, 8)), Err(CmaError::BadAddress { done: 0 }));
    assert!(matches!(pull(address, span(1, len)), Err(CmaError::Shared(SharedError::Range(_)))));
    let mut asked = 0;
    // SAFETY: as above.
    let got = unsafe {
        cma::read(pid, address, &view, span(0, len), || {
            asked += 1;
            asked < 3
        })
    };
    assert_eq!(got, Err(CmaError::Stopped { done: 2 << 20 }));
    // SAFETY: as above.
    let fixed = unsafe { cma::read(pid, address, &view.read_only(), span(0, 1), || true) };
    assert_eq!(fixed, Err(CmaError::Shared(SharedError::ReadOnly)));
    drop(ours);
    assert_eq!(wait(child), 0);
    assert_eq!(pull(address, span(0, 8)), Err(CmaError::Gone));
}

#[test]
fn sockets_move_spans_in_pieces() {
    let (a, b) = UnixStream::pair().unwrap();
    a.set_nonblocking(true).unwrap();
    b.set_nonblocking(true).unwrap();
    let len = 3u64 << 20;
    let (from, to) = (Mapping::create(len).unwrap(), Mapping::create(len + 2).unwrap());
    let bytes: Vec<u8> = (0..len).map(|i| (i * 7 + (i >> 9)).to_le_bytes()[0]).collect();
    from.bytes().write_at(span(0, len), &bytes).unwrap();
    assert_eq!(io::recv_into(&b, &to.bytes(), span(1, len)).unwrap(), Moved::WouldBlock);
    let (mut sent, mut got, mut calls) = (0u64, 0u64, 0);
    while got < len {
        calls += 1;
        match io::send_from(&a, &from.bytes(), span(sent, len - sent)).unwrap() {
            Moved::Bytes(n) => sent += u64::try_from(n).unwrap(),
            Moved::WouldBlock => {}
            Moved::Closed => unreachable!("a sender is never told so"),
        }
        match io::recv_into(&b, &to.bytes(), span(1 + got, len - got)).unwrap() {
            Moved::Bytes(n) => got += u64::try_from(n).unwrap(),
            other => assert_eq!(other, Moved::WouldBlock),
        }
    }
    assert!(calls > 1, "three MiB do not fit a socket buffer: a part is normal");
    assert_eq!(read(&to, 1, len), bytes);
    assert_eq!((read(&to, 0, 1), read(&to, len + 1, 1)), (vec![0], vec![0]));
}

#[test]
fn a_header_and_a_span_go_in_one_call_and_a_tail_comes_in_one() {
    let (a, b) = UnixStream::pair().unwrap();
    let m = Mapping::create(100).unwrap();
    let view = m.bytes();
    view.write_at(span(10, 4), b"body").unwrap();
    assert_eq!(io::send_with(&a, b"head", &view, span(10, 4)).unwrap(), Moved::Bytes(8));
    let parts = [
        Part::Private(b"x"),
        Part::Private(&[]),
        Part::Shared(view, span(12, 2)),
        Part::Private(b"yz"),
    ];
    assert_eq!(io::send_parts(&a, &parts).unwrap(), Moved::Bytes(5));
    let mut tail = [0; 5];
    assert_eq!(io::recv_into_then(&b, &view, span(50, 8), &mut tail).unwrap(), Moved::Bytes(13));
    assert_eq!(read(&m, 50, 8), b"headbody");
    assert_eq!(&tail, b"xdyyz");
}

#[test]
fn wrong_ranges_and_broken_sockets_are_errors_and_no_signals() {
    let (a, b) = UnixStream::pair().unwrap();
    let m = Mapping::create(16).unwrap();
    let view = m.bytes();
    let wrong = |r: Result<Moved, IoError>| matches!(r, Err(IoError::Shared(_)));
    assert!(wrong(io::send_from(&a, &view, span(10, 7))));
    assert!(wrong(io::recv_into(&a, &view, span(17, 0))));
    assert!(wrong(io::recv_into(&a, &view.read_only(), span(0, 1))));
    assert_eq!(io::send_from(&a, &view, span(16, 0)).unwrap(), Moved::Bytes(0));
    // A table that is full leaves the rest for the next call.
    let many = vec![Part::Private(b"ab"); io::MAX_PARTS + 5];
    assert_eq!(io::send_parts(&a, &many).unwrap(), Moved::Bytes(2 * io::MAX_PARTS));
    let mut sink = [0; 2 * io::MAX_PARTS];
    assert_eq!(
        io::recv_parts(&b, &mut [Place::Private(&mut sink)]).unwrap(),
        Moved::Bytes(sink.len())
    );
    drop(b);
    // MSG_NOSIGNAL: this test would die of SIGPIPE if Rust's runtime did not ignore it, so ask in a child
    // that does not.
    let code = forked(|| {
        // SAFETY: restores the default action in the child.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
        i32::from(io::send_parts(&a, &[Part::Private(b"x")]) != Err(IoError::Broken))
    });
    assert_eq!(code, 0);
    assert_eq!(io::recv_into(&a, &view, span(0, 1)).unwrap(), Moved::Closed);
}

#[test]
fn a_descriptor_is_passed_and_closes_on_exec() {
    let (a, b) = UnixStream::pair().unwrap();
    let m = Mapping::create(4096).unwrap();
    m.bytes().fill(span(0, 4096), 4).unwrap();
    assert_eq!(pass::send_fd(&a, m.fd().unwrap(), b"region").unwrap(), Moved::Bytes(6));
    let mut text = [0; 16];
    let (moved, fd) = pass::recv_with_fd(&b, &mut text).unwrap();
    assert_eq!((moved, &text[..6]), (Moved::Bytes(6), b"region".as_slice()));
    let fd = fd.unwrap();
    assert!(rustix::io::fcntl_getfd(&fd).unwrap().contains(rustix::io::FdFlags::CLOEXEC));
    assert_eq!(read(&Mapping::map_peer(fd, 4096, 0, RW).unwrap(), 4095, 1), [4]);
    assert!(matches!(pass::send_fd(&a, m.fd().unwrap(), b""), Err(IoError::Os { .. })));
    // Without a descriptor, and after the end.
    assert_eq!(io::send_parts(&a, &[Part::Private(b"q")]).unwrap(), Moved::Bytes(1));
    let (moved, fd) = pass::recv_with_fd(&b, &mut text).unwrap();
    assert!(moved == Moved::Bytes(1) && fd.is_none());
    b.set_nonblocking(true).unwrap();
    assert_eq!(pass::recv_with_fd(&b, &mut text).unwrap().0, Moved::WouldBlock);
    drop(a);
    assert_eq!(pass::recv_with_fd(&b, &mut text).unwrap().0, Moved::Closed);
}

#[test]
fn of_many_descriptors_only_the_first_is_kept() {
    let (a, b) = UnixStream::pair().unwrap();
    let m = Mapping::create(1).unwrap();
    let fds = [m.fd().unwrap(); 200];
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(200))];
    let mut control = rustix::net::SendAncillaryBuffer::new(&mut space);
    assert!(control.push(rustix::net::SendAncillaryMessage::ScmRights(&fds)));
    let flags = rustix::net::SendFlags::empty();
    rustix::net::sendmsg(&a, &[std::io::IoSlice::new(b"x")], &mut control, flags).unwrap();
    let (moved, fd) = pass::recv_with_fd(&b, &mut [0; 1]).unwrap();
    assert_eq!(moved, Moved::Bytes(1));
    let kept = fd.unwrap();
    let same = rustix::fs::fstat(kept.as_fd()).unwrap().st_ino
        == rustix::fs::fstat(m.fd().unwrap()).unwrap().st_ino;
    assert!(same);
    // Descriptors with our memfd's inode: the mapping's and the kept one.
    let ino = rustix::fs::fstat(&kept).unwrap().st_ino;
    let open = std::fs::read_dir("/proc/self/fd")
        .unwrap()
        .filter_map(|e| std::fs::metadata(e.ok()?.path()).ok())
        .filter(|m| std::os::unix::fs::MetadataExt::ino(m) == ino)
        .count();
    assert_eq!(open, 2);
}
