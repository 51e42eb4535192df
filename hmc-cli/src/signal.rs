//! Ctrl-C and SIGTERM: the command says goodbye to its peer, removes its partial file, and ends.
//!
//! The two signals are blocked in every thread and taken by one thread of ours (sigwait(3)), so no
//! code ever runs inside a signal handler. The program does this; the libraries never do.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hmc_std::Peer;

use crate::failure::{Failure, INTERRUPTED, Result};

/// How long an interrupted command may take to tidy up before the process ends anyway.
const TIDY: Duration = Duration::from_secs(2);
/// How long a goodbye to a peer may take then.
const GOODBYE: Duration = Duration::from_millis(200);

#[derive(Debug, Default)]
struct State {
    stopped: AtomicBool,
    /// Set while there is something to tidy up; without it a signal ends the process at once.
    untidy: AtomicBool,
    peers: Mutex<Vec<Peer>>,
}

/// Tells whether the user wants the command to end.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stop(Arc<State>);

impl Stop {
    /// Takes over SIGINT and SIGTERM. To be called before any other thread is started: threads inherit
    /// the mask.
    pub(crate) fn install() -> Result<Self> {
        let stop = Self::default();
        let set = block().map_err(|e| Failure::new(format!("cannot block signals: {e}")))?;
        let theirs = stop.clone();
        std::thread::Builder::new()
            .name("signals".to_owned())
            .spawn(move || theirs.wait_for_signals(&set))
            .map_err(|e| Failure::new(format!("cannot start a thread: {e}")))?;
        Ok(stop)
    }

    /// Whether a signal came.
    pub(crate) fn is_set(&self) -> bool {
        self.0.stopped.load(Ordering::Acquire)
    }

    /// From here on a signal waits for the command to tidy up (at most 2 s).
    pub(crate) fn tidy_first(&self) {
        self.0.untidy.store(true, Ordering::Release);
    }

    /// Says goodbye to this peer on a signal, so that whoever waits for it wakes.
    pub(crate) fn watch(&self, peer: &Peer) {
        self.tidy_first();
        let mut peers = self.0.peers.lock().unwrap_or_else(PoisonError::into_inner);
        peers.retain(Peer::is_connected);
        peers.push(peer.clone());
    }

    /// Turns the failure of an interrupted command into "interrupted".
    pub(crate) fn explain(&self, failure: Failure) -> Failure {
        if self.is_set() { Failure::interrupted() } else { failure }
    }

    fn wait_for_signals(&self, set: &libc::sigset_t) {
        wait(set);
        self.0.stopped.store(true, Ordering::Release);
        if !self.0.untidy.load(Ordering::Acquire) {
            std::process::exit(i32::from(INTERRUPTED));
        }
        // The command has this long to end by itself, however many peers there are; a second signal ends it at once.
        let late = std::thread::Builder::new().spawn(|| {
            std::thread::park_timeout(TIDY);
            std::process::exit(i32::from(INTERRUPTED));
        });
        let peers =
            std::mem::take(&mut *self.0.peers.lock().unwrap_or_else(PoisonError::into_inner));
        let goodbyes = std::thread::Builder::new().spawn(move || {
            for peer in peers {
                let _ = peer.disconnect().within(GOODBYE).wait();
            }
        });
        wait(set);
        drop((late, goodbyes));
        std::process::exit(i32::from(INTERRUPTED));
    }
}

/// Blocks SIGINT and SIGTERM in this thread and those it starts.
fn block() -> std::io::Result<libc::sigset_t> {
    // SAFETY: a sigset_t is an array of integers, for which zeros are valid.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: `set` is a live sigset_t of ours (sigemptyset(3)).
    unsafe { libc::sigemptyset(&raw mut set) };
    for signal in [libc::SIGINT, libc::SIGTERM] {
        // SAFETY: `set` was initialised above and the number is a signal's (sigaddset(3)).
        unsafe { libc::sigaddset(&raw mut set, signal) };
    }
    // SAFETY: `set` is initialised; a null third argument asks for no old mask (pthread_sigmask(3)).
    match unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) } {
        0 => Ok(set),
        errno => Err(std::io::Error::from_raw_os_error(errno)),
    }
}

/// Waits for one of the signals.
fn wait(set: &libc::sigset_t) {
    let mut signal = 0;
    // SAFETY: `set` is an initialised set of signals that every thread blocks, `signal` a live int
    // (sigwait(3)). It fails only for a set with invalid signals, which this one has not.
    unsafe { libc::sigwait(set, &raw mut signal) };
}
