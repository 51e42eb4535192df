//! A whole session that is driven from outside, for the simulator. Not for applications; nothing here is stable.

pub mod node;
