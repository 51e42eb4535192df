//! Numbers as programs of the C++ HMC give them: whatever `int()` takes, a text or a NumPy number too.
//!
//! A number of Python itself takes no detour. What is no number, or a negative one, raises what is a `TypeError` and a
//! `ValueError`; what no port can be, a `ValueError`.

use hmc_std::ErrorKind;
use pyo3::prelude::*;
use pyo3::types::PyInt;

use crate::errors::{class, refuse};

/// A size or an offset, in bytes, or the number of a transfer.
#[derive(Clone, Copy)]
pub(crate) struct Count(pub(crate) u64);

/// A port, or a name that looks like one; 0 is one.
#[derive(Clone, Copy)]
pub(crate) struct Port(pub(crate) u16);

/// What a peer's link is called: its rank, or any other number.
#[derive(Clone, Copy)]
pub(crate) struct Name(pub(crate) u32);

/// The number of a `ConnType`.
#[derive(Clone, Copy)]
pub(crate) struct Conn(pub(crate) u8);

/// The exception for an argument that is no number, or one that it cannot be.
#[cold]
fn no_number(py: Python<'_>, what: &str, given: &Bound<'_, PyAny>) -> PyErr {
    let told = given.repr().map_or_else(|_| String::from("an object"), |r| r.to_string());
    let text = format!("{what}, got {told}");
    match class(py, "InvalidNumber").and_then(|c| c.call1((3, text))) {
        Ok(value) => PyErr::from_value(value),
        Err(e) => e,
    }
}

/// What `int()` makes of an object.
#[cold]
fn int<'py>(given: &Bound<'py, PyAny>, what: &str) -> PyResult<Bound<'py, PyAny>> {
    let py = given.py();
    py.get_type::<PyInt>().call1((given,)).map_err(|_| no_number(py, what, given))
}

impl<'py> FromPyObject<'_, 'py> for Count {
    type Error = PyErr;

    #[inline]
    fn extract(given: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(n) = given.extract::<u64>() {
            return Ok(Self(n));
        }
        let what = "sizes and offsets are int-like, 0 to 2**64-1";
        let n = int(&given, what)?;
        n.extract().map(Self).map_err(|_| no_number(given.py(), what, &given))
    }
}

impl<'py> FromPyObject<'_, 'py> for Name {
    type Error = PyErr;

    #[inline]
    fn extract(given: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(n) = given.extract::<u32>() {
            return Ok(Self(n));
        }
        let what = "a peer's number is int-like, 0 to 2**32-1";
        let n = int(&given, what)?;
        n.extract().map(Self).map_err(|_| no_number(given.py(), what, &given))
    }
}

impl<'py> FromPyObject<'_, 'py> for Port {
    type Error = PyErr;

    #[inline]
    fn extract(given: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(n) = given.extract::<u16>() {
            return Ok(Self(n));
        }
        let n = int(&given, "port must be int-like")?;
        n.extract().map(Self).map_err(|_| {
            let what = format!("port out of range: {n}");
            refuse(given.py(), ErrorKind::InvalidConfig, what)
        })
    }
}

impl<'py> FromPyObject<'_, 'py> for Conn {
    type Error = PyErr;

    #[inline]
    fn extract(given: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(n) = given.extract::<u8>() {
            return Ok(Self(n));
        }
        let n = int(&given, "conn must be a ConnType")?;
        n.extract().map(Self).map_err(|_| no_number(given.py(), "conn must be a ConnType", &given))
    }
}
