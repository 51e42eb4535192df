//! Written next.
fn main() {}
