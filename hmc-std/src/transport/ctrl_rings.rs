//! The rings of a link's control frames, which its data plane exchanges and its control half uses.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use hmc_mem::os::ring::{RingReader, RingWriter};

use crate::base::error::Result;
use crate::base::lock::lock;

/// One ring for each direction, until the control half takes it.
#[derive(Debug)]
pub(crate) struct CtrlRings {
    reader: Mutex<Option<RingReader>>,
    writer: Mutex<Option<RingWriter>>,
    /// There is a writer: a look that costs no lock.
    has_writer: AtomicBool,
}

impl CtrlRings {
    /// Makes the ring through which this end receives. Returns the descriptor of its pages for the peer, too.
    ///
    /// # Errors
    /// `NoSpace`, `SystemLimit`, `Io`.
    pub(crate) fn new() -> Result<(Arc<Self>, OwnedFd)> {
        let (reader, fd) = RingReader::new()?;
        let (reader, writer) = (Mutex::new(Some(reader)), Mutex::default());
        Ok((Arc::new(Self { reader, writer, has_writer: AtomicBool::new(false) }), fd))
    }

    /// Maps the peer's ring.
    ///
    /// # Errors
    /// Its pages cannot be mapped.
    pub(crate) fn map_writer(&self, fd: OwnedFd) -> Result<()> {
        *lock(&self.writer) = Some(RingWriter::map(fd)?);
        self.has_writer.store(true, Ordering::Release);
        Ok(())
    }

    pub(crate) fn take_reader(&self) -> Option<RingReader> {
        lock(&self.reader).take()
    }

    pub(crate) fn has_writer(&self) -> bool {
        self.has_writer.load(Ordering::Acquire)
    }

    pub(crate) fn take_writer(&self) -> Option<RingWriter> {
        self.has_writer.store(false, Ordering::Relaxed);
        lock(&self.writer).take()
    }
}
