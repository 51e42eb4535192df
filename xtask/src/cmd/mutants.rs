//! `cargo xtask mutants`: changes the code outside the core in a sample of the ways that cargo-mutants knows, and shows which test
//! notices each.

mod copy;
mod engine;
mod list;
mod report;
mod run;
mod settle;
mod splice;
mod suites;
#[cfg(test)]
mod tests;
