//! The project's files as text, in memory: what the checks of `tidy` look at.
//!
//! A check takes a [`Tree`] and never the disk, so its test can plant a violation.

use crate::manifest::Manifest;
use std::path::{Path, PathBuf};

/// Folders that hold nothing of ours.
const FOREIGN: [&str; 4] = ["target", ".git", "corpus", "artifacts"];

/// The script that a change must pass.
const SCRIPT: &str = ".ci/run";

/// Where the Python package and its tests are.
const PYTHON: &str = "hmc-py/";

/// One file.
#[derive(Clone, Debug)]
pub(crate) struct File {
    /// Its path from the root, with `/`.
    pub(crate) path: String,
    /// Its text.
    pub(crate) text: String,
}

/// All files that checks read: Rust, manifests, Markdown, patches, workflows and `.ci/run`, the Python package and its tests; of the others only the paths.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tree {
    files: Vec<File>,
    others: Vec<String>,
}

/// One crate of the project.
#[derive(Debug)]
pub(crate) struct Crate {
    /// Its package name.
    pub(crate) name: String,
    /// Its folder from the root; no slash at the end.
    pub(crate) folder: String,
    /// Its manifest.
    pub(crate) manifest: Manifest,
}

/// Where the project lies. `cargo run` says where this package is now; the build may be older than
/// a move of the checkout.
pub(crate) fn root() -> PathBuf {
    let here = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    here.parent().unwrap_or(&here).to_path_buf()
}

impl Tree {
    /// Reads the project.
    ///
    /// # Errors
    /// Words with the path that could not be read.
    pub(crate) fn read(root: &Path) -> Result<Self, String> {
        let mut tree = Self::default();
        let mut folders = vec![root.to_path_buf()];
        while let Some(folder) = folders.pop() {
            let entries =
                std::fs::read_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
            for entry in entries.flatten() {
                let path = entry.path();
                let name = entry.file_name();
                if path.is_dir() {
                    if !FOREIGN.iter().any(|f| *f == name) {
                        folders.push(path);
                    }
                    continue;
                }
                let short = path
                    .strip_prefix(root)
                    .map_err(|e| format!("{}: {e}", path.display()))?
                    .to_string_lossy()
                    .replace('\\', "/");
                let read = [".rs", ".toml", ".md", ".patch", ".yml"];
                let read = read.iter().any(|end| short.ends_with(end)) || short == SCRIPT;
                if read || short.starts_with(PYTHON) && short.ends_with(".py") {
                    let text =
                        std::fs::read_to_string(&path).map_err(|e| format!("{short}: {e}"))?;
                    tree.files.push(File { path: short, text });
                } else {
                    tree.others.push(short);
                }
            }
        }
        tree.files.sort_by(|a, b| a.path.cmp(&b.path));
        tree.others.sort();
        Ok(tree)
    }

    /// A tree made of `(path, text)` pairs.
    #[cfg(test)]
    pub(crate) fn planted(files: &[(&str, &str)]) -> Self {
        let files = files
            .iter()
            .map(|(path, text)| File { path: (*path).to_owned(), text: (*text).to_owned() })
            .collect();
        Self { files, others: Vec::new() }
    }

    /// Adds a line to the file of that path.
    #[cfg(test)]
    pub(crate) fn append(&mut self, path: &str, line: &str) {
        for file in self.files.iter_mut().filter(|f| f.path == path) {
            file.text.push('\n');
            file.text.push_str(line);
        }
    }

    /// All Rust files.
    pub(crate) fn rust(&self) -> impl Iterator<Item = &File> {
        self.ending(".rs")
    }

    /// All files with that ending that have text here.
    pub(crate) fn ending(&self, end: &str) -> impl Iterator<Item = &File> {
        self.files.iter().filter(move |f| f.path.ends_with(end))
    }

    /// The file of that path, if it has text here.
    pub(crate) fn file(&self, path: &str) -> Option<&File> {
        self.files.iter().find(|f| f.path == path)
    }

    /// Whether a file or folder of that path exists.
    pub(crate) fn exists(&self, path: &str) -> bool {
        let inside = format!("{path}/");
        let mut all = self
            .files
            .iter()
            .map(|f| f.path.as_str())
            .chain(self.others.iter().map(String::as_str));
        path.is_empty() || all.any(|p| p == path || p.starts_with(&inside))
    }

    /// All crates, found by their manifests.
    pub(crate) fn crates(&self) -> Vec<Crate> {
        self.ending("Cargo.toml")
            .filter_map(|f| {
                let manifest = Manifest::parse(&f.text);
                let name = manifest.get("package", "name")?.to_owned();
                let folder = f.path.strip_suffix("Cargo.toml")?.trim_end_matches('/').to_owned();
                Some(Crate { name, folder, manifest })
            })
            .collect()
    }
}

impl Crate {
    /// Whether a registry may have it: its manifest does not say `publish = false`, its own or the workspace's.
    pub(crate) fn is_published(&self) -> bool {
        let says = |key| self.manifest.get("package", key);
        says("publish") != Some("false") && says("publish.workspace") != Some("true")
    }

    /// The Rust files of this crate, those of crates in sub-folders left out.
    pub(crate) fn rust<'t>(&self, tree: &'t Tree, all: &[Self]) -> Vec<&'t File> {
        let inside = format!("{}/", self.folder);
        let nested: Vec<String> = all
            .iter()
            .filter(|c| c.folder.starts_with(&inside))
            .map(|c| format!("{}/", c.folder))
            .collect();
        tree.rust()
            .filter(|f| {
                f.path.starts_with(&inside) && !nested.iter().any(|n| f.path.starts_with(n))
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::Tree;

    #[test]
    fn a_crate_owns_its_files_but_not_those_of_a_nested_crate() {
        let tree = Tree::planted(&[
            ("a/Cargo.toml", "[package]\nname = \"a\"\n"),
            ("a/src/lib.rs", ""),
            ("a/b/Cargo.toml", "[package]\nname = \"b\"\n"),
            ("a/b/src/lib.rs", ""),
        ]);
        let all = tree.crates();
        let files: Vec<Vec<&str>> = all
            .iter()
            .map(|c| c.rust(&tree, &all).iter().map(|f| f.path.as_str()).collect())
            .collect();
        assert_eq!(files, [["a/src/lib.rs"], ["a/b/src/lib.rs"]]);
        assert!(tree.exists("a/b/src") && tree.exists("a/src/lib.rs") && !tree.exists("a/sr"));
    }
}
