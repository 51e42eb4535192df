//! A native peer made of raw sockets: it gets in by the book, and then does what it likes.

use std::fs::File;
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use hmc_core::range::Extent;
use hmc_core::region::{Epoch, WindowDesc, WindowId};
use hmc_core::time::Duration;
use hmc_core::types::{Access, MemoryKind, Rank};
use hmc_core::wire::advert::{
    ENDPOINT_SHM, ENDPOINT_TCP, ENDPOINT_UCX, EndpointBlob, EndpointDesc, RegionAdvert, UcxKey,
    WindowBacking, WindowRole,
};
use hmc_core::wire::cxx::hello_v1;
use hmc_core::wire::data::{DATA_FRAME_BYTES, DataFrame, DataKind};
use hmc_core::wire::hello::{Features, Hello, LinkToken};
use hmc_core::wire::message::ControlMessage;
use hmc_core::wire::reject::RejectReason;
use hmc_hw::ucx::library::Library;
use hmc_hw::ucx::settings::Settings;
use hmc_hw::ucx::testing::RawEndpoint;
use hmc_mem::os::fd_passing::send_fd;
use hmc_mem::os::io::IoOutcome;
use hmc_mem::os::memfd::Mapping;
use hmc_std::Address;
use rustix::event::{PollFd, PollFlags};
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{AddressFamily, SocketType};

use crate::raw_frames::{PATIENCE, frame, hello, hello_with, read_frame};

/// A peer of rank 0 with both connections of its link.
#[derive(Debug)]
pub struct Rogue {
    /// The control connection.
    pub control: File,
    /// The data stream.
    pub data: File,
    /// The window that rank 0 announced.
    pub window: WindowDesc,
    /// Connection info of rank 0's UCX worker; empty over other transports.
    pub info: Vec<u8>,
    /// Its workers, after they connected to rank 0's.
    pub am: Option<AmSender>,
}

/// A peer's UCX end that sends messages, and reads nothing: replies go to another worker, which makes no progress after the
/// wireup.
#[derive(Debug)]
pub struct AmSender {
    from: RawEndpoint,
    deaf: RawEndpoint,
    target_id: u64,
}

/// The number of a wireup message at its sender: the reply to it shows that the path is open (`WIREUP` in
/// `hmc-hw/src/ucx/peer/am_sending.rs`).
const WIREUP_SEQ: u32 = u32::MAX;
/// Bytes of the window that a rogue announces, and of one that holds more than any socket buffer.
const OWN_BYTES: u64 = 4096;
const WIDE_BYTES: u64 = 64 << 20;
/// Bytes of a page of window words.
const PAGE_BYTES: u64 = 4096;

impl AmSender {
    /// Sends a data frame with what follows it. `None`: it cannot.
    #[must_use]
    pub fn send(&mut self, frame: &[u8], data: &[u8]) -> Option<()> {
        let header = [&self.target_id.to_le_bytes()[..], frame].concat();
        self.from.calls().ok()?.message(&header, data).ok()
    }

    /// Waits until both paths are open. UCX up to 1.13 ends the process at the other end if a peer closes before that ("got REP
    /// message", docs/UCX.md).
    ///
    /// # Panics
    /// When they do not open.
    pub fn wait_open(&mut self) {
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
    pub fn poll(&mut self) {
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
        Address::Tcp(at) | Address::UnauthenticatedTcp(at) => {
            let fd = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None);
            let fd = fd.expect("a socket");
            // A small receive buffer: it never reads.
            sockopt::set_socket_recv_buffer_size(&fd, 4096).expect("a socket");
            rustix::net::connect(&fd, at).expect("a listener");
            fd
        }
        Address::Uds(dir) | Address::Local { dir, .. } => {
            UnixStream::connect(dir.join("hmc_ctrl_rank_0.sock")).expect("a listener").into()
        }
    };
    for way in [Timeout::Recv, Timeout::Send] {
        sockopt::set_socket_timeout(&fd, way, Some(PATIENCE)).expect("a socket");
    }
    fd.into()
}

/// What a data stream over that kind of socket is for.
const fn channel_of(data: &Address) -> u8 {
    if matches!(data, Address::Tcp(_)) { ENDPOINT_TCP } else { ENDPOINT_SHM }
}

/// Sends HELLO to rank 0: the control connection, and the token of its link.
///
/// # Panics
/// When there is no welcome.
#[must_use]
pub fn handshake(to: &Address, hello: &[u8]) -> (File, LinkToken) {
    let mut control = connect(to);
    control.write_all(hello).expect("space");
    let (header, payload) = read_frame(&mut control).expect("an answer");
    match ControlMessage::parse(header, &payload) {
        Ok(ControlMessage::Welcome(welcome)) => (control, welcome.token),
        other => panic!("no welcome: {other:?}"),
    }
}

/// Shows rank 0 a token on a connection of its own, for a transport of that number.
///
/// # Errors
/// The refusal.
///
/// # Panics
/// When the answer is none.
pub fn attach(
    to: &Address,
    rank: u32,
    token: LinkToken,
    channel: u8,
) -> Result<File, RejectReason> {
    let mut data = connect(to);
    let attach = ControlMessage::Attach { rank: Rank(rank), token, channel };
    data.write_all(&frame(&attach)).expect("space");
    let (header, payload) = read_frame(&mut data).expect("an answer");
    match ControlMessage::parse(header, &payload) {
        Ok(ControlMessage::AttachAck) => Ok(data),
        Ok(ControlMessage::Reject(why)) => Err(why),
        other => panic!("neither taken nor refused: {other:?}"),
    }
}

/// The window that a rogue says it has which [`Rogue::join_open`] makes. There is no memory behind it.
#[must_use]
pub const fn wide_window() -> WindowDesc {
    own_window(WIDE_BYTES)
}

const fn own_window(bytes: u64) -> WindowDesc {
    WindowDesc {
        window: WindowId::new(0, 0x5EED << 16),
        epoch: Epoch(1),
        extent: Extent::new(bytes),
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
        Self::join_by(rank, &hello(rank, 0, 0), [control, data], channel, OWN_BYTES)
    }

    /// As [`Rogue::join`], and wants no heartbeats.
    ///
    /// # Panics
    /// When it is not let in.
    #[must_use]
    pub fn join_mute(rank: u32, control: &Address, data: &Address) -> Self {
        let hello = hello_with(rank, 0, 0, |h| Hello { heartbeat: Duration::ZERO, ..h });
        Self::join_by(rank, &hello, [control, data], channel_of(data), OWN_BYTES)
    }

    /// Joins rank 0 as `rank` with both connections at `at`, so that the link opens: beside shared memory it shows a page of
    /// window words. It wants no heartbeats, and knows those `features`.
    ///
    /// # Panics
    /// When it is not let in.
    #[must_use]
    pub fn join_open(rank: u32, at: &Address, channel: u8, features: Features) -> Self {
        let hello = hello_with(rank, 0, 0, |h| Hello { heartbeat: Duration::ZERO, features, ..h });
        let this = Self::join_by(rank, &hello, [at, at], channel, WIDE_BYTES);
        if channel == ENDPOINT_SHM {
            let page = Mapping::builder().huge(false).create(PAGE_BYTES).expect("a page");
            let mut frame = DataFrame::new(DataKind::Region, 0);
            (frame.window, frame.total) = (WindowId(u64::MAX), PAGE_BYTES);
            this.pass(&frame, page.fd().expect("a descriptor"));
        }
        this
    }

    /// Sends a data frame with a descriptor beside it.
    ///
    /// # Panics
    /// If the socket does not accept it.
    pub fn pass(&self, frame: &DataFrame, fd: impl AsFd) {
        let frame = frame.emit();
        let sent = send_fd(&self.data, fd, &frame).expect("a local socket");
        assert!(matches!(sent, IoOutcome::Bytes(n) if n == frame.len()), "{sent:?}");
    }

    /// Sends a data frame with what follows it. `false`: the other end takes no more.
    pub fn send(&mut self, frame: &DataFrame, payload: &[u8]) -> bool {
        self.send_bytes(&[&frame.emit()[..], payload].concat())
    }

    /// Sends bytes on the data stream. `false`: the other end takes no more.
    pub fn send_bytes(&mut self, bytes: &[u8]) -> bool {
        self.data.write_all(bytes).is_ok()
    }

    /// The head of the next data frame of rank 0. Those that pass descriptors are passed over.
    ///
    /// # Panics
    /// When none comes.
    pub fn read_head(&mut self) -> DataFrame {
        loop {
            let mut head = [0; DATA_FRAME_BYTES];
            self.data.read_exact(&mut head).expect("a frame");
            let frame = DataFrame::parse(&head).expect("a frame of a session");
            if frame.kind != DataKind::Region {
                return frame;
            }
        }
    }

    /// The next data frame of rank 0 with what follows it.
    ///
    /// # Panics
    /// As [`Rogue::read_head`].
    pub fn read_data(&mut self) -> (DataFrame, Vec<u8>) {
        let frame = self.read_head();
        let mut payload = vec![0; usize::try_from(frame.len).expect("small")];
        self.data.read_exact(&mut payload).expect("the rest of a frame");
        (frame, payload)
    }

    /// The next window that rank 0 tells it.
    ///
    /// # Panics
    /// When it tells none.
    pub fn read_window(&mut self) -> WindowDesc {
        loop {
            let (header, payload) = read_frame(&mut self.control).expect("a window");
            if let Ok(ControlMessage::Advert(advert)) = ControlMessage::parse(header, &payload) {
                return advert.region;
            }
        }
    }

    fn join_by(rank: u32, hello: &[u8], listeners: [&Address; 2], channel: u8, bytes: u64) -> Self {
        let (mut control, token) = handshake(listeners[0], hello);
        let data = attach(listeners[1], rank, token, channel).expect("attached");
        let mut info = Vec::new();
        let window = loop {
            let (header, payload) = read_frame(&mut control).expect("its window");
            match ControlMessage::parse(header, &payload) {
                Ok(ControlMessage::Advert(advert)) => break advert.region,
                Ok(ControlMessage::Endpoint(blob)) if blob.kind == ENDPOINT_UCX => {
                    info = blob.bytes.to_vec();
                }
                _ => {}
            }
        };
        // Its own: without it the link does not open, and ends in 5 s.
        let advert = RegionAdvert {
            region: own_window(bytes),
            backing: WindowBacking::Process,
            role: WindowRole::Default,
        };
        control.write_all(&frame(&ControlMessage::Advert(advert))).expect("space");
        Self { control, data, window, info, am: None }
    }

    /// Joins rank 0 as `rank` in the dialect of the C++ HMC, which has no data stream and no windows.
    ///
    /// # Panics
    /// When it cannot.
    #[must_use]
    pub fn join_upstream(rank: u32, control: &Address) -> Self {
        let mut control = connect(control);
        control.write_all(&hello_v1(Rank(rank))).expect("space");
        let data = control.try_clone().expect("a descriptor");
        Self { control, data, window: own_window(OWN_BYTES), info: Vec::new(), am: None }
    }

    /// Goes to rank 0's worker by messages over TCP lanes of UCX.
    ///
    /// # Panics
    /// When it cannot.
    pub fn connect_ucx(&mut self, library: &'static Library) {
        let keys = vec![("TLS".to_owned(), "tcp".to_owned())];
        let settings = Settings { keys, ..Settings::default() };
        let raw = || {
            let mut raw = RawEndpoint::new(library, &settings, 4096).expect("a worker");
            raw.connect(&self.info).expect("connection info");
            raw
        };
        let (from, deaf) = (raw(), raw());
        let info = deaf.conn_info().expect("connection info");
        let blob = EndpointBlob { kind: ENDPOINT_UCX, bytes: &info };
        self.control.write_all(&frame(&ControlMessage::Endpoint(blob))).expect("space");
        // Two lengths, then the number (`Worker::conn_info`).
        let target_id = u64::from_le_bytes(self.info[4..12].try_into().expect("8 bytes"));
        let mut am = AmSender { from, deaf, target_id };
        am.send(&DataFrame::new(DataKind::Write, 0).emit(), &[]).expect("a way");
        am.send(&DataFrame::ack(WIREUP_SEQ, 1).emit(), &[]).expect("a way");
        self.am = Some(am);
    }

    /// Sends rank 0 a key to its window, which has none of the memory that the key is for.
    ///
    /// # Panics
    /// When it is not at rank 0's worker.
    pub fn send_key(&mut self) {
        let info =
            self.am.as_ref().expect("it is there").deaf.conn_info().expect("connection info");
        // The key is the end of it; its length and the address that it is for stand at the begin.
        let key_bytes = usize::from(u16::from_le_bytes([info[2], info[3]]));
        let base = u64::from_le_bytes(info[12..20].try_into().expect("8 bytes"));
        let mut storage = [0; 4096];
        let key = &info[info.len() - key_bytes..];
        let key = UcxKey::compose(&wide_window(), base, key, &mut storage);
        let blob = EndpointDesc::UcxKey(key.expect("space"));
        self.control.write_all(&frame(&ControlMessage::Endpoint(blob.blob()))).expect("space");
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

/// Sends as much of `bytes` from `sent` on as the socket accepts, without a long wait. `None`: the other end closed.
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
