//! The HELLO of a dial, and the error for each refusal.

use hmc_core::ctrl::conn::ControlConn;
use hmc_core::types::{ConnType, Incarnation, Rank};
use hmc_core::wire::hello::{EndpointList, Hello};
use hmc_core::wire::reject::RejectReason;

use crate::base::address::Address;
use crate::base::error::{Error, ErrorKind, Result};
use crate::conn::handshake::{Handshake, invalid_hello};
use crate::io::socket::Socket;
use crate::link::Choice;
use crate::state::inner::SessionInner;

impl SessionInner {
    /// The dialer's handshake with whoever listens at `address`, its HELLO ready to be sent on the connection to it.
    pub(crate) fn begin_handshake(
        &self,
        socket: Socket,
        address: &Address,
        endpoints: &EndpointList,
        incarnation: Incarnation,
        expected: Rank,
    ) -> Result<Handshake> {
        let hello = self.hello(endpoints, incarnation, Some(expected))?;
        let (asked, proves) = self.expected_endpoint(address, &socket);
        let hello = Hello { asked: &asked, proves, ..hello };
        let prover = self.prover(&hello, endpoints)?.map(Box::new);
        let control = ControlConn::dial(&hello, self.clock.now()).map_err(invalid_hello)?;
        Ok(Handshake { prover, ..Handshake::new(socket, control) })
    }

    /// The error for a refusal by the peer.
    pub(crate) fn refusal(&self, peer: Rank, why: RejectReason) -> Error {
        let hint = match why {
            RejectReason::NotAuthorised => self.secret_hint(),
            RejectReason::WrongEndpoint => {
                "another process has that socket (of another job, say), or something passes the connection on (ssh -L, \
                 docker -p, socat): connect to the address at which the peer listens. A forward of the peer's own port \
                 works where both ends allow any local process by name (insecure_loopback)"
                    .to_owned()
            }
            RejectReason::WrongJob => format!(
                "this process belongs to job {} ({}); HMC_JOB or `job` names another",
                self.config.job, self.config.job_from
            ),
            _ => return refusal(peer, self.config.rank, why),
        };
        refusal(peer, self.config.rank, why).with_remedy(hint)
    }
}

/// The error for a refusal by the peer.
fn refusal(peer: Rank, ours: Rank, why: RejectReason) -> Error {
    let kind = match why {
        RejectReason::Version { .. } => ErrorKind::Version,
        RejectReason::Duplicate | RejectReason::Kept => ErrorKind::DuplicateRank,
        RejectReason::WrongJob
        | RejectReason::WrongRank { .. }
        | RejectReason::BadRank { .. }
        | RejectReason::WrongEndpoint => ErrorKind::InvalidConfig,
        RejectReason::ShuttingDown => ErrorKind::Closed,
        RejectReason::NotAuthorised => ErrorKind::NoCredentials,
        _ => ErrorKind::Refused,
    };
    Error::new(kind, format!("the peer refused this process (rank {ours}): {why}")).with_peer(peer)
}

/// An error of a dial, with why it did not end with shared memory, if that was tried.
pub(crate) fn with_shm_reason(e: Error, peer: Rank, choices: &[Choice]) -> Error {
    let e = e.with_peer(peer);
    match choices.iter().find(|c| c.conn == ConnType::Shm && !c.chosen) {
        Some(passed) => e.after(format_args!("no shm: {}", passed.why)),
        None => e,
    }
}

#[cfg(test)]
mod tests {
    use super::{Choice, ConnType, Error, ErrorKind, Rank, RejectReason, refusal, with_shm_reason};
    use hmc_core::types::Incarnation;

    #[test]
    fn a_refusal_is_an_error_of_the_kind_that_helps() {
        for (why, kind) in [
            (RejectReason::Version { ours: 2 }, ErrorKind::Version),
            (RejectReason::Duplicate, ErrorKind::DuplicateRank),
            (RejectReason::Kept, ErrorKind::DuplicateRank),
            (RejectReason::WrongJob, ErrorKind::InvalidConfig),
            (RejectReason::WrongRank { ours: Rank(4) }, ErrorKind::InvalidConfig),
            (RejectReason::BadRank { limit: 4 }, ErrorKind::InvalidConfig),
            (RejectReason::WrongEndpoint, ErrorKind::InvalidConfig),
            (RejectReason::ShuttingDown, ErrorKind::Closed),
            (RejectReason::NotAuthorised, ErrorKind::NoCredentials),
            (RejectReason::Busy, ErrorKind::Refused),
            (RejectReason::BadToken, ErrorKind::Refused),
            (RejectReason::Stale { seen: Incarnation(1) }, ErrorKind::Refused),
        ] {
            let e = refusal(Rank(5), Rank(6), why);
            assert_eq!((e.kind(), e.peer()), (kind, Some(Rank(5))), "{why:?}");
            let text = e.to_string();
            assert!(text.contains("refused this process (rank 6)"), "{text}");
            assert!(text.contains(&why.to_string()), "{text}");
        }
    }

    #[test]
    fn the_error_of_a_dial_reports_why_memory_is_not_shared_if_that_was_tried() {
        let choice = |conn, chosen| Choice { conn, chosen, why: format!("because of {conn}") };
        let text = |choices: &[Choice]| {
            let e = with_shm_reason(
                Error::new(ErrorKind::Unavailable, "nobody answers"),
                Rank(5),
                choices,
            );
            assert_eq!((e.kind(), e.peer()), (ErrorKind::Unavailable, Some(Rank(5))));
            e.to_string()
        };
        let says = |choices: &[Choice]| text(choices).contains("no shm: because of shm");
        assert!(says(&[choice(ConnType::Ucx, false), choice(ConnType::Shm, false)]));
        assert!(!says(&[]) && !says(&[choice(ConnType::Ucx, false)]));
        assert!(!says(&[choice(ConnType::Shm, true)]), "it was chosen");
        for other in [ConnType::Ucx, ConnType::Tcp] {
            assert!(!text(&[choice(other, false)]).contains("because"), "{other}");
        }
    }
}
