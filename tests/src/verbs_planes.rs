//! The data plane of RDMA verbs by itself at two ends, without sessions and without the stream beside it, over the fake libibverbs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use hmc_core::limits::MAX_ENDPOINT_BYTES;
use hmc_core::range::Extent;
use hmc_core::region::{RegionKey, WindowDesc};
use hmc_core::slots::SlotId;
use hmc_core::transport::{
    Note, Notes as _, Progress as _, Registration as _, Target as _, Transport as _,
};
use hmc_core::types::{Access, MemoryKind};
use hmc_core::work::{CompleteWhen, Completion, Failure, Opcode, WorkRequest};
use hmc_hw::host::Host;
use hmc_hw::verbs::ENDPOINT_VERBS_CONNECTED;
use hmc_hw::verbs::data_plane::VerbsDataPlane;
use hmc_hw::verbs::domain::{DomainOptions, VerbsDomain};
use hmc_hw::verbs::fault::VerbsFault;
use hmc_hw::verbs::library::{Library, Search};
use hmc_hw::verbs::select::{Port, Selector};
use hmc_mem::registered::Registered as _;

use crate::fake_ibv::{file, has_windows};
use crate::tag_list::TagList;
use crate::ucx_pair::CountingNotify;
pub use crate::ucx_planes::{LEN, Pages, RecordingHost, TURNS};

/// The number of the worker that takes a device's events.
pub const EVENTS_WORKER: u32 = 4;
/// The number of an end's first worker.
pub const FIRST_WORKER: u32 = 5;
/// The objects of a data plane of one queue pair: channel, completion queue, queue pair, and, unless the links of a domain share them,
/// a protection domain and two regions.
#[must_use]
pub fn objects() -> u64 {
    if has_windows() { 3 } else { 6 }
}

/// A note: its kind and its bytes.
pub type OwnedNote = (u8, Vec<u8>);

/// A session's part in RDMA verbs, with that host.
///
/// # Panics
/// If the device cannot be opened.
#[must_use]
pub fn domain(host: &Arc<RecordingHost>, lanes: usize, is_manual: bool) -> Arc<VerbsDomain> {
    try_domain(host, lanes, is_manual).expect("a domain")
}

/// As [`domain`].
///
/// # Errors
/// As [`VerbsDomain::new`].
///
/// # Panics
/// If the device cannot be opened.
pub fn try_domain(
    host: &Arc<RecordingHost>,
    lanes: usize,
    is_manual: bool,
) -> Result<Arc<VerbsDomain>, VerbsFault> {
    let library = Library::load(&Search { named: Some(file()) }).expect("a whole libibverbs");
    let port = Port::open(library, &Selector::default()).expect("a port");
    try_domain_over(vec![port], host, lanes, is_manual)
}

/// As [`try_domain`], by these ports.
///
/// # Errors
/// As [`VerbsDomain::new`].
pub fn try_domain_over(
    ports: Vec<Port>,
    host: &Arc<RecordingHost>,
    lanes: usize,
    is_manual: bool,
) -> Result<Arc<VerbsDomain>, VerbsFault> {
    let (events_worker, first_worker) = (EVENTS_WORKER, FIRST_WORKER);
    let options =
        DomainOptions { lanes, chosen: "the test", events_worker, first_worker, is_manual };
    let host: Arc<dyn Host> = Arc::<RecordingHost>::clone(host);
    VerbsDomain::new(ports, host, options)
}

/// A data plane with memory.
#[derive(Debug)]
pub struct End {
    /// The data plane.
    pub plane: VerbsDataPlane<Pages>,
    /// The memory.
    pub memory: Pages,
    /// Its session's part in RDMA verbs.
    pub domain: Arc<VerbsDomain>,
    /// The number of notifications.
    pub notifications: CountingNotify,
    /// Tags of the other end's puts.
    pub tags: TagList,
}

impl End {
    /// An end of one queue pair whose callers make its progress.
    ///
    /// # Panics
    /// If it cannot be made.
    #[must_use]
    pub fn new() -> Self {
        Self::with_host(&Arc::default(), 1, true)
    }

    /// An end of that host, whose thread looks at completions unless it `is_manual`.
    ///
    /// # Panics
    /// If it cannot be made.
    #[must_use]
    pub fn with_host(host: &Arc<RecordingHost>, lanes: usize, is_manual: bool) -> Self {
        Self::in_domain(&domain(host, lanes, is_manual)).expect("a data plane")
    }

    /// One more end of a domain.
    ///
    /// # Errors
    /// As [`VerbsDataPlane::new`].
    pub fn in_domain(domain: &Arc<VerbsDomain>) -> Result<Self, VerbsFault> {
        Self::numbered(domain, 1)
    }

    /// As [`Self::in_domain`], of the link of that number.
    ///
    /// # Errors
    /// As [`VerbsDataPlane::new`].
    pub fn numbered(domain: &Arc<VerbsDomain>, serial: u32) -> Result<Self, VerbsFault> {
        Self::with_plane(domain, serial, LEN)
    }

    /// One more end of a domain, with memory of that length.
    ///
    /// # Errors
    /// As [`VerbsDataPlane::new`].
    pub fn with_memory(domain: &Arc<VerbsDomain>, len: u64) -> Result<Self, VerbsFault> {
        Self::with_plane(domain, 1, len)
    }

    /// One more end of a domain, with memory that another end has as well.
    ///
    /// # Errors
    /// As [`VerbsDataPlane::new`].
    pub fn sharing(other: &Self, serial: u32) -> Result<Self, VerbsFault> {
        Self::with_pages(&other.domain, serial, other.memory.clone())
    }

    fn with_plane(domain: &Arc<VerbsDomain>, serial: u32, len: u64) -> Result<Self, VerbsFault> {
        // Names are the process's own: links of one domain may share what is registered.
        static NAMES: AtomicU32 = AtomicU32::new(1);
        let generation = NAMES.fetch_add(1, Ordering::Relaxed);
        let memory = Pages::with_len(RegionKey { index: 0, generation }, len);
        Self::with_pages(domain, serial, memory)
    }

    fn with_pages(
        domain: &Arc<VerbsDomain>,
        serial: u32,
        memory: Pages,
    ) -> Result<Self, VerbsFault> {
        let notifications = CountingNotify::default();
        let notify = Box::new(notifications.clone());
        let tags = TagList::default();
        let mut plane = VerbsDataPlane::new(domain, serial, 8, notify, Box::new(tags.clone()))?;
        plane.add_memory(&memory);
        Ok(Self { plane, memory, domain: Arc::clone(domain), notifications, tags })
    }

    /// What the other end must receive first.
    ///
    /// # Panics
    /// If there is nothing.
    pub fn greeting(&mut self) -> OwnedNote {
        let mut buf = [0; MAX_ENDPOINT_BYTES];
        let note = self.plane.greeting(&mut buf).expect("conn info").expect("a note");
        (note.kind, note.bytes.to_vec())
    }

    /// What the other end must receive once this one is connected.
    ///
    /// # Panics
    /// If there is nothing.
    pub fn word(&mut self) -> OwnedNote {
        let note = self.plane.next_note(&mut []).expect("that it is connected");
        assert_eq!(note.kind, ENDPOINT_VERBS_CONNECTED);
        (note.kind, note.bytes.to_vec())
    }

    /// What else the other end must receive.
    pub fn notes(&mut self) -> Vec<OwnedNote> {
        let mut buf = [0; MAX_ENDPOINT_BYTES];
        let mut notes = Vec::new();
        while let Some(note) = self.plane.next_note(&mut buf) {
            notes.push((note.kind, note.bytes.to_vec()));
        }
        notes
    }

    /// Receives a note of the other end's.
    ///
    /// # Errors
    /// As the data plane.
    pub fn try_receive(&mut self, (kind, bytes): (u8, &[u8])) -> Result<(), VerbsFault> {
        self.plane.receive_note(Note { kind, bytes })
    }

    /// Receives a note of the other end's.
    ///
    /// # Panics
    /// If it is refused.
    pub fn receive(&mut self, (kind, bytes): (u8, &[u8])) {
        self.try_receive((kind, bytes)).expect("a note that can be used");
    }

    /// Exposes a part of its memory. Returns the window, and what the other end must receive to use it, if anything.
    ///
    /// # Errors
    /// As the data plane.
    ///
    /// # Panics
    /// If the part is not in range.
    pub fn try_expose(
        &mut self,
        (at, len): (u64, u64),
        access: Access,
    ) -> Result<(WindowDesc, Option<OwnedNote>), VerbsFault> {
        let local = self.memory.local().slice(at, len).expect("in range");
        let window = self.plane.windows().expose(local, MemoryKind::Cpu, access, 1 << 20);
        let window = window.expect("a place");
        let mut buf = [0; MAX_ENDPOINT_BYTES];
        let note = self.plane.open(&self.memory, local, &window, &mut buf)?;
        Ok((window, note.map(|note| (note.kind, note.bytes.to_vec()))))
    }

    /// Exposes a part of its memory to `peer`, which is told of it.
    ///
    /// # Panics
    /// If it cannot be exposed.
    pub fn expose_to(&mut self, peer: &mut Self, part: (u64, u64), access: Access) -> WindowDesc {
        let (window, note) = self.try_expose(part, access).expect("registered");
        if let Some((kind, bytes)) = note {
            peer.receive((kind, &bytes));
        }
        window
    }

    /// A visible put of its first bytes to the window's.
    #[must_use]
    pub fn put(&self, index: u16, window: &WindowDesc, len: u64) -> WorkRequest {
        self.work(index, Opcode::Put, window, (0, len))
    }

    /// A request between bytes of its memory and the same of the window.
    ///
    /// # Panics
    /// If they are not that many.
    #[must_use]
    pub fn work(
        &self,
        index: u16,
        opcode: Opcode,
        window: &WindowDesc,
        (at, len): (u64, u64),
    ) -> WorkRequest {
        WorkRequest {
            op: SlotId { index, generation: 1 },
            opcode,
            when: CompleteWhen::Visible,
            local: self.memory.local().slice(at, len).expect("in range"),
            remote: window.slice(at, len).expect("in range"),
        }
    }

    /// Posts a request that is accepted.
    ///
    /// # Panics
    /// If it is not.
    pub fn post(&mut self, work: &WorkRequest) {
        assert_eq!(self.plane.post(work), Ok(()), "{work:?}");
    }

    /// Fills its memory.
    ///
    /// # Panics
    /// Never.
    pub fn fill(&self, byte: u8) {
        self.memory.shared().fill(Extent::new(LEN).whole(), byte).expect("in range");
    }

    /// How many bytes from `at` on are that one.
    ///
    /// # Panics
    /// Never.
    #[must_use]
    pub fn count_from(&self, at: usize, byte: u8) -> usize {
        let mut bytes = [0; 4096];
        self.memory.shared().read_at(Extent::new(LEN).whole(), &mut bytes).expect("in range");
        bytes[at..].iter().take_while(|b| **b == byte).count()
    }

    /// Completions of one poll.
    pub fn poll(&mut self) -> Vec<(u16, Result<u64, Failure>)> {
        let op = SlotId { index: u16::MAX, generation: 1 };
        let mut out = [Completion { op, result: Ok(0) }; 64];
        let n = self.plane.poll(&mut out);
        out[..n].iter().map(|c| (c.op.index, c.result)).collect()
    }

    /// Polls that many times. Returns all completions.
    pub fn poll_for(&mut self, turns: u32) -> Vec<(u16, Result<u64, Failure>)> {
        (0..turns).flat_map(|_| self.poll()).collect()
    }

    /// Polls until `count` requests have completed. Returns them in the order of their completion.
    ///
    /// # Panics
    /// If they do not.
    pub fn complete(&mut self, count: usize) -> Vec<(u16, Result<u64, Failure>)> {
        let mut all = Vec::new();
        for _ in 0..TURNS {
            all.append(&mut self.poll());
            if all.len() >= count {
                return all;
            }
        }
        panic!("{} of {count} requests have completed: {all:?}", all.len());
    }

    /// Lets it do what its peer asked. Returns whether it did anything.
    pub fn serve(&mut self) -> bool {
        self.plane.poll_peer(true)
    }

    /// Drops what was released.
    pub fn take_released(&mut self) -> usize {
        self.plane.take_released().len()
    }
}

impl Default for End {
    fn default() -> Self {
        Self::new()
    }
}

/// Two ends that have received each other's greeting, and a window of all the second one's memory.
#[must_use]
pub fn pair() -> (End, End, WindowDesc) {
    meet(End::new(), End::new())
}

/// Connects two ends. Returns them, and a window of all the second one's memory.
///
/// # Panics
/// If they do not meet.
#[must_use]
pub fn meet(mut near: End, mut far: End) -> (End, End, WindowDesc) {
    let (ours, theirs) = (near.greeting(), far.greeting());
    near.receive((theirs.0, &theirs.1));
    far.receive((ours.0, &ours.1));
    let (ours, theirs) = (near.word(), far.word());
    near.receive((theirs.0, &theirs.1));
    far.receive((ours.0, &ours.1));
    assert!(near.plane.is_ready() && far.plane.is_ready());
    let window = far.expose_to(&mut near, (0, LEN), Access::all());
    (near, far, window)
}
