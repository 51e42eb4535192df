//! What connects two ends: a pair of sockets, or nothing.

use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;

use hmc_std::error::{Error, ErrorKind as Kind, Result};
use hmc_std::internals;

/// What connects two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wire {
    /// Nothing: one end is both.
    Loopback,
    /// A TCP connection over 127.0.0.1.
    Tcp,
    /// The stream transport over a local socket pair.
    TcpOverUds,
    /// Shared memory, with process_vm_readv(2) for what cannot be mapped when `cma`.
    Shm {
        /// Whether copies by process_vm_readv(2) are allowed.
        cma: bool,
    },
    /// RDMA verbs, with a local socket pair beside the device.
    Rdma,
}

fn system(what: &str) -> impl FnOnce(std::io::Error) -> Error + '_ {
    move |e| Error::new(Kind::Io, format!("{what}: {e}"))
}

/// A connected pair of sockets.
pub(crate) fn sockets(wire: Wire) -> Result<(OwnedFd, OwnedFd)> {
    if wire != Wire::Tcp {
        let (a, b) = UnixStream::pair().map_err(system("no socket pair"))?;
        for s in [&a, &b] {
            s.set_nonblocking(true).map_err(system("not made non-blocking"))?;
        }
        return Ok((a.into(), b.into()));
    }
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(system("no listener"))?;
    let at = listener.local_addr().map_err(system("no address"))?;
    let a = TcpStream::connect(at).map_err(system("not connected"))?;
    let (b, _) = listener.accept().map_err(system("not accepted"))?;
    for s in [&a, &b] {
        s.set_nonblocking(true).map_err(system("not made non-blocking"))?;
        internals::tune_tcp(s.as_fd());
    }
    Ok((a.into(), b.into()))
}
