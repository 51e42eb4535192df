//! The operation table: one slot an operation, on storage of the caller's.

/// The name of a posted operation: a place in the table and how often that place was used.
///
/// An `OpId` is stale once its operation was waited for; a stale id is an error, never another
/// operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OpId {
    /// Place in the table.
    pub index: u16,
    /// How often that place was given out.
    pub generation: u32,
}
