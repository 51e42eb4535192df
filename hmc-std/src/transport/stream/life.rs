//! Whether a peer on the same host may still copy: checks its stream and its process.
//!
//! Both ends check: the initiator before it reuses memory that the target accesses, and the target before each
//! chunk that it copies. The check does not affect received frames: frames in the socket can still be read.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hmc_core::time::Duration;
use hmc_mem::os::io::IoError;
use hmc_mem::os::process;
use rustix::event::{EventfdFlags, PollFd, PollFlags};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags};

use crate::base::clock;
use crate::base::polling;
use crate::io::socket::Socket;

/// What tells of the end of a peer of this host.
#[derive(Clone, Debug, Default)]
pub struct PeerLife {
    /// Readable once all threads of the process have ended, reaped or not (pidfd_open(2)).
    process: Option<Arc<OwnedFd>>,
    /// Its number, as the kernel has named it for a local stream.
    pid: Option<Pid>,
    /// A stream, which the kernel closes at execve(2), or after the last thread of the process.
    stream: Option<Arc<Socket>>,
    /// The stream is one of TCP, which others can reset while the process runs: then it says nothing. Whether it was.
    reset: Option<Arc<AtomicBool>>,
}

impl PeerLife {
    /// Of the peer at the other end of `stream`, and of its process `pid` where the kernel has named it.
    pub(crate) fn of(pid: Option<u32>, stream: &Arc<Socket>) -> Self {
        let named = pid.and_then(|p| i32::try_from(p).ok()).and_then(Pid::from_raw);
        let stream_of = Some(Arc::clone(stream));
        let mut life = Self { stream: stream_of, pid: named, ..Self::default() };
        // Only local streams have a process, whose number may be none of this namespace (0).
        let noted = stream.fd().filter(|_| pid.is_some()).map(process::pidfd);
        let found = match noted {
            Some(Err(e)) if is_unknown_option(e) => {
                named.map(|p| by_number(rustix::process::pidfd_open(p, PidfdFlags::empty()), &life))
            }
            other => other.map(held),
        };
        life.process = found.and_then(Found::descriptor);
        life
    }

    /// Of the peer at the other end of `stream`, one of TCP. It is a process of this system, and has told its number `pid`
    /// if that means something here; whoever trusts it with its memory believes that. Without a number the end of the stream
    /// counts, a reset included.
    pub(super) fn told(pid: Option<u32>, stream: &Arc<Socket>) -> Self {
        let mut life = Self { stream: Some(Arc::clone(stream)), ..Self::default() };
        let pid = pid.and_then(|p| i32::try_from(p).ok()).and_then(Pid::from_raw);
        // Should another process have the number by now, its end is waited for in vain at worst.
        let opened = pid.map(|p| rustix::process::pidfd_open(p, PidfdFlags::empty()));
        life.process = opened.map(by_its_number).and_then(Found::descriptor);
        life.reset = life.has_process().then(Arc::default);
        life
    }

    /// An error came of the stream.
    pub(super) fn note_error(&self, e: Errno) {
        // EPIPE: a reset after the end that the peer's kernel had told, or our own end.
        if let Some(reset) = self.reset.as_deref().filter(|_| e != Errno::PIPE) {
            reset.store(true, Ordering::Relaxed);
        }
    }

    /// Whether its end of the stream says nothing.
    fn was_reset(&self) -> bool {
        self.reset.as_deref().is_some_and(|reset| reset.load(Ordering::Relaxed))
    }

    /// Whether its end of the stream, which has shown, is its own word.
    fn means_its_end(&self) -> bool {
        if self.reset.is_some()
            && let Some(fd) = self.stream.as_deref().and_then(Socket::fd)
            && let Ok(Err(e)) = rustix::net::sockopt::socket_error(fd)
        {
            self.note_error(e);
        }
        !self.was_reset()
    }

    /// The number of its process, if the kernel has named it and its end can be seen. Another process may have it after that end.
    pub(crate) fn pid(&self) -> Option<Pid> {
        self.pid.filter(|_| self.has_process())
    }

    /// Whether the end of its process can be seen.
    pub(super) fn has_process(&self) -> bool {
        self.process.is_some()
    }

    /// Whether its process has ended, or it has ended its direction of the stream.
    pub fn has_ended(&self) -> bool {
        self.ends_within(Duration::ZERO)
    }

    /// As [`Self::has_ended`], waiting up to `timeout`.
    pub(crate) fn ends_within(&self, timeout: Duration) -> bool {
        if timeout != Duration::ZERO {
            polling::waits();
        }
        let mut fds: heapless::Vec<PollFd<'_>, 2> = heapless::Vec::new();
        fds.extend(self.descriptors());
        // EINTR: not seen yet.
        let seen = rustix::event::poll(&mut fds, clock::timespec(timeout).as_ref());
        if fds.is_empty() || !seen.is_ok_and(|n| n > 0) {
            return false;
        }
        let of_process = fds.first().is_some_and(|fd| !fd.revents().is_empty());
        self.has_process() && of_process || self.means_its_end()
    }

    /// What to poll: if something becomes ready, it may have ended.
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = PollFd<'_>> {
        let process = self.process.as_deref().map(|p| PollFd::new(p, PollFlags::IN));
        let stream = self.stream.as_deref().filter(|_| !self.was_reset()).and_then(Socket::fd);
        // Its direction alone: ours may have ended before.
        let stream = stream.map(|s| PollFd::from_borrowed_fd(s, PollFlags::RDHUP));
        process.into_iter().chain(stream)
    }
}

/// What is known of a process.
#[derive(Debug)]
enum Found {
    /// A pidfd of it. It may have ended.
    Running(OwnedFd),
    /// It has ended, and been waited for or replaced.
    Over,
    /// Nothing: there is no descriptor left, or no such call.
    Unknown,
}

impl Found {
    /// What is readable once it has ended.
    fn descriptor(self) -> Option<Arc<OwnedFd>> {
        match self {
            Self::Running(process) => Some(Arc::new(process)),
            Self::Over => over().map(Arc::new),
            Self::Unknown => None,
        }
    }
}

/// Whether the kernel is older than SO_PEERPIDFD (Linux 6.5).
fn is_unknown_option(e: IoError) -> bool {
    e == IoError::Os { errno: Errno::NOPROTOOPT.raw_os_error() }
}

/// What the kernel answers of the process that it noted.
fn held(answer: Result<OwnedFd, IoError>) -> Found {
    match answer {
        Ok(process) => Found::Running(process),
        Err(IoError::Os { errno })
            if [Errno::SRCH, Errno::INVAL].map(Errno::raw_os_error).contains(&errno) =>
        {
            Found::Over
        }
        Err(_) => Found::Unknown,
    }
}

/// The same by its number, which another process may have by now: then the first one has ended, and its stream with it. A
/// child that it left may hold that stream open, which is not seen.
fn by_number(opened: Result<OwnedFd, Errno>, stream: &PeerLife) -> Found {
    match opened {
        // The stream is looked at last.
        Ok(_) if stream.has_ended() => Found::Over,
        opened => by_its_number(opened),
    }
}

/// What the system says of the process that has a number now.
fn by_its_number(opened: Result<OwnedFd, Errno>) -> Found {
    held(opened.map_err(|e| IoError::Os { errno: e.raw_os_error() }))
}

/// A descriptor that is readable for ever, as the pidfd of a process that has ended.
fn over() -> Option<OwnedFd> {
    rustix::event::eventfd(1, EventfdFlags::CLOEXEC).ok()
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::os::fd::{AsFd as _, OwnedFd};
    use std::os::unix::net::{UnixListener, UnixStream};
    use std::process::{Child, Command, Stdio};
    use std::sync::{Arc, Mutex};

    use hmc_core::region::{Epoch, WindowId, WindowSlice};
    use hmc_core::slots::SlotId;
    use hmc_core::time::Duration;
    use hmc_core::transport::{
        DataCloseReason, DataPlane as _, Progress as _, Registration as _, Transport as _,
    };
    use hmc_core::types::Rank;
    use hmc_core::work::{CompleteWhen, Completion, Opcode, WorkRequest};
    use hmc_mem::os::io::IoError;
    use rustix::io::Errno;
    use rustix::process::{Pid, PidfdFlags};

    use super::{Found, PeerLife, by_number, held};
    use crate::memory::RegionTable;
    use crate::node::inbox::Inbox;
    use crate::transport::stream::{StreamDataPlane, StreamSetup};

    const SOCKET_NAME: &str = ".hmc-life.sock";

    /// The process that connects, leaves a child that has the stream too, and ends. The test below starts it, and names
    /// where to connect by an argument that means nothing else; without that it is no test.
    #[test]
    #[expect(clippy::zombie_processes, reason = "the child outlives this process")]
    fn a_parent_that_leaves_its_stream_to_a_child() {
        let named = std::env::args().find(|arg| arg.ends_with(SOCKET_NAME));
        let Some(path) = named else { return };
        let stream = UnixStream::connect(path).expect("a listener");
        rustix::io::fcntl_setfd(&stream, rustix::io::FdFlags::empty()).expect("not closed at exec");
        // It reads what nobody writes until the test ends.
        Command::new("cat").stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("a child");
    }

    /// Starts that process: what it connects to, and what keeps its child there.
    fn leave_a_stream(path: &std::path::Path) -> (UnixListener, Child) {
        let listener = UnixListener::bind(path).expect("a free name");
        let name = "transport::stream::life::tests::a_parent_that_leaves_its_stream_to_a_child";
        let mut parent = Command::new(std::env::current_exe().expect("this program"));
        parent.args([name, "--exact", "--nocapture", "--skip"]).arg(path);
        let parent = parent.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        (listener, parent.spawn().expect("a process"))
    }

    /// The number of such a process may name another one by then: nothing may be copied to it.
    #[test]
    fn a_process_that_was_waited_for_has_ended_though_its_child_has_the_stream() {
        let path = std::env::temp_dir().join(format!("{}{SOCKET_NAME}", std::process::id()));
        let (listener, mut parent) = leave_a_stream(&path);
        let (stream, _) = listener.accept().expect("the parent");
        let _ = std::fs::remove_file(&path);
        let held_open = parent.stdin.take();
        assert!(parent.wait().expect("our child").success());
        let ended = stream.set_nonblocking(true).and_then(|()| (&stream).read(&mut [0]));
        assert_eq!(ended.map_err(|e| e.kind()), Err(std::io::ErrorKind::WouldBlock), "held open");
        let socket = Arc::new(OwnedFd::from(stream).into());
        let life = PeerLife::of(Some(parent.id()), &socket);
        assert!(life.has_ended() && life.has_process());
        drop(held_open);
    }

    #[test]
    fn a_number_is_believed_only_while_the_stream_is_there() {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        let stream = Some(Arc::new(OwnedFd::from(ours).into()));
        let stream = PeerLife { stream, ..PeerLife::default() };
        let here = Pid::from_raw(i32::try_from(std::process::id()).expect("small")).expect("one");
        let open = || rustix::process::pidfd_open(here, PidfdFlags::empty());
        assert!(matches!(by_number(open(), &stream), Found::Running(_)));
        assert!(matches!(by_number(Err(Errno::SRCH), &stream), Found::Over));
        assert!(matches!(by_number(Err(Errno::MFILE), &stream), Found::Unknown));
        drop(theirs);
        assert!(matches!(by_number(open(), &stream), Found::Over), "it may be another's by now");
        for gone in [Errno::SRCH, Errno::INVAL] {
            let answer = Err(IoError::Os { errno: gone.raw_os_error() });
            assert!(matches!(held(answer), Found::Over));
        }
    }

    /// The kernel's word where it gives one: of this process, by a stream that it made.
    #[test]
    fn a_stream_names_its_process() {
        let (ours, _theirs) = UnixStream::pair().expect("a pair");
        let named = hmc_mem::os::process::pidfd(ours.as_fd());
        assert!(named.is_ok() || named.is_err_and(super::is_unknown_option));
        let life = PeerLife::of(Some(std::process::id()), &Arc::new(OwnedFd::from(ours).into()));
        assert!(life.has_process() && !life.has_ended());
    }

    /// How the other end of a connection over TCP goes.
    fn goes(how: impl FnOnce(std::net::TcpStream), pid: Option<u32>) -> bool {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a plane");
        let ours = std::net::TcpStream::connect(listener.local_addr().expect("bound")).expect("it");
        let socket = Arc::new(OwnedFd::from(ours).into());
        let life = PeerLife::told(pid, &socket);
        assert!(!life.has_ended() && life.has_process() == pid.is_some());
        how(listener.accept().expect("ours").0);
        // The clone that the keeper has looks at the same stream.
        let (seen, kept) = (life.ends_within(Duration::from_millis(100)), life.clone());
        assert_eq!((life.has_ended(), kept.has_ended()), (seen, seen));
        assert_eq!(life.descriptors().count(), kept.descriptors().count());
        seen
    }

    /// Others can reset a stream over TCP; the kernel of a process that ends may do so, too, after it has said the end.
    #[test]
    fn a_reset_is_not_the_word_of_a_process_that_runs() {
        let this = Some(std::process::id());
        let reset = |stream: &std::net::TcpStream| {
            rustix::net::sockopt::set_socket_linger(stream, Some(std::time::Duration::ZERO))
        };
        assert!(goes(drop, this), "an end in order");
        assert!(!goes(|s| reset(&s).expect("a socket"), this), "a reset");
        assert!(goes(|s| reset(&s).expect("a socket"), None), "nothing else tells");
        let end_then_reset = |s: std::net::TcpStream| {
            s.shutdown(std::net::Shutdown::Write).expect("connected");
            reset(&s).expect("a socket");
        };
        assert!(goes(end_then_reset, this), "a reset after the end");
        let mut child = Command::new("cat");
        let mut child = child.stdin(Stdio::piped()).spawn().expect("a process");
        let id = child.id();
        let ends = |s: std::net::TcpStream| {
            reset(&s).expect("a socket");
            drop(child.stdin.take());
            child.wait().expect("our child");
        };
        assert!(goes(ends, Some(id)), "the process has ended");
    }

    /// The memory of a get that the peer serves by itself, whose link is declared dead because another connection ended.
    #[test]
    fn the_end_of_another_connection_is_no_fence() {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        let mut plane = StreamDataPlane::new(StreamSetup {
            socket: Arc::new(OwnedFd::from(ours).into()),
            peer: Rank(1),
            local: true,
            near: true,
            pid: Some(std::process::id()),
            cma: true,
            batched_acks: true,
            generations: true,
            gathers: true,
            windows: 1,
            inbox: Arc::new(Mutex::new(Inbox::new(1, 1))),
        });
        let region = Arc::new(RegionTable::default()).allocate(4096).expect("memory");
        plane.add_memory(&region);
        let local = region.slice(0, 4096).expect("all of it");
        let op = SlotId { index: 0, generation: 1 };
        let (opcode, when) = (Opcode::Get, CompleteWhen::Visible);
        let remote =
            WindowSlice { window: WindowId(1), epoch: Epoch(1), span: local.span, expected: None };
        let work = WorkRequest { op, opcode, when, local, remote };
        plane.submit(&work, true, 4096).expect("space");
        plane.flush();
        plane.close(DataCloseReason::Eof);
        let mut done = [Completion { op, result: Ok(0) }];
        assert_eq!(plane.poll(&mut done), 0, "the peer may be copying");
        assert!(!plane.are_requests_fenced() && !plane.peer_has_ended());
        drop(theirs);
        // A process that another test starts has a copy until its execve.
        let start = std::time::Instant::now();
        while !plane.are_requests_fenced() || !plane.peer_has_ended() {
            assert!(start.elapsed().as_secs() < 20, "the other end is closed");
            std::thread::yield_now();
        }
    }
}
