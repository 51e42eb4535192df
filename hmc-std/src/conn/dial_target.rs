//! The target of a dial.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use crate::base::address::Address;
use crate::base::error::{Error, ErrorKind, Result};
use crate::transport::domain::Side;

/// Where to connect to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DialTarget {
    /// The listener at an address.
    Address(Address),
    /// A local socket by its path.
    Path(PathBuf),
}

impl DialTarget {
    /// Where a peer that was reached at `address` takes data connections of that side: at the local socket or the TCP port that
    /// it named.
    ///
    /// # Errors
    /// `Unavailable` if it named no TCP port and one is needed.
    pub(crate) fn of_data(
        address: &Address,
        shm: Option<&Path>,
        tcp: Option<u16>,
        side: Side,
    ) -> Result<Self> {
        if let (Side::Local, Some(path), _) | (Side::Either, Some(path), Some(_)) =
            (side, shm, address.folder())
        {
            return Ok(Self::Path(path.to_path_buf()));
        }
        let ip = match address {
            Address::Tcp(a) | Address::UnauthenticatedTcp(a) => a.ip(),
            // The peer reported that it listens there: it was asked.
            Address::Local { endpoint, .. } if !endpoint.ip().is_unspecified() => {
                return Ok(Self::Address(Address::Tcp(*endpoint)));
            }
            Address::Uds(_) | Address::Local { .. } => Ipv4Addr::LOCALHOST.into(),
        };
        let port = tcp.ok_or_else(|| {
            Error::new(
                ErrorKind::Unavailable,
                format!(
                    "no tcp: the peer has no TCP listener at {ip} (start it with that address, or connect to its TCP address)"
                ),
            )
        })?;
        Ok(Self::Address(Address::Tcp((ip, port).into())))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may panic")]
mod tests {
    use super::DialTarget;
    use crate::base::address::Address;
    use crate::base::error::ErrorKind;
    use crate::transport::domain::Side::{self, Either, Local, Remote};
    use std::path::Path;

    fn tcp(at: &str) -> Address {
        Address::Tcp(at.parse().unwrap())
    }

    fn local(endpoint: &str) -> Address {
        Address::Local { dir: "/dir".into(), endpoint: endpoint.parse().unwrap() }
    }

    #[test]
    fn data_goes_where_the_peer_was_reached() {
        let uds = || Address::Uds("/dir".into());
        let target = |address: &Address, side: Side, port| {
            DialTarget::of_data(address, Some(Path::new("/dir/data")), port, side)
        };
        let path = DialTarget::Path("/dir/data".into());
        let there = |at| DialTarget::Address(tcp(at));
        let rows = [
            // Shared memory goes by the socket that the peer named, however it was reached.
            (uds(), Local, None, path.clone()),
            (tcp("127.0.0.1:7000"), Local, Some(7001), path.clone()),
            // What takes either only if the folder is known here.
            (uds(), Either, Some(7001), path.clone()),
            (local("127.0.0.2:7000"), Either, None, path),
            (tcp("10.0.0.1:7000"), Either, Some(7001), there("10.0.0.1:7001")),
            // TCP: the address at which it was reached, with the port that it named.
            (tcp("10.0.0.1:7000"), Remote, Some(7001), there("10.0.0.1:7001")),
            (tcp("[::1]:7000"), Remote, Some(7001), there("[::1]:7001")),
            (uds(), Remote, Some(7001), there("127.0.0.1:7001")),
            // An endpoint that was asked for by name, unless it stands for any.
            (local("127.0.0.2:7000"), Remote, Some(7001), there("127.0.0.2:7000")),
            (local("0.0.0.0:7000"), Remote, Some(7001), there("127.0.0.1:7001")),
            (local("[::]:7000"), Remote, Some(7001), there("127.0.0.1:7001")),
        ];
        for (address, side, port, want) in rows {
            assert_eq!(target(&address, side, port).unwrap(), want, "{address} {side:?}");
        }
    }

    #[test]
    fn a_peer_without_a_port_is_reported() {
        for address in [Address::Uds("/dir".into()), tcp("10.0.0.1:7000"), local("0.0.0.0:0")] {
            let e = DialTarget::of_data(&address, None, None, Remote).unwrap_err();
            assert_eq!(e.kind(), ErrorKind::Unavailable);
            let ip = if matches!(address, Address::Tcp(_)) { "10.0.0.1" } else { "127.0.0.1" };
            assert!(e.to_string().contains(&format!("no TCP listener at {ip} ")), "{e}");
        }
        let no_socket = DialTarget::of_data(&tcp("10.0.0.1:7000"), None, Some(1), Local).unwrap();
        assert_eq!(no_socket, DialTarget::Address(tcp("10.0.0.1:1")));
    }
}
