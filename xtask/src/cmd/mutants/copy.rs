//! A copy of the workspace in which mutants are compiled: the tree itself is never changed.

use super::splice::MODULE;
use crate::shell;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Folders that are not copied.
const LEFT_OUT: [&str; 5] = ["target", ".git", "artifacts", "__pycache__", ".pytest_cache"];

/// The module that selects the active mutant.
const SWITCH: &str = include_str!("switch.txt");

/// What cargo does in the copy: lints are no errors, and what is linked as one unit elsewhere is not here.
const CONFIGURATION: &str = "[build]\nrustflags = [\"--cap-lints=warn\"]\n\n[profile.release]\nlto = \"off\"\ncodegen-units = 16\ndebug = 0\n\n\
                             [profile.dev]\ndebug = 0\n";

/// The copy.
#[derive(Debug)]
pub(super) struct Copy {
    root: PathBuf,
    place: PathBuf,
    /// What may be changed, as the tree has it: read once, so that mutants fit.
    originals: BTreeMap<String, String>,
    /// Files with crate roots of mutated packages.
    roots: BTreeSet<String>,
}

impl Copy {
    /// Copies the tree at `root` to `work/tree`; what is there and equal stays as it is, so that cargo builds no more than
    /// it must.
    ///
    /// # Errors
    /// Words.
    pub(super) fn new(
        root: &Path,
        work: &Path,
        packages: &[&str],
        files: &BTreeSet<String>,
    ) -> Result<Self, String> {
        let place = work.join("tree");
        let mut copy = Self {
            root: root.to_path_buf(),
            place,
            originals: BTreeMap::new(),
            roots: roots(root, packages)?,
        };
        for file in copy.roots.iter().chain(files) {
            let path = root.join(file);
            let text =
                std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
            copy.originals.insert(file.clone(), text);
        }
        update(&work.join(".cargo/config.toml"), CONFIGURATION.as_bytes())?;
        update(&work.join("switch.rs"), SWITCH.as_bytes())?;
        copy.bring()?;
        Ok(copy)
    }

    /// Where it is.
    pub(super) fn place(&self) -> &Path {
        &self.place
    }

    /// The text of a file as the tree has it.
    ///
    /// # Errors
    /// Words, when it is none of the files that may be changed.
    pub(super) fn original(&self, file: &str) -> Result<&str, String> {
        self.originals
            .get(file)
            .map(String::as_str)
            .ok_or_else(|| format!("{file} is not in the copy"))
    }

    /// A cargo in the copy. Flags of the environment would replace those of its configuration.
    pub(super) fn cargo(&self) -> Command {
        let mut command = shell::cargo();
        command.current_dir(&self.place);
        for name in
            ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "CARGO_BUILD_RUSTFLAGS", "CARGO_TARGET_DIR"]
        {
            command.env_remove(name);
        }
        command
    }

    /// Gives these files these texts, all others those of the tree, and each crate root its switch.
    ///
    /// # Errors
    /// Words.
    pub(super) fn change(&self, texts: &BTreeMap<String, String>) -> Result<(), String> {
        for (file, original) in &self.originals {
            let mut text = texts.get(file).unwrap_or(original).clone();
            if self.roots.contains(file) {
                let switch = self.place.with_file_name("switch.rs");
                let module =
                    format!("\n#[path = {:?}]\nmod {MODULE};\n", switch.display().to_string());
                text.push_str(&module);
            }
            update(&self.place.join(file), text.as_bytes())?;
        }
        Ok(())
    }

    /// Brings all files but those that may be changed, and removes what the tree does not have.
    fn bring(&self) -> Result<(), String> {
        let mut folders = vec![PathBuf::new()];
        while let Some(folder) = folders.pop() {
            let (here, there) = (self.root.join(&folder), self.place.join(&folder));
            std::fs::create_dir_all(&there).map_err(|e| format!("{}: {e}", there.display()))?;
            let names = names(&here)?;
            for name in names_or_none(&there).difference(&names) {
                if !is_left_out(name) {
                    remove(&there.join(name))?;
                }
            }
            for name in names.iter().filter(|name| !is_left_out(name)) {
                let path = folder.join(name);
                let from = here.join(name);
                if from.is_dir() {
                    folders.push(path);
                } else if !self.originals.contains_key(&path.to_string_lossy().replace('\\', "/")) {
                    bring_file(&from, &there.join(name))?;
                }
            }
        }
        Ok(())
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
fn update(path: &Path, bytes: &[u8]) -> Result<(), String> {
    if std::fs::read(path).is_ok_and(|there| there == bytes) {
        return Ok(());
    }
    let folder = path.parent().ok_or("a file lies in a folder")?;
    std::fs::create_dir_all(folder)
        .and_then(|()| std::fs::write(path, bytes))
        .map_err(|e| format!("{}: {e}", path.display()))
}

/// The crate roots of libraries and programs of the packages, from the root of the workspace.
fn roots(root: &Path, packages: &[&str]) -> Result<BTreeSet<String>, String> {
    let mut command = shell::cargo();
    command.current_dir(root).args(["metadata", "--no-deps", "--offline", "--format-version", "1"]);
    let out = shell::capture(&mut command)?;
    if !out.success {
        return Err(format!("`{}`: {}\n{}", shell::shown(&command), out.why(), out.stderr));
    }
    let json: Value =
        serde_json::from_str(&out.stdout).map_err(|e| format!("cargo metadata: {e}"))?;
    let list = |value: &Value, key: &str| {
        value.get(key).and_then(Value::as_array).cloned().unwrap_or_default()
    };
    let text = |value: &Value, key: &str| {
        value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let mut found = BTreeSet::new();
    for package in list(&json, "packages") {
        if !packages.contains(&text(&package, "name").as_str()) {
            continue;
        }
        for target in list(&package, "targets") {
            let kinds = list(&target, "kind");
            let is_code =
                |kind: &Value| matches!(kind.as_str(), Some("lib" | "cdylib" | "rlib" | "bin"));
            if kinds.iter().any(is_code) {
                let path = text(&target, "src_path");
                let short =
                    Path::new(&path).strip_prefix(root).map_err(|e| format!("{path}: {e}"))?;
                found.insert(short.to_string_lossy().replace('\\', "/"));
            }
        }
    }
    if found.is_empty() { Err("none of the packages is here".to_owned()) } else { Ok(found) }
}
