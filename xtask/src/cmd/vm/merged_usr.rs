//! The layout of Debian's folders: `/bin`, `/lib` and others are symbolic links to folders below `/usr`.

use std::path::Path;

/// Folders that Debian has moved below `usr`.
const MERGED: [&str; 5] = ["bin", "sbin", "lib", "lib64", "lib32"];

/// Moves folders below `usr`: on the host these names are symbolic links, which folders in an overlay would hide.
///
/// # Errors
/// A message with the folder.
pub(super) fn merge_usr(root: &Path) -> Result<(), String> {
    for name in MERGED {
        let from = root.join(name);
        if from.is_dir() && !from.is_symlink() {
            let to = root.join("usr").join(name);
            move_into(&from, &to).map_err(|e| format!("{}: {e}", from.display()))?;
        }
    }
    Ok(())
}

/// Moves a folder; merges it with an existing one.
fn move_into(from: &Path, to: &Path) -> std::io::Result<()> {
    if !to.is_dir() {
        if let Some(parent) = to.parent() {
            std::fs::create_dir_all(parent)?;
        }
        return std::fs::rename(from, to);
    }
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let place = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            move_into(&entry.path(), &place)?;
        } else {
            std::fs::rename(entry.path(), place)?;
        }
    }
    std::fs::remove_dir(from)
}

#[cfg(test)]
mod tests {
    use super::merge_usr;

    #[test]
    fn folders_are_merged_below_usr() {
        let root = std::env::temp_dir().join(format!("hmc-vm-usr-{}", std::process::id()));
        for (folder, file, text) in
            [("bin", "ip", "1"), ("usr/bin", "other", "2"), ("lib/modules/x", "y.ko", "3")]
        {
            std::fs::create_dir_all(root.join(folder)).unwrap();
            std::fs::write(root.join(folder).join(file), text).unwrap();
        }
        merge_usr(&root).unwrap();
        for (path, text) in [("bin/ip", "1"), ("bin/other", "2"), ("lib/modules/x/y.ko", "3")] {
            assert_eq!(std::fs::read_to_string(root.join("usr").join(path)).unwrap(), text);
        }
        assert!(!root.join("bin").exists() && !root.join("lib").exists());
        std::fs::remove_dir_all(root).unwrap();
    }
}
