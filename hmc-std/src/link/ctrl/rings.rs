//! How a control half moves its bytes: through its socket, and through a ring in each direction from when that end has
//! switched. After that the socket carries only bytes that wake the other end, and the end of the connection.

use hmc_core::time::{Duration, Instant};
use hmc_mem::os::ring::{RING_BYTES, RingReader};
use rustix::io::Errno;

use crate::io::socket::Socket;
use crate::transport::ctrl_rings::PeerRing;

/// For so long a caller that is about to wait looks whether the peer reads by itself, before it wakes the peer.
const WAKE_AFTER: Duration = Duration::from_nanos(2000);
/// Wake bytes that one call takes.
const WAKES: usize = 64;

type Result<T> = std::result::Result<T, Errno>;

/// The rings of a control half, as far as its ends use them.
#[derive(Debug, Default)]
pub(super) struct RingIo {
    out: Option<PeerRing>,
    into: Option<RingReader>,
    /// The peer slept when bytes were written, and nobody has woken it.
    owes_wake: bool,
    /// Since when, as far as a poll has seen.
    owed_at: Option<Instant>,
    /// The socket may have something: a wake byte, or its end.
    looks: bool,
    /// The last call announced that this end sleeps.
    asleep: bool,
    /// `looks` before that.
    looked: bool,
    /// The peer waits for space in the ring, and was not told that there is some.
    owes_space: bool,
    /// Bytes that are still read from the ring, once the connection has ended: a peer may write on.
    rest: Option<usize>,
}

impl RingIo {
    pub(super) const fn sends(&self) -> bool {
        self.out.is_some()
    }

    pub(super) const fn receives(&self) -> bool {
        self.into.is_some()
    }

    /// All bytes go through the ring from now on.
    pub(super) fn send_by(&mut self, out: PeerRing) {
        self.out = Some(out);
    }

    /// All bytes come through the ring from now on.
    pub(super) fn receive_by(&mut self, into: RingReader) {
        self.into = Some(into);
        self.looks = true;
    }

    /// Sends bytes. As [`Socket::send`]; `PROTO` if the peer broke the ring. A process that has ended gets none: `PIPE`.
    #[inline]
    pub(super) fn send(&mut self, socket: &Socket, bytes: &[u8]) -> Result<usize> {
        let Some(out) = &mut self.out else { return socket.send(bytes) };
        let (n, sleeps) = out.write(bytes)?;
        self.owes_wake |= sleeps;
        // What is full has a reader that has something to do; it may sleep if it waits for something else.
        if n == 0 && !bytes.is_empty() { Err(Errno::AGAIN) } else { Ok(n) }
    }

    /// Receives bytes. As [`Socket::recv`]; `PROTO` if the peer broke the ring. The end of the connection comes after all bytes.
    pub(super) fn recv(&mut self, socket: &Socket, into: &mut [u8]) -> Result<usize> {
        let Some(ring) = &mut self.into else { return socket.recv(into) };
        let mut ended = None;
        if self.looks {
            match socket.recv(&mut [0; WAKES]) {
                Ok(0) => ended = Some(Ok(0)),
                Ok(n) => self.looks = n == WAKES,
                Err(Errno::AGAIN) => self.looks = false,
                Err(e) => ended = Some(Err(e)),
            }
        }
        let mut most = into.len();
        if ended.is_some() {
            let rest = *self.rest.get_or_insert(usize::try_from(RING_BYTES).unwrap_or(0));
            most = most.min(rest);
        }
        // After the look at the socket: what was written before the connection ended is read first.
        let into = into.get_mut(..most).unwrap_or_default();
        let (n, waits) = ring.read(into).map_err(|_| Errno::PROTO)?;
        self.rest = self.rest.map(|rest| rest.saturating_sub(n));
        self.owes_space |= waits;
        if n != 0 { Ok(n) } else { ended.unwrap_or(Err(Errno::AGAIN)) }
    }

    /// Whether its ring has bytes, or is broken.
    #[inline]
    pub(super) fn has_bytes(&self) -> bool {
        self.into.as_ref().is_some_and(|ring| ring.has_bytes() != Ok(false))
    }

    /// Takes the wake bytes of the peer, while what it sends is not to be read. `Ok(false)`: the connection has ended.
    pub(super) fn take_wakes(&mut self, socket: &Socket) -> Result<bool> {
        match socket.recv(&mut [0; WAKES]) {
            Ok(n) => Ok(n != 0),
            Err(Errno::AGAIN) => Ok(true),
            Err(e) => Err(e),
        }
    }

    /// Tells a peer that waits for space that there is some. Returns `true` if that takes a frame: what this end sends still goes
    /// through the socket, where a byte would lie between frames.
    pub(super) fn tell_space(&mut self, socket: &Socket) -> bool {
        let owes = std::mem::take(&mut self.owes_space);
        if owes && self.sends() {
            wake(socket);
        }
        owes && !self.sends()
    }

    /// Has the next calls look at the socket.
    pub(super) fn look(&mut self) {
        self.looks = true;
    }

    /// This end looks at the ring by itself, and needs no wake byte.
    #[inline]
    pub(super) fn awake(&mut self) {
        if std::mem::take(&mut self.asleep)
            && let Some(into) = &self.into
        {
            into.awake();
        }
    }

    /// As [`Self::awake`], of a leader that begins: of what comes on the socket without a wake byte the background thread tells it.
    #[inline]
    pub(super) fn lead(&mut self) {
        if std::mem::take(&mut self.asleep)
            && let Some(into) = &self.into
            && into.awake()
        {
            self.looks = self.looked;
        }
    }

    /// This end looks no more until it is woken. `Ok(false)`, and it is not woken, if there are bytes.
    pub(super) fn sleep(&mut self) -> Result<bool> {
        let Some(into) = &self.into else { return Ok(true) };
        self.looked = std::mem::replace(&mut self.looks, true);
        self.asleep = into.sleep().map_err(|_| Errno::PROTO)?;
        Ok(self.asleep)
    }

    /// Wakes the peer, if it sleeps although bytes were written.
    #[inline]
    pub(super) fn wake_peer(&mut self, socket: &Socket) {
        if std::mem::take(&mut self.owes_wake) {
            self.owed_at = None;
            if self.out.as_ref().is_some_and(PeerRing::take_sleeper) {
                wake(socket);
            }
        }
    }

    /// The same, once that has been due for some time.
    pub(super) fn wake_late_peer(&mut self, socket: &Socket, now: Instant) {
        if self.owes_wake && now.since(*self.owed_at.get_or_insert(now)) >= WAKE_AFTER {
            self.wake_peer(socket);
        }
    }
}

/// A full socket has wake bytes that the peer has not read.
fn wake(socket: &Socket) {
    let _ = socket.send(&[0]);
}

#[cfg(test)]
mod tests;
