//! The halves of a link that a wait needs.

/// Which halves of a link a waiter needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitScope {
    /// The data plane: an operation is awaited.
    Data,
    /// Both: a message is awaited, which may follow a put.
    Both,
    /// The control connection: a message is awaited that comes there. The data plane as well, unless it has been still: then
    /// the background thread serves it.
    Ctrl,
}
