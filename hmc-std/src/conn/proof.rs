//! Proofs that both ends of a connection on one host belong to the same user.

use std::net::IpAddr;

use hmc_core::wire::hello::{Asked, EndpointList, Hello};
use hmc_core::wire::proof::{Challenge, Proof, Role};

use crate::base::address::{Address, is_loopback};
use crate::base::config::check_exposure;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::secret::Secret;
use crate::state::inner::SessionInner;

/// A dialer's part: what it sent, and what it knows.
pub(crate) struct Prover {
    secret: Secret,
    hello: Hello<'static>,
    asked: Asked,
    endpoints: EndpointList,
    /// What to say when the acceptor cannot prove itself.
    hint: String,
}

impl Prover {
    /// The proof that the acceptor must have shown, and the answer.
    pub(crate) fn answer(&self, challenge: &Challenge) -> (Proof, Proof) {
        let (asked, endpoints) = (&self.asked, self.endpoints.endpoints());
        let hello = Hello { asked, endpoints, ..self.hello };
        let of = |role| self.secret.prove(role, &hello, challenge.rank, &challenge.nonce);
        (of(Role::Acceptor), of(Role::Dialer))
    }

    /// The acceptor did not prove itself.
    pub(crate) fn not_believed(&self) -> Error {
        let what = "what listens there did not prove that it belongs to the same user";
        Error::new(ErrorKind::NoCredentials, what).with_remedy(self.hint.clone())
    }
}

impl SessionInner {
    /// Whether both ends of a connection over TCP have to prove that they are of the same user: it stays within this system,
    /// and this session did not allow others by name.
    pub(crate) fn needs_proof(&self, here: Option<IpAddr>, there: IpAddr) -> bool {
        // A process may bind another address of this system before it connects to a loopback one.
        !self.config.insecure_loopback && (is_loopback(there) || here.is_some_and(is_loopback))
    }

    /// Refuses an address that other machines can use, unless it or the session says that connections need not prove anything.
    ///
    /// # Errors
    /// `NoCredentials`.
    pub(crate) fn check_exposure(&self, address: &Address) -> Result<()> {
        match address {
            Address::Tcp(addr) => check_exposure(addr.ip(), self.config.insecure),
            Address::UnauthenticatedTcp(_) | Address::Uds(_) | Address::Local { .. } => Ok(()),
        }
    }

    /// The secret, if a listener has to have one: an error now, and not a refusal of each peer.
    pub(crate) fn check_secret(&self, ip: IpAddr) -> Result<()> {
        match self.needs_proof(Some(ip), ip) {
            true => self.secret().map(|_| ()),
            false => Ok(()),
        }
    }

    /// The secret that is in the file now.
    pub(crate) fn secret(&self) -> Result<Secret> {
        self.secret.of(&self.config.secret, self.clock.unix_nanos())
    }

    /// What a dialer needs that sent `hello`, if that promises a proof.
    pub(crate) fn prover(
        &self,
        hello: &Hello<'_>,
        endpoints: &EndpointList,
    ) -> Result<Option<Prover>> {
        if !hello.proves {
            return Ok(None);
        }
        let (secret, hint) = (self.secret()?, self.secret_hint());
        Ok(Some(Prover {
            secret,
            hello: hello.detached(),
            asked: *hello.asked,
            endpoints: endpoints.clone(),
            hint,
        }))
    }

    /// What to do about a proof that failed.
    pub(crate) fn secret_hint(&self) -> String {
        self.config.secret.hint()
    }
}
