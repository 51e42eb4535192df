//! Tags and 32-bit numbers of the C++ HMC's calls, to and from peers by their names.

use hmc_std::{Message, want::Wanted};
use pyo3::prelude::*;
use pyo3::types::PyInt;

use crate::args::{Count, Name};
use crate::errors::OrRaise as _;
use crate::names::{int_of, tag_of};
use crate::native::Core;

impl Core {
    pub(crate) fn send_number(
        &self,
        py: Python<'_>,
        peer: Name,
        tag: &Bound<'_, PyAny>,
        timeout: Option<f64>,
        int: bool,
    ) -> PyResult<()> {
        let live = self.parts.live(py)?;
        let timeout = self.waits.cxx(py, timeout)?;
        let n: Option<i32> = int.then(|| tag.extract()).transpose()?;
        let tag: u64 = if int { 0 } else { tag.extract::<Count>()?.0 };
        py.detach(|| {
            let peer = self.parts.named(&live, peer.0)?;
            n.map_or_else(
                || peer.send(Message::Tag(tag)).within(timeout).wait(),
                |n| peer.send(Message::Int(n)).wait(),
            )
        })
        .or_raise(py)
    }

    pub(crate) fn recv_number<'py>(
        &self,
        py: Python<'py>,
        peer: Name,
        timeout: Option<f64>,
        int: bool,
    ) -> PyResult<Bound<'py, PyInt>> {
        let live = self.parts.live(py)?;
        let appears = self.waits.own(py, timeout)?;
        let timeout = self.waits.cxx(py, timeout)?;
        let want = if int { Wanted::Int } else { Wanted::Tag };
        let times = (appears, timeout);
        let got = py.detach(|| self.parts.recv(&live, peer.0, want, times)).or_raise(py)?;
        Ok(match int {
            true => int_of(got).or_raise(py)?.into_pyobject(py)?,
            false => tag_of(got).or_raise(py)?.into_pyobject(py)?,
        })
    }
}
