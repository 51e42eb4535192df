//! The claims of a HELLO, and the proof that they need before the rank is looked up.

use hmc_core::wire::advert::EndpointDesc;
use hmc_core::wire::hello::Hello;
use hmc_core::wire::reject::RejectReason;

use crate::base::address::{Address, is_loopback};
use crate::base::error::ErrorKind;
use crate::base::lock::lock;
use crate::io::listener::PeerAddr;
use crate::io::socket::Socket;
use crate::state::inner::SessionInner;
use crate::state::pending_conns::{Claim, FirstMessage};

impl SessionInner {
    /// What a HELLO claims, and whether it has to be proven.
    pub(crate) fn claim_of(
        &self,
        h: &Hello<'_>,
        source: PeerAddr,
        socket: &Socket,
    ) -> FirstMessage {
        if !self.is_expected(h.asked, source, socket) {
            return FirstMessage::Refused(RejectReason::WrongEndpoint);
        }
        let (needed, proven) = match source {
            PeerAddr::Uds { .. } => (false, true),
            PeerAddr::Tcp(from) => {
                (self.needs_proof(socket.own_address().map(|a| a.ip()), from.ip()), false)
            }
        };
        let route = self.route_back(h, source, socket);
        let (rank, incarnation, host) = (h.rank, h.incarnation, h.host);
        let elsewhere = self.is_elsewhere(h.asked);
        let claim = Claim { rank, incarnation, host, route, elsewhere, proven };
        if !h.proves {
            return if needed {
                FirstMessage::Refused(RejectReason::NotAuthorised)
            } else {
                FirstMessage::Native(claim)
            };
        }
        let proof = self.secret().and_then(|secret| {
            let nonce = self.entropy.random()?;
            Ok(secret.challenge(h, self.config.rank, nonce))
        });
        match proof {
            Ok((challenge, must)) => FirstMessage::Promised(claim, challenge, must),
            Err(e) => {
                self.warn_refused(source, "nothing can be proved to it", &e);
                FirstMessage::Refused(if e.kind() == ErrorKind::SystemLimit {
                    RejectReason::Busy
                } else {
                    RejectReason::NotAuthorised
                })
            }
        }
    }

    /// Whether its listeners accept the dialect of the C++ HMC.
    pub(crate) fn accepts_cxx(&self) -> bool {
        self.config.upstream
    }

    pub(crate) fn warn_unproven(&self, source: PeerAddr) {
        let hint = self.secret_hint();
        self.warn_refused(source, "it did not prove that it is of this user", &hint);
    }

    /// Warns, once a second at the most: pending connections come as often as they like.
    pub(crate) fn warn_refused(&self, source: PeerAddr, why: &str, hint: &dyn std::fmt::Display) {
        let due = lock(&self.pending).is_worth_a_warning(self.clock.now());
        match due {
            Some(others) => tracing::warn!(?source, %hint, others, "refused a process: {why}"),
            None => tracing::debug!(?source, "refused a process: {why}"),
        }
    }

    /// Where the pending connection itself listens, should it have to be dialed.
    fn route_back(&self, h: &Hello<'_>, source: PeerAddr, socket: &Socket) -> Option<Address> {
        h.endpoints.iter().find_map(|blob| match (blob.decode(), source) {
            (Ok(EndpointDesc::Shm { path }), PeerAddr::Uds { .. }) if h.host == self.host => {
                let path = std::path::PathBuf::from(std::ffi::OsString::from(
                    std::str::from_utf8(path).ok()?,
                ));
                // No endpoint is named, and one that starts again may get another port.
                path.parent().map(|dir| Address::Uds(dir.to_path_buf()))
            }
            (Ok(e @ EndpointDesc::Tcp { .. }), PeerAddr::Tcp(from)) => {
                let route = Address::tcp((from.ip(), e.port()?));
                // The address at which it came stood for the trust in it, unless only this system can reach that.
                let here = socket.own_address().map(|at| at.ip());
                let is_trusted = here.is_some_and(|ip| !is_loopback(ip));
                Some(if is_trusted { route.unauthenticated() } else { route })
            }
            _ => None,
        })
    }
}
