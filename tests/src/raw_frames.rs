//! Frames by hand, for peers that do not behave.

use std::io::{ErrorKind, Read, Write};
use std::time::Duration;

use hmc_core::limits::MAX_FRAME_BYTES;
use hmc_core::types::{Incarnation, Rank};
use hmc_core::wire::cursor::Writer;
use hmc_core::wire::header::Header;
use hmc_core::wire::hello::{Asked, Endpoints, Features, Hello, HostId};
use hmc_core::wire::message::ControlMessage;
use hmc_core::wire::reject::RejectReason;

/// How long a raw peer waits for bytes.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// Returns the native HELLO of `rank` for `expected`, as a whole frame.
///
/// # Panics
/// Never: the buffer is as long as the frame.
#[must_use]
pub fn hello(rank: u32, job: u64, expected: u32) -> Vec<u8> {
    hello_with(rank, job, expected, |h| h)
}

/// The same with other fields.
///
/// # Panics
/// Never: the buffer is as long as the frame.
#[must_use]
pub fn hello_with<'a>(
    rank: u32,
    job: u64,
    expected: u32,
    other: impl FnOnce(Hello<'a>) -> Hello<'a>,
) -> Vec<u8> {
    frame(&ControlMessage::Hello(other(hello_of(rank, job, expected))))
}

/// The same as fields.
#[must_use]
pub const fn hello_of(rank: u32, job: u64, expected: u32) -> Hello<'static> {
    Hello {
        features: Features::BATCHED_ACKS,
        job,
        rank: Rank(rank),
        incarnation: Incarnation(1),
        nonce: [7; 16],
        expected: Some(Rank(expected)),
        host: HostId([3; 16]),
        heartbeat: hmc_core::time::Duration::from_millis(500),
        slots: 16,
        asked: &Asked::ANY,
        proves: false,
        endpoints: Endpoints::EMPTY,
    }
}

/// A message as bytes.
///
/// # Panics
/// Never: the buffer has the length that the message reports.
#[must_use]
pub fn frame(m: &ControlMessage<'_>) -> Vec<u8> {
    let mut bytes = vec![0; m.emitted_len()];
    m.emit(&mut Writer::new(&mut bytes)).expect("space");
    bytes
}

/// Reads one frame: its header and its payload. `None` at the end of the stream.
///
/// # Panics
/// When the other end sends what is no frame, or nothing for [`PATIENCE`].
pub fn read_frame(from: &mut impl Read) -> Option<(Header, Vec<u8>)> {
    let mut head = [0; 8];
    match from.read_exact(&mut head) {
        Ok(()) => {}
        Err(e) if matches!(e.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset) => {
            return None;
        }
        Err(e) => panic!("no frame came: {e}"),
    }
    let header = Header::parse(&head, MAX_FRAME_BYTES).expect("a frame");
    let mut payload = vec![0; usize::try_from(header.len()).expect("small")];
    from.read_exact(&mut payload).expect("the rest of a frame");
    Some((header, payload))
}

/// Why the other end turned us away, or `None` when it hung up without a word.
///
/// # Panics
/// When it did something else.
pub fn read_reject(from: &mut impl Read) -> Option<RejectReason> {
    let (header, payload) = read_frame(from)?;
    match ControlMessage::parse(header, &payload).expect("a message") {
        ControlMessage::Reject(why) => Some(why),
        other => panic!("not a refusal: {other:?}"),
    }
}

/// Whether the other end hangs up, whatever it says before.
pub fn is_closed_after(from: &mut impl Read) -> bool {
    let mut bytes = [0; 4096];
    loop {
        match from.read(&mut bytes) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => {
                return matches!(e.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe);
            }
        }
    }
}

/// A connection to a TCP listener that does not wait for ever.
///
/// # Panics
/// When nobody listens.
#[must_use]
pub fn dial(at: std::net::SocketAddr) -> std::net::TcpStream {
    let s = std::net::TcpStream::connect(at).expect("a listener");
    s.set_read_timeout(Some(PATIENCE)).expect("a socket");
    s.set_write_timeout(Some(PATIENCE)).expect("a socket");
    s
}

/// Sends bytes; whether the other end still took them.
pub fn send_raw(to: &mut impl Write, bytes: &[u8]) -> bool {
    to.write_all(bytes).is_ok()
}
