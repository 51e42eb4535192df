//! Between regular files and shared bytes without a stop in private memory.
//!
//! The kernel copies straight into or out of a span, by raw pointer: no slice over shared bytes is
//! made. Nothing here opens, names or closes a file.

use std::os::fd::{AsFd, AsRawFd};

use hmc_core::range::{ByteRange, Extent, Side};

use super::io::IoError;
use crate::length::widen;
use crate::shared::{SharedBytes, SharedError};

#[derive(Clone, Copy)]
enum Direction {
    In,
    Out,
}

/// Fills `span` with the bytes of `file` from `at` on (pread(2)). Gives the number of bytes: fewer than
/// the span has only when the file ends there.
///
/// # Errors
/// [`IoError`]. The span then holds old and new bytes.
pub fn read_from(
    file: impl AsFd,
    at: u64,
    into: &SharedBytes<'_>,
    span: ByteRange,
) -> Result<u64, IoError> {
    if !into.is_writable() {
        return Err(SharedError::ReadOnly.into());
    }
    run(Direction::In, file.as_fd().as_raw_fd(), at, into, span)
}

/// Writes all of `span` to `file` from `at` on (pwrite(2)). Gives the number of bytes, that of the span.
///
/// # Errors
/// [`IoError`]; ENOSPC when the disk is full. Part of the bytes may have been written.
pub fn write_to(
    file: impl AsFd,
    at: u64,
    from: &SharedBytes<'_>,
    span: ByteRange,
) -> Result<u64, IoError> {
    run(Direction::Out, file.as_fd().as_raw_fd(), at, from, span)
}

fn run(
    direction: Direction,
    fd: i32,
    at: u64,
    bytes: &SharedBytes<'_>,
    span: ByteRange,
) -> Result<u64, IoError> {
    bytes.locate(span)?;
    let too_big = || IoError::Os { errno: libc::EFBIG };
    // What a file can have: offsets are signed numbers.
    let there = Extent::new(1 << 63).span(Side::Remote, at, span.len()).map_err(|_| too_big())?;
    let mut done = 0u64;
    while done < span.len() {
        let (start, left) = bytes.locate(span.split_at_most(done).1)?;
        let offset = i64::try_from(there.split_at_most(done).1.offset()).map_err(|_| too_big())?;
        let here = start.cast::<libc::c_void>();
        let moved = match direction {
            // SAFETY: `left` bytes at `here` are the rest of a span within a view that was checked to be writable;
            // they stay mapped during the call, which keeps no pointer (pread(2)).
            Direction::In => unsafe { libc::pread64(fd, here, left, offset) },
            // SAFETY: as above; pwrite(2) only reads them.
            Direction::Out => unsafe { libc::pwrite64(fd, here, left, offset) },
        };
        match usize::try_from(moved) {
            // The end of the file; a write of some bytes that moves none would loop for ever.
            Ok(0) if matches!(direction, Direction::In) => break,
            Ok(0) => {
                return Err(IoError::Os { errno: libc::EIO });
            }
            Ok(n) => done = done.saturating_add(widen(n)),
            Err(_) => match std::io::Error::last_os_error().raw_os_error().unwrap_or(0) {
                libc::EINTR => {}
                errno => return Err(IoError::Os { errno }),
            },
        }
    }
    Ok(done)
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
