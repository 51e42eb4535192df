//! Receiving, and the descriptors to wait for.

/// Events to wait for on a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Readiness {
    /// Bytes to read.
    pub read: bool,
    /// Space to send.
    pub write: bool,
    /// The peer's end of the connection, although nothing is read: no bytes follow those that have come.
    pub end: bool,
}

/// What a data plane waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interest {
    /// What to watch on the data connection.
    pub connection: Readiness,
    /// Nothing to wait for: there is work to do at once.
    pub work: bool,
}

/// Progress that is not asked for by a request of this end.
pub trait Progress {
    /// What several data planes share that makes progress for all of them, and on which a waiting caller can sleep.
    type Worker;

    /// Whether requests can be posted with full effect.
    fn is_ready(&self) -> bool {
        true
    }

    /// Receives and executes what the peer asked; at most 1 MiB is copied in a call. `claimed` says that a waiting caller drives the
    /// link, so that no other thread makes progress for it. Returns whether anything happened.
    fn poll_peer(&mut self, claimed: bool) -> bool;

    /// Sends what waits to be sent, as far as the connection takes it.
    fn flush(&mut self) {}

    /// What to wait for.
    fn interest(&mut self) -> Interest;

    /// Whether nothing is read because the inbox is full.
    fn is_paused(&self) -> bool {
        false
    }

    /// Whether tags were delivered to the inbox since the last call.
    fn take_delivered(&mut self) -> bool {
        false
    }

    /// The link is about to be over: delivers the tags that have come, though the inbox has no space. Whoever finds the link over then
    /// finds them as well. One that reads a stream to its end first has nothing to do.
    fn deliver_rest(&mut self) {}

    /// Beats once through memory that both ends map, and returns whether the peer did since the last call. `None`: heartbeats
    /// travel by the control connection.
    fn heartbeat(&mut self) -> Option<bool> {
        None
    }

    /// The shared worker, if there is one.
    fn worker(&self) -> Option<Self::Worker> {
        None
    }

    /// Whoever does not wait for what it has posted says so: what was held back goes out. Returns whether requests were handed to the
    /// worker since the last call, which are left to its own thread.
    fn take_posted(&mut self) -> bool {
        false
    }

    /// Whether what was just posted gains by waiting, for the next progress or for [`Self::take_posted`], so that more requests may go
    /// along.
    fn can_coalesce(&self) -> bool {
        false
    }
}
