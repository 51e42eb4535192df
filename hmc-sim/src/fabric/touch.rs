//! A piece of a request, in the words of the detector: what it reads and what it writes.

use hmc_core::range::Side;
use hmc_core::region::LocalSlice;
use hmc_core::types::Access;
use hmc_core::work::Failure;

use super::end_number;
use super::flight::{Flight, Part};
use crate::detector::Touch;

/// The part of a range that a piece is about.
pub(crate) fn cut(slice: LocalSlice, part: Part) -> Result<LocalSlice, Failure> {
    let span = slice.span.sub(Side::Local, part.from, part.len);
    span.map(|span| LocalSlice { key: slice.key, span }).map_err(|_| Failure::UnknownRegion)
}

pub(crate) fn local_touch(flight: &Flight, end: usize, range: LocalSlice) -> Touch {
    let access = if flight.is_put() { Access::READ } else { Access::WRITE };
    let (ticket, by) = (flight.ticket, flight.who);
    Touch { end: end_number(end), range, access, ticket, by, through: None }
}

/// What a piece reads, and what it writes.
pub(crate) fn touches(
    flight: &Flight,
    (here, there): (usize, usize),
    local: LocalSlice,
    target: LocalSlice,
) -> [Touch; 2] {
    let near = local_touch(flight, here, local);
    let access = if flight.is_put() { Access::WRITE } else { Access::READ };
    let through = Some(flight.through());
    let far = Touch { end: end_number(there), range: target, access, through, ..near };
    if flight.is_put() { [near, far] } else { [far, near] }
}
