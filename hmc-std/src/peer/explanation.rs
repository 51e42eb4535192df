//! Which transport moves a peer's bytes, and why.

use hmc_core::types::ConnType;

use super::Peer;
use crate::link::Choice;

/// What `explain` tells.
#[derive(Clone, Debug)]
pub struct Explanation {
    /// The transport that moves the bytes; `None` for a peer of the upstream dialect.
    pub conn: Option<ConnType>,
    /// All that were considered, and why.
    pub choices: Vec<Choice>,
    /// Who checks accesses to exposed memory, and what that means.
    pub trust: &'static str,
    /// The target itself judges every access, so that a window that is taken back is out of reach at once, even of a peer
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
                choices: Vec::new(),
                trust,
                target_checks,
                slower: Vec::new(),
            };
        }
        let conn = self.conn();
        let trust = match conn {
            Some(ConnType::Shm) => {
                "the kernel bounds mapped regions; offsets and revocation are checked by this \
                 library in the peer's process (same user)"
            }
            Some(ConnType::Tcp) => "the target checks window, range and epoch of every frame",
            Some(ConnType::Ucx) if self.link.moves_by_messages() => {
                "the target checks window, range and epoch of every message; but whoever can send to UCX's worker \
                 can reach all memory of its process by UCX's own messages, so the peer is trusted"
            }
            Some(ConnType::Ucx) => {
                "lanes with a NIC check memory keys; UCX's lanes of shared memory check nothing at the target: \
                 range, rights and epoch are checked by this library in the peer's process, which is trusted"
            }
            Some(ConnType::Loopback) => "this process",
            _ => "no memory is exposed",
        };
        let target_checks = match conn {
            Some(ConnType::Ucx) => self.link.moves_by_messages(),
            other => matches!(other, Some(ConnType::Tcp | ConnType::Loopback)),
        };
        let mut choices = self.link.choices();
        let lanes = self.link.ucx_lanes();
        if let Some(c) = choices.iter_mut().find(|c| c.chosen && !lanes.is_empty()) {
            c.why = format!("{}; lanes: {}", c.why, lanes.join(", "));
        }
        let slower = self.link.data().port().slower();
        Explanation { conn, choices, trust, target_checks, slower }
    }
}
