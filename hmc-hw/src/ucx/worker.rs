//! A UCP worker: what makes progress. All its calls are made by whoever holds its [`Crank`].

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, RawFd};
use std::ptr::{self, NonNull};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use hmc_core::limits::MAX_PEERS;

use super::board::{Bell, Board, Rung};
use super::card::Card;
use super::context::{Context, Failed, check};
use super::functions::Ucp;
use super::lock::{Held, WorkerLock, lock};
use super::memory::Memory;
use super::process::Process;
use super::records::RECORDS;
use super::result::Status;
use super::soft::{Door, Hall};
use super::sys;
use super::transport::Orphan;

/// Bytes of the porch: a page.
const PORCH_BYTES: usize = 4096;
/// How long a worker that goes waits for requests of peers that are gone.
const FAREWELL: Duration = Duration::from_secs(2);
/// Calls of progress in a row while each finds something.
const ROUNDS: usize = 64;

/// A worker: one for each session, or several (channels), shared by the peers that they serve.
pub struct Worker {
    context: Arc<Context>,
    handle: NonNull<sys::ucp_worker>,
    address: Vec<u8>,
    /// Where peers put their first bytes, to show that the way is open: to the first word, from their second.
    porch: Option<Memory>,
    fd: RawFd,
    crank: Arc<WorkerLock>,
    /// Where messages of peers come in.
    hall: Arc<Hall>,
    pub(super) rung: Arc<Rung>,
    boards: Mutex<Vec<Option<Weak<Board>>>>,
    /// What requests of peers that are gone still use.
    orphans: Mutex<Vec<Orphan>>,
    /// Boards that requests name which UCX has lost.
    kept: Mutex<Vec<Arc<Board>>>,
}

// SAFETY: the worker is made for serialised calls from several threads, and all are made under the crank.
unsafe impl Send for Worker {}
// SAFETY: as above.
unsafe impl Sync for Worker {}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker").field("fd", &self.fd).finish_non_exhaustive()
    }
}

/// The right to make a worker's calls. When it is let go, those whose operations it has ended hear of it.
pub struct Crank<'a> {
    // The lock is let go before the others hear: fields are dropped in this order.
    _held: Held<'a>,
    of: Rings<'a>,
}

/// The worker, whose peers hear of their news when this goes.
struct Rings<'a>(&'a Worker);

impl fmt::Debug for Crank<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Crank").finish_non_exhaustive()
    }
}

/// Whether a worker's descriptor will tell of the next event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Armed {
    /// It will: sleep on it.
    Yes,
    /// Something came meanwhile: make progress first.
    Busy,
}

impl Worker {
    /// A worker with all devices of the context. Takes some 15 ms, 4 MB and ten descriptors.
    ///
    /// # Errors
    /// [`Failed`].
    pub fn new(context: &Arc<Context>) -> Result<Arc<Self>, Failed> {
        let ending = context.library().ending();
        let _leave = ending.enter();
        let api = &context.library().api;
        let mut params = zeroed();
        params.field_mask = sys::UCP_WORKER_PARAM_FIELD_THREAD_MODE;
        params.thread_mode = sys::UCS_THREAD_MODE_SERIALIZED;
        let mut handle = ptr::null_mut();
        // SAFETY: the context lives; the mask says which fields count.
        let status = unsafe { (api.ucp_worker_create)(context.handle(), &params, &mut handle) };
        check("making a worker", status)?;
        let missing =
            || Failed { call: "making a worker", status: Status::NO_MEMORY, what: String::new() };
        let mut worker = Self {
            context: Arc::clone(context),
            handle: NonNull::new(handle).ok_or_else(missing)?,
            address: Vec::new(),
            porch: None,
            fd: -1,
            crank: Arc::default(),
            hall: Hall::new(),
            rung: Rung::new(),
            boards: Mutex::default(),
            orphans: Mutex::default(),
            kept: Mutex::default(),
        };
        // From here on `Drop` gives it back.
        worker.hall.receive(context.library(), worker.handle.as_ptr())?;
        worker.address = worker.read_address()?;
        worker.porch = Some(Memory::allocate(context, PORCH_BYTES)?);
        // SAFETY: the worker is ours and nobody else has it yet.
        let status = unsafe { (api.ucp_worker_get_efd)(worker.handle.as_ptr(), &mut worker.fd) };
        check("asking for a worker's descriptor", status)?;
        ending.watch(&worker.crank);
        Ok(Arc::new(worker))
    }

    fn read_address(&self) -> Result<Vec<u8>, Failed> {
        let api = &self.context.library().api;
        let (mut address, mut len) = (ptr::null_mut(), 0);
        // SAFETY: the worker is ours and nobody else has it yet.
        let status =
            unsafe { (api.ucp_worker_get_address)(self.handle.as_ptr(), &mut address, &mut len) };
        check("asking for a worker's address", status)?;
        // SAFETY: UCX just wrote that many bytes there.
        let bytes = unsafe { std::slice::from_raw_parts(address.cast::<u8>(), len) }.to_vec();
        // SAFETY: from the call above; released once.
        unsafe { (api.ucp_worker_release_address)(self.handle.as_ptr(), address) };
        Ok(bytes)
    }

    /// Its context.
    #[must_use]
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// What the peer of that door needs to come here: the door's number, the worker's address and the way to its porch.
    /// Some hundred bytes, more with more devices.
    ///
    /// # Errors
    /// [`Failed`].
    pub fn card(&self, door: &Door) -> Result<Vec<u8>, Failed> {
        let (porch, door) = (self.porch()?, door.number());
        let key = &porch.pack()?;
        let (owner, porch) = (Process::own(), address_of(porch));
        Ok(Card { door, porch, owner, address: &self.address, key }.to_bytes())
    }

    /// What UCX calls the worker's address.
    pub(super) fn address(&self) -> &[u8] {
        &self.address
    }

    /// Where the messages of one more peer come in. `bell` is rung when another thread's progress has ended something of the
    /// transport behind it.
    ///
    /// # Errors
    /// [`Failed`]: too many peers.
    pub fn door(&self, bell: Box<dyn Bell>) -> Result<Arc<Door>, Failed> {
        let board = self.post_board(RECORDS, bell)?;
        Ok(self.hall.door(self.context.library(), board))
    }

    /// Memory of which the first word is for peers and the second for puts to theirs.
    pub(super) fn porch(&self) -> Result<&Memory, Failed> {
        let missing = Failed {
            call: "asking for a worker's memory",
            status: Status::NO_MEMORY,
            what: String::new(),
        };
        self.porch.as_ref().ok_or(missing)
    }

    /// The right to make calls, unless another thread has it: it will be a moment.
    #[inline]
    pub fn try_crank(&self) -> Option<Crank<'_>> {
        let at_the_end = || self.context.library().ending().is_mine().then(Held::at_the_end);
        let held = self.crank.try_take().or_else(at_the_end)?;
        Some(Crank { _held: held, of: Rings(self) })
    }

    /// The right to make calls, waiting for whoever has it. It is never held by one who sleeps, until the process ends
    /// (`ucx/ending.rs`): then no other thread gets it any more.
    pub fn crank(&self) -> Crank<'_> {
        self.try_crank().unwrap_or_else(|| Crank { _held: self.crank.take(), of: Rings(self) })
    }

    /// Makes progress and says whether the descriptor can be slept on. `None`: another thread is at it.
    pub fn turn(&self) -> Option<Armed> {
        let crank = self.try_crank()?;
        if crank.progress() {
            return Some(Armed::Busy);
        }
        Some(crank.arm())
    }

    /// A place for the news of one more peer.
    pub(super) fn post_board(
        &self,
        records: u32,
        bell: Box<dyn Bell>,
    ) -> Result<Arc<Board>, Failed> {
        let mut boards = lock(&self.boards);
        let is_free =
            |place: &Option<Weak<Board>>| place.as_ref().is_none_or(|b| b.strong_count() == 0);
        let at = boards.iter().position(is_free).unwrap_or(boards.len());
        let full = || Failed {
            call: "making an endpoint",
            status: Status::NO_RESOURCE,
            what: format!("{MAX_PEERS} peers, which is the limit"),
        };
        let place = u32::try_from(at).ok().filter(|p| *p < MAX_PEERS).ok_or_else(full)?;
        let board =
            Board::new(records, self.context.library(), Arc::clone(&self.rung), place, bell);
        if at == boards.len() {
            boards.push(None);
        }
        if let Some(free) = boards.get_mut(at) {
            *free = Some(Arc::downgrade(&board));
        }
        Ok(board)
    }

    /// Keeps what requests of a peer that is gone still use, until they have come back.
    pub(super) fn adopt(&self, orphan: Orphan) {
        lock(&self.orphans).push(orphan);
    }

    /// Whether nothing that peers which are gone have left is under way.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        lock(&self.orphans).is_empty()
    }

    /// Leaves UCX's worker as it is, with all that it may still touch.
    #[cold]
    fn leak(&mut self) {
        std::mem::forget(self.porch.take());
        std::mem::forget(std::mem::take(&mut *lock(&self.orphans)));
        std::mem::forget(Arc::clone(&self.context));
        std::mem::forget(Arc::clone(&self.hall));
    }

    /// Tells those whose operations have ended. Without the crank.
    #[cold]
    fn ring(&self) {
        self.rung.take(|place| {
            let at = usize::try_from(place).unwrap_or(usize::MAX);
            let board = lock(&self.boards).get(at).and_then(Option::as_ref).and_then(Weak::upgrade);
            if let Some(board) = board.filter(|b| b.has_news()) {
                board.bell.ring();
            }
        });
    }
}

/// Where memory begins, as a number for the peer.
pub(super) fn address_of(memory: &Memory) -> u64 {
    u64::try_from(memory.start().as_ptr().expose_provenance()).unwrap_or(0)
}

impl AsFd for Worker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: UCX keeps the descriptor open as long as the worker, which the result borrows.
        unsafe { BorrowedFd::borrow_raw(self.fd) }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if !self.crank.claim() {
            // The process ends, and this would be a call.
            return self.leak();
        }
        self.porch = None;
        let deadline = Instant::now().checked_add(FAREWELL);
        // Only when something has to come back: 1.13.1 ends the process when an answer to a peer that connects finds
        // the peer gone (`ucp_request.c`, "got REP message").
        while !lock(&self.orphans).is_empty() {
            let free = {
                let _leave = self.context.library().ending().enter();
                let crank = self.crank();
                crank.progress();
                crank.tend()
            };
            drop(free);
            if deadline.is_none_or(|at| Instant::now() >= at) {
                // UCX ends the process when a worker goes whose endpoints are not closed (1.13.1, `ucp_request.c`).
                // What still runs may touch what it uses, too: all of it stays.
                return self.leak();
            }
            std::thread::yield_now();
        }
        let _leave = self.context.library().ending().enter();
        let api = &self.context.library().api;
        // SAFETY: transports hold the worker, so none is left; no request is under way and no endpoint is open.
        unsafe { (api.ucp_worker_destroy)(self.handle.as_ptr()) };
    }
}

impl Crank<'_> {
    pub(super) fn api(&self) -> &'static Ucp {
        &self.of.0.context.library().api
    }

    pub(super) fn worker(&self) -> sys::ucp_worker_h {
        self.of.0.handle.as_ptr()
    }

    /// Lets UCX work: receives, sends, ends requests; then answers what came as messages. Says whether anything happened; bounded.
    #[inline]
    pub fn progress(&self) -> bool {
        let mut any = false;
        for _ in 0..ROUNDS {
            // SAFETY: the worker lives, and this thread has its crank.
            let events = unsafe { (self.api().ucp_worker_progress)(self.worker()) };
            if events == 0 {
                break;
            }
            any = true;
        }
        if self.of.0.hall.calls.is_marked() {
            any |= self.of.0.hall.answer(self);
        }
        any
    }

    /// As [`Crank::progress`], for one who takes the news of `board` as soon as it is over.
    #[inline]
    pub(super) fn progress_for(&self, board: &Board) -> bool {
        self.of.0.rung.attending(board, || self.progress())
    }

    /// Asks the descriptor to tell of the next event. Only after a call of [`Crank::progress`] that found nothing.
    #[must_use]
    pub fn arm(&self) -> Armed {
        // SAFETY: as in `progress`.
        match Status(unsafe { (self.api().ucp_worker_arm)(self.worker()) }) {
            Status::OK => Armed::Yes,
            // BUSY; with any other answer the descriptor cannot be trusted to tell.
            _ => Armed::Busy,
        }
    }

    /// Wakes whoever sleeps on the descriptor.
    pub fn signal(&self) {
        // SAFETY: as in `progress`.
        let _ = unsafe { (self.api().ucp_worker_signal)(self.worker()) };
    }

    /// Keeps a board for as long as there are calls of this worker.
    pub(super) fn keep(&self, board: Arc<Board>) {
        lock(&self.of.0.kept).push(board);
    }

    /// Looks after what peers that are gone have left. Gives the memory that nothing of it uses any more: the last handle of
    /// it may be there, whose owner is the application's code, so it is to be dropped without the crank.
    #[must_use]
    pub fn tend(&self) -> Vec<Arc<Memory>> {
        let mut free = Vec::new();
        let mut orphans = lock(&self.of.0.orphans);
        if !orphans.is_empty() {
            orphans.retain_mut(|orphan| !orphan.is_over(self, &mut free));
        }
        free
    }
}

impl Drop for Rings<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.0.rung.is_marked() {
            self.0.ring();
        }
    }
}

fn zeroed() -> sys::ucp_worker_params_t {
    // SAFETY: numbers and pointers that may be null.
    unsafe { std::mem::zeroed() }
}
