//! Which transport moves a peer's bytes, and why.

use std::net::SocketAddr;

use hmc_core::types::ConnType;

use super::Peer;
use crate::link::Choice;

/// What `explain` tells.
#[derive(Clone, Debug)]
pub struct Explanation {
    /// The transport that moves the bytes; `None` for a peer of the upstream dialect.
    pub conn: Option<ConnType>,
    /// The peer's address on its control connection, if that is TCP; `None` over a local socket. For a peer that dialed, the port is
    /// the connection's, not one on which it listens.
    pub address: Option<SocketAddr>,
    /// The id of the session whose peer it is: [`SessionInfo::id`](crate::SessionInfo::id).
    pub session: u64,
    /// All that were considered, and why.
    pub choices: Vec<Choice>,
    /// Who checks accesses to exposed memory, and what that means.
    pub trust: &'static str,
    /// The target itself validates every access, so that a window that is taken back is out of reach at once, even of a peer
    /// that is stopped.
    pub target_checks: bool,
    /// What moves bytes by a slower path than the transport's own, and why; empty if nothing does.
    pub slower: Vec<String>,
}

impl std::fmt::Display for Explanation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.conn {
            Some(conn) => writeln!(f, "{conn}")?,
            None => writeln!(f, "control messages only")?,
        }
        for c in &self.choices {
            let mark = if c.chosen { "chosen" } else { "not chosen" };
            writeln!(f, "  {}: {mark}: {}", c.conn, c.why)?;
        }
        for s in &self.slower {
            writeln!(f, "  slower: {s}")?;
        }
        write!(f, "  trust: {}", self.trust)
    }
}

impl Peer {
    /// Which transport was chosen, why, and why not the others.
    #[must_use]
    pub fn explain(&self) -> Explanation {
        if self.shared.origin.is_child() {
            let trust = "this is a forked child, which cannot use the connections of its parent";
            let (conn, target_checks) = (None, false);
            return Explanation {
                conn,
                address: self.link.address,
                session: self.shared.id,
                choices: Vec::new(),
                trust,
                target_checks,
                slower: Vec::new(),
            };
        }
        let conn = self.conn();
        let (trust, target_checks, lanes, slower) = {
            let mut data = self.link.data();
            let plane = data.plane();
            let (mut lanes, mut slower) = (Vec::new(), Vec::new());
            plane.lanes(&mut |lane| lanes.push(lane.to_owned()));
            plane.degraded(&mut |what| slower.push(what.to_string()));
            (plane.trust(), plane.checks_accesses(), lanes, slower)
        };
        let mut choices = self.link.choices();
        if let Some(c) = choices.iter_mut().find(|c| c.chosen && !lanes.is_empty()) {
            c.why = format!("{}; lanes: {}", c.why, lanes.join(", "));
        }
        let (address, session) = (self.link.address, self.shared.id);
        Explanation { conn, address, session, choices, trust, target_checks, slower }
    }
}
