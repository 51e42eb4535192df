//! The application's memory that goes into an operation, and how it comes back.

use std::fmt;

use hmc_core::range::ByteRange;
use hmc_core::region::LocalSlice;

use crate::base::error::{Error, ErrorKind};
use crate::link::op_resources::OpResources;
use crate::memory::{LocalRange, Region, Span};
use crate::ops::running::Running;

/// The result of a complete operation: the number of bytes, and the memory that it owned.
#[derive(Debug)]
pub struct Done<M = ()> {
    /// The number of bytes that were moved.
    pub bytes: u64,
    /// The memory: `()`, or the [`Span`] that was passed in.
    pub memory: M,
}

/// The error of an operation, with the memory that it owns until its fence.
///
/// Dropping it returns the memory to its region at the fence.
#[derive(Debug)]
#[must_use = "it has the memory of the operation"]
pub struct Failed<M>(Box<Inner<M>>);

#[derive(Debug)]
struct Inner<M> {
    error: Error,
    memory: Memory<M>,
}

#[derive(Debug)]
enum Memory<M> {
    /// Nothing touches it.
    Back(M),
    /// The operation has it until its fence.
    Held(Running),
    /// It went back to its region.
    Gone,
}

/// The memory that an operation takes and returns: none (`()`), or a [`Span`].
pub trait Carried: sealed::Carried {
    /// The error of an operation: [`Error`], or [`Failed`] with the memory.
    type Error: std::error::Error + From<Error> + Into<Error> + Send + Sync + 'static;

    /// The error of an operation that did not begin.
    #[doc(hidden)]
    fn refused(self, error: Error) -> Self::Error;

    /// The error of an operation that has ended.
    #[doc(hidden)]
    fn failed(error: Error, op: Running) -> Self::Error;
}

pub(crate) mod sealed {
    use super::OpResources;

    pub trait Carried: Sized + Send + Sync + Unpin + std::fmt::Debug + 'static {
        /// Takes it from what an operation holds that has passed its fence.
        fn take(held: &mut OpResources) -> Option<Self>;
    }
}

impl Carried for () {
    type Error = Error;

    fn refused(self, error: Error) -> Error {
        error
    }

    fn failed(error: Error, _: Running) -> Error {
        error
    }
}

impl sealed::Carried for () {
    fn take(_: &mut OpResources) -> Option<Self> {
        Some(())
    }
}

impl Carried for Span {
    type Error = Failed<Self>;

    fn refused(self, error: Error) -> Failed<Self> {
        Failed::new(error, Memory::Back(self))
    }

    fn failed(error: Error, op: Running) -> Failed<Self> {
        let memory = match op.take_held() {
            Some(mut held) => held.take_span().map_or(Memory::Gone, Memory::Back),
            None => Memory::Held(op),
        };
        Failed::new(error, memory)
    }
}

impl sealed::Carried for Span {
    fn take(held: &mut OpResources) -> Option<Self> {
        held.take_span()
    }
}

/// Registered memory that a transfer reads or writes in place.
pub trait LocalBytes: Unpin + std::fmt::Debug {
    type Memory: Carried;

    fn region(&self) -> &Region;

    fn range(&self) -> ByteRange;

    /// What an operation keeps until its fence.
    fn into_resources(self) -> OpResources;

    fn into_memory(self) -> Self::Memory;

    #[inline(always)]
    fn slice(&self) -> LocalSlice {
        LocalSlice { key: self.region().key(), span: self.range() }
    }
}

impl LocalBytes for LocalRange<'_> {
    type Memory = ();

    #[inline(always)]
    fn region(&self) -> &Region {
        LocalRange::region(*self)
    }

    #[inline(always)]
    fn range(&self) -> ByteRange {
        self.bytes()
    }

    fn into_resources(self) -> OpResources {
        OpResources::region(LocalRange::region(self).clone())
    }

    #[inline(always)]
    fn into_memory(self) {}
}

impl LocalBytes for Span {
    type Memory = Self;

    fn region(&self) -> &Region {
        Self::region(self)
    }

    fn range(&self) -> ByteRange {
        Self::slice(self).span
    }

    fn into_resources(self) -> OpResources {
        OpResources::span(self)
    }

    fn into_memory(self) -> Self {
        self
    }
}

impl<M: Carried> Failed<M> {
    fn new(error: Error, memory: Memory<M>) -> Self {
        Self(Box::new(Inner { error, memory }))
    }

    /// Returns the error.
    #[must_use]
    pub fn error(&self) -> &Error {
        &self.0.error
    }

    /// The operation that still has the memory.
    pub(crate) fn holder(&self) -> Option<&Running> {
        match &self.0.memory {
            Memory::Held(op) => Some(op),
            Memory::Back(_) | Memory::Gone => None,
        }
    }

    /// Returns the kind of the error.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.0.error.kind()
    }

    /// The memory, if nothing touches it any more.
    pub(crate) fn take(mut self) -> Result<M, Self> {
        match self.0.memory {
            Memory::Back(memory) => return Ok(memory),
            Memory::Gone => {}
            Memory::Held(op) => match op.take_held().map(|mut held| M::take(&mut held)) {
                Some(Some(memory)) => return Ok(memory),
                Some(None) => self.0.memory = Memory::Gone,
                None => self.0.memory = Memory::Held(op),
            },
        }
        Err(self)
    }
}

impl<M: fmt::Debug> fmt::Display for Failed<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.error)?;
        if matches!(self.0.memory, Memory::Held(_)) {
            f.write_str("; its memory is held until the transport lets go of it")?;
        }
        Ok(())
    }
}

impl<M: fmt::Debug> std::error::Error for Failed<M> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0.error)
    }
}

impl<M> From<Failed<M>> for Error {
    fn from(failed: Failed<M>) -> Self {
        failed.0.error
    }
}

/// One that has no memory.
impl<M> From<Error> for Failed<M> {
    fn from(error: Error) -> Self {
        Self(Box::new(Inner { error, memory: Memory::Gone }))
    }
}
