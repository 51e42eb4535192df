//! The second connection of a link, as an external transport uses it.

use std::io::Result;
use std::sync::Arc;

use crate::io::socket::Socket;

/// The second connection of a link: a stream of bytes to the counterpart. No call waits. Clones are the same connection.
///
/// The link watches it for what [`Interest::connection`](hmc_core::transport::Interest::connection) asks, and calls the data plane
/// when that has come.
#[derive(Clone, Debug)]
pub struct SideStream(Arc<Socket>);

impl SideStream {
    pub(crate) const fn new(socket: Arc<Socket>) -> Self {
        Self(socket)
    }

    /// Sends bytes, and returns how many.
    ///
    /// # Errors
    /// `WouldBlock` if there is no space; what the system reports.
    pub fn send(&self, bytes: &[u8]) -> Result<usize> {
        Ok(self.0.send(bytes)?)
    }

    /// Receives bytes, and returns how many: 0 at the end of the stream.
    ///
    /// # Errors
    /// `WouldBlock` if there are none; what the system reports.
    pub fn recv(&self, into: &mut [u8]) -> Result<usize> {
        Ok(self.0.recv(into)?)
    }

    /// Ends this direction: the peer sees the end of the stream after what was sent. A data plane whose requests or windows the
    /// counterpart reaches by itself calls it when it is closed and nothing of it is in the peer's memory, nor will be.
    pub fn end_sending(&self) {
        self.0.end_sending();
    }

    /// Ends both directions.
    pub fn shutdown(&self) {
        self.0.shutdown();
    }
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Read as _, Write as _};
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;
    use std::sync::Arc;

    use super::SideStream;
    use crate::io::socket::Socket;

    #[test]
    fn bytes_go_both_ways_until_a_direction_ends() {
        let (near, mut far) = UnixStream::pair().expect("a pair");
        near.set_nonblocking(true).expect("a socket");
        let stream = SideStream::new(Arc::new(Socket::from(OwnedFd::from(near))));
        let mut got = [0; 8];
        let nothing = stream.recv(&mut got).map_err(|e| e.kind());
        assert_eq!(nothing, Err(ErrorKind::WouldBlock));
        far.write_all(b"ab").expect("space");
        assert_eq!(stream.recv(&mut got).map_err(|e| e.kind()), Ok(2));
        assert_eq!(stream.send(b"xyz").map_err(|e| e.kind()), Ok(3));
        stream.end_sending();
        let mut all = Vec::new();
        far.read_to_end(&mut all).expect("up to the end");
        assert_eq!(all, b"xyz");
        far.write_all(b"c").expect("the other direction is open");
        assert_eq!(stream.recv(&mut got).map_err(|e| e.kind()), Ok(1));
        drop(far);
        assert_eq!(stream.recv(&mut got).map_err(|e| e.kind()), Ok(0));
        stream.shutdown();
        assert!(stream.send(b"late").is_err());
    }
}
