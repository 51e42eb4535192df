//! The states of one slot, as a table of state and transition.
//!
//! It stores no data: [`super::Slots`] keeps the counts and looks up in this table whether a transition is allowed.
//! No other code decides that.

/// The state of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SlotState {
    /// No operation.
    Free,
    /// Completions are outstanding and the outcome is not known.
    Pending,
    /// The operation failed, but completions are outstanding.
    Draining,
    /// The outcome is known and the memory free; neither was reported or taken.
    Done,
    /// As `Done`, and the fence was reported.
    Reported,
    /// The caller abandoned the operation; completions are outstanding.
    Abandoned,
    /// The caller abandoned the operation and the memory is free; the fence must still be reported.
    AbandonedDone,
}

/// A transition of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SlotTransition {
    /// An operation begins.
    Begin,
    /// The transport rejected the operation: it was never posted.
    Reject,
    /// One of its completions arrived, and others follow.
    Partial,
    /// It failed while completions are outstanding: deadline, cancelled, peer gone.
    Fail,
    /// No completion follows: the last one arrived, or a fence was passed.
    Fence,
    /// Its event is reported.
    Report,
    /// Its outcome is taken.
    Take,
    /// The caller abandons the operation.
    Abandon,
}

/// A transition that is not allowed in a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidTransition {
    /// The state.
    pub state: SlotState,
    /// The transition.
    pub transition: SlotTransition,
}

impl SlotState {
    /// Returns the state after `transition`. `tests/slot_table.txt` has every pair.
    ///
    /// # Errors
    /// [`InvalidTransition`] if the transition is not allowed in this state.
    #[inline]
    pub const fn next(self, transition: SlotTransition) -> Result<Self, InvalidTransition> {
        use {SlotState as L, SlotTransition as S};
        match (self, transition) {
            (L::Free, S::Begin) | (L::Pending, S::Partial) => Ok(L::Pending),
            (L::Pending | L::Draining, S::Fail) | (L::Draining, S::Partial | S::Report) => {
                Ok(L::Draining)
            }
            (L::Pending | L::Draining, S::Fence) => Ok(L::Done),
            (L::Done, S::Report) => Ok(L::Reported),
            (L::Pending | L::Draining, S::Abandon)
            | (L::Draining, S::Take)
            | (L::Abandoned, S::Partial) => Ok(L::Abandoned),
            (L::Abandoned, S::Fence) | (L::Done, S::Abandon) => Ok(L::AbandonedDone),
            (L::Pending, S::Reject)
            | (L::Done | L::Reported, S::Take)
            | (L::Reported, S::Abandon)
            | (L::AbandonedDone, S::Report) => Ok(L::Free),
            _ => Err(InvalidTransition { state: self, transition }),
        }
    }
}
