//! What threads do while the process ends by exit(3): UCX's state is taken down then, so none of them may be in it.

#![allow(clippy::arithmetic_side_effects, clippy::unwrap_used, reason = "tests may panic")]

use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use hmc_hw::ucx::context::Context;
use hmc_hw::ucx::domain::UcxDomain;
use hmc_hw::ucx::settings::Settings;
use hmc_hw::ucx::worker::Worker;
use hmc_mem::os::exit::at_exit;
use hmc_std::{ConnType, Session};
use hmc_testkit::buffers::BufferTransfers as _;
use hmc_tests::env::{TempDir, until};
use hmc_tests::fake_ucp::FakeUcp;
use hmc_tests::ucx_planes::End;

const LONG: Duration = Duration::from_secs(20);
/// What threads call that wait or serve peers, and those that register memory.
const CALLS: [&str; 2] = ["ucp_worker_progress", "ucp_mem_map"];

static LIBRARY: OnceLock<&'static FakeUcp> = OnceLock::new();
/// They live when the process ends.
static SESSIONS: Mutex<Option<(Session, Session)>> = Mutex::new(None);
/// It lives then, too, and no thread uses it.
static WORKER: Mutex<Option<Arc<Worker>>> = Mutex::new(None);
/// It knows that the process ends.
static DOMAIN: OnceLock<Arc<UcxDomain>> = OnceLock::new();

fn calls() -> [u64; 2] {
    CALLS.map(|call| LIBRARY.get().unwrap().calls(call))
}

/// Where libraries would be taken down: for a second. Then it does what a static of C++ may do that holds sessions.
extern "C" fn look_for_a_while() {
    if DOMAIN.get().is_some_and(|domain| !domain.is_ending()) {
        std::process::abort();
    }
    let (before, start) = (calls(), Instant::now());
    while start.elapsed() < Duration::from_secs(1) {
        if calls() != before {
            std::process::abort();
        }
        std::thread::yield_now();
    }
    drop(SESSIONS.lock().unwrap().take());
    let destroyed = || LIBRARY.get().unwrap().calls("ucp_worker_destroy");
    let before = destroyed();
    drop(WORKER.lock().unwrap().take());
    if destroyed() != before {
        std::process::abort();
    }
}

fn load() {
    // Registered before the library is loaded, it runs after what is registered then.
    assert!(at_exit(look_for_a_while));
    let fake_ucp: &'static FakeUcp = Box::leak(Box::new(FakeUcp::take()));
    assert!(LIBRARY.set(fake_ucp).is_ok());
}

#[test]
#[ignore = "ends: `no_thread_is_in_ucx_once_the_process_ends` runs it as a process"]
fn a_process_that_ends_under_puts() {
    load();
    use_ucx();
}

/// The child's sessions are its own, and the library its parent's.
#[test]
#[ignore = "ends: `no_thread_is_in_ucx_once_a_forked_child_ends` runs it as a process"]
fn a_forked_child_that_ends_under_puts() {
    load();
    drop(Session::builder(0).buffer(4096).ucx().start().unwrap());
    LIBRARY.get().unwrap().await_clean();
    // SAFETY: fork(2) in a process whose other thread waits for this one; glibc makes malloc usable in the child.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "no fork");
    if pid == 0 {
        // SAFETY: alarm(2) takes a number.
        unsafe { libc::alarm(60) };
        if std::panic::catch_unwind(use_ucx).is_err() {
            std::process::abort();
        }
        // SAFETY: the thread that was forked; no other of the child calls exit(3).
        unsafe { libc::exit(0) };
    }
    let mut status = 0;
    // SAFETY: waitpid(2) on the child made above; `status` is a valid place for the answer.
    let waited = unsafe { libc::waitpid(pid, &raw mut status, 0) };
    assert!(waited == pid && status == 0, "the child went on: {status:#x}");
}

/// Threads of it are at work when this returns.
fn use_ucx() {
    let dir = TempDir::new();
    let target = Session::builder(1).uds(dir.path()).buffer(1 << 20).ucx().start().unwrap();
    let source = Session::builder(0).buffer(1 << 20).start().unwrap();
    let peer =
        source.connect(&dir.address()).rank(1).over(ConnType::Ucx).within(LONG).wait().unwrap();
    let other = Session::builder(2).buffer(0).ucx().start().unwrap();
    *SESSIONS.lock().unwrap() = Some((source, target));
    std::thread::spawn(move || {
        while peer.put_at(0, 0, 4096).is_ok() {
            let _ = peer.get_at(0, 0, 1 << 20);
        }
    });
    std::thread::spawn(move || {
        loop {
            let region =
                other.memory().register(hmc_std::memory::HeapBytes::from(vec![0; 4096])).unwrap();
            other.find_ucx_registration(&region).unwrap();
        }
    });
    let library = LIBRARY.get().unwrap().library();
    let context = Context::new(library, &Settings::default()).unwrap();
    *WORKER.lock().unwrap() = Some(Worker::new(&context).unwrap());
    let domain = End::new(LIBRARY.get().unwrap(), false).domain;
    assert!(!domain.is_ending());
    assert!(DOMAIN.set(domain).is_ok());
    let begun = calls();
    until("all are at it", LONG, || {
        calls().iter().zip(begun).all(|(now, begun)| *now > begun + 100).then_some(())
    });
}

/// Killed with the value: it may hang.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn no_thread_is_in_ucx_once_the_process_ends() {
    run("a_process_that_ends_under_puts");
}

#[test]
fn no_thread_is_in_ucx_once_a_forked_child_ends() {
    run("a_forked_child_that_ends_under_puts");
}

fn run(test: &str) {
    let mut program = Command::new(std::env::current_exe().unwrap());
    program.args(["--exact", test, "--ignored"]);
    let mut process = Process(program.stdout(Stdio::piped()).spawn().unwrap());
    let status = until("it ends", 2 * LONG, || process.0.try_wait().unwrap());
    let said = std::io::read_to_string(process.0.stdout.take().unwrap()).unwrap();
    assert!(said.contains("1 passed"), "{said}");
    assert!(status.success(), "it went on: {status}");
}
