//! The bodies of the fuzz targets, which are the bodies of ordinary tests: `hmc-core/tests`
//! replays `corpus/` through the same functions on a stable compiler.

#[path = "../../hmc-core/tests/common/bodies.rs"]
pub mod bodies;
