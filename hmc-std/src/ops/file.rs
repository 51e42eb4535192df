//! Copies between files and shared memory, without an intermediate buffer.
//!
//! Peers may write a [`ConnBuffer`] or a [`Window`] at any time, so no slice of them can be passed to `std::fs`. In these calls the
//! kernel copies directly. If the bytes must not change meanwhile, agree on that with the peer (a credit, a tag). A private
//! [`crate::memory::Span`] can be borrowed as a slice instead.

use std::os::fd::AsFd;

use hmc_core::range::{ByteRange, Side};
use hmc_mem::error::MemError;
use hmc_mem::os::file;
use hmc_mem::os::io::IoError;

use crate::base::error::{Error, ErrorKind, Result};
use crate::memory::{ConnBuffer, Span};
use crate::ops::window::Window;

fn failed(what: &str, e: IoError) -> Error {
    match e {
        IoError::Shared(e) => MemError::from(e).into(),
        IoError::Os { errno } => Error::io(what, rustix::io::Errno::from_raw_os_error(errno)),
        other => Error::new(ErrorKind::Io, format!("{what}: {other}")),
    }
}

impl ConnBuffer {
    /// Reads `len` bytes of `file`, from its byte `at` on, into the buffer at `offset`. Returns the number of bytes, which is less than
    /// `len` only if the file ends.
    ///
    /// # Errors
    /// `Range` if the bytes exceed the buffer; `Io` if the file cannot be read.
    pub fn fill_from(&self, offset: u64, len: u64, file: impl AsFd, at: u64) -> Result<u64> {
        let region = self.region();
        let bytes = region.checked()?;
        let part = region.local().extent.span(Side::Local, offset, len)?;
        file::read_from(file, at, &bytes, part).map_err(|e| failed("cannot read the file", e))
    }

    /// Writes `len` bytes at `offset` to `file`, from its byte `at` on.
    ///
    /// # Errors
    /// `Range`; `NoSpace` when the disk is full (part may be written); `Io`.
    pub fn write_to(&self, offset: u64, len: u64, file: impl AsFd, at: u64) -> Result<()> {
        let region = self.region();
        let bytes = region.checked()?;
        let part = region.local().extent.span(Side::Local, offset, len)?;
        file::write_to(file, at, &bytes, part).map_err(|e| failed("cannot write the file", e))?;
        Ok(())
    }
}

impl Window<Span> {
    fn part(&self, offset: u64, len: u64) -> Result<(&Span, ByteRange)> {
        let Some(span) = self.span() else {
            return Err(Error::new(ErrorKind::Revoked, "the window was revoked"));
        };
        let part = span.slice().span.sub(Side::Local, offset, len)?;
        Ok((span, part))
    }

    /// The CRC-32C of `len` bytes at `offset`; the peer may be changing them.
    ///
    /// # Errors
    /// `Range`, `Revoked`.
    pub fn crc32c(&self, offset: u64, len: u64) -> Result<u32> {
        let (span, part) = self.part(offset, len)?;
        Ok(span.region().checked()?.crc32c(part).map_err(MemError::from)?)
    }

    /// Writes `len` bytes at `offset` to `file`, from its byte `at` on; the peer may be changing them.
    ///
    /// # Errors
    /// `Range`; `Revoked`; `NoSpace` when the disk is full (part may be written); `Io`.
    pub fn write_to(&self, offset: u64, len: u64, file: impl AsFd, at: u64) -> Result<()> {
        let (span, part) = self.part(offset, len)?;
        file::write_to(file, at, &span.region().checked()?, part)
            .map_err(|e| failed("cannot write the file", e))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::api::session::Session;
    use crate::base::error::ErrorKind;

    #[test]
    fn a_buffer_and_a_file_exchange_bytes() {
        let session = Session::builder(0).buffer(8192).start().expect("a session");
        let buffer = session.buffer();
        let file: std::fs::File =
            rustix::fs::memfd_create("file-test", rustix::fs::MemfdFlags::CLOEXEC)
                .expect("a file")
                .into();
        buffer.write_at(10, b"some bytes").expect("fits");
        buffer.write_to(10, 10, &file, 3).expect("written");
        assert_eq!(buffer.fill_from(5000, 100, &file, 3).expect("read"), 10);
        assert_eq!(buffer.crc32c(10, 10).expect("fits"), buffer.crc32c(5000, 10).expect("fits"));
        let e = buffer.fill_from(8190, 3, &file, 0).expect_err("too far");
        assert_eq!(e.kind(), ErrorKind::Range);
        let deaf = std::fs::File::open("/dev/null").expect("a device");
        let e = buffer.write_to(0, 1, &deaf, 0).expect_err("not open for writing");
        assert_eq!(e.kind(), ErrorKind::Io);
    }
}
