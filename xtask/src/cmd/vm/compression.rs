//! Compressed files. The first bytes identify the format; the programs xz, zstd and gzip decompress them.

use std::path::Path;
use std::process::{Command, Stdio};

/// A compression format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Compression {
    /// xz
    Xz,
    /// Zstandard
    Zstd,
    /// gzip
    Gzip,
}

impl Compression {
    /// Returns the format of `bytes`, or `None` if they have no known one.
    pub(super) fn of(bytes: &[u8]) -> Option<Self> {
        let begins = |magic: &[u8]| bytes.starts_with(magic);
        if begins(b"\xfd7zXZ\0") {
            Some(Self::Xz)
        } else if begins(b"\x28\xb5\x2f\xfd") {
            Some(Self::Zstd)
        } else if begins(b"\x1f\x8b") {
            Some(Self::Gzip)
        } else {
            None
        }
    }

    const fn program(self) -> &'static str {
        match self {
            Self::Xz => "xz",
            Self::Zstd => "zstd",
            Self::Gzip => "gzip",
        }
    }

    /// Returns the decompressed content of a file.
    ///
    /// # Errors
    /// A message if the program is missing or fails.
    pub(super) fn decompress(self, file: &Path) -> Result<Vec<u8>, String> {
        let program = self.program();
        let mut command = Command::new(program);
        command.arg("-dcf").arg("--").arg(file).stdin(Stdio::null());
        let out = command
            .output()
            .map_err(|e| format!("cannot start `{program}`: {e}; `apt-get install {program}`"))?;
        if out.status.success() {
            return Ok(out.stdout);
        }
        let why = String::from_utf8_lossy(&out.stderr);
        Err(format!("{program}: {}: {}", file.display(), why.trim()))
    }
}

/// Returns the content of a file, decompressed if it is compressed.
///
/// # Errors
/// A message if the file cannot be read or decompressed.
pub(super) fn read(file: &Path) -> Result<Vec<u8>, String> {
    let bytes = std::fs::read(file).map_err(|e| format!("{}: {e}", file.display()))?;
    Compression::of(&bytes).map_or(Ok(bytes), |how| how.decompress(file))
}

#[cfg(test)]
mod tests {
    use super::{Compression, read};
    use std::process::Command;

    #[test]
    fn a_compressed_file_is_decompressed() {
        let folder = std::env::temp_dir().join(format!("hmc-vm-gzip-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("-text");
        std::fs::write(&file, "some text").unwrap();
        assert_eq!(read(&file).unwrap(), b"some text");
        assert!(Command::new("gzip").arg("--").arg(&file).status().unwrap().success());
        assert_eq!(read(&folder.join("-text.gz")).unwrap(), b"some text");
        std::fs::write(&file, b"\x1f\x8b\x08none").unwrap();
        assert!(read(&file).unwrap_err().contains("gzip"));
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn other_bytes_have_no_format() {
        for bytes in [&b""[..], b"\x7fELF", b"\xfd7zX"] {
            assert_eq!(Compression::of(bytes), None);
        }
    }
}
