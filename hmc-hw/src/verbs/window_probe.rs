//! Tries the windows of a device on loopback, since what it advertises of them is not believed: soft-RoCE checks the range of a region
//! where the window's is meant, and some providers lack calls that their kernel driver advertises.

use std::os::fd::{AsFd as _, AsRawFd as _};
use std::sync::Arc;
use std::time::{Duration, Instant};

use hmc_core::range::{ByteRange, Extent, Side};

use super::chain::{Chain, ChainEnd, RdmaAccess};
use super::error::VerbsError;
use super::objects::{
    CompletionQueue, MemoryRegion, MemoryWindow, PathTo, ProtectionDomain, QueuePair, QueueSizes,
    WindowRange,
};
use super::page::{PAGE_BYTES, Page};
use super::path::{ACK_TIMEOUT, address_of};
use super::select::Port;
use super::status::WcStatus;
use super::sys::{
    IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_MW_BIND, IBV_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_WRITE,
    IBV_SEND_SIGNALED, IBV_WC_REM_ACCESS_ERR, IBV_WC_SUCCESS, ibv_wc,
};
use super::window_scheme::{NoWindows, WindowCheck, WindowScheme};

/// How long all that is tried may take. The session's thread may wait for it, and must not be silent for so long that its peers take it
/// for dead.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long the event of a completion is waited for before the queue is looked at all the same, in milliseconds.
const LOOK_MS: i32 = 1;
/// What is written, from the beginning of the page to its other places.
const PATTERN: [u8; 8] = *b"hmc test";
const SOURCE: u64 = 0;
/// The windows, and the places in the page of what is written. Two of these are inside a window and written by its queue pair.
const WINDOW_BYTES: u64 = 64;
const WINDOW: u64 = 1024;
const OTHER_QUEUE_PAIR: u64 = 1032;
const OUTSIDE: u64 = 2048;
const SECOND_WINDOW: u64 = 3072;
const ENDED: u64 = 3080;
const READ_WINDOW: u64 = 3584;
/// Queue pairs at each side, and work requests of one.
const PAIRS: usize = 4;
const DEPTH: u32 = 8;
/// Entries of the completion queue: one for each work request.
const COMPLETIONS: usize = 64;
/// The number of the first packet of each queue pair: they are connected to each other only.
const FIRST_PACKET: u32 = 0x0010_0000;

/// Returns how the device of `port` enforces windows. The first call for a device in this process tries it ([`try_windows`]); later calls
/// return the same result, except after a failed call or a timeout: then the next call tries again.
#[must_use]
pub fn window_scheme(port: &Port) -> WindowScheme {
    let device = port.device();
    device.library().window_scheme((device.name(), device.info().guid), || {
        match try_windows(port) {
            Ok(()) => WindowScheme::Type2b,
            Err(why) => WindowScheme::DomainPerPeer(why),
        }
    })
}

/// Tries the memory windows of type 2B of a port's device, between queue pairs of its own that are connected to each other. Blocks until all
/// checks have completed.
///
/// # Errors
/// [`NoWindows`] for the first check that failed: an access that must be refused succeeded, or the reverse, or a call failed.
pub fn try_windows(port: &Port) -> Result<(), NoWindows> {
    if !port.device().attrs().has_type_2b_windows() {
        return Err(NoWindows::NotAdvertised);
    }
    let page = Arc::new(Page::new()?);
    // The page has these bytes.
    let _ = page.bytes().write_at(part(SOURCE), &PATTERN);
    let mut trial = Trial::new(port, &page)?;
    let tried = trial.run();
    let ended = trial.end().map_err(NoWindows::Call);
    tried.and(ended)?;
    // The device accesses the page no more. What was refused is not there.
    for (at, check) in [
        (OUTSIDE, WindowCheck::Outside),
        (OTHER_QUEUE_PAIR, WindowCheck::OtherQueuePair),
        (READ_WINDOW, WindowCheck::ReadOnly),
        (ENDED, WindowCheck::Ended),
    ] {
        let mut bytes = [0; PATTERN.len()];
        // As above.
        let _ = page.bytes().read_at(part(at), &mut bytes);
        if bytes != [0; PATTERN.len()] {
            return Err(NoWindows::LetThrough(check));
        }
    }
    Ok(())
}

/// The place in the page of one write.
fn part(at: u64) -> ByteRange {
    in_page(at, u64::try_from(PATTERN.len()).unwrap_or(0))
}

/// A part of the page; nothing of it where it would not lie within.
fn in_page(at: u64, len: u64) -> ByteRange {
    let page = Extent::new(u64::try_from(PAGE_BYTES).unwrap_or(0));
    page.span(Side::Local, at, len).unwrap_or_else(|_| Extent::new(0).whole())
}

/// Two queue pairs that are connected to each other.
struct Loopback {
    /// Writes to the other one.
    near: QueuePair,
    /// Has windows bound to it.
    far: QueuePair,
}

impl Loopback {
    fn new(
        pd: &Arc<ProtectionDomain>,
        cq: &Arc<CompletionQueue>,
        port: &Port,
    ) -> Result<Self, VerbsError> {
        let sizes = QueueSizes { send: DEPTH, receive: 0, inline_bytes: 0 };
        let new = || QueuePair::new(pd, cq, port.number(), sizes);
        let pair = Self { near: new()?, far: new()? };
        let attrs = port.device().attrs();
        let path = |to: &QueuePair| PathTo {
            address: address_of(port, port.gid(), port.lid()),
            qp_num: to.number(),
            their_psn: FIRST_PACKET,
            our_psn: FIRST_PACKET,
            mtu: port.mtu().0,
            max_rd_atomic: u8::from(attrs.max_initiator_gets != 0),
            max_dest_rd_atomic: u8::from(attrs.max_target_gets != 0),
            timeout: ACK_TIMEOUT,
        };
        pair.near.connect(&path(&pair.far))?;
        pair.far.connect(&path(&pair.near))?;
        Ok(pair)
    }
}

/// What is made to try windows.
struct Trial {
    /// Ended before the queue pairs to which they are bound.
    windows: Vec<MemoryWindow>,
    pairs: Vec<Loopback>,
    region: Arc<MemoryRegion>,
    /// The page's address.
    base: u64,
    cq: Arc<CompletionQueue>,
    deadline: Instant,
    /// The number of the next work request.
    next: u64,
}

impl Trial {
    fn new(port: &Port, page: &Arc<Page>) -> Result<Self, VerbsError> {
        let device = port.device();
        let pd = ProtectionDomain::new(device)?;
        let cq = CompletionQueue::new(device, COMPLETIONS)?;
        let access = i32::try_from(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND).unwrap_or(0);
        let keep = Box::new(Arc::clone(page));
        // SAFETY: the page is the library's own, which `keep` holds, and only devices and copies access it.
        let region =
            unsafe { MemoryRegion::register(&pd, page.start(), PAGE_BYTES, access, keep) }?;
        let pairs: Result<Vec<_>, _> = (0..PAIRS).map(|_| Loopback::new(&pd, &cq, port)).collect();
        Ok(Self {
            windows: Vec::new(),
            pairs: pairs?,
            region: Arc::new(region),
            base: page.address(),
            cq,
            deadline: Instant::now().checked_add(PATIENCE).unwrap_or_else(Instant::now),
            next: 0,
        })
    }

    fn run(&mut self) -> Result<(), NoWindows> {
        let [first, other, second, third] = [0, 1, 2, 3];
        let key = self.bind(first, WINDOW, IBV_ACCESS_REMOTE_WRITE)?;
        self.check(first, WINDOW, key, WindowCheck::Inside)?;
        // Another queue pair of the same domain: a refusal ends the connection of whoever is refused.
        self.check(other, OTHER_QUEUE_PAIR, key, WindowCheck::OtherQueuePair)?;
        self.check(first, OUTSIDE, key, WindowCheck::Outside)?;
        let key = self.bind(third, READ_WINDOW, IBV_ACCESS_REMOTE_READ)?;
        self.check(third, READ_WINDOW, key, WindowCheck::ReadOnly)?;
        let key = self.bind(second, SECOND_WINDOW, IBV_ACCESS_REMOTE_WRITE)?;
        self.check(second, SECOND_WINDOW, key, WindowCheck::Inside)?;
        if let Some(window) = self.windows.pop() {
            window.deallocate()?;
        }
        self.check(second, ENDED, key, WindowCheck::Ended)
    }

    /// Binds a new window to a queue pair. Returns its key.
    fn bind(&mut self, pair: usize, at: u64, access: u32) -> Result<u32, NoWindows> {
        let mut window = MemoryWindow::new(&self.region)?;
        let number = self.number();
        let address = in_page(at, WINDOW_BYTES).address(self.base);
        let range = WindowRange { address, len: WINDOW_BYTES, access };
        if let Some(pair) = self.pairs.get(pair) {
            window.bind(&pair.far, number, range)?;
        }
        let key = window.rkey();
        // Before the completion: its end waits until the queue pair carries out nothing more.
        self.windows.push(window);
        match self.wait(number, WindowCheck::Bind)? {
            WcStatus(IBV_WC_SUCCESS) => Ok(key),
            status => Err(NoWindows::Status(WindowCheck::Bind, status)),
        }
    }

    /// Writes to a place of the page: by the check that is to succeed, or to be refused.
    fn check(
        &mut self,
        pair: usize,
        at: u64,
        key: u32,
        check: WindowCheck,
    ) -> Result<(), NoWindows> {
        let is_inside = check == WindowCheck::Inside;
        let wanted = if is_inside { IBV_WC_SUCCESS } else { IBV_WC_REM_ACCESS_ERR };
        match self.write(pair, at, key, check)? {
            WcStatus(status) if status == wanted => Ok(()),
            WcStatus(IBV_WC_SUCCESS) => Err(NoWindows::LetThrough(check)),
            status => Err(NoWindows::Status(check, status)),
        }
    }

    /// Writes the pattern to a place of the page. Returns how that ended.
    fn write(
        &mut self,
        pair: usize,
        at: u64,
        rkey: u32,
        check: WindowCheck,
    ) -> Result<WcStatus, NoWindows> {
        let number = self.number();
        let access = RdmaAccess {
            is_read: false,
            address: part(SOURCE).address(self.base),
            lkey: self.region.lkey(),
            len: u32::try_from(PATTERN.len()).unwrap_or(0),
            remote_address: part(at).address(self.base),
            rkey,
            immediate: None,
        };
        let mut chain = Chain::new();
        chain.push(number, &access, true, IBV_SEND_SIGNALED);
        if let Some(pair) = self.pairs.get(pair) {
            // SAFETY: the region is registered with the queue pairs' domain, and ends after them.
            unsafe { chain.post(&pair.near, ChainEnd::Signalled) }.map_err(|e| *e)?;
        }
        self.wait(number, check)
    }

    fn number(&mut self) -> u64 {
        self.next = self.next.saturating_add(1);
        self.next
    }

    /// Waits for the completion of a work request.
    fn wait(&self, number: u64, check: WindowCheck) -> Result<WcStatus, NoWindows> {
        loop {
            // An error: the queue is looked at each millisecond.
            let _ = self.cq.arm(false);
            let mut completions = [ibv_wc::default(); 4];
            let taken = self.cq.poll(&mut completions).map_err(|e| *e)?;
            if let Some(wc) = taken.iter().find(|wc| wc.wr_id == number) {
                return Ok(WcStatus(wc.status));
            }
            if Instant::now() >= self.deadline {
                return Err(NoWindows::NoCompletion(check));
            }
            let fd = self.cq.as_fd().as_raw_fd();
            let mut wanted = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
            // SAFETY: one entry, of a descriptor that is open as long as the queue.
            let _ = unsafe { libc::poll(&raw mut wanted, 1, LOOK_MS) };
            let _ = self.cq.take_events();
        }
    }

    /// Destroys all, whatever is under way.
    ///
    /// # Errors
    /// [`VerbsError`]: the device may still access the page, which stays.
    fn end(mut self) -> Result<(), VerbsError> {
        let mut result = Ok(());
        for pair in &self.pairs {
            result = result.and(pair.near.set_error()).and(pair.far.set_error());
        }
        for window in self.windows.drain(..) {
            result = result.and(window.deallocate().map(drop));
        }
        for Loopback { near, far } in self.pairs.drain(..) {
            result = result.and(near.destroy()).and(far.destroy());
        }
        match Arc::into_inner(self.region) {
            Some(region) => result.and(region.deregister().map(drop)),
            // A window that was not ended holds it.
            None => result,
        }
    }
}
