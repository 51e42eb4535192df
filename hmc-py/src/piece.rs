//! A piece of a list of copies.

use hmc_std::{Error, Piece as StdPiece};
use pyo3::prelude::*;

use crate::ends::Ends;

/// A copy of a list: offset here, offset there, length; and the generation that it expects.
#[derive(FromPyObject)]
pub(crate) enum Piece {
    #[pyo3(transparent)]
    Plain((u64, u64, u64)),
    #[pyo3(transparent)]
    Expecting((u64, u64, u64, u32)),
}

impl Piece {
    /// The piece between both ends.
    pub(crate) fn of<'m>(&self, ends: &'m Ends) -> Result<StdPiece<'m>, Error> {
        let (here, there, len, expect) = match *self {
            Self::Plain((here, there, len)) => (here, there, len, None),
            Self::Expecting((here, there, len, generation)) => (here, there, len, Some(generation)),
        };
        let piece = StdPiece::new(ends.part(here, len)?, there);
        Ok(expect.map_or(piece, |generation| piece.expect(generation)))
    }
}
