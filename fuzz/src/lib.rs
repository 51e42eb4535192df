//! The bodies of the fuzz targets are also the bodies of ordinary tests, which replay `corpus/` on a stable compiler.

use bodies::{Body, Subject};
use std::sync::OnceLock;

#[path = "../../hmc-core/tests/bodies/mod.rs"]
pub mod bodies;
#[path = "../../hmc-std/tests/bodies/config.rs"]
pub mod config;
#[path = "../../hmc-hw/tests/bodies/verbs_note.rs"]
pub mod verbs_note;

/// Runs a body; against the subject with the planted bug if `HMC_FUZZ_PLANTED=1`.
pub fn drive(body: Body, bytes: &[u8]) {
    static SUBJECT: OnceLock<Subject> = OnceLock::new();
    let subject = SUBJECT.get_or_init(|| match std::env::var("HMC_FUZZ_PLANTED").as_deref() {
        Ok("1") => Subject::Broken,
        Ok("0") | Err(std::env::VarError::NotPresent) => Subject::Real,
        other => panic!("HMC_FUZZ_PLANTED={other:?}: give 1 or 0, or unset it"),
    });
    body(bytes, *subject);
}
