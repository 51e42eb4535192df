//! A data plane whose other end is the test, byte by byte.

mod cancel;
mod end;
mod facts;
mod gather;
mod generations;
mod receive;
mod send;
mod serve;

use std::io::{ErrorKind as Io, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};

use hmc_core::region::{Epoch, WindowDesc, WindowId, WindowSlice};
use hmc_core::slots::SlotId;
use hmc_core::transport::{Progress as _, Registration as _, Target as _, Transport as _};
use hmc_core::types::{Access, MemoryKind, Rank};
use hmc_core::wire::data::{DATA_FRAME_BYTES, DataFlags, DataFrame, DataKind};
use hmc_core::work::{CompleteWhen, Completion, Failure, Opcode, WorkRequest};

use super::{StreamDataPlane, StreamSetup};
use crate::memory::{Region, RegionTable};
use crate::node::inbox::{Inbox, SharedInbox};

struct Bench {
    plane: StreamDataPlane,
    peer: UnixStream,
    inbox: SharedInbox,
    table: Arc<RegionTable>,
}

impl Bench {
    /// With a peer that is this process, and an inbox for so many tags.
    fn new(local: bool, near: bool, tags: usize) -> Self {
        let (ours, peer) = UnixStream::pair().expect("a pair");
        for socket in [&ours, &peer] {
            socket.set_nonblocking(true).expect("a socket");
        }
        let inbox = Arc::new(Mutex::new(Inbox::new(tags, 4096)));
        let plane = StreamDataPlane::new(StreamSetup {
            socket: Arc::new(OwnedFd::from(ours).into()),
            peer: Rank(1),
            local,
            near,
            pid: Some(std::process::id()),
            cma: true,
            batched_acks: true,
            generations: true,
            gathers: false,
            windows: 8,
            inbox: Arc::clone(&inbox),
        });
        Self { plane, peer, inbox, table: Arc::default() }
    }

    fn local() -> Self {
        Self::new(true, true, 16)
    }

    /// A region that the data plane knows.
    fn region(&mut self, len: u64) -> Region {
        let region = self.table.allocate(len).expect("memory");
        self.plane.add_memory(&region);
        region
    }

    /// A window of the data plane's over all of a region.
    fn window(&mut self, region: &Region) -> WindowDesc {
        let whole = region.slice(0, region.len()).expect("all of it");
        let windows = self.plane.windows();
        windows.expose(whole, MemoryKind::Cpu, Access::all(), 7).expect("a place")
    }

    fn submit(&mut self, index: u16, opcode: Opcode, region: &Region, by_ref: bool) {
        let work = work(index, opcode, region);
        self.plane.submit(&work, by_ref, region.len()).expect("space");
    }

    fn send(&self, frame: &DataFrame, payload: &[u8]) {
        (&self.peer).write_all(&[&frame.emit(), payload].concat()).expect("space");
    }

    /// What the data plane has sent, without payload.
    fn frames(&mut self) -> Vec<DataFrame> {
        let mut bytes = Vec::new();
        loop {
            match (&self.peer).read_to_end(&mut bytes) {
                Ok(_) => break,
                Err(e) if e.kind() == Io::WouldBlock => {
                    let before = bytes.len();
                    self.plane.flush();
                    let _ = (&self.peer).read_to_end(&mut bytes);
                    if bytes.len() == before {
                        break;
                    }
                }
                Err(e) => panic!("{e}"),
            }
        }
        let (mut frames, mut rest) = (Vec::new(), bytes.as_slice());
        // Headers that come before the payloads of the frames before them, and those payloads.
        let (mut heads, mut payload) = (0_u64, 0);
        while let Some((head, behind)) = rest.split_first_chunk::<DATA_FRAME_BYTES>() {
            let frame = DataFrame::parse(head).expect("a frame");
            let carries = matches!(frame.kind, DataKind::Write | DataKind::ReadData);
            let len = if carries { usize::try_from(frame.len).expect("small") } else { 0 };
            payload = len.saturating_add(payload);
            heads =
                if frame.kind == DataKind::Gather { frame.total } else { heads.saturating_sub(1) };
            frames.push(frame);
            rest = behind;
            if heads == 0 {
                rest = rest.get(std::mem::take(&mut payload)..).expect("all of the payload");
            }
        }
        assert!(rest.is_empty(), "half a frame");
        frames
    }

    /// Kinds and numbers of what the data plane has sent.
    fn kinds(&mut self) -> Vec<(DataKind, u32)> {
        self.frames().iter().map(|f| (f.kind, f.seq)).collect()
    }

    /// All completions so far: index of the operation, and result.
    fn poll(&mut self) -> Vec<(u16, Result<u64, Failure>)> {
        let op = SlotId { index: u16::MAX, generation: 1 };
        let mut out = vec![Completion { op, result: Ok(0) }; 600];
        let n = self.plane.poll(&mut out);
        out.iter().take(n).map(|c| (c.op.index, c.result)).collect()
    }
}

/// An operation on all of a region, and as much of a window of the peer's.
fn work(index: u16, opcode: Opcode, region: &Region) -> WorkRequest {
    let local = region.slice(0, region.len()).expect("all of it");
    let remote =
        WindowSlice { window: WindowId(1), epoch: Epoch(1), span: local.span, expected: None };
    let op = SlotId { index, generation: 1 };
    WorkRequest { op, opcode, when: CompleteWhen::Visible, local, remote }
}

/// A whole request of the peer's on a window of the data plane's.
fn asked(kind: DataKind, seq: u32, window: &WindowDesc, total: u64) -> DataFrame {
    let mut frame = DataFrame::new(kind, seq);
    (frame.window, frame.epoch, frame.total) = (window.window, window.epoch, total);
    if matches!(kind, DataKind::Write | DataKind::WriteRef) {
        frame.flags = DataFlags::LAST;
    }
    if kind == DataKind::Write {
        frame.len = u32::try_from(total).expect("small");
    }
    frame
}

/// As [`asked`], of a copy by the data plane from or to a region of this process.
fn by_ref(kind: DataKind, seq: u32, window: &WindowDesc, theirs: &Region) -> DataFrame {
    let addr = theirs.bytes().as_ptr().expose_provenance();
    let addr = u64::try_from(addr).expect("an address");
    DataFrame { addr, ..asked(kind, seq, window, theirs.len()) }
}

fn fill(region: &Region, byte: u8) {
    let bytes = vec![byte; usize::try_from(region.len()).expect("small")];
    region.bytes().write_at(region.local().extent.whole(), &bytes).expect("in range");
}

fn bytes(region: &Region) -> Vec<u8> {
    let mut bytes = vec![9; usize::try_from(region.len()).expect("small")];
    region.bytes().read_at(region.local().extent.whole(), &mut bytes).expect("in range");
    bytes
}
