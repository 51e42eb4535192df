//! Calls of the application's code: wakers of its futures, and drops of owners of its memory.

pub(crate) mod deferred_drops;
pub(crate) mod timer;
pub(crate) mod waker_set;
pub(crate) mod wakers;
