//! One peer that sends what it must not, and what has to follow.

use hmc_testkit::buffers::{BufferTransfers as _, Ends};
use std::io::Write as _;
use std::os::fd::AsFd as _;
use std::time::Instant;

use hmc_core::region::WindowDesc;
use hmc_core::types::Access;
use hmc_core::wire::advert::{ENDPOINT_SHM, ENDPOINT_TCP, ENDPOINT_UCX};
use hmc_core::wire::data::{DataFlags, DataFrame, DataKind};
use hmc_core::wire::hello::Features;
use hmc_core::wire::message::ControlMessage;
use hmc_core::work::Failure;
use hmc_std::{Op, Peer, Window};

use super::target::{INBOX, LONG, Target, fresh_rank};
use crate::env::{Via, until};
use crate::raw_frames::frame;
use crate::rogue::{Rogue, pour};

/// Where the window lies in the area.
pub const WINDOW_AT: u64 = 4096;
/// Bytes of the window.
pub const WINDOW: u64 = 8192;
/// What it writes.
pub const LIE: u8 = 0xBD;
/// Bytes that no socket takes while nobody reads: four times the most that Linux keeps for one (`tcp_wmem`).
const STUCK: u64 = 16 << 20;

/// A rogue that is connected to a target.
#[derive(Debug)]
pub struct Rig<'a> {
    /// Whom it attacks.
    pub target: &'a mut Target,
    /// It.
    pub rogue: Rogue,
    /// It, as the session sees it.
    pub peer: Peer,
    /// The session's window, in the middle of the area.
    pub window: WindowDesc,
    pub(super) exposed: Window<hmc_std::ConnBuffer>,
    pub(super) ops: Vec<Op>,
    pub(super) memory: Vec<u8>,
}

impl<'a> Rig<'a> {
    /// Connects one with all rights.
    ///
    /// # Panics
    /// When it cannot be.
    #[must_use]
    pub fn new(target: &'a mut Target) -> Self {
        Self::with(target, Access::all(), Features::BATCHED_ACKS)
    }

    /// Connects one with those rights and features.
    ///
    /// # Panics
    /// When it cannot be.
    #[must_use]
    pub fn with(target: &'a mut Target, access: Access, features: Features) -> Self {
        let rank = fresh_rank();
        let channel = match target.via {
            Via::Tcp => ENDPOINT_TCP,
            Via::Shm => ENDPOINT_SHM,
            Via::Ucx => ENDPOINT_UCX,
            Via::Rdma => hmc_hw::verbs::ENDPOINT_VERBS,
        };
        let mut rogue = Rogue::join_open(rank, &target.address(), channel, features);
        if let Some(library) = target.library {
            rogue.connect_ucx(library);
            rogue.send_key();
        }
        let peer = target.session.accept(rank).within(LONG).wait().expect("its link opens");
        let exposed =
            peer.expose(target.area.range(WINDOW_AT, WINDOW).expect("in range"), access, 7);
        let exposed = exposed.expect("a window");
        let window = rogue.read_window();
        Self { target, rogue, peer, window, exposed, ops: Vec::new(), memory: Vec::new() }
    }

    /// Has the session take the window back.
    ///
    /// # Panics
    /// When that cannot be done.
    #[must_use]
    pub fn revoke(self) -> (&'a mut Target, Rogue) {
        self.exposed.revoke().within(LONG).wait().expect("nobody is in it");
        (self.target, self.rogue)
    }

    /// A frame of operation `seq` on `total` bytes at the window's begin, which brings none of them.
    #[must_use]
    pub fn request(&self, kind: DataKind, seq: u32, total: u64) -> DataFrame {
        let mut frame = DataFrame::new(kind, seq);
        (frame.window, frame.epoch, frame.total) = (self.window.window, self.window.epoch, total);
        frame
    }

    /// Sends a part of a put: `len` bytes for `offset` of the window.
    ///
    /// # Panics
    /// Never: the length is small.
    pub fn write(&mut self, seq: u32, (offset, len): (u64, u32), total: u64, flags: DataFlags) {
        let frame = self.request(DataKind::Write, seq, total);
        let frame = DataFrame { offset, len, flags, ..frame };
        self.send(&frame, &vec![LIE; usize::try_from(len).expect("small")]);
    }

    /// Sends a part of an answer: `len` bytes for `offset` of operation `seq`.
    ///
    /// # Panics
    /// Never: the length is small.
    pub fn answer(&mut self, seq: u32, (offset, len): (u64, u32), total: u64, flags: DataFlags) {
        let frame =
            DataFrame { offset, len, total, flags, ..DataFrame::new(DataKind::ReadData, seq) };
        self.send(&frame, &vec![LIE; usize::try_from(len).expect("small")]);
    }

    /// Sends a frame. That the session takes no more of them shows in the end.
    pub fn send(&mut self, frame: &DataFrame, payload: &[u8]) {
        match &mut self.rogue.am {
            Some(soft) => {
                let _ = soft.send(&frame.emit(), payload);
                soft.poll();
            }
            None => {
                let _ = self.rogue.send(frame, payload);
            }
        }
    }

    /// Sends a frame until the session has ended the connection: it may not have begun yet what the frame is about.
    ///
    /// # Panics
    /// When it does not.
    pub fn insist(&mut self, frame: &DataFrame, payload: &[u8]) {
        let begun = Instant::now();
        while !self.rogue.is_over() {
            self.send(frame, payload);
            assert!(begun.elapsed() < LONG, "the session takes all of it");
        }
    }

    /// Sends frames again and again, and reads nothing, until the session has ended the connection.
    ///
    /// # Panics
    /// When it does not.
    pub fn flood(&mut self, frames: &[DataFrame], payload: &[u8]) {
        let bytes: Vec<u8> =
            frames.iter().flat_map(|f| [&f.emit()[..], payload].concat()).collect();
        let begun = Instant::now();
        let mut sent = 0;
        while !self.rogue.is_over() {
            match pour(&mut self.rogue.data, &bytes, sent) {
                Some(n) if n == bytes.len() => sent = 0,
                Some(n) => sent = n,
                None => break,
            }
            assert!(begun.elapsed() < LONG, "the session takes all of it");
        }
        rustix::io::ioctl_fionbio(self.rogue.data.as_fd(), false).expect("a socket");
    }

    /// What the operations of such a flood are: more than a peer may have unanswered.
    #[must_use]
    pub fn many(frame: DataFrame) -> Vec<DataFrame> {
        (0..600).map(|seq| DataFrame { seq, ..frame }).collect()
    }

    /// The session begins a put of `len` bytes, which the rogue receives. Gives its first frame.
    ///
    /// # Panics
    /// When nothing comes.
    pub fn put(&mut self, len: u64) -> DataFrame {
        self.ops.push(self.peer.start_put_at(0, 0, len).expect("space"));
        self.rogue.read_data().0
    }

    /// The session begins a get of `len` bytes by messages, the first operation of its link. Gives its number.
    ///
    /// # Panics
    /// If no slot is free.
    pub fn get_by_message(&mut self, len: u64) -> u32 {
        self.ops.push(self.peer.start_get_at(0, 0, len).expect("space"));
        // The first use of the first record.
        0x100
    }

    /// The session begins a get of `len` bytes, of which the rogue is asked. Gives the request.
    ///
    /// # Panics
    /// When nothing comes.
    pub fn get(&mut self, len: u64) -> DataFrame {
        self.ops.push(self.peer.start_get_at(0, 0, len).expect("space"));
        self.rogue.read_data().0
    }

    /// The session does a put of `len` bytes, which the rogue acknowledges. Gives its number.
    ///
    /// # Panics
    /// When it fails.
    pub fn answered_put(&mut self, len: u64) -> u32 {
        let op = self.peer.start_put_at(0, 0, len).expect("space");
        let seq = self.rogue.read_data().0.seq;
        self.send(&DataFrame::ack(seq, 1), &[]);
        assert_eq!(moved(&op).expect("acknowledged"), len);
        seq
    }

    /// The session does a get of `len` bytes, which the rogue answers. Gives its number.
    ///
    /// # Panics
    /// When it fails.
    pub fn answered_get(&mut self, len: u32) -> u32 {
        let op = self.peer.start_get_at(0, 0, u64::from(len)).expect("space");
        let seq = self.rogue.read_data().0.seq;
        self.answer(seq, (0, len), u64::from(len), DataFlags::LAST);
        assert_eq!(moved(&op).expect("answered"), u64::from(len));
        seq
    }

    /// Keeps memory that the session may still copy into until the link is over.
    pub fn keep(&mut self, memory: Vec<u8>) {
        self.memory = memory;
    }

    /// The session begins a put that fills the socket, since the rogue does not read it. Gives the head of its first frame.
    ///
    /// # Panics
    /// When there is no memory for it.
    pub fn put_that_sticks(&mut self) -> DataFrame {
        self.inline();
        let session = &self.target.session;
        let from = session.memory().allocate(STUCK).and_then(|r| r.share()).expect("memory");
        let ends = Ends { local: from, remote: self.peer.buffer().expect("a window") };
        self.ops.push(ends.start_put_at(0, 0, STUCK).expect("space"));
        self.rogue.read_head()
    }

    /// An operation that the session cannot send, since a put before it sticks: its number.
    ///
    /// # Panics
    /// If no slot is free.
    pub fn queued(&mut self, get: bool) -> u32 {
        let stuck = self.put_that_sticks().seq;
        let begin = if get { Peer::start_get_at } else { Peer::start_put_at };
        self.ops.push(begin(&self.peer, 0, 0, 64).expect("space"));
        stuck.wrapping_add(1)
    }

    /// Makes the session send bytes in its frames where it would have the rogue copy them.
    ///
    /// # Panics
    /// When it does not.
    pub fn inline(&mut self) {
        if self.target.via != Via::Shm {
            return;
        }
        let op = self.peer.start_put_at(0, 0, 1).expect("space");
        let (mut frame, _) = self.rogue.read_data();
        if frame.kind == DataKind::WriteRef {
            self.send(&DataFrame::nack(frame.seq, Failure::Unsupported), &[]);
            frame = self.rogue.read_data().0;
        }
        assert_eq!(frame.kind, DataKind::Write);
        self.send(&DataFrame::ack(frame.seq, 1), &[]);
        assert_eq!(moved(&op).expect("acknowledged"), 1);
    }

    /// Bytes of what the rogue has sent have to be in the window, from `offset` on.
    ///
    /// # Panics
    /// When they are not in range.
    pub fn expect_in_window(&mut self, offset: u64, len: u64) {
        fill(&mut self.target.area_image, WINDOW_AT + offset, len);
    }

    /// Bytes of what the rogue has answered have to be in the session's buffer.
    ///
    /// # Panics
    /// When they are not in range.
    pub fn expect_in_buffer(&mut self, offset: u64, len: u64) {
        fill(&mut self.target.buffer_image, offset, len);
    }

    /// Sends a tag of a put which waits for space in the full inbox: the session stops reading the data connection.
    ///
    /// # Panics
    /// When it does not get that far.
    pub fn stop_reading(&mut self) {
        let tags = frame(&ControlMessage::Tag(1)).repeat(INBOX);
        self.rogue.control.write_all(&tags).expect("space");
        let rank = self.peer.rank();
        until("the inbox is full", LONG, || {
            let peers = self.target.session.stats().peers;
            peers.iter().any(|p| p.rank == rank && p.inbox == INBOX).then_some(())
        });
        self.write(1, (0, 0), 0, DataFlags::LAST | DataFlags::NOTIFY);
    }
}

/// What an operation moved, once it has ended.
///
/// # Panics
/// When it does not end in time.
pub(super) fn moved(op: &Op) -> hmc_std::Result<u64> {
    op.wait_for(LONG).ended().expect("it ends in time")
}

fn fill(image: &mut [u8], at: u64, len: u64) {
    let at = usize::try_from(at).expect("small");
    image[at..at + usize::try_from(len).expect("small")].fill(LIE);
}
