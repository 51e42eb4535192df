//! A native peer made of raw sockets: it gets in by the book, and then does what it likes.

use std::fs::File;
use std::io::{ErrorKind, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;

use hmc_core::kinds::{Access, MemoryKind, Rank};
use hmc_core::region::{Epoch, RemoteRegion, WindowId};
use hmc_core::span::Extent;
use hmc_core::time::Duration;
use hmc_core::wire::advert::{
    Backing, ENDPOINT_SHM, ENDPOINT_TCP, ENDPOINT_UCX, EndpointBlob, RegionAdvert, Role,
};
use hmc_core::wire::data::{DataFrame, DataKind};
use hmc_core::wire::hello::Hello;
use hmc_core::wire::message::Message;
use hmc_core::wire::upstream::hello_v1;
use hmc_hw::ucx::bare::Bare;
use hmc_hw::ucx::library::Library;
use hmc_hw::ucx::settings::Settings;
use hmc_std::Address;
use rustix::event::{PollFd, PollFlags};
use rustix::net::{AddressFamily, SocketType, sockopt};

use crate::raw::{frame, hello, hello_with, read_frame};

/// A peer of rank 0 with both connections of its link.
#[derive(Debug)]
pub struct Rogue {
    /// The control connection.
    pub control: File,
    /// The data stream.
    pub data: File,
    /// The window that rank 0 told it.
    pub window: RemoteRegion,
    /// How rank 0's worker of UCX is reached; empty over other transports.
    pub card: Vec<u8>,
    /// Its workers, once it has gone there.
    pub soft: Option<Soft>,
}

/// A peer's end of UCX that sends messages, and reads nothing: what it is answered goes to another worker, which makes no
/// progress once both ends know each other.
#[derive(Debug)]
pub struct Soft {
    from: Bare,
    deaf: Bare,
    door: u64,
}

/// The number of a greeting at its sender: the answer to it says that the way is open (`GREETING` in
/// `hmc-hw/src/ucx/transport/trips.rs`).
const GREETING: u32 = u32::MAX;

impl Soft {
    /// Sends a data frame with what follows it. `None`: it cannot.
    #[must_use]
    pub fn say(&mut self, frame: &[u8], data: &[u8]) -> Option<()> {
        let header = [&self.door.to_le_bytes()[..], frame].concat();
        self.from.calls().ok()?.message(&header, data).ok()
    }

    /// Waits until both ways are open. UCX up to 1.13 ends the process at the other end if a peer goes before that ("got REP
    /// message", docs/UCX.md).
    ///
    /// # Panics
    /// When they do not open.
    pub fn settle(&mut self) {
        for end in [&self.from, &self.deaf] {
            let calls = end.calls().expect("connected");
            let flush = calls.flush().expect("a way");
            calls.wait(flush).expect("the way is open");
        }
    }

    /// Both workers take a step.
    ///
    /// # Panics
    /// When they are not connected.
    pub fn turn(&mut self) {
        self.from.calls().expect("connected").progress();
        self.deaf.calls().expect("connected").progress();
    }
}

/// A connection to a listener: of rank 0, in a folder.
///
/// # Panics
/// When there is none.
#[must_use]
pub fn connect(to: &Address) -> File {
    let fd: OwnedFd = match to {
        Address::Tcp(at) => {
            let fd = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None);
            let fd = fd.expect("a socket");
            // Little room for what it never reads.
            sockopt::set_socket_recv_buffer_size(&fd, 4096).expect("a socket");
            rustix::net::connect(&fd, at).expect("a listener");
            fd
        }
        Address::Uds(dir) | Address::Local { dir, .. } => {
            UnixStream::connect(dir.join("hmc_ctrl_rank_0.sock")).expect("a listener").into()
        }
    };
    fd.into()
}

/// What a data stream over that kind of socket is for.
const fn channel_of(data: &Address) -> u8 {
    if matches!(data, Address::Tcp(_)) { ENDPOINT_TCP } else { ENDPOINT_SHM }
}

const fn own_window() -> RemoteRegion {
    RemoteRegion {
        window: WindowId::new(0, 0x5EED << 16),
        epoch: Epoch(1),
        extent: Extent::new(4096),
        access: Access::all(),
        kind: MemoryKind::Cpu,
    }
}

impl Rogue {
    /// Joins rank 0 as `rank`: its control connection there, its data stream over the same kind of socket.
    ///
    /// # Panics
    /// When it is not let in.
    #[must_use]
    pub fn join(rank: u32, control: &Address, data: &Address) -> Self {
        Self::join_as(rank, control, data, channel_of(data))
    }

    /// The same for a transport of that number.
    ///
    /// # Panics
    /// When it is not let in.
    #[must_use]
    pub fn join_as(rank: u32, control: &Address, data: &Address, channel: u8) -> Self {
        Self::join_by(rank, &hello(rank, 0, 0), [control, data], channel)
    }

    /// As [`Rogue::join`], and wants no heartbeats.
    ///
    /// # Panics
    /// When it is not let in.
    #[must_use]
    pub fn join_mute(rank: u32, control: &Address, data: &Address) -> Self {
        let hello = hello_with(rank, 0, 0, |h| Hello { heartbeat: Duration::ZERO, ..h });
        Self::join_by(rank, &hello, [control, data], channel_of(data))
    }

    fn join_by(rank: u32, hello: &[u8], doors: [&Address; 2], channel: u8) -> Self {
        let [mut control, mut data] = doors.map(connect);
        control.write_all(hello).expect("room");
        let (header, payload) = read_frame(&mut control).expect("an answer");
        let Ok(Message::Welcome(welcome)) = Message::parse(header, &payload) else {
            panic!("no welcome: {payload:02x?}");
        };
        let attach = Message::Attach { rank: Rank(rank), token: welcome.token, channel };
        data.write_all(&frame(&attach)).expect("room");
        let (header, payload) = read_frame(&mut data).expect("an answer");
        let attached = Message::parse(header, &payload);
        assert!(matches!(attached, Ok(Message::AttachAck)), "{attached:?}");
        let mut card = Vec::new();
        let window = loop {
            let (header, payload) = read_frame(&mut control).expect("its window");
            match Message::parse(header, &payload) {
                Ok(Message::Advert(advert)) => break advert.region,
                Ok(Message::Endpoint(blob)) if blob.kind == ENDPOINT_UCX => {
                    card = blob.bytes.to_vec();
                }
                _ => {}
            }
        };
        // Its own: without it the link does not open, and ends in 5 s.
        let advert =
            RegionAdvert { region: own_window(), backing: Backing::Process, role: Role::Default };
        control.write_all(&frame(&Message::Advert(advert))).expect("room");
        Self { control, data, window, card, soft: None }
    }

    /// Joins rank 0 as `rank` in the dialect of the C++ HMC, which has no data stream and no windows.
    ///
    /// # Panics
    /// When it cannot.
    #[must_use]
    pub fn join_upstream(rank: u32, control: &Address) -> Self {
        let mut control = connect(control);
        control.write_all(&hello_v1(Rank(rank))).expect("room");
        let data = control.try_clone().expect("a descriptor");
        Self { control, data, window: own_window(), card: Vec::new(), soft: None }
    }

    /// Goes to rank 0's worker by messages over TCP lanes of UCX.
    ///
    /// # Panics
    /// When it cannot.
    pub fn meet(&mut self, library: &'static Library) {
        let keys = vec![("TLS".to_owned(), "tcp".to_owned())];
        let settings = Settings { keys, ..Settings::default() };
        let bare = || {
            let mut bare = Bare::new(library, &settings, 4096).expect("a worker");
            bare.connect(&self.card).expect("a card");
            bare
        };
        let (from, deaf) = (bare(), bare());
        let card = deaf.card().expect("a card");
        let blob = EndpointBlob { kind: ENDPOINT_UCX, bytes: &card };
        self.control.write_all(&frame(&Message::Endpoint(blob))).expect("room");
        // Two lengths, then the number (`Worker::card`).
        let door = u64::from_le_bytes(self.card[4..12].try_into().expect("8 bytes"));
        let mut soft = Soft { from, deaf, door };
        soft.say(&DataFrame::new(DataKind::Write, 0).emit(), &[]).expect("a way");
        soft.say(&DataFrame::ack(GREETING, 1).emit(), &[]).expect("a way");
        self.soft = Some(soft);
    }

    /// Whether the other end has hung up.
    #[must_use]
    pub fn is_over(&self) -> bool {
        let now = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut fds = [PollFd::new(&self.control, PollFlags::RDHUP)];
        rustix::event::poll(&mut fds, Some(&now)).is_ok_and(|n| n > 0)
    }
}

/// Whether `to` can take bytes, waiting for a moment.
fn can_write(to: &File) -> bool {
    let soon = rustix::time::Timespec { tv_sec: 0, tv_nsec: 5_000_000 };
    let mut fds = [PollFd::new(to, PollFlags::OUT)];
    rustix::event::poll(&mut fds, Some(&soon)).is_ok_and(|n| n > 0)
}

/// Sends as much of `bytes` from `sent` on as there is room for, without waiting long. `None`: the other end hung up.
///
/// # Panics
/// When the socket cannot be used.
pub fn pour(to: &mut File, bytes: &[u8], mut sent: usize) -> Option<usize> {
    rustix::io::ioctl_fionbio(to.as_fd(), true).expect("a socket");
    while sent < bytes.len() {
        match to.write(&bytes[sent..]) {
            Ok(n) => sent += n,
            Err(e) if e.kind() == ErrorKind::WouldBlock => {
                if !can_write(to) {
                    break;
                }
            }
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(_) => return None,
        }
    }
    Some(sent)
}
