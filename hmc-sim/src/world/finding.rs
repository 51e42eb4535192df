//! Findings of the world about a node, as values.

/// A class of wrong behaviour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// Completed with `Done`, but the bytes are not there, or were never there.
    NotDone,
    /// A byte changed that no possible writer wrote: late, misplaced, or outside of all ranges.
    StrayBytes,
    /// A request completed twice, at the wrong rank, or was never submitted.
    Results,
    /// A request failed, or a link closed, and neither a fault nor the script explains it.
    Unexplained,
    /// A request completed long after its deadline.
    Late,
    /// A request never completed.
    Hang,
    /// A message came out of order, twice, changed, or without a sender.
    Messages,
    /// A message was lost although its link was up.
    Lost,
    /// A node allocates more for a connection than it may.
    Held,
    /// `PeerUp` and `PeerDown` contradict each other, or an old incarnation came back.
    Peers,
    /// Two healed ranks could not connect and put.
    Stuck,
    /// The node broke a rule of its interface.
    Interface,
    /// The node's own invariants.
    Health,
    /// Events without end.
    Livelock,
    /// The node panicked.
    Panic,
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Its class.
    pub kind: Kind,
    /// The details.
    pub text: String,
}

/// Passed, or a finding.
pub(crate) type Verdict = Result<(), Finding>;

/// A finding of that class.
#[cold]
pub(crate) fn found<T>(kind: Kind, text: impl Into<String>) -> Result<T, Finding> {
    Err(Finding { kind, text: text.into() })
}
