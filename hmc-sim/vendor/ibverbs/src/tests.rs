//! Tests of the fake library itself.

mod declarations;
mod rig;
mod transfers;
mod windows;
