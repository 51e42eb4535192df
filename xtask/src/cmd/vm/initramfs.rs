//! The initramfs of the guest: busybox, `/init`, and the kernel modules.

use super::modules::Module;
use cpio::newc::{Builder, ModeFileType, trailer};
use std::io::{self, Write};

/// The script `/init`.
pub(super) const INIT: &str = include_str!("init.sh");

/// Folders of the initramfs: mount points of `/init`, and folders with files.
const FOLDERS: [&str; 10] =
    ["bin", "dev", "host", "modules", "over", "proc", "root", "run", "sys", "tools"];

/// Writes the cpio archive.
///
/// # Errors
/// An I/O error of `to`, or an error if a file has 4 GiB or more.
pub(super) fn write<W: Write>(to: W, busybox: &[u8], modules: &[Module]) -> io::Result<W> {
    let mut archive = Archive { to, number: 0 };
    for folder in FOLDERS {
        archive.add(folder, ModeFileType::Directory, 0o755, &[])?;
    }
    archive.add("bin/busybox", ModeFileType::Regular, 0o755, busybox)?;
    archive.add("init", ModeFileType::Regular, 0o755, INIT.as_bytes())?;
    let order: String = modules.iter().map(|module| format!("{}\n", module.name)).collect();
    archive.add("modules/order", ModeFileType::Regular, 0o644, order.as_bytes())?;
    for module in modules {
        let path = format!("modules/{}.ko", module.name);
        archive.add(&path, ModeFileType::Regular, 0o644, &module.bytes)?;
    }
    trailer(archive.to)
}

/// A cpio archive under construction.
struct Archive<W> {
    to: W,
    /// Inode number of the last entry.
    number: u32,
}

impl<W: Write> Archive<W> {
    fn add(&mut self, path: &str, kind: ModeFileType, mode: u32, bytes: &[u8]) -> io::Result<()> {
        self.number = self.number.saturating_add(1);
        let size = u32::try_from(bytes.len()).map_err(io::Error::other)?;
        let entry = Builder::new(path).ino(self.number).mode(mode).set_mode_file_type(kind);
        let mut entry = entry.write(&mut self.to, size);
        entry.write_all(bytes)?;
        entry.finish().map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::{INIT, write};
    use crate::cmd::vm::modules::Module;
    use cpio::newc::Reader;
    use std::io::Read;

    #[test]
    fn the_archive_has_all_files_that_init_uses() {
        let module = |name: &str, bytes: &[u8]| Module { name: name.into(), bytes: bytes.into() };
        let modules = [module("b", b"odd"), module("a", &[0; 4096])];
        let archive = write(Vec::new(), b"busybox!", &modules).unwrap();
        let mut rest = archive.as_slice();
        let mut found = Vec::new();
        loop {
            let mut reader = Reader::new(rest).unwrap();
            if reader.entry().is_trailer() {
                break;
            }
            let (name, mode) = (reader.entry().name().to_owned(), reader.entry().mode());
            let mut bytes = Vec::new();
            reader.read_to_end(&mut bytes).unwrap();
            rest = reader.finish().unwrap();
            found.push((name, mode, bytes));
        }
        let file = |name: &str| found.iter().find(|(n, ..)| n == name).unwrap();
        assert_eq!(file("bin/busybox").1, 0o100_755);
        assert_eq!(file("init").2, INIT.as_bytes());
        assert_eq!(file("modules/order").2, b"b\na\n");
        assert_eq!(file("modules/b.ko").2, b"odd");
        assert_eq!(file("modules/a.ko").2.len(), 4096);
        for folder in ["dev", "proc", "sys", "host", "tools", "over", "root", "run"] {
            assert_eq!(file(folder).1, 0o040_755);
            assert!(INIT.contains(&format!("/{folder}")), "{folder}");
        }
    }
}
