//! The receiving end of messages of `send_data`, by hand: it takes notes and data frames, and answers what a test says.

use std::fs::File;
use std::io::{Read as _, Write as _};

use hmc_core::range::Extent;
use hmc_core::region::{Epoch, WindowId, WindowSlice};
use hmc_core::rndv::{AbortReason, RecvTarget, RndvId, RndvMsg, RndvRole};
use hmc_core::types::Rank;
use hmc_core::wire::data::{DATA_FRAME_BYTES, DataFrame, DataKind};
use hmc_core::wire::message::ControlMessage;
use hmc_std::{Peer, Session};

use crate::env::TempDir;
use crate::listening::Listening as _;
use crate::raw_frames::{PATIENCE, frame, read_frame};
use crate::rogue::Rogue;

/// A session of rank 0, and a peer of it that receives messages by hand over TCP.
#[derive(Debug)]
pub struct Receiver {
    /// Both connections.
    pub rogue: Rogue,
    /// The sender, and the receiver as it sees it.
    pub peer: Peer,
}

/// Where a session of rank 0 listens whose messages are received by hand.
#[derive(Debug)]
pub struct Sender {
    /// The session.
    pub session: Session,
    dir: TempDir,
    next: u32,
}

impl Default for Sender {
    fn default() -> Self {
        Self::new()
    }
}

impl Sender {
    /// Starts it.
    ///
    /// # Panics
    /// When it cannot be.
    #[must_use]
    pub fn new() -> Self {
        let dir = TempDir::new();
        let session = Session::builder(0).uds(dir.path()).tcp("127.0.0.1:0").buffer(4096);
        Self { session: session.start().expect("a session"), dir, next: 0 }
    }

    /// A new peer, of a rank that none had before.
    ///
    /// # Panics
    /// When it does not get in.
    pub fn receiver(&mut self) -> Receiver {
        self.next += 1;
        let tcp = self.session.tcp_addr().expect("it listens");
        let rogue = Rogue::join_mute(self.next, &self.dir.address(), &tcp.into());
        let peer = self.session.accept(self.next).within(PATIENCE).wait().expect("it is connected");
        Receiver { rogue, peer }
    }

    /// The folder of its control socket.
    #[must_use]
    pub const fn dir(&self) -> &TempDir {
        &self.dir
    }
}

/// A window that was never announced to the sender; only its owner could announce it.
#[must_use]
pub fn area(offset: u64, len: u64) -> WindowSlice {
    let span = Extent::new(u64::MAX).span(hmc_core::range::Side::Remote, offset, len);
    let span = span.expect("it does not wrap");
    WindowSlice { window: WindowId::new(1, 0xAEA << 16), epoch: Epoch(1), span, expected: None }
}

impl Receiver {
    /// The rank of the peer.
    #[must_use]
    pub fn rank(&self) -> Rank {
        self.peer.rank()
    }

    /// The next note of the sender.
    ///
    /// # Panics
    /// When none comes.
    pub fn receive(&mut self) -> RndvMsg {
        receive_note(&mut self.rogue.control)
    }

    /// The message that is offered next: its number and its length.
    ///
    /// # Panics
    /// When another note comes.
    pub fn offer(&mut self) -> (RndvId, u64) {
        match self.receive() {
            RndvMsg::Offer { id, len } => (id, len),
            other => panic!("no offer: {other:?}"),
        }
    }

    /// Sends a note. A sender that has closed receives none.
    pub fn send(&mut self, note: RndvMsg) {
        send_note(&mut self.rogue.control, note);
    }

    /// Has a message of `len` bytes put straight.
    pub fn ready(&mut self, id: RndvId, len: u64) {
        self.send(RndvMsg::Ready { id, target: RecvTarget::direct(area(0, len)) });
    }

    /// Ends a message.
    pub fn end(&mut self, id: RndvId, how: Result<(), AbortReason>) {
        self.send(RndvMsg::End { id, from: RndvRole::Receiver, how });
    }

    /// Receives puts of `len` bytes in all, each of them acknowledged if `acknowledges`.
    ///
    /// # Panics
    /// When something else comes.
    pub fn take(&mut self, len: u64, acknowledges: bool) {
        take(&mut self.rogue.data, len, acknowledges, |_, _| ());
    }
}

/// The next note on a control connection, whatever else comes.
///
/// # Panics
/// When none comes.
pub fn receive_note(control: &mut File) -> RndvMsg {
    loop {
        let (header, payload) = read_frame(control).expect("a note");
        if let Ok(ControlMessage::Rndv(note)) = ControlMessage::parse(header, &payload) {
            return note;
        }
    }
}

/// Sends a note on a control connection; who has closed receives none.
pub fn send_note(control: &mut File, note: RndvMsg) {
    let _ = control.write_all(&frame(&ControlMessage::Rndv(note)));
}

/// Receives puts of `len` bytes in all on a data stream, and hands each frame to `each`.
///
/// # Panics
/// When something else comes.
pub fn take(
    data: &mut File,
    len: u64,
    acknowledges: bool,
    mut each: impl FnMut(&DataFrame, &[u8]),
) {
    let mut left = len;
    while left != 0 {
        let mut head = [0; DATA_FRAME_BYTES];
        data.read_exact(&mut head).expect("a frame");
        let frame = DataFrame::parse(&head).expect("a frame");
        assert_eq!(frame.kind, DataKind::Write, "no put: {frame:?}");
        let mut payload = vec![0; usize::try_from(frame.len).expect("small")];
        data.read_exact(&mut payload).expect("its bytes");
        each(&frame, &payload);
        left -= u64::from(frame.len);
        if acknowledges && frame.flags.contains(hmc_core::wire::data::DataFlags::LAST) {
            data.write_all(&DataFrame::ack(frame.seq, 1).emit()).expect("space");
        }
    }
}
