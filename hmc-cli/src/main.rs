//! The command `hmc`.

fn main() {}
