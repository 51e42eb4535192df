//! Tests of the fake library itself.

mod declarations;
mod events;
mod faults;
mod messages;
mod ports;
mod rig;
mod transfers;
mod windows;
