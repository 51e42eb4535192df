//! A copy of the workspace in which code is changed and compiled: the tree itself is never changed.

use crate::shell;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Folders that are not copied.
const LEFT_OUT: [&str; 5] = ["target", ".git", "artifacts", "__pycache__", ".pytest_cache"];

/// Variables by which the environment would replace what the configuration of the copy says.
const OVERRIDING: [&str; 4] =
    ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "CARGO_BUILD_RUSTFLAGS", "CARGO_TARGET_DIR"];

/// The copy.
#[derive(Debug)]
pub(crate) struct TreeCopy {
    root: PathBuf,
    place: PathBuf,
}

impl TreeCopy {
    /// The copy of the tree at `root` that lies at `work/tree`, with the configuration of its cargo beside it. Nothing is copied
    /// yet.
    ///
    /// # Errors
    /// Words.
    pub(crate) fn new(root: &Path, work: &Path, configuration: &str) -> Result<Self, String> {
        update(&work.join(".cargo/config.toml"), configuration.as_bytes())?;
        Ok(Self { root: root.to_path_buf(), place: work.join("tree") })
    }

    /// Where it is.
    pub(crate) fn place(&self) -> &Path {
        &self.place
    }

    /// A cargo in the copy, with the configuration of the copy.
    pub(crate) fn cargo(&self) -> Command {
        let mut command = shell::cargo();
        command.current_dir(&self.place);
        for name in OVERRIDING {
            command.env_remove(name);
        }
        command
    }

    /// Brings all files but those that are `changed`, and removes what the tree does not have. What is there and equal stays as it
    /// is, so that cargo builds no more than it must.
    ///
    /// # Errors
    /// Words.
    pub(crate) fn bring(&self, changed: impl Fn(&str) -> bool) -> Result<(), String> {
        let is_changed = |path: &Path| changed(&path.to_string_lossy().replace('\\', "/"));
        let mut folders = vec![PathBuf::new()];
        while let Some(folder) = folders.pop() {
            let (here, there) = (self.root.join(&folder), self.place.join(&folder));
            std::fs::create_dir_all(&there).map_err(|e| format!("{}: {e}", there.display()))?;
            let names = names(&here)?;
            for name in names_or_none(&there).difference(&names) {
                if !is_left_out(name) && !is_changed(&folder.join(name)) {
                    remove(&there.join(name))?;
                }
            }
            for name in names.iter().filter(|name| !is_left_out(name)) {
                let path = folder.join(name);
                let from = here.join(name);
                if from.is_dir() {
                    folders.push(path);
                } else if !is_changed(&path) {
                    bring_file(&from, &there.join(name))?;
                }
            }
        }
        Ok(())
    }

    /// Gives a file of the copy this text.
    ///
    /// # Errors
    /// Words.
    pub(crate) fn write(&self, file: &str, text: &str) -> Result<(), String> {
        update(&self.place.join(file), text.as_bytes())
    }
}

fn is_left_out(name: &str) -> bool {
    LEFT_OUT.contains(&name)
}

fn names(folder: &Path) -> Result<BTreeSet<String>, String> {
    let entries = std::fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    Ok(entries.flatten().map(|e| e.file_name().to_string_lossy().into_owned()).collect())
}

fn names_or_none(folder: &Path) -> BTreeSet<String> {
    names(folder).unwrap_or_default()
}

fn remove(path: &Path) -> Result<(), String> {
    let gone =
        if path.is_dir() { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) };
    gone.map_err(|e| format!("{}: {e}", path.display()))
}

fn bring_file(from: &Path, to: &Path) -> Result<(), String> {
    let bytes = std::fs::read(from).map_err(|e| format!("{}: {e}", from.display()))?;
    if std::fs::read(to).is_ok_and(|there| there == bytes) {
        return Ok(());
    }
    // With its permissions.
    std::fs::copy(from, to).map_err(|e| format!("{}: {e}", to.display()))?;
    Ok(())
}

/// Writes a file unless it is so already: cargo looks at its time.
///
/// # Errors
/// Words.
pub(crate) fn update(path: &Path, bytes: &[u8]) -> Result<(), String> {
    if std::fs::read(path).is_ok_and(|there| there == bytes) {
        return Ok(());
    }
    let folder = path.parent().ok_or("a file lies in a folder")?;
    std::fs::create_dir_all(folder)
        .and_then(|()| std::fs::write(path, bytes))
        .map_err(|e| format!("{}: {e}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::{TreeCopy, update};

    #[test]
    fn the_copy_follows_the_tree_but_for_what_is_changed_in_it() {
        let work = std::env::temp_dir().join(format!("hmc-copy-{}", std::process::id()));
        let (root, place) = (work.join("root"), work.join("work/tree"));
        let write = |path: &str, text: &str| update(&root.join(path), text.as_bytes()).unwrap();
        let read = |path: &str| std::fs::read_to_string(place.join(path)).ok();
        write("a/same.rs", "1");
        write("a/changed.rs", "1");
        write("a/gone.rs", "1");
        write("target/out", "1");
        let copy = TreeCopy::new(&root, &work.join("work"), "").unwrap();
        let changed = ["a/changed.rs", "a/added.rs"];
        let bring = || copy.bring(|path| changed.contains(&path)).unwrap();
        bring();
        copy.write("a/changed.rs", "2").unwrap();
        copy.write("a/added.rs", "2").unwrap();
        let written = |path: &str| std::fs::metadata(place.join(path)).unwrap().modified().unwrap();
        let times = || changed.map(written).into_iter().chain([written("a/same.rs")]);
        let before: Vec<_> = times().collect();
        std::fs::remove_file(root.join("a/gone.rs")).unwrap();
        bring();
        copy.write("a/changed.rs", "2").unwrap();
        let texts =
            ["a/same.rs", "a/changed.rs", "a/added.rs", "a/gone.rs", "target/out"].map(read);
        assert_eq!(
            texts.each_ref().map(Option::as_deref),
            [Some("1"), Some("2"), Some("2"), None, None]
        );
        assert!(times().eq(before), "what is equal is not written again");
        std::fs::remove_dir_all(&work).unwrap();
    }
}
