//! A simulated connection, as one process sees it: bytes that have come, bytes to be taken away.
//!
//! Whoever simulates the network puts in what arrives and takes out what was sent; both directions are bounded, as
//! a kernel's buffers are.

use std::any::Any;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hmc_core::range::{ByteRange, Side};
use hmc_mem::shared::SharedBytes;
use hmc_std::internals::session::ByteStream;
use rustix::io::Errno;

/// Space made at least at a send, since a look takes the buffer away: some frames and small messages.
const FIRST_SPACE: usize = 256;

#[derive(Debug, Default)]
struct State {
    /// Came and was not received yet, from `read` on.
    inbound: Vec<u8>,
    read: usize,
    /// Sent and not yet taken away.
    outbound: Vec<u8>,
    /// Sent, taken away, and still on its way.
    travelling: usize,
    /// Received since it was last asked.
    taken: u64,
    /// The other end sends no more.
    eof: bool,
    /// The connection broke.
    reset: bool,
    /// This end is done with it.
    closed: bool,
    /// Stands in the list of [`Touched`].
    touched: bool,
    /// Bytes that may be on their way out at a time.
    send_space: usize,
}

/// Connections at whose process's side something happened since somebody looked, in that order.
pub(super) type Touched = Arc<Mutex<Vec<u32>>>;

/// What a look at an end finds.
pub(super) struct Look {
    /// What was sent and has to be taken away.
    pub(super) sent: Vec<u8>,
    /// Bytes that were received.
    pub(super) taken: u64,
    /// The process is done with this end.
    pub(super) closed: bool,
    /// The other end closed, or the connection broke.
    pub(super) ended: bool,
}

/// One end of a simulated connection. Clones are the same end.
#[derive(Clone, Debug)]
pub(super) struct Pipe {
    id: u32,
    end: Arc<End>,
    touched: Touched,
}

#[derive(Debug)]
struct End {
    state: Mutex<State>,
    /// Whether there is something to receive, for those who only look: it costs no lock.
    readable: AtomicBool,
}

/// The end as a socket holds it: shut down when it is dropped.
#[derive(Debug)]
struct Held(Pipe);

impl Drop for Held {
    fn drop(&mut self) {
        self.shutdown();
    }
}

impl std::ops::Deref for Held {
    type Target = Pipe;

    fn deref(&self) -> &Pipe {
        &self.0
    }
}

impl Pipe {
    pub(super) fn new(id: u32, touched: &Touched, send_space: usize) -> Self {
        let state = Mutex::new(State { send_space, ..State::default() });
        let end = Arc::new(End { state, readable: AtomicBool::new(false) });
        Self { id, end, touched: Arc::clone(touched) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.end.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether there is something to receive may have changed.
    fn note(&self, s: &State) {
        let readable = s.read < s.inbound.len() || s.eof || s.reset;
        self.end.readable.store(readable, Ordering::Relaxed);
    }

    /// The network's side will want to look.
    fn touch(&self, s: &mut State) {
        if !std::mem::replace(&mut s.touched, true) {
            self.touched.lock().unwrap_or_else(PoisonError::into_inner).push(self.id);
        }
    }
}

/// The process's side.
impl ByteStream for Held {
    fn send(&self, bytes: &[u8]) -> Result<usize, Errno> {
        let mut s = self.state();
        let n = s.space()?.min(bytes.len());
        self.touch(&mut s);
        s.make_space(n);
        s.outbound.extend_from_slice(bytes.get(..n).unwrap_or_default());
        Ok(n)
    }

    fn recv(&self, into: &mut [u8]) -> Result<usize, Errno> {
        let mut s = self.state();
        let Some(n) = s.ready(into.len())? else { return Ok(0) };
        self.touch(&mut s);
        if let Some(into) = into.get_mut(..n) {
            into.copy_from_slice(s.front(n));
        }
        s.consume(n);
        self.note(&s);
        Ok(n)
    }

    fn peek(&self, into: &mut [u8]) -> Result<usize, Errno> {
        let s = self.state();
        let Some(n) = s.ready(into.len())? else { return Ok(0) };
        if let Some(into) = into.get_mut(..n) {
            into.copy_from_slice(s.front(n));
        }
        Ok(n)
    }

    fn has_ended(&self) -> bool {
        let s = self.state();
        s.eof || s.reset || s.closed
    }

    fn send_vectored(
        &self,
        head: &[u8],
        bytes: &SharedBytes<'_>,
        span: ByteRange,
    ) -> Result<usize, Errno> {
        let mut s = self.state();
        let space = s.space()?;
        self.touch(&mut s);
        let first = space.min(head.len());
        let rest = u64::try_from(space.saturating_sub(first)).unwrap_or(u64::MAX);
        let (part, _) = span.split_at_most(rest);
        let second = usize::try_from(part.len()).unwrap_or(0);
        s.make_space(first.saturating_add(second));
        s.outbound.extend_from_slice(head.get(..first).unwrap_or_default());
        let from = s.outbound.len();
        s.outbound.resize(from.saturating_add(second), 0);
        let place = s.outbound.get_mut(from..).unwrap_or_default();
        bytes.read_at(part, place).map_err(|_| Errno::FAULT)?;
        Ok(first.saturating_add(second))
    }

    fn recv_vectored(
        &self,
        bytes: &SharedBytes<'_>,
        span: ByteRange,
        tail: &mut [u8],
    ) -> Result<usize, Errno> {
        let mut s = self.state();
        let wanted = usize::try_from(span.len()).unwrap_or(usize::MAX);
        let Some(n) = s.ready(wanted.saturating_add(tail.len()))? else { return Ok(0) };
        self.touch(&mut s);
        let first = n.min(wanted);
        let part = span
            .sub(Side::Local, 0, u64::try_from(first).unwrap_or(0))
            .map_err(|_| Errno::FAULT)?;
        bytes.write_at(part, s.front(first)).map_err(|_| Errno::FAULT)?;
        s.consume(first);
        let second = n.saturating_sub(first);
        if let Some(tail) = tail.get_mut(..second) {
            tail.copy_from_slice(s.front(second));
        }
        s.consume(second);
        self.note(&s);
        Ok(n)
    }

    fn shutdown(&self) {
        let mut s = self.state();
        s.closed = true;
        self.touch(&mut s);
    }
}

/// The network's side.
impl Pipe {
    /// Bytes arrive.
    pub(super) fn arrive(&self, bytes: &[u8]) {
        let mut s = self.state();
        if s.read == s.inbound.len() {
            s.inbound.clear();
            s.read = 0;
        }
        s.inbound.extend_from_slice(bytes);
        self.note(&s);
    }

    /// The other end closed (after all that has arrived), or the connection broke.
    pub(super) fn end(&self, reset: bool) {
        let mut s = self.state();
        s.eof = true;
        s.reset |= reset;
        self.note(&s);
    }

    /// Bytes have left the pipe: there is space for as many.
    pub(super) fn left(&self, bytes: u64) {
        let mut s = self.state();
        let n = usize::try_from(bytes).unwrap_or(usize::MAX);
        s.travelling = s.travelling.saturating_sub(n);
    }

    /// What has happened at the process's side since the last look.
    pub(super) fn look(&self) -> Look {
        let mut s = self.state();
        s.touched = false;
        let sent = std::mem::take(&mut s.outbound);
        s.travelling = s.travelling.saturating_add(sent.len());
        Look { sent, taken: std::mem::take(&mut s.taken), closed: s.closed, ended: s.eof }
    }

    /// Whether it is the end behind that stream.
    pub(super) fn is_behind(&self, stream: &dyn ByteStream) -> bool {
        let stream: &dyn Any = stream;
        stream.downcast_ref::<Held>().is_some_and(|held| Arc::ptr_eq(&held.end, &self.end))
    }

    /// The end as a socket holds it.
    pub(super) fn held(&self) -> Box<dyn ByteStream> {
        Box::new(Held(self.clone()))
    }

    /// Bytes that came and were not received.
    pub(super) fn unread(&self) -> usize {
        let s = self.state();
        s.inbound.len().saturating_sub(s.read)
    }

    /// Whether there is something to receive: bytes, or the end.
    pub(super) fn is_readable(&self) -> bool {
        self.end.readable.load(Ordering::Relaxed)
    }
}

impl State {
    /// Makes space for so many bytes more to be sent.
    fn make_space(&mut self, n: usize) {
        self.outbound.reserve(n.max(FIRST_SPACE));
    }

    fn space(&self) -> Result<usize, Errno> {
        if self.reset || self.closed {
            return Err(Errno::PIPE);
        }
        let waiting = self.outbound.len().saturating_add(self.travelling);
        match self.send_space.saturating_sub(waiting) {
            0 => Err(Errno::AGAIN),
            space => Ok(space),
        }
    }

    /// How many of `wanted` bytes can be received now; `None` at the end of the stream.
    fn ready(&self, wanted: usize) -> Result<Option<usize>, Errno> {
        let held = self.inbound.len().saturating_sub(self.read);
        // As Linux has it: what came before the reset can be received.
        if self.reset && held == 0 {
            return Err(Errno::CONNRESET);
        }
        match (held.min(wanted), self.eof || self.closed) {
            (0, true) if held == 0 => Ok(None),
            (0, false) if held == 0 => Err(Errno::AGAIN),
            (n, _) => Ok(Some(n)),
        }
    }

    fn front(&self, n: usize) -> &[u8] {
        self.inbound.get(self.read..self.read.saturating_add(n)).unwrap_or_default()
    }

    fn consume(&mut self, n: usize) {
        self.read = self.read.saturating_add(n);
        self.taken = self.taken.saturating_add(u64::try_from(n).unwrap_or(0));
    }
}
