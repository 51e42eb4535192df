//! Copies between regular files and shared bytes without a private buffer.
//!
//! The kernel copies directly into or out of a range, by raw pointer: no slice over shared bytes is made. Nothing
//! here opens, names or closes a file.

use std::os::fd::{AsFd, AsRawFd};

use hmc_core::range::{ByteRange, Extent, Side};

use super::io::{IoError, move_all};
use crate::shared::{SharedBytes, SharedError};

/// Fills `span` with the bytes of `file` from offset `at` (pread(2)) and returns the number of bytes, which is less
/// than the length of `span` only if the file ends there. Blocks for the disk.
///
/// # Errors
/// [`IoError`]. `span` then holds old and new bytes.
pub fn read_from(
    file: impl AsFd,
    at: u64,
    into: &SharedBytes<'_>,
    span: ByteRange,
) -> Result<u64, IoError> {
    if !into.is_writable() {
        return Err(SharedError::ReadOnly.into());
    }
    let fd = file.as_fd().as_raw_fd();
    move_all(into, span, part_of_file(at, span)?, |here, len, offset| {
        // SAFETY: `len` bytes at `here` are the rest of a span within a view that was checked to be writable; they stay
        // mapped during the call, which keeps no pointer (pread(2)).
        unsafe { libc::pread64(fd, here.cast(), len, offset.cast_signed()) }
    })
}

/// Writes all of `span` to `file` at offset `at` (pwrite(2)) and returns its length in bytes. Blocks for the disk.
///
/// # Errors
/// [`IoError`]; ENOSPC if the disk is full. Some bytes may have been written.
pub fn write_to(
    file: impl AsFd,
    at: u64,
    from: &SharedBytes<'_>,
    span: ByteRange,
) -> Result<u64, IoError> {
    let fd = file.as_fd().as_raw_fd();
    let moved = move_all(from, span, part_of_file(at, span)?, |here, len, offset| {
        // SAFETY: `len` bytes at `here` are the rest of a span within a view; they stay mapped during the call, which only
        // reads them and keeps no pointer (pwrite(2)).
        unsafe { libc::pwrite64(fd, here.cast(), len, offset.cast_signed()) }
    })?;
    // A write of some bytes that moves none would loop for ever.
    if moved == span.len() { Ok(moved) } else { Err(IoError::Os { errno: libc::EIO }) }
}

/// The part of a file that begins at `at` and is as long as `span`: offsets are signed numbers.
fn part_of_file(at: u64, span: ByteRange) -> Result<ByteRange, IoError> {
    let part = Extent::new(1 << 63).span(Side::Remote, at, span.len());
    part.map_err(|_| IoError::Os { errno: libc::EFBIG })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests may panic")]
    use super::{read_from, write_to};
    use crate::os::io::IoError;
    use crate::os::memfd::Mapping;
    use crate::shared::SharedError;

    /// A file without a name.
    fn file() -> std::fs::File {
        rustix::fs::memfd_create("file-test", rustix::fs::MemfdFlags::CLOEXEC).unwrap().into()
    }

    #[test]
    fn bytes_go_out_and_come_back_and_the_end_of_the_file_is_seen() {
        let map = Mapping::create(8192).unwrap();
        let bytes = map.bytes();
        bytes.write_at(bytes.span(100, 5).unwrap(), b"hello").unwrap();
        let file = file();
        let out = bytes.span(100, 5).unwrap();
        assert_eq!(write_to(&file, 7, &bytes, out).unwrap(), 5);
        let back = bytes.span(4000, 100).unwrap();
        assert_eq!(read_from(&file, 7, &bytes, back).unwrap(), 5);
        let mut got = [0; 5];
        bytes.read_at(bytes.span(4000, 5).unwrap(), &mut got).unwrap();
        assert_eq!(&got, b"hello");
        assert_eq!(read_from(&file, 100, &bytes, back).unwrap(), 0);
    }

    #[test]
    fn wrong_ranges_rights_and_files_are_errors() {
        let map = Mapping::create(4096).unwrap();
        let bytes = map.bytes();
        let wide = hmc_core::range::Extent::new(1 << 20)
            .span(hmc_core::range::Side::Local, 4090, 10)
            .unwrap();
        let file = file();
        assert!(matches!(
            write_to(&file, 0, &bytes, wide),
            Err(IoError::Shared(SharedError::Range(_)))
        ));
        let some = bytes.span(0, 10).unwrap();
        assert!(matches!(
            read_from(&file, 0, &bytes.read_only(), some),
            Err(IoError::Shared(SharedError::ReadOnly))
        ));
        let deaf = std::fs::File::open("/dev/null").unwrap();
        assert_eq!(write_to(&deaf, 0, &bytes, some), Err(IoError::Os { errno: libc::EBADF }));
        assert_eq!(
            write_to(&file, u64::MAX, &bytes, some),
            Err(IoError::Os { errno: libc::EFBIG })
        );
    }
}
