//! Frames that announce memory to be mapped.

use hmc_std::want::Wanted;
use std::fs::File;
use std::os::fd::AsFd as _;

use hmc_core::limits::MAX_WINDOWS_PER_PEER;
use hmc_core::region::{Epoch, WindowId};
use hmc_core::wire::data::{DATA_FRAME_BYTES, DataFlags, DataFrame, DataKind};
use hmc_mem::os::fd_passing::send_fd;
use hmc_mem::os::io::IoOutcome;
use hmc_mem::os::memfd::Mapping;
use rustix::net::sockopt;

use super::rig::{LIE, Rig, WINDOW};
use super::target::{INBOX, LONG};
use super::{BOTH, Case, LOCAL};

/// Windows that may wait to be mapped (`MAX_ARRIVALS` in `hmc-std/src/transport/stream/receive.rs`).
const ARRIVALS: u64 = 128;
/// What a session receives at a time over a local socket (`LOCAL_BUF_BYTES` there). Each message brings as many, so that the
/// session goes on receiving after each.
const RECEIVED: usize = 4096;

/// Announces a window of that name.
fn region(window: WindowId) -> DataFrame {
    let mut frame = DataFrame::new(DataKind::Region, 0);
    (frame.window, frame.epoch) = (window, Epoch(1));
    (frame.total, frame.addr, frame.tag) = (4096, 4096, 3);
    frame
}

fn last_place() -> u64 {
    u64::try_from(MAX_WINDOWS_PER_PEER).expect("small")
}

fn announce(rig: &mut Rig<'_>, window: u64) {
    let memory = Mapping::create(4096).expect("memory");
    rig.rogue.pass(&region(WindowId(window)), memory.fd().expect("a descriptor"));
}

/// More windows than may wait to be mapped, all of which the session receives at once.
fn announce_many(rig: &mut Rig<'_>) {
    rig.stop_reading();
    sockopt::set_socket_send_buffer_size(&rig.rogue.data, 1 << 20).expect("a socket");
    rustix::io::ioctl_fionbio(rig.rogue.data.as_fd(), true).expect("a socket");
    let null = File::open("/dev/null").expect("a file");
    let len = RECEIVED - 2 * DATA_FRAME_BYTES;
    let put = DataFrame {
        offset: WINDOW,
        len: u32::try_from(len).expect("small"),
        flags: DataFlags::LAST,
        ..rig.request(DataKind::Write, 2, u64::try_from(len).expect("small"))
    };
    // A frame with its descriptor, and a put that is refused.
    for n in 0..=ARRIVALS {
        let head = [region(WindowId(n)).emit(), put.emit()].concat();
        let message = [&head[..], &vec![LIE; len]].concat();
        let sent = send_fd(&rig.rogue.data, &null, &message).expect("a local socket");
        assert!(matches!(sent, IoOutcome::Bytes(RECEIVED)), "a local socket takes {n} messages");
    }
    rustix::io::ioctl_fionbio(rig.rogue.data.as_fd(), false).expect("a socket");
    // The first received message frees space for the tag of the put. The link closes when all are received.
    for _ in 0..=INBOX {
        rig.peer.recv(Wanted::Any).within(LONG).wait().expect("a message");
    }
}

/// Each of them.
pub const CASES: &[Case] = &[
    Case {
        what: "a window to be mapped without its memory",
        check: "a region frame without a descriptor",
        over: BOTH,
        send: |rig| rig.send(&region(WindowId(1)), &[]),
    },
    Case {
        what: "two windows with the memory of one",
        check: "a region frame without a descriptor",
        over: LOCAL,
        send: |rig| {
            announce(rig, 1);
            rig.send(&region(WindowId(2)), &[]);
        },
    },
    Case {
        what: "windows without end",
        check: "too many regions at once",
        over: LOCAL,
        send: announce_many,
    },
    Case {
        what: "a window at the first place that there is not",
        check: "a window beyond the last place",
        over: LOCAL,
        send: |rig| announce(rig, last_place()),
    },
    Case {
        what: "a window at the highest place but those of the pages",
        check: "a window beyond the last place",
        over: LOCAL,
        send: |rig| announce(rig, u64::MAX - 2),
    },
];
