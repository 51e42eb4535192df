//! How the quarantine's thread waits: for as many descriptors as poll(2) accepts, and never in a busy loop.

use std::collections::BTreeSet;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use hmc_core::time::Duration;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use super::entry::{Entry, TICK};
use crate::base::clock;

/// Sleeps until something may have passed its fence, or more is held; with `ticks` for a moment at the most.
pub(super) fn sleep(entries: &[Arc<Entry>], waker: Option<&OwnedFd>, ticks: bool) {
    let watched = || entries.iter().filter(|e| !e.ended.load(Ordering::Relaxed));
    let waker_fd = waker.map(|b| PollFd::from_borrowed_fd(b.as_fd(), PollFlags::IN));
    let lives = watched().flat_map(|e| e.life.descriptors());
    let (mut fds, is_all) = distinct(waker_fd.into_iter().chain(lives), most());
    // Of what is left out no descriptor tells.
    let timeout = if ticks || !is_all { TICK } else { Duration::MAX };
    if !waits(&mut fds, timeout) {
        doze(waker);
    }
    drop(fds);
    for entry in watched() {
        // Should the fence not have passed with that: no descriptor tells when it does.
        entry.ended.store(entry.life.has_ended(), Ordering::Relaxed);
    }
    if let Some(waker) = waker {
        let mut count = [0; 8];
        let _ = rustix::io::read(waker, &mut count);
    }
}

/// How many descriptors poll(2) takes: more are EINVAL, whether or not they are open.
fn most() -> usize {
    let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    usize::try_from(files).unwrap_or(usize::MAX)
}

/// Each descriptor once, the first `most` of them, and whether that is all: what is held of one link has the same.
fn distinct<'a>(all: impl Iterator<Item = PollFd<'a>>, most: usize) -> (Vec<PollFd<'a>>, bool) {
    let mut seen = BTreeSet::new();
    let mut fds: Vec<_> = all.filter(|fd| seen.insert(fd.as_fd().as_raw_fd())).collect();
    let is_all = fds.len() <= most;
    fds.truncate(most);
    (fds, is_all)
}

/// Waits until one is ready, or for `timeout`. `false`: the system refused, and there was no wait.
fn waits(fds: &mut [PollFd<'_>], timeout: Duration) -> bool {
    // EINTR is one more reason to look.
    matches!(poll(fds, clock::timespec(timeout).as_ref()), Ok(_) | Err(Errno::INTR))
}

/// Waits for the waker alone, for a tick at the most.
fn doze(waker: Option<&OwnedFd>) {
    let waker = waker.map(|b| PollFd::from_borrowed_fd(b.as_fd(), PollFlags::IN));
    if !waker.is_some_and(|waker| waits(&mut [waker], TICK)) {
        std::thread::park_timeout(std::time::Duration::from_nanos(TICK.as_nanos()));
    }
}

#[cfg(test)]
mod tests {
    use super::{distinct, doze, waits};
    use crate::callbacks::wakers::Wakers;
    use crate::quarantine::{Unfenced, held, keep};
    use crate::transport::stream::PeerLife;
    use hmc_core::types::Rank;
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
    use std::os::unix::net::UnixStream;
    use std::process::Command;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::sync::mpsc::channel;
    use std::time::{Duration, Instant};

    /// How often a fence was asked for; in the process whose limit is low.
    static LOOKS: AtomicU32 = AtomicU32::new(0);

    const PEERS: u32 = 40;

    /// Memory that a peer may use until it has gone.
    struct InUse(PeerLife, Arc<Wakers>);

    impl Unfenced for InUse {
        fn peer(&self) -> Rank {
            Rank(1)
        }
        fn life(&self) -> PeerLife {
            self.0.clone()
        }
        fn may_end_before(&self) -> bool {
            false
        }
        fn is_fenced(&self) -> bool {
            LOOKS.fetch_add(1, Ordering::SeqCst);
            self.0.has_ended()
        }
        fn release(&self) {}
        fn wakers(&self) -> &Arc<Wakers> {
            &self.1
        }
        fn pieces(&self, each: &mut dyn FnMut(u64, &'static str)) {
            each(1, "a test");
        }
    }

    fn peer() -> (PeerLife, UnixStream) {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        (PeerLife::of(None, &Arc::new(OwnedFd::from(ours).into())), theirs)
    }

    #[test]
    fn each_descriptor_is_polled_once() {
        let (lives, _streams): (Vec<_>, Vec<_>) = (0..3).map(|_| peer()).unzip();
        let twice = || lives.iter().chain(&lives).flat_map(PeerLife::descriptors);
        assert_eq!(twice().count(), 6);
        for (most, polled) in [(4, 3), (3, 3), (2, 2), (0, 0)] {
            let (fds, is_all) = distinct(twice(), most);
            assert_eq!((fds.len(), is_all), (polled, most >= 3), "of {most}");
            let found = fds.iter().map(|fd| fd.as_fd().as_raw_fd());
            assert!(found.eq(twice().map(|fd| fd.as_fd().as_raw_fd()).take(polled)));
        }
    }

    #[test]
    #[ignore = "lowers the limit: `a_low_limit_of_descriptors_makes_no_thread_busy` runs it as a process"]
    fn a_process_of_a_low_limit() {
        let (lives, streams): (Vec<_>, Vec<_>) = (0..PEERS).map(|_| peer()).unzip();
        let maximum = getrlimit(Resource::Nofile).maximum;
        for current in [32, 0] {
            for life in &lives {
                keep(Arc::new(InUse(life.clone(), Wakers::closed())));
            }
            setrlimit(Resource::Nofile, Rlimit { current: Some(current), maximum }).expect("lower");
            // So that the thread looks again.
            keep(Arc::new(InUse(lives.first().cloned().unwrap_or_default(), Wakers::closed())));
            let before = LOOKS.load(Ordering::SeqCst);
            // For ten of its ticks: nobody says anything.
            let (_never, said) = channel::<()>();
            assert!(said.recv_timeout(Duration::from_secs(1)).is_err());
            let looks = LOOKS.load(Ordering::SeqCst) - before;
            assert!(looks <= 40 * PEERS, "limit {current}: {looks} looks in a second");
        }
        // Whatever the refusal is for, there is a wait.
        let (start, mut fds) =
            (Instant::now(), lives.iter().flat_map(PeerLife::descriptors).collect::<Vec<_>>());
        assert!(!waits(&mut fds, super::Duration::MAX), "no descriptor is allowed");
        doze(None);
        assert!(start.elapsed() >= Duration::from_millis(90), "{:?}", start.elapsed());
        setrlimit(Resource::Nofile, Rlimit { current: Some(32), maximum }).expect("any");
        drop(streams);
        let start = Instant::now();
        while !held().is_empty() {
            assert!(start.elapsed() < Duration::from_secs(20), "{} are held", held().len());
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_low_limit_of_descriptors_makes_no_thread_busy() {
        let program = std::env::current_exe().expect("this program");
        let test = ["--exact", "quarantine::park::tests::a_process_of_a_low_limit", "--ignored"];
        let out = Command::new(program).args(test).output().expect("it runs");
        let said = String::from_utf8_lossy(&out.stdout);
        assert!(out.status.success() && said.contains("1 passed"), "{said}");
    }
}
