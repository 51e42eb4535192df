//!
//! Names are those of `infiniband/verbs.h`. C enumerations are numbers; unions without a name in C have the name of
//! their structure and their first member.
#![allow(
    non_camel_case_types,
    missing_docs,
    missing_debug_implementations,
    clippy::pub_underscore_fields,
    reason = "the names are libibverbs' own, and its manual describes them"
)]

mod attributes;
mod constants;
mod object;
mod work;

pub use attributes::*;
pub use constants::*;
pub use object::*;
pub use work::*;
