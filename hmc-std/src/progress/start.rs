//! The progress thread during the start of a session: it starts while the listeners are opened, and waits for the
//! session.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;

use hmc_core::types::Rank;
use hmc_mem::os::life::LifePage;

use crate::base::error::{Error, ErrorKind, Result};
use crate::io::reactor::Reactor;
use crate::progress::thread::ProgressThread;
use crate::state::inner::SessionInner;

/// A thread that waits for its session. Dropped without one, it ends.
#[derive(Debug)]
pub(crate) struct Starting {
    session: SyncSender<Weak<SessionInner>>,
    begun: Receiver<()>,
    thread: JoinHandle<()>,
}

impl Starting {
    /// Begins the thread, which holds `life` as long as it lives.
    ///
    /// # Errors
    /// `SystemLimit`.
    pub(crate) fn begin(rank: Rank, reactor: &Arc<Reactor>, life: &Arc<LifePage>) -> Result<Self> {
        let (session, given) = sync_channel(1);
        let (tell, begun) = sync_channel(1);
        let (reactor, life) = (Arc::clone(reactor), Arc::clone(life));
        let thread = std::thread::Builder::new()
            .name(format!("hmc-{rank}"))
            .spawn(move || {
                let progress_thread = ProgressThread::new();
                // Without it, peers learn of our end by their sockets.
                let held = life.hold();
                let _ = tell.send(());
                let Ok(shared) = given.recv() else { return };
                if let Err(e) = &held {
                    tracing::warn!(error = %e, "peers in shared memory cannot see at once that this process ends");
                }
                progress_thread.run(&shared, &reactor);
            })
            .map_err(|e| limit(format!("cannot start a thread: {e}")))?;
        Ok(Self { session, begun, thread })
    }

    /// Has the thread serve that session. What the thread allocates at its beginning is behind it when this returns:
    /// transfers allocate nothing.
    ///
    /// # Errors
    /// `SystemLimit` when the thread has ended.
    pub(crate) fn serve(self, shared: &Arc<SessionInner>) -> Result<JoinHandle<()>> {
        let ended = || limit("the session's thread ended at once".to_owned());
        self.begun.recv().map_err(|_| ended())?;
        self.session.send(Arc::downgrade(shared)).map_err(|_| ended())?;
        Ok(self.thread)
    }
}

fn limit(what: String) -> Error {
    Error::new(ErrorKind::SystemLimit, what)
}
