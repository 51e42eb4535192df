//! Addresses of peers.

use std::fmt;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use hmc_core::limits::MAX_PEERS;
use hmc_core::types::Rank;

use crate::base::error::{Error, ErrorKind, Result};
use crate::base::paths::{absolute, uds_path};

/// The address of a control listener: `tcp://HOST:PORT`, or `uds://FOLDER`, a folder of control sockets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A TCP listener.
    Tcp(SocketAddr),
    /// A TCP listener that other machines can reach, without proof of the identity of either end ([`Address::unauthenticated`]).
    UnauthenticatedTcp(SocketAddr),
    /// A folder with the peer's control socket, which is named after its rank.
    Uds(PathBuf),
    /// Such a folder, and the TCP endpoint of the peer: processes of several jobs may use one folder, and a process that does not
    /// listen at the endpoint refuses the connection. An unspecified IP address matches any.
    Local {
        /// The folder.
        dir: PathBuf,
        /// The endpoint.
        endpoint: SocketAddr,
    },
}

impl Address {
    /// Returns the address of a TCP listener. A session that listens at port 0 gets a port that the system chooses.
    pub fn tcp(addr: impl Into<SocketAddr>) -> Self {
        Self::Tcp(addr.into())
    }

    /// Returns the address of a session's socket in a folder.
    pub fn uds(dir: impl Into<PathBuf>) -> Self {
        Self::Uds(dir.into())
    }

    /// Allows connections without proof of the peer's identity: without this, a TCP address that is not a loopback address is refused
    /// with `NoCredentials`. Use it on trusted networks only. Loopback addresses and local sockets are returned unchanged.
    #[must_use]
    pub fn unauthenticated(self) -> Self {
        match self {
            Self::Tcp(addr) if !is_loopback(addr.ip()) => Self::UnauthenticatedTcp(addr),
            other => other,
        }
    }

    /// The address of a TCP listener.
    pub(crate) fn tcp_addr(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(addr) | Self::UnauthenticatedTcp(addr) => Some(*addr),
            Self::Uds(_) | Self::Local { .. } => None,
        }
    }

    fn local(s: &str) -> Self {
        match s.rsplit_once('#').map(|(dir, endpoint)| (dir, endpoint.parse())) {
            Some((dir, Ok(endpoint))) if !dir.is_empty() => {
                Self::Local { dir: PathBuf::from(dir), endpoint }
            }
            _ => Self::Uds(PathBuf::from(s)),
        }
    }

    /// Returns the address with an absolute path, which stays right if the working directory changes, if it fits a socket address.
    pub(crate) fn absolute(&self) -> Self {
        let last = Rank(MAX_PEERS.saturating_sub(1));
        let there = |dir: &PathBuf| match absolute(dir) {
            path if uds_path(&path, last).is_ok() => path,
            _ => dir.clone(),
        };
        match self {
            Self::Tcp(_) | Self::UnauthenticatedTcp(_) => self.clone(),
            Self::Uds(dir) => Self::Uds(there(dir)),
            Self::Local { dir, endpoint } => Self::Local { dir: there(dir), endpoint: *endpoint },
        }
    }

    /// The folder of a local address.
    pub(crate) fn folder(&self) -> Option<&Path> {
        match self {
            Self::Tcp(_) | Self::UnauthenticatedTcp(_) => None,
            Self::Uds(dir) | Self::Local { dir, .. } => Some(dir),
        }
    }
}

impl FromStr for Address {
    type Err = Error;

    /// Accepts `tcp://HOST:PORT`, `HOST:PORT` (names are resolved, the first address is taken),
    /// `uds://FOLDER`, `uds://FOLDER#IP:PORT`, or a path that contains a slash (and may end with `#IP:PORT`, too).
    ///
    /// # Errors
    /// `InvalidConfig` for anything else, other schemes and port 0 included; `Unavailable` for a name that is not resolved.
    fn from_str(s: &str) -> Result<Self> {
        if let Some(dir) = s.strip_prefix("uds://") {
            if dir.is_empty() {
                return Err(Error::config("uds:// needs a folder: uds:///run/user/1000/hmc"));
            }
            return Ok(Self::local(dir));
        }
        let (text, named) = match s.strip_prefix("tcp://") {
            Some(rest) => (rest, true),
            None => (s, false),
        };
        let no_address = || {
            Error::config(format!(
                "`{s}` is no address: write tcp://HOST:PORT (port 1 to 65535) or uds://FOLDER"
            ))
        };
        if !named && s.contains('/') {
            // `http://HOST:PORT` is no folder; `./http:` is one.
            let is_scheme = |before: &str| !before.contains('/');
            return match s.split_once("://") {
                Some((before, _)) if is_scheme(before) => Err(no_address()),
                _ => Ok(Self::local(s)),
            };
        }
        match text.parse::<SocketAddr>() {
            Ok(addr) if addr.port() == 0 => return Err(no_address()),
            Ok(addr) => return Ok(Self::Tcp(addr)),
            Err(_) => {}
        }
        // What is no name is not given to a resolver: `::1` lacks its brackets and its port.
        let is_name = |host: &str| !host.is_empty() && !host.contains([':', '[', ']']);
        let is_port =
            |port: &str| !port.starts_with('+') && port.parse::<u16>().is_ok_and(|port| port != 0);
        if text.rsplit_once(':').is_none_or(|(host, port)| !is_name(host) || !is_port(port)) {
            return Err(no_address());
        }
        let found = text.to_socket_addrs().map_err(|e| {
            Error::new(ErrorKind::Unavailable, format!("cannot resolve `{text}`: {e}"))
                .with_source(e)
        })?;
        found.into_iter().next().map(Self::Tcp).ok_or_else(|| {
            Error::new(ErrorKind::Unavailable, format!("`{text}` resolves to no address"))
        })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(a) | Self::UnauthenticatedTcp(a) => write!(f, "tcp://{a}"),
            Self::Uds(p) => write!(f, "uds://{}", p.display()),
            Self::Local { dir, endpoint } => write!(f, "uds://{}#{endpoint}", dir.display()),
        }
    }
}

impl From<SocketAddr> for Address {
    fn from(a: SocketAddr) -> Self {
        Self::Tcp(a)
    }
}

/// Whether an address can only be had by processes of this system (of this network namespace, to be exact).
pub(crate) fn is_loopback(ip: IpAddr) -> bool {
    ip.to_canonical().is_loopback()
}

#[cfg(test)]
mod tests {
    use super::Address;
    use crate::base::error::ErrorKind;

    #[test]
    fn addresses_are_read_and_written_alike() {
        for s in [
            "tcp://127.0.0.1:5001",
            "tcp://[::1]:80",
            "uds:///run/hmc",
            "uds:///run/hmc#127.0.0.1:5001",
            "uds:///run/hmc#[::1]:80",
            "uds:///run/a#b",
            "uds://http://a/b",
        ] {
            let a: Address = s.parse().expect(s);
            assert_eq!(a.to_string(), s);
        }
        assert_eq!(
            "127.0.0.1:9".parse::<Address>().expect("short form").to_string(),
            "tcp://127.0.0.1:9"
        );
        assert_eq!("/tmp/x".parse::<Address>().expect("path").to_string(), "uds:///tmp/x");
    }

    #[test]
    fn bad_addresses_report_what_is_wanted() {
        for s in [
            "",
            "host",
            "host:",
            "host:99999",
            "host:+80",
            ":80",
            "::1",
            "[::1",
            "[::1]",
            "uds://",
            "tcp://1.2.3.4",
            "tcp://1.2.3.4:0",
            "host:0",
            "http://127.0.0.1:80",
            "TCP://127.0.0.1:80",
            "unix:///run/hmc",
        ] {
            let e = s.parse::<Address>().expect_err(s);
            assert_eq!(e.kind(), ErrorKind::InvalidConfig, "{s}: {e}");
        }
    }
}
