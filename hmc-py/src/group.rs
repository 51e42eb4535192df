//! Collectives: bytes in, bytes out. Dtypes and shapes are Python's part (`hmc/collective.py`).

use hmc_std::group::{Element, Exchange, Group as StdGroup, Reduce};
use hmc_std::memory::SharedBytes;
use hmc_std::request::Collective;
use hmc_std::{ErrorKind, Request};
use pyo3::prelude::*;

use crate::data::{self, Bytes};
use crate::errors::{OrRaise, refuse};
use crate::time::Waits;

/// The native half of ``hmc.Group``.
#[pyclass(module = "hmc._hmc", frozen)]
pub(crate) struct RawGroup {
    inner: StdGroup,
    waits: Waits,
}

fn element(py: Python<'_>, name: &str) -> PyResult<Element> {
    Ok(match name {
        "int8" => Element::I8,
        "int16" => Element::I16,
        "int32" => Element::I32,
        "int64" => Element::I64,
        "uint8" | "bool" => Element::U8,
        "uint16" => Element::U16,
        "uint32" => Element::U32,
        "uint64" => Element::U64,
        "float16" => Element::F16,
        "bfloat16" => Element::BF16,
        "float32" => Element::F32,
        "float64" => Element::F64,
        other => {
            let what = format!(
                "numbers of dtype {other} cannot be reduced: int8 to int64, uint8 to uint64, bool, float16, bfloat16, float32 \
                 and float64 can"
            );
            return Err(refuse(py, ErrorKind::InvalidConfig, what));
        }
    })
}

fn reduce(py: Python<'_>, name: &str) -> PyResult<Reduce> {
    Ok(match name {
        "sum" => Reduce::Sum,
        "prod" => Reduce::Prod,
        "min" => Reduce::Min,
        "max" => Reduce::Max,
        other => {
            let what = format!("op={other:?}: give \"sum\", \"prod\", \"min\" or \"max\"");
            return Err(refuse(py, ErrorKind::InvalidConfig, what));
        }
    })
}

fn exchange(py: Python<'_>, name: &str) -> PyResult<Exchange> {
    Ok(match name {
        "auto" => Exchange::Auto,
        "direct" => Exchange::Direct,
        "ring" => Exchange::Ring,
        other => {
            let what = format!("algo={other:?}: give \"auto\", \"direct\" or \"ring\"");
            return Err(refuse(py, ErrorKind::InvalidConfig, what));
        }
    })
}

impl RawGroup {
    pub(crate) fn new(inner: StdGroup, waits: Waits) -> Self {
        Self { inner, waits }
    }

    /// A collective that reads one array and fills another.
    fn moves(
        &self,
        send: &Bound<'_, PyAny>,
        recv: &Bound<'_, PyAny>,
        timeout: Option<f64>,
        ask: impl for<'a> FnOnce(
            &'a StdGroup,
            SharedBytes<'a>,
            SharedBytes<'a>,
        ) -> Request<Collective<'a>>
        + Send,
    ) -> PyResult<()> {
        let py = send.py();
        let within = self.waits.own(py, timeout)?;
        let (from, to) = (data::source(send)?, data::target(recv)?);
        apart(py, &from, &to)?;
        py.detach(|| ask(&self.inner, from.view(), to.view()).within(within).wait()).or_raise(py)
    }

    /// A collective that changes an array.
    fn changes(
        &self,
        array: &Bound<'_, PyAny>,
        timeout: Option<f64>,
        ask: impl for<'a> FnOnce(&'a StdGroup, SharedBytes<'a>) -> Request<Collective<'a>> + Send,
    ) -> PyResult<()> {
        let py = array.py();
        let within = self.waits.own(py, timeout)?;
        let bytes = data::target(array)?;
        py.detach(|| ask(&self.inner, bytes.view()).within(within).wait()).or_raise(py)
    }
}

/// Refuses arrays that share bytes.
fn apart(py: Python<'_>, a: &Bytes, b: &Bytes) -> PyResult<()> {
    let (low, high) = if a.address() <= b.address() { (a, b) } else { (b, a) };
    if high.len() > 0 && high.address().abs_diff(low.address()) < low.len() {
        let what = "what is sent and what is received share memory; give two arrays";
        return Err(refuse(py, ErrorKind::InvalidConfig, what));
    }
    Ok(())
}

#[pymethods]
impl RawGroup {
    fn barrier(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        let within = self.waits.own(py, timeout)?;
        py.detach(|| self.inner.barrier().within(within).wait()).or_raise(py)
    }

    fn broadcast(
        &self,
        array: &Bound<'_, PyAny>,
        root: usize,
        timeout: Option<f64>,
    ) -> PyResult<()> {
        self.changes(array, timeout, |group, bytes| group.broadcast_view(root, bytes))
    }

    fn gather(
        &self,
        send: &Bound<'_, PyAny>,
        recv: &Bound<'_, PyAny>,
        root: usize,
        timeout: Option<f64>,
    ) -> PyResult<()> {
        self.moves(send, recv, timeout, |group, out, into| group.gather_view(root, out, into))
    }

    fn scatter(
        &self,
        send: &Bound<'_, PyAny>,
        recv: &Bound<'_, PyAny>,
        root: usize,
        timeout: Option<f64>,
    ) -> PyResult<()> {
        self.moves(send, recv, timeout, |group, out, into| group.scatter_view(root, out, into))
    }

    fn allgather(
        &self,
        send: &Bound<'_, PyAny>,
        recv: &Bound<'_, PyAny>,
        timeout: Option<f64>,
    ) -> PyResult<()> {
        self.moves(send, recv, timeout, |group, out, into| group.allgather_view(out, into))
    }

    fn alltoall(
        &self,
        send: &Bound<'_, PyAny>,
        recv: &Bound<'_, PyAny>,
        algo: &str,
        timeout: Option<f64>,
    ) -> PyResult<()> {
        let how = exchange(send.py(), algo)?;
        // A call of the C++ HMC, which has no limit there.
        let timeout = timeout.or_else(|| Some(self.waits.seconds().1));
        self.moves(send, recv, timeout, move |group, out, into| group.alltoall_view(out, into, how))
    }

    fn reduce_scatter(
        &self,
        send: &Bound<'_, PyAny>,
        recv: &Bound<'_, PyAny>,
        dtype: &str,
        op: &str,
        timeout: Option<f64>,
    ) -> PyResult<()> {
        let (element, op) = (element(send.py(), dtype)?, reduce(send.py(), op)?);
        self.moves(send, recv, timeout, move |group, out, into| {
            group.reduce_scatter_view(element, op, out, into)
        })
    }

    fn allreduce(
        &self,
        array: &Bound<'_, PyAny>,
        dtype: &str,
        op: &str,
        timeout: Option<f64>,
    ) -> PyResult<()> {
        let (element, op) = (element(array.py(), dtype)?, reduce(array.py(), op)?);
        self.changes(array, timeout, move |group, bytes| group.allreduce_view(element, op, bytes))
    }
}
