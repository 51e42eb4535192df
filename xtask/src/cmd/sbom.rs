//! `cargo xtask sbom`: a list of what each package of a release is made of, as CycloneDX in JSON below `target/sbom`.
//!
//! cargo-cyclonedx writes the lists, one beside each manifest. Those of releases are moved, the others removed. A list that lacks a direct
//! dependency, or a license, is a failure.

use crate::cargo_tool::CargoTool;
use crate::manifest::Manifest;
use crate::shell;
use crate::tree::{self, Crate, Tree};
use crate::verdict::Verdict;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;

const CYCLONEDX: CargoTool =
    CargoTool { name: "cyclonedx", package: "cargo-cyclonedx", version: "0.5.9" };

/// What is released elsewhere than in the registry of crates: the Python package.
const WHEEL: &str = "hmc-py";

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Install cargo-cyclonedx if it is missing
    #[arg(long)]
    install: bool,
}

/// Writes and reads the lists.
pub(crate) fn run(options: &Options) -> Verdict {
    if let Err(skipped) = CYCLONEDX.ready(options.install) {
        return skipped;
    }
    Verdict::from_result(write(&tree::root()))
}

fn write(root: &Path) -> Result<(), String> {
    let mut command = shell::cargo();
    command.current_dir(root).args([CYCLONEDX.name, "--quiet", "--format", "json"]);
    command.args(["--spec-version", "1.5"]).env("CARGO_NET_OFFLINE", "true");
    let out = shell::capture(&mut command)?;
    if !out.success {
        return Err(format!("cargo cyclonedx: {}", out.stderr));
    }
    let folder = root.join("target/sbom");
    std::fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let mut result = Ok(());
    for c in Tree::read(root)?.crates() {
        let name = format!("{}.cdx.json", c.name);
        let from = root.join(&c.folder).join(&name);
        let is_released = c.is_published() || c.name == WHEEL;
        if !is_released {
            // Projects apart have none.
            let _ = std::fs::remove_file(from);
            continue;
        }
        let to = folder.join(&name);
        std::fs::rename(&from, &to).map_err(|e| format!("{}: {e}", from.display()))?;
        let text = std::fs::read_to_string(&to).map_err(|e| format!("{}: {e}", to.display()))?;
        match complete(&text, &c) {
            Ok(count) => println!("{}: {count} components", to.display()),
            // The other lists are moved all the same.
            Err(why) => result = Err(format!("{}: {why}", to.display())),
        }
    }
    result
}

/// Whether a list has all direct dependencies of a package, with the licenses of all. Returns the number of components.
fn complete(text: &str, c: &Crate) -> Result<usize, String> {
    let list: Value = serde_json::from_str(text).map_err(|e| e.to_string())?;
    let components = list.get("components").and_then(Value::as_array).ok_or("no components")?;
    let name = |component: &Value| Some(component.get("name")?.as_str()?.to_owned());
    let names: BTreeSet<String> = components.iter().filter_map(name).collect();
    if let Some(missing) = direct(&c.manifest).find(|d| !names.contains(d)) {
        return Err(format!("{missing} is missing"));
    }
    match components.iter().find(|c| c.pointer("/licenses/0").is_none()) {
        Some(one) => Err(format!("{} has no license", name(one).unwrap_or_default())),
        None => Ok(components.len()),
    }
}

/// The dependencies that a release always has: none of tests, of models or of features.
fn direct(manifest: &Manifest) -> impl Iterator<Item = String> {
    let optional = |name: &str| {
        let row = manifest.get("dependencies", name);
        row.is_some_and(|row| row.contains("optional = true"))
    };
    let here = |name: &str| {
        ["", ".workspace"]
            .iter()
            .any(|end| manifest.get("dependencies", &format!("{name}{end}")).is_some())
    };
    let all = manifest.dependencies().into_iter().filter(|d| !d.dev);
    all.map(|d| d.name).filter(|name| here(name) && !optional(name)).collect::<Vec<_>>().into_iter()
}

#[cfg(test)]
mod tests {
    use super::complete;
    use crate::tree::Tree;

    const MANIFEST: &str = "[package]\nname = \"a\"\n[dependencies]\nb.workspace = true\n\
        c = { workspace = true, optional = true }\n\
        [target.'cfg(loom)'.dependencies]\nd.workspace = true\n[dev-dependencies]\ne = \"1\"\n";

    fn found(components: &str) -> Result<usize, String> {
        let tree = Tree::planted(&[("a/Cargo.toml", MANIFEST)]);
        complete(&format!("{{\"components\": {components}}}"), &tree.crates()[0])
    }

    #[test]
    fn a_list_with_each_dependency_and_license_passes() {
        assert_eq!(found(r#"[{"name": "b", "licenses": [{"expression": "MIT"}]}]"#), Ok(1));
    }

    #[test]
    fn a_missing_dependency_or_license_is_found() {
        let other = found(r#"[{"name": "x", "licenses": [{"expression": "MIT"}]}]"#);
        assert_eq!(other, Err("b is missing".to_owned()));
        let bare = found(r#"[{"name": "b", "licenses": []}]"#);
        assert_eq!(bare, Err("b has no license".to_owned()));
        assert!(complete("", &Tree::planted(&[("a/Cargo.toml", MANIFEST)]).crates()[0]).is_err());
    }
}
