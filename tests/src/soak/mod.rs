//! A soak: processes that put, get, notify, expose and revoke memory at random, while some of them are killed and restarted.
//! Each byte is compared with the last written value.
//!
//! Ranks 0 and 1 are two sessions of one process that is not killed (`processes`); the others are processes of their own, to be
//! killed. Of every two that are connected each is initiator (`initiator`) and target (`target`) at once, in a thread each (`crew`). An
//! area has one writer only, so its initiator knows what must be there. Choices come from the seed; when they happen does not.

mod crew;
mod end;
mod initiator;
mod party;
mod processes;
mod range;
mod resources;
mod settings;
mod target;
mod totals;

pub use processes::{run, serve};
pub use settings::{KillableArgs, Settings};
