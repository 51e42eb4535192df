//! Blocking sockets as one would write them in ten lines.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

use crate::{Res, text};

/// How long a call may block.
const PATIENCE: Duration = Duration::from_secs(60);

/// One end.
pub(crate) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// A door.
pub(crate) enum Door {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Door {
    /// Opens one: at `path`, or on a loopback port. Gives its address too.
    pub(crate) fn open(path: Option<&Path>) -> Res<(Self, String)> {
        if let Some(path) = path {
            let _ = std::fs::remove_file(path);
            let door = UnixListener::bind(path).map_err(text)?;
            return Ok((Self::Unix(door), path.display().to_string()));
        }
        let door = TcpListener::bind("127.0.0.1:0").map_err(text)?;
        let address = door.local_addr().map_err(text)?.to_string();
        Ok((Self::Tcp(door), address))
    }

    /// The next caller.
    pub(crate) fn accept(&self) -> Res<Stream> {
        match self {
            Self::Tcp(door) => Stream::of_tcp(door.accept().map_err(text)?.0),
            Self::Unix(door) => Stream::of_unix(door.accept().map_err(text)?.0),
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

    /// Knocks: a path has a slash.
    pub(crate) fn connect(address: &str) -> Res<Self> {
        if address.contains('/') {
            return Self::of_unix(UnixStream::connect(address).map_err(text)?);
        }
        Self::of_tcp(TcpStream::connect(address).map_err(text)?)
    }

    /// Sends all of `bytes`.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> Res<()> {
        match self {
            Self::Tcp(s) => s.write_all(bytes),
            Self::Unix(s) => s.write_all(bytes),
        }
        .map_err(text)
    }

    /// Fills `into`.
    pub(crate) fn recv(&mut self, into: &mut [u8]) -> Res<()> {
        match self {
            Self::Tcp(s) => s.read_exact(into),
            Self::Unix(s) => s.read_exact(into),
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

/// Bytes that begin at a page, as ours do.
pub(crate) struct PageBytes {
    all: Vec<u8>,
    start: usize,
    len: usize,
}

impl PageBytes {
    /// `len` bytes, all touched.
    pub(crate) fn new(len: usize) -> Self {
        let all = vec![7u8; len + 4096];
        let start = all.as_ptr().align_offset(4096).min(4096);
        Self { all, start, len }
    }

    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        &mut self.all[self.start..self.start + self.len]
    }
}
