//! Where a session listens, as tests name it: ports, and sockets in folders.

use std::net::SocketAddr;
use std::path::PathBuf;

use hmc_std::{Address, Session};

/// The listeners of a session by kind, oldest first.
pub trait Listening {
    /// Where its TCP listeners are.
    fn tcp_addrs(&self) -> Vec<SocketAddr>;

    /// The paths of its local sockets.
    fn uds_paths(&self) -> Vec<PathBuf>;

    /// Where the oldest TCP listener is.
    fn tcp_addr(&self) -> Option<SocketAddr> {
        self.tcp_addrs().first().copied()
    }
}

impl Listening for Session {
    fn tcp_addrs(&self) -> Vec<SocketAddr> {
        let of = |address: &Address| match address {
            Address::Tcp(addr) => Some(*addr),
            _ => None,
        };
        self.info().listeners.iter().filter_map(|l| of(l.address())).collect()
    }

    fn uds_paths(&self) -> Vec<PathBuf> {
        let name = format!("hmc_ctrl_rank_{}.sock", self.rank());
        let of = |address: &Address| match address {
            Address::Uds(dir) => Some(dir.join(&name)),
            _ => None,
        };
        self.info().listeners.iter().filter_map(|l| of(l.address())).collect()
    }
}
