//! A native peer made of raw sockets: it gets in by the book, and then does what it likes.

use std::fs::File;
use std::io::{ErrorKind, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;

use hmc_core::kinds::Rank;
use hmc_core::region::RemoteRegion;
use hmc_core::wire::advert::{ENDPOINT_SHM, ENDPOINT_TCP};
use hmc_core::wire::message::Message;
use hmc_std::Address;
use rustix::event::{PollFd, PollFlags};
use rustix::net::{AddressFamily, SocketType, sockopt};

use crate::raw::{frame, hello, read_frame};

/// A peer of rank 0 with both connections of its link.
#[derive(Debug)]
pub struct Rogue {
    /// The control connection.
    pub control: File,
    /// The data stream.
    pub data: File,
    /// The window that rank 0 told it.
    pub window: RemoteRegion,
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

impl Rogue {
    /// Joins rank 0 as `rank`: its control connection there, its data stream over the same kind of socket.
    ///
    /// # Panics
    /// When it is not let in.
    #[must_use]
    pub fn join(rank: u32, control: &Address, data: &Address) -> Self {
        let channel = if matches!(data, Address::Tcp(_)) { ENDPOINT_TCP } else { ENDPOINT_SHM };
        let (mut control, mut data) = (connect(control), connect(data));
        control.write_all(&hello(rank, 0, 0)).expect("room");
        let (header, payload) = read_frame(&mut control).expect("an answer");
        let Ok(Message::Welcome(welcome)) = Message::parse(header, &payload) else {
            panic!("no welcome: {payload:02x?}");
        };
        let attach = Message::Attach { rank: Rank(rank), token: welcome.token, channel };
        data.write_all(&frame(&attach)).expect("room");
        let (header, payload) = read_frame(&mut data).expect("an answer");
        let attached = Message::parse(header, &payload);
        assert!(matches!(attached, Ok(Message::AttachAck)), "{attached:?}");
        let window = loop {
            let (header, payload) = read_frame(&mut control).expect("its window");
            if let Ok(Message::Advert(advert)) = Message::parse(header, &payload) {
                break advert.region;
            }
        };
        Self { control, data, window }
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
