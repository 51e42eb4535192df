//! Arrays whose bytes in memory are not what they show: tensors of torch that are negated or conjugated as they are read,
//! that hold nothing, or that wrap others, and NumPy's masked arrays. What they show is computed, or they are refused: no
//! byte of theirs is used as if it were the whole truth.

use std::sync::atomic::{AtomicU64, Ordering};

use hmc_std::ErrorKind;
use pyo3::exceptions::PyRuntimeError;
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyByteArray, PyBytes, PyDict, PyMemoryView, PyString, PyType};

use crate::errors::refuse;

/// Keys of torch's dispatcher that stand for something done when the tensor is read; a copy without it can be made.
const LATER: [&str; 3] = ["Negative", "Conjugate", "ZeroTensor"];

/// A class of a package, if that is loaded: else nothing can be an instance of it.
fn class<'py>(
    module: &Bound<'py, PyString>,
    name: &Bound<'py, PyString>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let py = module.py();
    // SAFETY: the interpreter is ours; a new reference, or null.
    let found = unsafe { ffi::PyImport_GetModule(module.as_ptr()) };
    // SAFETY: as above.
    let found = unsafe { Bound::from_owned_ptr_or_opt(py, found) };
    match found {
        Some(module) => module.getattr_opt(name),
        None if PyErr::occurred(py) => Err(PyErr::fetch(py)),
        None => Ok(None),
    }
}

/// Refuses a masked array: only its data would travel.
pub(crate) fn no_mask(obj: &Bound<'_, PyAny>) -> PyResult<()> {
    /// NumPy's array, once one was seen. Masked arrays are of a subclass.
    static PLAIN_ARRAY: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let py = obj.py();
    let kind = obj.get_type();
    if PLAIN_ARRAY.get(py).is_some_and(|plain| kind.is(plain)) {
        return Ok(());
    }
    if obj.is_exact_instance_of::<PyBytes>()
        || obj.is_exact_instance_of::<PyByteArray>()
        || obj.is_exact_instance_of::<PyMemoryView>()
    {
        return Ok(());
    }
    let Some(masked) = class(intern!(py, "numpy.ma"), intern!(py, "MaskedArray"))? else {
        return Ok(());
    };
    if !obj.is_instance(&masked)? {
        let plain = class(intern!(py, "numpy"), intern!(py, "ndarray"))?;
        if plain.is_some_and(|plain| kind.is(&plain)) {
            let _ = PLAIN_ARRAY.set(py, kind.unbind());
        }
        return Ok(());
    }
    let what = "a masked array has a mask that its bytes do not hold: give `.filled(value)`, or `.data` and `.mask` as two \
                arrays";
    Err(refuse(py, ErrorKind::InvalidConfig, what))
}

/// The tensor whose bytes are the numbers that `obj` shows: itself, or with `copies` a copy where they are computed when it is
/// read. Anything but a tensor of torch is returned as it is.
pub(crate) fn materialized<'py>(
    obj: &Bound<'py, PyAny>,
    copies: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let py = obj.py();
    let Some(tensor) = class(intern!(py, "torch"), intern!(py, "Tensor"))? else {
        return Ok(obj.clone());
    };
    if !obj.is_instance(&tensor)? {
        return Ok(obj.clone());
    }
    let keys = keys_of(obj)?;
    if keys.is_empty() {
        return Ok(obj.clone());
    }
    if keys.iter().any(|key| !LATER.contains(&key.as_str())) {
        return Err(unlike(obj, &keys));
    }
    if !copies {
        let what = "the tensor's numbers are negated, conjugated or made when they are read (as of `x.conj()`, or of its \
                    `.imag`): its bytes cannot be used where they lie; give `.resolve_conj().resolve_neg()`, or `.clone()`";
        return Err(refuse(py, ErrorKind::InvalidConfig, what));
    }
    let mut plain = obj.call_method0(intern!(py, "detach"))?;
    for (key, method) in
        [("Conjugate", "resolve_conj"), ("Negative", "resolve_neg"), ("ZeroTensor", "clone")]
    {
        if keys.iter().any(|k| k == key) {
            plain = plain.call_method0(method)?;
        }
    }
    // Whoever changes what calls do (a mode of torch) may have given another one of these.
    let keys = keys_of(&plain)?;
    if keys.is_empty() { Ok(plain) } else { Err(unlike(&plain, &keys)) }
}

/// Has torch refuse to resize the storage of a tensor of the host from now on, as `tensor.numpy()` does: that frees its memory,
/// whoever else uses it. DLPack does not ask for it. Anything but a tensor of torch is left alone.
pub(crate) fn keep_size(obj: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = obj.py();
    let Some(tensor) = class(intern!(py, "torch"), intern!(py, "Tensor"))? else { return Ok(()) };
    if !obj.is_instance(&tensor)? || !obj.getattr(intern!(py, "is_cpu"))?.is_truthy()? {
        return Ok(());
    }
    let Some(storage) = obj.getattr_opt(intern!(py, "untyped_storage"))? else { return Ok(()) };
    let storage = storage.call0()?;
    if !storage.call_method0(intern!(py, "resizable"))?.is_truthy()? {
        return Ok(());
    }
    match as_numpy(&storage) {
        // A torch without NumPy, or in a mode that lets no tensor be made of it.
        Err(e) if e.is_instance_of::<PyRuntimeError>(py) => Ok(()),
        done => done,
    }
}

/// Makes an array of NumPy of a storage, by a tensor of bytes: not every dtype of torch has one of NumPy.
fn as_numpy(storage: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = storage.py();
    let torch = py.import(intern!(py, "torch"))?;
    let how = PyDict::new(py);
    how.set_item("dtype", torch.getattr(intern!(py, "uint8"))?)?;
    how.set_item("device", "cpu")?;
    let bytes = torch.getattr(intern!(py, "empty"))?.call((0,), Some(&how))?;
    bytes.call_method1(intern!(py, "set_"), (storage,))?.call_method0(intern!(py, "numpy"))?;
    Ok(())
}

/// What sets a tensor apart from a plain one of the host, by the names of torch's dispatcher; nothing for a plain one, or one
/// of a device, which is told apart by its device.
fn keys_of(obj: &Bound<'_, PyAny>) -> PyResult<Vec<String>> {
    /// The last set of keys that was found to be plain.
    static PLAIN: AtomicU64 = AtomicU64::new(0);
    let py = obj.py();
    let Some(dispatcher) = class(intern!(py, "torch._C"), intern!(py, "_dispatch_keys"))? else {
        return keys_by_methods(obj);
    };
    let keys = dispatcher.call1((obj,))?;
    let raw: u64 = keys.call_method0(intern!(py, "raw_repr"))?.extract()?;
    if raw != 0 && raw == PLAIN.load(Ordering::Relaxed) {
        return Ok(Vec::new());
    }
    // `DispatchKeySet(CPU, Negative, ADInplaceOrView, AutogradCPU, AutocastCPU)`
    let text = keys.str()?.to_string();
    let names = text.split_once('(').map_or(text.as_str(), |(_, names)| names);
    let odd: Vec<String> = names
        .trim_end_matches(')')
        .split(", ")
        .filter(|name| !is_plain(name))
        .map(str::to_owned)
        .collect();
    if odd.is_empty() {
        PLAIN.store(raw, Ordering::Relaxed);
    }
    Ok(odd)
}

/// Whether a key says nothing of how bytes and numbers belong together.
fn is_plain(key: &str) -> bool {
    key.starts_with("Autograd")
        || key.starts_with("Autocast")
        || matches!(key, "ADInplaceOrView" | "BackendSelect")
        // Where it lives is asked of DLPack.
        || matches!(key, "CPU" | "CUDA" | "HIP" | "XPU" | "HPU" | "IPU" | "MPS" | "VE" | "MTIA")
        || key.starts_with("PrivateUse")
}

/// The same of a torch without that function, by what it can be asked.
fn keys_by_methods(obj: &Bound<'_, PyAny>) -> PyResult<Vec<String>> {
    let mut found = Vec::new();
    for (method, key) in
        [("is_neg", "Negative"), ("is_conj", "Conjugate"), ("_is_zerotensor", "ZeroTensor")]
    {
        if let Some(ask) = obj.getattr_opt(method)?
            && ask.call0()?.is_truthy()?
        {
            found.push(key.to_owned());
        }
    }
    for flag in ["is_sparse", "is_sparse_csr", "is_mkldnn", "is_quantized", "is_nested", "is_meta"]
    {
        if let Some(is) = obj.getattr_opt(flag)?
            && is.is_truthy()?
        {
            found.push(flag.trim_start_matches("is_").to_owned());
        }
    }
    Ok(found)
}

fn unlike(obj: &Bound<'_, PyAny>, keys: &[String]) -> PyErr {
    let kind =
        obj.get_type().fully_qualified_name().map_or_else(|_| "tensor".into(), |n| n.to_string());
    let what = format!(
        "a {kind} ({}) does not hold its numbers in plain memory: it is sparse, quantized, nested, without data, or wraps \
         other tensors. Give a plain tensor (`.to_dense()`, `.int_repr()`), or the tensors that it is made of, one by one",
        keys.join(", ")
    );
    refuse(obj.py(), ErrorKind::InvalidConfig, what)
}
