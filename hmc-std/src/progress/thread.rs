//! The progress thread: serves every socket that no waiting thread has claimed, keeps deadlines, and parks if there
//! is nothing to do.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;

use hmc_core::time::{Duration, Instant};
use hmc_core::types::Rank;
use rustix::io::Errno;

use crate::base::clock;
use crate::base::config::Progress;
use crate::base::lock::lock;
use crate::base::wait_limit::WaitLimit;
use crate::callbacks::deferred_drops::DeferDrops;
use crate::io::reactor::{Events, Reactor, Token};
use crate::link::Link;
use crate::node::membership::Input;
use crate::state::inner::SessionInner;
use crate::transport::worker::WORKER_POLL;

/// How long a listener stays shut when descriptors are used up, in milliseconds.
const LISTENER_PAUSE_MS: u64 = 100;

/// What the thread works with.
pub(crate) struct ProgressThread {
    events: Events,
    /// It wakes for that if there are peers.
    next_tick: Instant,
    /// Listeners that are shut for lack of descriptors.
    shut: Vec<u32>,
    links: Vec<Arc<Link>>,
    /// Storage for the links that are being run.
    queued: VecDeque<u32>,
    open_at: Instant,
    spin_until: Instant,
}

impl ProgressThread {
    /// With space from the start, so that its first tick allocates nothing beside a running transfer.
    pub(crate) fn new() -> Self {
        Self {
            events: Events::new(),
            next_tick: clock::now(),
            shut: Vec::new(),
            links: Vec::with_capacity(64),
            queued: VecDeque::with_capacity(64),
            open_at: Instant::NEVER,
            spin_until: Instant::ZERO,
        }
    }

    /// Runs until the session stops or is gone. Should it panic, whoever waits learns it.
    pub(crate) fn run(mut self, shared: &Weak<SessionInner>, reactor: &Reactor) {
        let Err(panic) = catch_unwind(AssertUnwindSafe(|| self.serve(shared, reactor))) else {
            return;
        };
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no text");
        if let Some(s) = shared.upgrade() {
            s.lose_thread(text);
        }
        // Its own drop is code of whoever panicked.
        std::mem::forget(panic);
    }

    fn serve(&mut self, shared: &Weak<SessionInner>, reactor: &Reactor) {
        loop {
            let timeout = {
                let Some(s) = shared.upgrade() else { return };
                if s.is_stopping() {
                    return;
                }
                self.timeout(&s)
            };
            // Nothing is held while parked.
            self.events_of(reactor, timeout);
            let Some(s) = shared.upgrade() else { return };
            let _aside = DeferDrops::to(&s.wakers);
            self.round(&s);
        }
    }

    fn timeout(&self, s: &SessionInner) -> Duration {
        let now = clock::now();
        if now < self.spin_until {
            return Duration::ZERO;
        }
        let mut wake = self.open_at.min(s.reconnect_at());
        if s.has_peers() {
            wake = wake.min(self.next_tick);
        }
        if s.domains.must_poll() {
            wake = wake.min(now.after(WORKER_POLL));
        }
        if wake == Instant::NEVER { Duration::MAX } else { wake.since(now) }
    }

    fn events_of(&mut self, reactor: &Reactor, timeout: Duration) {
        let timeout = clock::timespec(timeout);
        reactor.wait(&mut self.events, timeout.as_ref());
    }

    fn round(&mut self, s: &Arc<SessionInner>) {
        let mut busy = false;
        for token in self.events.tokens() {
            match token {
                Token::Listener(n) => {
                    busy = true;
                    if let Err(e) = s.accept_all(n) {
                        warn_about_listener(e);
                        s.listeners.set_watched(n, false);
                        self.shut.push(n);
                        self.open_at = clock::now().after(Duration::from_millis(LISTENER_PAUSE_MS));
                    }
                }
                Token::Wake => s.reactor.clear_wake(),
                ready => busy |= s.serve(ready),
            }
        }
        if s.reactor.take_ctrl_request() {
            busy |= s.poll_unread(&mut self.links);
        }
        if s.config.progress == Progress::Thread {
            busy |= s.run_scheduled(&mut self.queued);
        }
        if s.domains.must_poll() {
            s.tick_workers();
        }
        s.reap_ended_links();
        let now = clock::now();
        if busy {
            self.spin_until = now.after(clock::from_std(s.config.spin));
        }
        if now >= self.next_tick {
            self.tick(s, now);
        }
        // Each of these has a time of its own, for which `timeout` wakes.
        if now >= self.open_at {
            self.open_at = Instant::NEVER;
            for n in self.shut.drain(..) {
                s.listeners.set_watched(n, true);
            }
        }
        while let Some(rank) = s.next_reconnect(now) {
            redial(s, rank);
        }
    }

    fn tick(&mut self, s: &Arc<SessionInner>, now: Instant) {
        let tick = Duration::from_nanos(s.tick_ns.load(Ordering::Relaxed));
        let late = now.since(self.next_tick);
        // A busy machine is sometimes a little late, which the limits allow. Without peers no tick is due: a link counts
        // lateness from its beginning only.
        let counts = late.as_nanos() > tick.as_nanos() >> 2;
        let late = if counts { late } else { Duration::ZERO };
        self.next_tick = s.on_timer(now, late, &mut self.links);
    }
}

impl SessionInner {
    /// The thread is gone although the session is not: nothing goes on by itself any more, so everything ends.
    fn lose_thread(&self, panic: &str) {
        let why =
            format!("this session's thread ended by a panic ({panic}); start another session");
        self.stopping_links.store(true, Ordering::Release);
        for link in self.links() {
            // What panicked may do so again: a subscriber of `tracing`, say.
            let _ = catch_unwind(AssertUnwindSafe(|| link.close(false, &why)));
        }
        let _ = catch_unwind(AssertUnwindSafe(|| self.listeners.close()));
        self.notify_waiters();
        let _ = catch_unwind(AssertUnwindSafe(|| tracing::error!("{why}")));
    }
}

/// Whether the caller runs on that thread: nobody can wait for itself.
pub(crate) fn is_this_thread(thread: &JoinHandle<()>) -> bool {
    thread.thread().id() == std::thread::current().id()
}

/// One line for each time a listener is shut.
fn warn_about_listener(e: Errno) {
    tracing::warn!(
        error = %std::io::Error::from(e),
        "cannot accept connections now; trying again in {LISTENER_PAUSE_MS} ms (raise ulimit -n?)"
    );
}

/// Dials a lost peer on a thread of its own: a dial waits for the peer, the engine must not.
fn redial(s: &Arc<SessionInner>, rank: Rank) {
    let shared = Arc::downgrade(s);
    let spawned = std::thread::Builder::new().name("hmc-redial".into()).spawn(move || {
        let Some(s) = shared.upgrade() else { return };
        let route = lock(&s.routes).get(&rank).cloned();
        let result = route.map(|r| {
            // No call of the application: its hook is not asked.
            let until = WaitLimit::time(clock::now().after(Duration::from_millis(2000)));
            s.dial(rank, &r.address, r.conn, until)
        });
        match result {
            Some(Ok(_)) => tracing::info!(peer = rank.0, "peer is back"),
            Some(Err(e)) => tracing::debug!(peer = rank.0, error = %e, "dial failed"),
            None => {}
        }
    });
    if spawned.is_err() {
        s.update_membership(Input::DialFailed { rank });
    }
}
