//! Where UCX's callbacks leave their news: requests that ended, an endpoint that failed.
//!
//! Callbacks come from inside calls of UCX, in the thread that holds the worker's progress lock, so they write to
//! atomics and do nothing else. A board outlives every request whose callback names it; see [`super::worker::Worker`].

use std::ffi::c_void;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use hmc_core::limits::MAX_PEERS;

use super::library::Library;
use super::lock::Held;
use super::result::Status;
use super::sys;

/// Wakes whoever waits for an operation of one peer: some other thread's progress has ended it. Called without locks of
/// this crate held, often, from any thread.
pub trait Bell: Send + Sync {
    /// There is news on the board.
    fn ring(&self);
}

/// Nobody waits.
pub(super) struct Mute;

impl Bell for Mute {
    fn ring(&self) {}
}

/// No request of that record has ended.
const NONE: u32 = u32::MAX;

/// One request that may be under way.
struct Record {
    board: AtomicPtr<Board>,
    index: u32,
    status: AtomicI32,
    next: AtomicU32,
}

/// Records that were taken, by the first of them.
pub(super) struct News(u32);

/// The news of one peer.
pub(super) struct Board {
    records: Box<[Record]>,
    /// The record that ended last, and through `next` those before it. Written under the worker's progress lock alone, by the
    /// callbacks and by the thread that takes them; others look whether there are any.
    ended: AtomicU32,
    /// The status with which the endpoint failed; 0 while it has not.
    failed: AtomicI32,
    /// The peer's answers lie at the door.
    pub(super) mail: AtomicBool,
    library: &'static Library,
    rung: Arc<Rung>,
    /// Its place on the worker's list.
    pub(super) place: u32,
    pub(super) bell: Box<dyn Bell>,
    /// The endpoint's close was answered.
    pub(super) closed: AtomicBool,
}

impl fmt::Debug for Board {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Board").field("place", &self.place).finish_non_exhaustive()
    }
}

impl Board {
    pub(super) fn new(
        records: u32,
        library: &'static Library,
        rung: Arc<Rung>,
        place: u32,
        bell: Box<dyn Bell>,
    ) -> Arc<Self> {
        let record = |index| Record {
            board: AtomicPtr::new(std::ptr::null_mut()),
            index,
            status: AtomicI32::new(0),
            next: AtomicU32::new(NONE),
        };
        let board = Arc::new(Self {
            records: (0..records).map(record).collect(),
            ended: AtomicU32::new(NONE),
            failed: AtomicI32::new(0),
            mail: AtomicBool::new(false),
            library,
            rung,
            place,
            bell,
            closed: AtomicBool::new(false),
        });
        for record in &board.records {
            record.board.store(Arc::as_ptr(&board).cast_mut(), Ordering::Release);
        }
        board
    }

    /// What the callback of that record's request is handed.
    #[inline]
    pub(super) fn name(&self, record: u32) -> *mut c_void {
        let place = usize::try_from(record).ok().and_then(|at| self.records.get(at));
        place.map_or(std::ptr::null_mut(), |r| std::ptr::from_ref(r).cast_mut().cast())
    }

    /// What the endpoint's error handler is handed.
    pub(super) fn itself(&self) -> *mut c_void {
        std::ptr::from_ref(self).cast_mut().cast()
    }

    /// The status with which the endpoint failed.
    #[inline]
    pub(super) fn failure(&self) -> Option<Status> {
        match self.failed.load(Ordering::Acquire) {
            0 => None,
            status => Some(Status(i8::try_from(status).unwrap_or(i8::MIN))),
        }
    }

    /// The endpoint is of no use any more.
    pub(super) fn fail(&self, status: Status) {
        let status = if status == Status::OK { Status::IO_ERROR } else { status };
        self.failed.store(i32::from(status.0), Ordering::Release);
    }

    /// Whether there is something to take.
    #[inline]
    pub(super) fn has_news(&self) -> bool {
        self.ended.load(Ordering::Acquire) != NONE
            || self.failed.load(Ordering::Acquire) != 0
            || self.mail.load(Ordering::Acquire)
    }

    /// Takes the records whose requests have ended, the last one first: [`Board::next`] reads them.
    #[inline]
    pub(super) fn take(&self, _: &Held<'_>) -> News {
        let news = self.ended.load(Ordering::Acquire);
        if news != NONE {
            self.ended.store(NONE, Ordering::Relaxed);
        }
        News(news)
    }

    /// The next of the records that were taken. After this it may be given to another request.
    #[inline]
    pub(super) fn next(&self, news: &mut News) -> Option<(u32, Status)> {
        let at = news.0;
        let record = usize::try_from(at).ok().and_then(|at| self.records.get(at))?;
        news.0 = record.next.load(Ordering::Relaxed);
        let status = record.status.load(Ordering::Relaxed);
        Some((at, Status(i8::try_from(status).unwrap_or(i8::MIN))))
    }

    /// Says that there is news.
    pub(super) fn mark(&self) {
        self.rung.mark(self.place);
    }

    /// Takes the mark back: its owner takes the news now. Under the progress lock.
    #[inline]
    pub(super) fn unmark(&self) {
        self.rung.unmark(self.place);
    }

    #[inline]
    fn end(&self, record: &Record, status: Status) {
        record.status.store(i32::from(status.0), Ordering::Relaxed);
        record.next.store(self.ended.load(Ordering::Relaxed), Ordering::Relaxed);
        self.ended.store(record.index, Ordering::Release);
        // Whoever makes progress for this board takes the news right after; others are told.
        if self.rung.attended.load(Ordering::Relaxed) != self.place {
            self.rung.mark(self.place);
        }
    }
}

/// The callback of every request.
///
/// # Safety
/// UCX calls it, once for each request, with what [`Board::name`] gave.
pub(super) unsafe extern "C" fn ended(
    request: *mut c_void,
    status: sys::ucs_status_t,
    record: *mut c_void,
) {
    // SAFETY: `record` is what `Board::name` gave for this request, and boards outlive their requests.
    let record = unsafe { &*record.cast::<Record>() };
    // SAFETY: written when the board was made; the board is alive, as its record is.
    let board = unsafe { &*record.board.load(Ordering::Acquire) };
    // SAFETY: the request has ended, nobody else knows its address, and callbacks may free it (ucp.h).
    unsafe { (board.library.api.ucp_request_free)(request) };
    board.end(record, Status(status));
}

/// The error handler of every endpoint.
///
/// # Safety
/// UCX calls it with what [`Board::itself`] gave.
pub(super) unsafe extern "C" fn failed(
    board: *mut c_void,
    _endpoint: sys::ucp_ep_h,
    status: sys::ucs_status_t,
) {
    // SAFETY: what `Board::itself` gave; a board outlives its endpoint.
    let board = unsafe { &*board.cast::<Board>() };
    board.fail(Status(status));
    board.rung.mark(board.place);
}

/// Words of bits, one for each board of a worker.
const WORDS: usize = 64;

/// Which boards of a worker have news: a bit each, and a bit for each word of bits.
pub(super) struct Rung {
    some: AtomicU64,
    words: [AtomicU64; WORDS],
    /// Whose news the thread that holds the progress lock takes as soon as its call of progress returns.
    attended: AtomicU32,
}

const _: () = assert!(MAX_PEERS <= 64 * 64, "a bit for each peer, and a word for all words");

impl Rung {
    pub(super) fn new() -> Arc<Self> {
        let words = [const { AtomicU64::new(0) }; WORDS];
        Arc::new(Self { some: AtomicU64::new(0), words, attended: AtomicU32::new(NONE) })
    }

    /// Makes progress by `poll`, under the progress lock: callbacks mark all boards but that one, whose news the caller
    /// takes.
    #[inline]
    pub(super) fn attending<R>(&self, board: &Board, poll: impl FnOnce() -> R) -> R {
        self.attended.store(board.place, Ordering::Relaxed);
        let result = poll();
        self.attended.store(NONE, Ordering::Relaxed);
        result
    }

    fn mark(&self, place: u32) {
        let (word, bit) = (place >> 6, place & 63);
        if let Some(w) = usize::try_from(word).ok().and_then(|at| self.words.get(at)) {
            w.fetch_or(1 << bit, Ordering::AcqRel);
            self.some.fetch_or(1 << word, Ordering::AcqRel);
        }
    }

    /// Takes one mark.
    #[inline]
    fn unmark(&self, place: u32) {
        let (word, bit) = (place >> 6, place & 63);
        let Some(w) = usize::try_from(word).ok().and_then(|at| self.words.get(at)) else { return };
        if w.load(Ordering::Acquire) & 1 << bit == 0 {
            return;
        }
        if w.fetch_and(!(1 << bit), Ordering::AcqRel) == 1 << bit {
            self.some.fetch_and(!(1 << word), Ordering::AcqRel);
        }
    }

    /// Whether some board may have news.
    #[inline]
    pub(super) fn is_marked(&self) -> bool {
        self.some.load(Ordering::Acquire) != 0
    }

    /// Takes the marks.
    pub(super) fn take(&self, mut each: impl FnMut(u32)) {
        let mut some = self.some.swap(0, Ordering::AcqRel);
        while some != 0 {
            let word = some.trailing_zeros();
            some &= some.wrapping_sub(1);
            let Some(w) = usize::try_from(word).ok().and_then(|at| self.words.get(at)) else {
                continue;
            };
            let mut bits = w.swap(0, Ordering::AcqRel);
            while bits != 0 {
                each((word << 6) | bits.trailing_zeros());
                bits &= bits.wrapping_sub(1);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Rung;

    fn taken(rung: &Rung) -> Vec<u32> {
        let mut places = Vec::new();
        rung.take(|place| places.push(place));
        places
    }

    #[test]
    fn one_mark_is_taken_and_the_others_stay() {
        let rung = Rung::new();
        for place in [3, 5, 70] {
            rung.mark(place);
        }
        rung.unmark(5);
        assert!(rung.is_marked());
        assert_eq!(taken(&rung), [3, 70]);
        assert!(!rung.is_marked() && taken(&rung).is_empty());
        // The last of its word, and one that is not marked.
        rung.mark(70);
        rung.unmark(70);
        assert!(!rung.is_marked());
        rung.mark(3);
        rung.unmark(70);
        rung.unmark(4);
        assert_eq!(taken(&rung), [3]);
    }
}
