//! What the world can find wrong with a node, as values.

/// A class of wrong behaviour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// Answered `Done`, but the bytes are not there, or were never there.
    NotDone,
    /// A byte changed that nobody possible wrote: late, misplaced, or outside of all ranges.
    StrayBytes,
    /// An ask was answered twice, by the wrong rank, or without being asked.
    Answers,
    /// An ask failed, or a link ended, and neither a fault nor the script explains it.
    Unexplained,
    /// An ask was answered long after its deadline.
    Late,
    /// An ask was never answered.
    Hang,
    /// A message came out of order, twice, changed, or from nobody.
    Messages,
    /// A message was lost though its link lived.
    Lost,
    /// A node holds more for a connection than it may.
    Held,
    /// `PeerUp` and `PeerDown` contradict each other, or an old incarnation came back.
    Peers,
    /// Two healed ranks could not connect and put.
    Stuck,
    /// The node broke a rule of its border.
    Border,
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
    /// Who, where, how much.
    pub text: String,
}

/// Fine, or not.
pub(crate) type Verdict = Result<(), Finding>;

/// A finding of that class.
#[cold]
pub(crate) fn found<T>(kind: Kind, text: impl Into<String>) -> Result<T, Finding> {
    Err(Finding { kind, text: text.into() })
}
