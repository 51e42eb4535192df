//! Tests of the fake library itself.

mod declarations;
mod events;
mod faults;
mod messages;
mod misuse;
mod ports;
mod rig;
mod threads;
mod transfers;
mod windows;
