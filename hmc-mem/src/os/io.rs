//! Copies between sockets and shared bytes without a private buffer.
//!
//! The kernel copies directly into or out of a range, by raw pointer: no slice over shared bytes is made. Each call
//! is one `sendmsg` or `recvmsg`, repeated on EINTR. It may move a part of the range, and returns "would block" on
//! a non-blocking socket. A broken connection is an error, never a signal.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd as _};

use hmc_core::range::ByteRange;

use super::descriptor;
use crate::length::widen;
use crate::shared::{SharedBytes, SharedError};

/// The maximum number of parts of one call.
pub const MAX_PARTS: usize = 64;

/// Space for all descriptors that may come with a message (unix(7): 253), though none should.
const BESIDE_WORDS: usize = 130;

/// The result of a call that moved bytes or would block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum IoOutcome {
    /// This many bytes, of all parts in order. 0 only when the parts are empty.
    Bytes(usize),
    /// Nothing: the socket is not ready.
    WouldBlock,
    /// Nothing, and nothing will come: the peer closed its side (only when receiving).
    Closed,
}

/// Why a call failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum IoError {
    /// A range of a view was wrong; nothing moved.
    Shared(SharedError),
    /// The connection is broken (EPIPE, ECONNRESET, ENOTCONN).
    Broken,
    /// Another errno.
    Os {
        /// The number.
        errno: i32,
    },
}

impl core::fmt::Display for IoError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match *self {
            Self::Shared(ref e) => e.fmt(f),
            Self::Broken => f.write_str("the connection is broken"),
            Self::Os { errno } => write!(f, "socket call failed with errno {errno}"),
        }
    }
}

impl core::error::Error for IoError {}

impl From<SharedError> for IoError {
    fn from(e: SharedError) -> Self {
        Self::Shared(e)
    }
}

impl IoError {
    pub(crate) const fn from_errno(errno: i32) -> Self {
        match errno {
            libc::EPIPE | libc::ECONNRESET | libc::ENOTCONN => Self::Broken,
            _ => Self::Os { errno },
        }
    }
}

/// A part of the bytes to send.
#[derive(Clone, Copy, Debug)]
pub enum SendPart<'a> {
    /// Private bytes, such as a header.
    Private(&'a [u8]),
    /// A span of shared bytes.
    Shared(SharedBytes<'a>, ByteRange),
}

/// A destination of received bytes.
#[derive(Debug)]
pub enum RecvPart<'a> {
    /// Private bytes, such as the next header.
    Private(&'a mut [u8]),
    /// A span of shared bytes.
    Shared(SharedBytes<'a>, ByteRange),
}

/// A table of ranges on the stack.
struct Table {
    /// The first `used` of them are written.
    rows: [MaybeUninit<libc::iovec>; MAX_PARTS],
    used: usize,
}

impl Table {
    const fn new() -> Self {
        Self { rows: [const { MaybeUninit::uninit() }; MAX_PARTS], used: 0 }
    }

    /// Adds a range; `false` when the table is full. Empty ranges take no row.
    fn push(&mut self, at: *mut u8, len: usize) -> bool {
        if len == 0 {
            return true;
        }
        let Some(row) = self.rows.get_mut(self.used) else {
            return false;
        };
        row.write(libc::iovec { iov_base: at.cast(), iov_len: len });
        self.used = self.used.saturating_add(1);
        true
    }

    fn message(&mut self) -> libc::msghdr {
        // SAFETY: `msghdr` is a C struct of integers and pointers: all zeros is "no name, no parts, no control".
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = self.rows.as_mut_ptr().cast();
        message.msg_iovlen = self.used;
        message
    }
}

/// The number of the error of the call before.
pub(super) fn last_errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// Calls until all of `span` is moved to or from `there`, a range of another process or a file that is as long, or a call moves
/// nothing. `call` gets the rest of the span, and where the rest of `there` begins. Returns how many bytes were moved.
pub(super) fn move_all(
    bytes: &SharedBytes<'_>,
    span: ByteRange,
    there: ByteRange,
    mut call: impl FnMut(*mut u8, usize, u64) -> isize,
) -> Result<u64, IoError> {
    bytes.locate(span)?;
    let mut done = 0u64;
    while done < span.len() {
        let (at, len) = bytes.locate(span.split_at_most(done).1)?;
        match usize::try_from(call(at, len, there.split_at_most(done).1.offset())) {
            Ok(0) => break,
            Ok(n) => done = done.saturating_add(widen(n)),
            Err(_) => match last_errno() {
                libc::EINTR => {}
                errno => return Err(IoError::Os { errno }),
            },
        }
    }
    Ok(done)
}

/// Repeats a call on EINTR and sorts its answer.
fn sort(mut call: impl FnMut() -> isize) -> Result<Option<usize>, IoError> {
    loop {
        if let Ok(moved) = usize::try_from(call()) {
            return Ok(Some(moved));
        }
        match last_errno() {
            libc::EINTR => {}
            // EWOULDBLOCK is the same number on Linux.
            libc::EAGAIN => return Ok(None),
            errno => return Err(IoError::from_errno(errno)),
        }
    }
}

/// Sends the first [`MAX_PARTS`] parts in order, as many bytes as the socket accepts (sendmsg(2)). Never blocks on a
/// nonblocking socket.
///
/// # Errors
/// [`IoError`]. If a range is wrong, nothing was sent.
pub fn send_parts(socket: impl AsFd, parts: &[SendPart<'_>]) -> Result<IoOutcome, IoError> {
    let mut table = Table::new();
    for part in parts {
        let (at, len) = match part {
            SendPart::Private(bytes) => (bytes.as_ptr().cast_mut(), bytes.len()),
            SendPart::Shared(bytes, span) => bytes.locate(*span)?,
        };
        if !table.push(at, len) {
            break;
        }
    }
    if table.used == 0 {
        return Ok(IoOutcome::Bytes(0));
    }
    let message = table.message();
    let fd = socket.as_fd().as_raw_fd();
    let moved = sort(|| {
        // SAFETY: `message` points to `used` rows of `table`, alive during the call, each a range that is
        // readable: a borrowed slice or a span within a view. sendmsg(2) writes to none of them.
        unsafe { libc::sendmsg(fd, &raw const message, libc::MSG_NOSIGNAL) }
    })?;
    Ok(moved.map_or(IoOutcome::WouldBlock, IoOutcome::Bytes))
}

/// Receives available bytes into the first [`MAX_PARTS`] places in order (recvmsg(2)). Never blocks on a nonblocking
/// socket.
///
/// # Errors
/// [`IoError`]. If a range is wrong, nothing was received.
pub fn recv_parts(socket: impl AsFd, places: &mut [RecvPart<'_>]) -> Result<IoOutcome, IoError> {
    let mut table = Table::new();
    for place in places {
        let (at, len) = match place {
            RecvPart::Private(bytes) => (bytes.as_mut_ptr(), bytes.len()),
            RecvPart::Shared(bytes, _) if !bytes.is_writable() => {
                return Err(SharedError::ReadOnly.into());
            }
            RecvPart::Shared(bytes, span) => bytes.locate(*span)?,
        };
        if !table.push(at, len) {
            break;
        }
    }
    if table.used == 0 {
        return Ok(IoOutcome::Bytes(0));
    }
    let mut message = table.message();
    let mut beside = MaybeUninit::<[u64; BESIDE_WORDS]>::uninit();
    message.msg_control = beside.as_mut_ptr().cast();
    let fd = socket.as_fd().as_raw_fd();
    let moved = sort(|| {
        message.msg_controllen = size_of_val(&beside);
        // SAFETY: `message` points to `used` rows of `table`, alive during the call, each a range that is
        // writable: a slice borrowed mutably or a span within a writable view; and to `beside`, with its size.
        unsafe { libc::recvmsg(fd, &raw mut message, libc::MSG_CMSG_CLOEXEC) }
    })?;
    if moved.is_some() && message.msg_controllen > 0 {
        descriptor::close_all(&message);
    }
    Ok(match moved {
        None => IoOutcome::WouldBlock,
        // recvmsg(2): 0 for a stream means that the peer shut down; no part is empty here.
        Some(0) => IoOutcome::Closed,
        Some(n) => IoOutcome::Bytes(n),
    })
}

/// Makes a TCP connection accept bytes, and report that it can, only after all bytes accepted before were sent at least
/// once (`TCP_NOTSENT_LOWAT`, tcp(7)).
///
/// # Errors
/// [`IoError::Os`] if the socket is not a TCP connection.
pub fn take_when_sent(socket: impl AsFd) -> Result<(), IoError> {
    let fd = socket.as_fd().as_raw_fd();
    let bytes: libc::c_int = 1;
    let len = size_of_val(&bytes).try_into().unwrap_or(0);
    let at = (&raw const bytes).cast();
    // SAFETY: `at` points to `len` bytes of a number that outlives the call; setsockopt(2) only reads them.
    match unsafe { libc::setsockopt(fd, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, at, len) } {
        0 => Ok(()),
        _ => Err(IoError::from_errno(last_errno())),
    }
}

#[cfg(test)]
mod tests {
    use super::IoError;

    #[test]
    fn errors_name_what_has_failed() {
        for (errno, text) in [
            (libc::EPIPE, "the connection is broken"),
            (libc::ECONNRESET, "the connection is broken"),
            (libc::ENOTCONN, "the connection is broken"),
            (libc::ENOBUFS, "socket call failed with errno 105"),
        ] {
            assert_eq!(IoError::from_errno(errno).to_string(), text);
        }
    }
}
