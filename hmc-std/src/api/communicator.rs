//! Transfers and messages by rank: the C++ HMC's Communicator.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use hmc_core::types::{ConnType, Rank};

use crate::api::peer::{Explanation, Peer};
use crate::base::address::Address;
use crate::base::clock;
use crate::base::config::check_rank;
use crate::base::error::{Error, Result};
use crate::base::lock::lock;
use crate::base::polling;
use crate::base::wait_limit::WaitLimit;
use crate::link::{Link, LinkState};
use crate::memory::{ConnBuffer, HeapBytes, Region, StableBytes};
use crate::state::inner::SessionInner;
use crate::state::metrics::Stats;

/// Everything of a session but its buffer's own bytes: peers, transfers, messages.
///
/// All methods may be called from any thread. Blocking ones end within the session's deadline
/// (default 30 s) unless they take a time of their own.
#[derive(Debug)]
pub struct Communicator {
    pub(crate) shared: Arc<SessionInner>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Communicator {
    pub(crate) fn new(shared: Arc<SessionInner>, thread: JoinHandle<()>) -> Self {
        Self { shared, thread: Mutex::new(Some(thread)) }
    }

    /// This process's rank.
    #[must_use]
    pub fn rank(&self) -> Rank {
        self.shared.config.rank
    }

    /// Deadline of blocking calls and operations that are given none of their own.
    #[must_use]
    pub fn deadline(&self) -> Duration {
        self.shared.config.deadline
    }

    /// Connects to `rank` at `address`, over the best transport that both ends have. Returns when both ends can transfer.
    ///
    /// # Errors
    /// `Unavailable` when nobody answers there, `InvalidConfig` for a rank beyond the last one, `DuplicateRank`, `Version`, `NoCredentials` (not
    /// loopback and not `insecure`), `DeadlineExceeded`, `Interrupted`, `Protocol`, `Refused`.
    pub fn connect(&self, rank: u32, address: &Address) -> Result<Peer> {
        self.connect_with(rank, address, ConnType::Auto, self.shared.config.deadline)
    }

    /// Connects over a transport chosen by name (it never falls back), within `timeout`.
    ///
    /// # Errors
    /// As [`Communicator::connect`]; `Unavailable` when that transport cannot be had, with the reason.
    pub fn connect_with(
        &self,
        rank: u32,
        address: &Address,
        conn: ConnType,
        timeout: Duration,
    ) -> Result<Peer> {
        self.shared.check_process()?;
        if conn == ConnType::Loopback {
            return self.loopback();
        }
        check_rank(rank)?;
        let link = self.shared.dial(Rank(rank), address, conn, self.shared.until(timeout))?;
        Ok(self.peer_over(link))
    }

    /// Connects to whoever listens at `address`, whatever its rank is ([`Peer::rank`] tells it), over a transport chosen by
    /// name or [`ConnType::Auto`], within `timeout`. If a peer of that rank is connected already, that is it.
    ///
    /// It is asked for its rank first, and that process counts this connection as refused. In a folder of control sockets one
    /// process but this may listen.
    ///
    /// # Errors
    /// As [`Communicator::connect_with`]; `InvalidConfig` when this session itself listens there, for
    /// [`ConnType::Loopback`], and when several processes listen in a folder; `DuplicateRank` when it has this session's
    /// rank.
    pub fn connect_any(
        &self,
        address: &Address,
        conn: ConnType,
        timeout: Duration,
    ) -> Result<Peer> {
        self.shared.check_process()?;
        if conn == ConnType::Loopback {
            return Err(Error::config("loopback needs no address; use `loopback()`"));
        }
        let until = self.shared.until(timeout);
        let rank = self.shared.rank_at(address, until)?;
        Ok(self.peer_over(self.shared.dial(rank, address, conn, until)?))
    }

    /// Connects to a node of the C++ HMC: control messages only.
    ///
    /// # Errors
    /// As [`Communicator::connect`]. That dialect has no answer to a HELLO, so a refusal shows only with the first message.
    pub fn connect_upstream(&self, rank: u32, at: &Address, timeout: Duration) -> Result<Peer> {
        self.shared.check_process()?;
        let until = self.shared.until(timeout);
        Ok(self.peer_over(self.shared.dial_cxx(Rank(rank), at, until)?))
    }

    /// This session as a peer of itself: transfers within its own buffer.
    ///
    /// # Errors
    /// `SystemLimit` when descriptors are used up.
    pub fn loopback(&self) -> Result<Peer> {
        self.shared.check_process()?;
        Ok(self.peer_over(self.shared.dial_self()?))
    }

    pub(crate) fn peer_over(&self, link: Arc<Link>) -> Peer {
        Peer { link, shared: Arc::clone(&self.shared) }
    }

    /// The peer of that rank, alive or dead.
    ///
    /// # Errors
    /// `NotFound` when it was never connected.
    pub fn peer(&self, rank: u32) -> Result<Peer> {
        Ok(self.peer_over(self.shared.live_link(Rank(rank))?))
    }

    /// Waits until `rank` has connected (or came back) and can be used.
    ///
    /// # Errors
    /// `DeadlineExceeded`; `Interrupted`; `InvalidConfig` for a rank beyond the last one.
    pub fn wait_peer(&self, rank: u32, timeout: Duration) -> Result<Peer> {
        self.wait_link(rank, timeout, Link::is_ready_now)
    }

    /// Waits until `rank` has connected and can be used, or has been here, is gone, and left messages that nobody has received
    /// ([`Peer::recv`] still gives them).
    ///
    /// # Errors
    /// As [`Communicator::wait_peer`].
    pub fn meet(&self, rank: u32, timeout: Duration) -> Result<Peer> {
        self.wait_link(rank, timeout, |l| match l.state() {
            LinkState::Ready => l.is_ready_now() || l.inbox().len() > 0,
            LinkState::Leaving | LinkState::Dead => l.inbox().len() > 0,
            LinkState::Opening => false,
        })
    }

    fn wait_link(&self, rank: u32, timeout: Duration, will_do: fn(&Link) -> bool) -> Result<Peer> {
        self.shared.check_process()?;
        check_rank(rank)?;
        let until = self.shared.until(timeout);
        let found =
            self.shared.wait_for_event(until, |s| s.link(Rank(rank)).filter(|l| will_do(l)));
        found.map(|l| self.peer_over(l)).map_err(|stop| {
            stop.error(format_args!("waiting for rank {rank} to connect")).with_peer(Rank(rank))
        })
    }

    /// Waits until any peer whose rank is not in `known` has connected.
    ///
    /// # Errors
    /// `DeadlineExceeded`; `Interrupted`.
    pub fn wait_any_peer(&self, known: &[u32], timeout: Duration) -> Result<Peer> {
        self.shared.check_process()?;
        let found = self.shared.wait_for_event(self.shared.until(timeout), |s| {
            s.links().into_iter().find(|l| !known.contains(&l.peer.0) && l.is_ready_now())
        });
        found.map(|l| self.peer_over(l)).map_err(|stop| stop.error("waiting for a peer to connect"))
    }

    /// The peers that are connected now; none in a forked child.
    #[must_use]
    pub fn peers(&self) -> Vec<Peer> {
        let ready = |l: &Arc<Link>| l.is_ready_now();
        self.shared.links().into_iter().filter(ready).map(|l| self.peer_over(l)).collect()
    }

    /// Ranks whose connections are being set up. Their messages may be here already; for transfers
    /// [`Communicator::wait_peer`] waits until they can be.
    #[must_use]
    pub fn arriving(&self) -> Vec<u32> {
        let opening = |l: &Arc<Link>| l.state() == LinkState::Opening;
        self.shared.links().into_iter().filter(opening).map(|l| l.peer.0).collect()
    }

    /// Whether `rank` is connected now (the C++ HMC's checkConn).
    #[must_use]
    pub fn check_conn(&self, rank: u32) -> bool {
        self.shared.link(Rank(rank)).is_some_and(|l| l.is_ready_now())
    }

    /// Sends a tag to a rank; see [`Peer::send_tag`].
    ///
    /// # Errors
    /// As there, and `NotFound`.
    pub fn ctrl_send(&self, rank: u32, tag: u64) -> Result<()> {
        self.control().send_tag(rank, tag)
    }

    /// Receives the oldest tag of a rank, waiting for the rank to appear if need be.
    ///
    /// # Errors
    /// As [`Peer::recv`].
    pub fn ctrl_recv(&self, rank: u32) -> Result<u64> {
        self.control().recv_tag(rank, self.shared.config.deadline)
    }

    /// Allocates a region that peers of this host can map. Its bytes are zero.
    ///
    /// # Errors
    /// `NoSpace` with what is needed and what there is.
    pub fn allocate(&self, len: u64) -> Result<Region> {
        self.shared.check_process()?;
        self.shared.regions.allocate(len)
    }

    /// Registers memory that its owner keeps in place; no byte is copied.
    ///
    /// # Errors
    /// `Full` when too many regions are registered.
    pub fn register(&self, owner: impl StableBytes) -> Result<Region> {
        self.shared.check_process()?;
        self.shared.regions.adopt(Box::new(owner))
    }

    /// Registers the bytes of a vector, in place.
    ///
    /// # Errors
    /// As [`Communicator::register`].
    pub fn register_vec(&self, bytes: Vec<u8>) -> Result<Region> {
        self.register(HeapBytes::from(bytes))
    }

    /// Registers `len` bytes at `start`, in place.
    ///
    /// # Safety
    /// The bytes are what [`StableBytes`] asks for: initialised, valid for reads and writes from any thread, and not touched
    /// through Rust references; at most `isize::MAX` of them. So they stay until the region and everything made from it
    /// (spans, windows, operations) is gone, the session has been dropped, and [`held`](crate::held) lists none of it.
    ///
    /// # Errors
    /// As [`Communicator::register`].
    pub unsafe fn register_raw(&self, start: std::ptr::NonNull<u8>, len: usize) -> Result<Region> {
        self.shared.check_process()?;
        // SAFETY: the caller vouches for just what `adopt_raw` asks.
        unsafe { self.shared.regions.adopt_raw(start, len) }
    }

    /// Makes a region a buffer that several may access at a time, by offsets: its ranges are local ends of transfers, and exposed by
    /// range with [`Peer::expose_buffer`]. That is for good: no span of it can be taken any more. A region that is shared
    /// already gives one more handle.
    ///
    /// # Errors
    /// `Busy` when a span of it is taken; `InvalidConfig` for a region of another session.
    pub fn share(&self, region: Region) -> Result<ConnBuffer> {
        self.shared.check_process()?;
        self.shared.check_own(&region)?;
        ConnBuffer::new(region)
    }

    /// Which transport moves the bytes to and from `rank`, and why.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn explain(&self, rank: u32) -> Result<Explanation> {
        Ok(self.peer(rank)?.explain())
    }

    /// Counters of this session and its peers; none in a forked child.
    #[must_use]
    pub fn stats(&self) -> Stats {
        if self.shared.origin.is_child() { Stats::default() } else { Stats::of(&self.shared) }
    }

    /// Finds the registration of a region with UCX, as a put from it does that no link knows, or makes it. For
    /// measurements: a registration that nothing uses goes at once.
    ///
    /// # Errors
    /// `Unavailable` when there is no UCX; `NoSpace`.
    #[doc(hidden)]
    pub fn find_ucx_registration(&self, region: &Region) -> Result<()> {
        self.shared.check_process()?;
        self.shared.domains.find(ConnType::Ucx)?.register(region)
    }

    /// One round of progress, for [`crate::config::Progress::Manual`]: puts of peers land and
    /// futures wake in here. Returns whether anything happened. Harmless otherwise.
    pub fn progress(&self) -> bool {
        !self.shared.origin.is_child() && self.shared.run_data_planes()
    }

    /// Ends the session in order: no new operations; waits for the posted ones, says BYE to all
    /// peers, closes, its listeners too. Dropping the session does the same within 200 ms.
    ///
    /// # Errors
    /// `DeadlineExceeded` when some peer did not agree in time, `Interrupted`; everything is closed all the same.
    pub fn shutdown(&self, timeout: Duration) -> Result<()> {
        self.shared.check_process()?;
        let until = self.shared.until(timeout);
        self.end(until)
    }

    fn end(&self, until: WaitLimit) -> Result<()> {
        self.shared.check_lasts()?;
        let Some(thread) = lock(&self.thread).take() else {
            return Ok(());
        };
        self.shared.stopping_links.store(true, Ordering::Release);
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
        self.shared.wakers.wait_for_owners(until, result)
    }
}

impl Drop for Communicator {
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

#[cfg(test)]
mod tests;
