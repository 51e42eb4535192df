//! A copy of the workspace in which mutants are compiled.

use super::splice::MODULE;
use crate::copy::{self, TreeCopy};
use crate::shell;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

/// The module that selects the active mutant.
const SWITCH: &str = include_str!("switch.txt");

/// What cargo does in the copy: lints are no errors, and what is linked as one unit elsewhere is not here.
const CONFIGURATION: &str = "[build]\nrustflags = [\"--cap-lints=warn\"]\n\n[profile.release]\nlto = \"off\"\ncodegen-units = 16\ndebug = 0\n\n\
                             [profile.dev]\ndebug = 0\n";

/// The copy.
#[derive(Debug)]
pub(super) struct Copy {
    copy: TreeCopy,
    /// What may be changed, as the tree has it: read once, so that mutants fit.
    originals: BTreeMap<String, String>,
    /// Files with crate roots of mutated packages.
    roots: BTreeSet<String>,
}

impl Copy {
    /// Copies the tree at `root` to `work/tree`.
    ///
    /// # Errors
    /// Words.
    pub(super) fn new(
        root: &Path,
        work: &Path,
        packages: &[&str],
        files: &BTreeSet<String>,
    ) -> Result<Self, String> {
        let roots = roots(root, packages)?;
        let mut originals = BTreeMap::new();
        for file in roots.iter().chain(files) {
            let path = root.join(file);
            let text =
                std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
            originals.insert(file.clone(), text);
        }
        let copy = TreeCopy::new(root, work, CONFIGURATION)?;
        copy::update(&work.join("switch.rs"), SWITCH.as_bytes())?;
        copy.bring(|path| originals.contains_key(path))?;
        Ok(Self { copy, originals, roots })
    }

    /// Where it is.
    pub(super) fn place(&self) -> &Path {
        self.copy.place()
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

    /// A cargo in the copy.
    pub(super) fn cargo(&self) -> Command {
        self.copy.cargo()
    }

    /// Gives these files these texts, all others those of the tree, and each crate root its switch.
    ///
    /// # Errors
    /// Words.
    pub(super) fn change(&self, texts: &BTreeMap<String, String>) -> Result<(), String> {
        for (file, original) in &self.originals {
            let mut text = texts.get(file).unwrap_or(original).clone();
            if self.roots.contains(file) {
                let switch = self.place().with_file_name("switch.rs");
                let module =
                    format!("\n#[path = {:?}]\nmod {MODULE};\n", switch.display().to_string());
                text.push_str(&module);
            }
            self.copy.write(file, &text)?;
        }
        Ok(())
    }
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
