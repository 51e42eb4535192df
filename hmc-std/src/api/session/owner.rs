//! What ends a session: its last handle, or a request.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::base::clock;
use crate::base::error::Result;
use crate::base::lock::lock;
use crate::base::polling;
use crate::base::wait_limit::WaitLimit;
use crate::state::inner::SessionInner;

/// Shared by all handles of a session. When the last one goes, the session ends.
#[derive(Debug)]
pub(super) struct Owner {
    pub(super) shared: Arc<SessionInner>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Owner {
    pub(super) fn new(shared: Arc<SessionInner>, thread: JoinHandle<()>) -> Self {
        Self { shared, thread: Mutex::new(Some(thread)) }
    }

    /// Ends the session in order.
    pub(super) fn end(&self, until: WaitLimit) -> Result<()> {
        self.shared.check_lasts()?;
        let Some(thread) = lock(&self.thread).take() else {
            return self.wait_until_over(until);
        };
        self.shared.stopping_links.store(true, Ordering::Release);
        // Whoever waits for a peer that has not appeared waits for nobody.
        self.shared.notify_waiters();
        let result = crate::conn::shutdown::leave(&self.shared, &self.shared.links(), until);
        if self.shared.origin.is_child() {
            std::mem::forget(thread);
            return result;
        }
        self.shared.stopping.store(true, Ordering::Release);
        self.shared.reactor.wake();
        // Code of the application that runs on the session's own thread may hold the last handle.
        polling::waits();
        if !crate::progress::thread::is_this_thread(&thread) && thread.join().is_err() {
            tracing::error!("the session's thread panicked");
        }
        self.shared.wakers.close();
        lock(&self.shared.pending).clear();
        self.shared.listeners.close();
        self.shared.over.store(true, Ordering::Release);
        self.shared.notify_waiters();
        self.shared.wakers.wait_for_owners(until, result)
    }

    /// Another call ends the session.
    fn wait_until_over(&self, until: WaitLimit) -> Result<()> {
        // What ends it may be code of the application that the session's own thread runs: nobody waits for itself.
        let is_over = |s: &SessionInner| s.over.load(Ordering::Acquire).then_some(());
        self.shared.wait_for_event(until, is_over).map_err(|stop| stop.error("shutting down"))
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        if self.shared.origin.is_child() {
            // Threads, sockets and their files are the parent's: nothing is closed or unmapped, no lock taken.
            std::mem::forget(self.thread.get_mut().unwrap_or_else(PoisonError::into_inner).take());
            std::mem::forget(Arc::clone(&self.shared));
            return;
        }
        let _ = self.end(WaitLimit::time(clock::deadline_in(Duration::from_millis(200))));
    }
}
