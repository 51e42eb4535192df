//! The commands, one module each. A command is a `run` function that answers with a verdict.

pub(crate) mod api;
pub(crate) mod attack;
pub(crate) mod bench;
pub(crate) mod bindings;
pub(crate) mod certify;
pub(crate) mod demo;
pub(crate) mod deny;
pub(crate) mod documents;
pub(crate) mod explore;
pub(crate) mod fuzz;
pub(crate) mod msrv;
pub(crate) mod mutants;
pub(crate) mod nopanic;
pub(crate) mod nostd;
pub(crate) mod packages;
pub(crate) mod sbom;
pub(crate) mod sim;
pub(crate) mod test_hw;
pub(crate) mod test_sim;
pub(crate) mod tidy;
pub(crate) mod vm;
pub(crate) mod wheel;
