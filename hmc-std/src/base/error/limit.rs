//! A limit that a call met, in numbers.

use std::fmt;

/// What a call needed, what there was, and what was limited.
///
/// For most kinds of errors `need` exceeds `have`. For [`ErrorKind::Length`](crate::ErrorKind::Length) they are two lengths that
/// differ. The unit is in the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limit {
    /// What is counted, with its unit, and the limit's own name if it has one: `registered regions`, `open files (ulimit -n)`.
    pub name: &'static str,
    /// What the call came to, with all that was in use before.
    pub need: u64,
    /// What the limit allows, or what there is.
    pub have: u64,
}

impl Limit {
    /// So many are needed, so many there are.
    pub(crate) fn new(
        name: &'static str,
        need: impl TryInto<u64>,
        have: impl TryInto<u64>,
    ) -> Self {
        let (need, have) =
            (need.try_into().unwrap_or(u64::MAX), have.try_into().unwrap_or(u64::MAX));
        Self { name, need, have }
    }

    /// All of them are in use, and one more is needed.
    pub(crate) fn one_more(name: &'static str, have: impl TryInto<u64>) -> Self {
        let have = have.try_into().unwrap_or(u64::MAX);
        Self { name, need: have.saturating_add(1), have }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}, the limit is {}", self.need, self.name, self.have)
    }
}
