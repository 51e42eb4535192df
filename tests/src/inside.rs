//! A peer over shared memory made of raw sockets: it has the words and the pages of the other end's windows in its own hands,
//! and may stay inside a window for as long as it likes.

use std::os::fd::OwnedFd;

use hmc_core::region::{WindowDesc, WindowId};
use hmc_core::types::Access;
use hmc_core::wire::advert::WindowRole;
use hmc_core::wire::data::{DATA_FRAME_BYTES, DataFrame, DataKind};
use hmc_core::wire::message::ControlMessage;
use hmc_mem::gate::{GateError, MAX_EPOCH, WindowGate};
use hmc_mem::os::fd_passing::{recv_with_fd, send_fd};
use hmc_mem::os::io::IoOutcome;
use hmc_mem::os::memfd::Mapping;
use hmc_mem::os::words::PeerWords;
use hmc_std::Address;

use crate::env::until;
use crate::raw_frames::{PATIENCE, read_frame};
use crate::rogue::Rogue;

/// Bytes of the page of window words, and the name under which it travels (`hmc-std/src/transport/shm/mod.rs`).
const PAGE_BYTES: u64 = 4096;
const PAGE_ID: WindowId = WindowId(u64::MAX);

/// The pages of a window, as they were passed.
#[derive(Debug)]
pub struct Passed {
    /// What was said of them: `offset` is where the window begins in `total` bytes.
    pub frame: DataFrame,
    /// Their memfd.
    pub fd: OwnedFd,
}

/// The peer.
#[derive(Debug)]
pub struct Inside {
    /// Its connections.
    pub rogue: Rogue,
    words: PeerWords,
    passed: Vec<Passed>,
}

impl Inside {
    /// Joins rank 0, which listens in a folder, as `rank`. Its link is open soon after.
    ///
    /// # Panics
    /// When it is not let in.
    #[must_use]
    pub fn join(rank: u32, address: &Address) -> Self {
        let rogue = Rogue::join_mute(rank, address, address);
        // A page of its own: without it the link does not open.
        let page = Mapping::builder().huge(false).create(PAGE_BYTES).expect("memory");
        let mut frame = DataFrame::new(DataKind::Region, 0);
        (frame.window, frame.total) = (PAGE_ID, PAGE_BYTES);
        let sent = send_fd(&rogue.data, page.fd().expect("a memfd"), &frame.emit());
        assert_eq!(sent, Ok(IoOutcome::Bytes(DATA_FRAME_BYTES)), "a page of words");
        let mut passed = Vec::new();
        let page = until("its page of words comes", PATIENCE, || {
            receive(&rogue, &mut passed);
            let at = passed.iter().position(|p: &Passed| p.frame.window == PAGE_ID)?;
            Some(passed.remove(at))
        });
        let page = Mapping::map_peer(page.fd, PAGE_BYTES, 0, Access::all()).expect("a page");
        Self { rogue, words: PeerWords::new(page).expect("words"), passed }
    }

    /// The next window of that label, when rank 0 has told it.
    ///
    /// # Panics
    /// When it does not.
    pub fn find(&mut self, label: u64) -> WindowDesc {
        loop {
            let (header, payload) = read_frame(&mut self.rogue.control).expect("a window");
            match ControlMessage::parse(header, &payload) {
                Ok(ControlMessage::Advert(a)) if a.role == WindowRole::Named(label) => {
                    return a.region;
                }
                _ => {}
            }
        }
    }

    /// The pages of a window, if they were passed until now.
    pub fn pages(&mut self, window: &WindowDesc) -> Option<Passed> {
        receive(&self.rogue, &mut self.passed);
        let is_it = |p: &Passed| (p.frame.window, p.frame.epoch) == (window.window, window.epoch);
        let at = self.passed.iter().position(is_it)?;
        Some(self.passed.remove(at))
    }

    /// Goes into a window.
    ///
    /// # Errors
    /// It is closed, or open under another epoch.
    pub fn enter(&self, window: &WindowDesc) -> Result<(), GateError> {
        self.word(window).enter(window.epoch.0 & MAX_EPOCH)
    }

    /// Goes out of it again.
    pub fn leave(&self, window: &WindowDesc) {
        self.word(window).exit();
    }

    fn word(&self, window: &WindowDesc) -> WindowGate<'_> {
        WindowGate::new(self.words.get(window.window.index()).expect("a place of the table"))
    }
}

/// Takes what has come on the data stream: nothing but descriptors comes to a peer that asks for nothing.
fn receive(rogue: &Rogue, passed: &mut Vec<Passed>) {
    let mut bytes = [0; DATA_FRAME_BYTES];
    loop {
        match recv_with_fd(&rogue.data, &mut bytes) {
            // unix(7) passes a frame with a descriptor whole.
            Ok((IoOutcome::Bytes(DATA_FRAME_BYTES), Some(Ok(fd)))) => {
                let frame = DataFrame::parse(&bytes).expect("a frame");
                assert_eq!(frame.kind, DataKind::Region, "{frame:?}");
                passed.push(Passed { frame, fd });
            }
            Ok((IoOutcome::WouldBlock | IoOutcome::Closed, _)) => return,
            other => panic!("not a descriptor: {other:?}"),
        }
    }
}
