//! The life of one slot, as a table of state and step.
//!
//! It holds no data: [`super::Slots`] keeps the counts and asks here whether a step is allowed.
//! Nothing else may decide that.

/// Where a slot stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Life {
    /// No operation.
    Free,
    /// Completions are outstanding and the outcome is not known.
    Pending,
    /// The operation failed, but completions are outstanding.
    Draining,
    /// The outcome is known and the memory free; neither was told or taken.
    Done,
    /// As `Done`, and the freedom of the memory was told.
    Told,
    /// Nobody will ask for the outcome; completions are outstanding.
    Orphan,
    /// Nobody will ask for the outcome; that the memory is free must still be told.
    Retired,
}

/// What happens to a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// An operation begins.
    Begin,
    /// The transport refused it: it never was.
    Refuse,
    /// One of its completions arrived, and others are to follow.
    Part,
    /// It failed while completions are outstanding: deadline, cancelled, peer gone.
    Fail,
    /// No completion will follow: the last one arrived, or a fence came.
    Fence,
    /// Its news are told.
    Tell,
    /// Its outcome is taken.
    Take,
    /// Nobody will ask for its outcome.
    Abandon,
}

/// A step that makes no sense in a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadStep {
    /// The state.
    pub life: Life,
    /// The step.
    pub step: Step,
}

impl Life {
    /// The whole life of a slot, as a table. Every pair is written out.
    ///
    /// # Errors
    /// [`BadStep`] when the step is not allowed in this state; the state stays.
    #[inline]
    pub const fn step(self, step: Step) -> Result<Self, BadStep> {
        use {Life as L, Step as S};
        match (self, step) {
            (L::Free, S::Begin) | (L::Pending, S::Part) => Ok(L::Pending),
            (L::Pending | L::Draining, S::Fail) | (L::Draining, S::Part | S::Tell) => {
                Ok(L::Draining)
            }
            (L::Pending | L::Draining, S::Fence) => Ok(L::Done),
            (L::Done, S::Tell) => Ok(L::Told),
            (L::Pending | L::Draining, S::Abandon)
            | (L::Draining, S::Take)
            | (L::Orphan, S::Part) => Ok(L::Orphan),
            (L::Orphan, S::Fence) | (L::Done, S::Abandon) => Ok(L::Retired),
            (L::Pending, S::Refuse)
            | (L::Done | L::Told, S::Take)
            | (L::Told, S::Abandon)
            | (L::Retired, S::Tell) => Ok(L::Free),
            (
                L::Free,
                S::Refuse | S::Part | S::Fail | S::Fence | S::Tell | S::Take | S::Abandon,
            )
            | (L::Pending, S::Begin | S::Tell | S::Take)
            | (L::Draining, S::Begin | S::Refuse)
            | (L::Done, S::Begin | S::Refuse | S::Part | S::Fail | S::Fence)
            | (L::Told, S::Begin | S::Refuse | S::Part | S::Fail | S::Fence | S::Tell)
            | (L::Orphan, S::Begin | S::Refuse | S::Fail | S::Tell | S::Take | S::Abandon)
            | (
                L::Retired,
                S::Begin | S::Refuse | S::Part | S::Fail | S::Fence | S::Take | S::Abandon,
            ) => Err(BadStep { life: self, step }),
        }
    }
}
