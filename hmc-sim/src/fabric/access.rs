//! The accesses of a chunk of a request, for the access checker.

use hmc_core::range::Side;
use hmc_core::region::LocalSlice;
use hmc_core::types::Access;
use hmc_core::work::Failure;

use super::end_number;
use super::in_flight::{Chunk, InFlight};
use crate::access_checker::MemAccess;

/// Returns the part of a range that a chunk covers.
pub(crate) fn cut(slice: LocalSlice, chunk: Chunk) -> Result<LocalSlice, Failure> {
    let span = slice.span.sub(Side::Local, chunk.from, chunk.len);
    span.map(|span| LocalSlice { key: slice.key, span }).map_err(|_| Failure::UnknownRegion)
}

pub(crate) fn local_access(request: &InFlight, end: usize, range: LocalSlice) -> MemAccess {
    let access = if request.is_put() { Access::READ } else { Access::WRITE };
    let (number, by) = (request.number, request.actor);
    MemAccess { end: end_number(end), range, access, number, by, through: None }
}

/// Returns the read and the write access of a chunk.
pub(crate) fn accesses(
    request: &InFlight,
    (here, there): (usize, usize),
    local: LocalSlice,
    target: LocalSlice,
) -> [MemAccess; 2] {
    let near = local_access(request, here, local);
    let access = if request.is_put() { Access::WRITE } else { Access::READ };
    let through = Some(request.through());
    let far = MemAccess { end: end_number(there), range: target, access, through, ..near };
    if request.is_put() { [near, far] } else { [far, near] }
}
