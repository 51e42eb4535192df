//! DLPack (dlpack.h, versions 1.x and the one before): tensors of other packages come in without a copy, and our memory goes
//! out as arrays of bytes.

pub(crate) mod export;
pub(crate) mod import;
pub(crate) mod tensor;
