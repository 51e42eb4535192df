//! The state of apt on the host.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Files, and folders of files, that determine the results of look-ups.
const PATHS: [&str; 6] = [
    "/var/lib/dpkg/status",
    "/var/lib/apt/lists",
    "/etc/apt/sources.list",
    "/etc/apt/sources.list.d",
    "/etc/apt/preferences",
    "/etc/apt/preferences.d",
];

/// Returns a hash of the files that determine the results of look-ups. If it is unchanged, so are the results.
pub(super) fn apt_state() -> String {
    let configuration = std::env::var_os("APT_CONFIG").map(PathBuf::from);
    let paths = PATHS.iter().map(PathBuf::from).chain(configuration);
    state_of(&paths.collect::<Vec<_>>())
}

/// Returns a hash of the names, sizes and times of files and of the files in folders.
fn state_of(paths: &[PathBuf]) -> String {
    let mut all = paths.to_vec();
    for folder in paths {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        all.extend(entries.map(|entry| entry.path()));
    }
    all.sort();
    let mut hasher = blake3::Hasher::new();
    for path in all {
        hasher.update(format!("{path:?} {:?}\n", properties(&path)).as_bytes());
    }
    hasher.finalize().to_hex().chars().take(16).collect()
}

/// Returns what changes if apt, dpkg or an editor writes a file; `None` if there is none.
fn properties(path: &Path) -> Option<(u64, i64, i64, u64)> {
    let found = std::fs::metadata(path).ok()?;
    Some((found.len(), found.mtime(), found.mtime_nsec(), found.ino()))
}

#[cfg(test)]
mod tests {
    use super::state_of;

    #[test]
    fn the_state_changes_with_each_file() {
        let folder = std::env::temp_dir().join(format!("hmc-vm-state-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("lists")).unwrap();
        let paths = ["status", "lists"].map(|name| folder.join(name));
        let mut states = vec![state_of(&paths)];
        for (file, text) in [("status", "a"), ("status", "ab"), ("lists/x", ""), ("lists/x", "c")] {
            assert_eq!(state_of(&paths), states[states.len() - 1]);
            std::fs::write(folder.join(file), text).unwrap();
            let state = state_of(&paths);
            assert!(!states.contains(&state), "{file}");
            states.push(state);
        }
        std::fs::remove_dir_all(folder).unwrap();
    }
}
