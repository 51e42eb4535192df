//! Tests of the fake library itself.

mod declarations;
mod messages;
mod ports;
mod rig;
mod transfers;
mod windows;
