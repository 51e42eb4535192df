//! Whether a process is the one that a dialer expects.
//!
//! A Unix socket is named after a rank, and processes of several jobs can have the same rank. A dialer that has the
//! TCP endpoint of its peer therefore sends it in HELLO, and a process that does not listen there refuses.

use std::net::{IpAddr, SocketAddr, UdpSocket};

use hmc_core::wire::hello::Asked;

use crate::base::address::Address;
use crate::base::address::is_loopback;
use crate::io::listener::PeerAddr;
use crate::io::socket::Socket;
use crate::state::inner::SessionInner;

/// Whether this system (this network namespace) has that address.
fn is_own(ip: IpAddr) -> bool {
    UdpSocket::bind((ip, 0)).is_ok()
}

fn bytes(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(ip) if ip.is_unspecified() => [0; 16],
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    }
}

impl SessionInner {
    /// The endpoint at which a dialer expects its peer, and whether both ends prove that they are of the same user.
    pub(crate) fn expected_endpoint(&self, address: &Address, socket: &Socket) -> (Asked, bool) {
        let of = |at: SocketAddr| Asked::new(bytes(at.ip()), at.port(), self.netns);
        match address {
            Address::Tcp(addr) | Address::UnauthenticatedTcp(addr) => {
                let there = socket.peer_address().unwrap_or(*addr);
                let here = socket.own_address().map(|a| a.ip());
                // Between systems, what answers is what the network leads to.
                match self.needs_proof(here, there.ip()) {
                    true => (of(there), true),
                    false => (Asked::ANY, false),
                }
            }
            Address::Uds(_) => (Asked::new([0; 16], 0, self.netns), false),
            Address::Local { endpoint, .. } => (of(*endpoint), false),
        }
    }

    /// Whether a dialer is in another network namespace, where the loopback addresses of this one lead to others.
    pub(crate) fn is_elsewhere(&self, asked: &Asked) -> bool {
        asked.netns() != 0 && self.netns != 0 && asked.netns() != self.netns
    }

    /// Whether this session listens at the endpoint that a dialer expects.
    pub(crate) fn is_expected(&self, asked: &Asked, source: PeerAddr, socket: &Socket) -> bool {
        if asked.port() == 0 {
            return true;
        }
        let ip = IpAddr::from(asked.ip()).to_canonical();
        let any = ip.is_unspecified();
        if is_loopback(ip) && self.is_elsewhere(asked) {
            return false;
        }
        if let (PeerAddr::Tcp(_), Some(here)) = (source, socket.own_address()) {
            return here.port() == asked.port() && (any || here.ip().to_canonical() == ip);
        }
        self.listeners.tcp_addrs().into_iter().any(|listener| {
            let at = listener.ip().to_canonical();
            listener.port() == asked.port()
                && (any || at == ip || at.is_unspecified() && is_own(ip))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::is_own;

    /// 192.0.2.0/24 and 2001:db8::/32 are for documentation (RFC 5737, RFC 3849): no system has such an address.
    #[test]
    fn addresses_of_others_are_not_own() {
        let own = |ip: &str| is_own(ip.parse().expect("an address"));
        let all = ["127.0.0.1", "192.0.2.1", "2001:db8::1"];
        assert_eq!(all.map(own), [true, false, false]);
    }
}
