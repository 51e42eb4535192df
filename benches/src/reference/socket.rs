//! Blocking sockets as one would write them in ten lines.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::error::{Res, text};
use crate::helper::Helper;
use crate::measure::timed;

/// How long a call may block.
const PATIENCE: Duration = Duration::from_secs(60);

/// One end.
pub(crate) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// A listener.
pub(crate) enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Listener {
    /// Listens at `path`, or on a loopback port. Returns its address too.
    pub(crate) fn open(path: Option<&Path>) -> Res<(Self, String)> {
        if let Some(path) = path {
            let _ = std::fs::remove_file(path);
            let listener = UnixListener::bind(path).map_err(text)?;
            return Ok((Self::Unix(listener), path.display().to_string()));
        }
        let listener = TcpListener::bind("127.0.0.1:0").map_err(text)?;
        let address = listener.local_addr().map_err(text)?.to_string();
        Ok((Self::Tcp(listener), address))
    }

    /// Accepts the next connection.
    pub(crate) fn accept(&self) -> Res<Stream> {
        match self {
            Self::Tcp(listener) => Stream::of_tcp(listener.accept().map_err(text)?.0),
            Self::Unix(listener) => Stream::of_unix(listener.accept().map_err(text)?.0),
        }
    }
}

impl Stream {
    fn of_tcp(s: TcpStream) -> Res<Self> {
        s.set_nodelay(true).map_err(text)?;
        s.set_read_timeout(Some(PATIENCE)).map_err(text)?;
        s.set_write_timeout(Some(PATIENCE)).map_err(text)?;
        Ok(Self::Tcp(s))
    }

    fn of_unix(s: UnixStream) -> Res<Self> {
        s.set_read_timeout(Some(PATIENCE)).map_err(text)?;
        s.set_write_timeout(Some(PATIENCE)).map_err(text)?;
        Ok(Self::Unix(s))
    }

    /// Connects: a path has a slash.
    pub(crate) fn connect(address: &str) -> Res<Self> {
        if address.contains('/') {
            return Self::of_unix(UnixStream::connect(address).map_err(text)?);
        }
        Self::of_tcp(TcpStream::connect(address).map_err(text)?)
    }

    /// Sends all of `bytes`.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> Res<()> {
        let mut done = 0;
        while done < bytes.len() {
            let rest = &bytes[done..];
            done += again(|| match self {
                Self::Tcp(s) => s.write(rest),
                Self::Unix(s) => s.write(rest),
            })?;
        }
        Ok(())
    }

    /// Fills `into`.
    pub(crate) fn recv(&mut self, into: &mut [u8]) -> Res<()> {
        let mut done = 0;
        while done < into.len() {
            let rest = &mut into[done..];
            done += again(|| match self {
                Self::Tcp(s) => s.read(rest),
                Self::Unix(s) => s.read(rest),
            })?;
        }
        Ok(())
    }

    /// Whether calls spin instead of sleeping in the kernel.
    pub(crate) fn spin(&mut self, on: bool) -> Res<()> {
        match self {
            Self::Tcp(s) => s.set_nonblocking(on),
            Self::Unix(s) => s.set_nonblocking(on),
        }
        .map_err(text)
    }

    /// Answers `rounds` messages of `size` bytes with the same.
    pub(crate) fn echo(&mut self, size: usize, rounds: u64) -> Res<()> {
        let mut bytes = vec![0; size];
        for _ in 0..rounds {
            self.recv(&mut bytes)?;
            self.send(&bytes)?;
        }
        Ok(())
    }
}

/// A ping-pong with the helper process, which has accepted the other end.
pub(crate) struct PingPong {
    stream: Stream,
    size: usize,
}

impl PingPong {
    /// Connects to the helper: at `path`, or over TCP. Messages have `size` bytes.
    pub(crate) fn open(helper: &mut Helper, path: Option<&Path>, size: usize) -> Res<Self> {
        let listener = path.map_or_else(|| "tcp".to_owned(), |p| p.display().to_string());
        let address = helper.request(&format!("listen {listener}"))?;
        let stream = Stream::connect(&address)?;
        helper.request("accept")?;
        Ok(Self { stream, size })
    }

    /// Nanoseconds of a round trip, the mean of `rounds` after `warm` that do not count.
    pub(crate) fn sample(
        &mut self,
        helper: &mut Helper,
        spin: bool,
        warm: u32,
        rounds: u32,
    ) -> Res<f64> {
        let how = if spin { "spin" } else { "block" };
        helper.send(&format!("echo {} {} {how}", self.size, warm + rounds))?;
        let mut bytes = vec![1; self.size];
        self.stream.spin(spin)?;
        let mut round = || {
            self.stream.send(&bytes)?;
            self.stream.recv(&mut bytes)
        };
        timed(warm, &mut round)?;
        let ns = timed(rounds, round)?;
        self.stream.spin(false)?;
        helper.receive()?;
        Ok(ns)
    }
}

/// Repeats a call that would block or was interrupted; the other end's closing is an error.
#[inline]
fn again(mut call: impl FnMut() -> std::io::Result<usize>) -> Res<usize> {
    let begun = Instant::now();
    loop {
        match call() {
            Ok(0) => return Err("the other end closed".to_owned()),
            Ok(n) => return Ok(n),
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            // A blocking socket returns this after its time limit.
            Err(e) if e.kind() == ErrorKind::WouldBlock => {
                if begun.elapsed() >= PATIENCE {
                    return Err(format!("nothing moved for {} s", PATIENCE.as_secs()));
                }
                std::hint::spin_loop();
            }
            Err(e) => return Err(text(e)),
        }
    }
}

/// Bytes that begin at a page, as ours do.
pub(crate) struct PageBytes {
    all: Vec<u8>,
    start: usize,
    len: usize,
}

impl PageBytes {
    /// `len` bytes, all written once.
    pub(crate) fn new(len: usize) -> Self {
        let all = vec![7u8; len + 4096];
        let start = all.as_ptr().align_offset(4096).min(4096);
        Self { all, start, len }
    }

    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        &mut self.all[self.start..self.start + self.len]
    }
}
