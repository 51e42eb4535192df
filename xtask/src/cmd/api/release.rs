//! The public API against that of a release: the version says whether a program that was built with it still builds.

use super::snapshot::{LIBRARIES, Snapshot, difference};
use crate::manifest::Manifest;
use crate::shell;
use std::path::Path;
use std::process::Command;

/// Compares the stored texts with those of a commit, and the versions.
///
/// # Errors
/// Words: something was removed or changed, and the version is compatible; or the commit has no texts.
pub(super) fn compare(root: &Path, commit: &str) -> Result<(), String> {
    let now = std::fs::read_to_string(root.join("Cargo.toml")).map_err(|e| e.to_string())?;
    let (old, new) = (version(&file_at(root, commit, "Cargo.toml")?)?, version(&now)?);
    println!("{commit} is {old}, this is {new}");
    let mut broken = Vec::new();
    for library in LIBRARIES {
        let path = Snapshot::path(library);
        let before = Snapshot::parse(&file_at(root, commit, &path)?);
        let text = std::fs::read_to_string(root.join(&path)).map_err(|e| format!("{path}: {e}"))?;
        let found = difference(&before.items, &Snapshot::parse(&text).items);
        println!(
            "{library}: {} removed or changed, {} added",
            found.removed.len(),
            found.added.len()
        );
        print!("{found}");
        if !found.removed.is_empty() {
            broken.push(library);
        }
    }
    if broken.is_empty() || !is_compatible(&old, &new)? {
        return Ok(());
    }
    Err(format!(
        "{} of {new} do not serve programs that were built with {old}: raise the version",
        broken.join(", ")
    ))
}

/// A file as it was at a commit.
fn file_at(root: &Path, commit: &str, path: &str) -> Result<String, String> {
    let mut git = Command::new("git");
    git.current_dir(root).arg("show").arg(format!("{commit}:{path}"));
    let out = shell::capture(&mut git)?;
    if out.success { Ok(out.stdout) } else { Err(format!("git show: {}", out.stderr.trim())) }
}

fn version(manifest: &str) -> Result<String, String> {
    let manifest = Manifest::parse(manifest);
    let version = manifest.get("workspace.package", "version");
    version.map(str::to_owned).ok_or_else(|| "Cargo.toml states no version".to_owned())
}

/// Whether cargo may take one version for the other: the first number that is not 0 is the same.
fn is_compatible(old: &str, new: &str) -> Result<bool, String> {
    let leading = |version: &str| -> Result<Vec<u64>, String> {
        let plain = version.split(['-', '+']).next().unwrap_or_default();
        let numbers: Result<Vec<u64>, _> = plain.split('.').map(str::parse).collect();
        let mut numbers = numbers.map_err(|e| format!("version {version}: {e}"))?;
        let first = numbers.iter().position(|n| *n != 0).unwrap_or(numbers.len());
        numbers.truncate(first.saturating_add(1));
        Ok(numbers)
    };
    Ok(leading(old)? == leading(new)?)
}

#[cfg(test)]
mod tests {
    use super::is_compatible;

    #[test]
    fn the_first_number_that_is_not_zero_decides() {
        assert_eq!(is_compatible("0.2.0", "0.2.7"), Ok(true));
        assert_eq!(is_compatible("0.2.0", "0.3.0"), Ok(false));
        assert_eq!(is_compatible("1.2.0", "1.3.0"), Ok(true));
        assert_eq!(is_compatible("1.2.0", "2.0.0"), Ok(false));
        assert_eq!(is_compatible("0.0.1", "0.0.2"), Ok(false));
        assert_eq!(is_compatible("0.2.0-rc.1", "0.2.0"), Ok(true));
        assert!(is_compatible("0.2.x", "0.2.0").is_err());
    }
}
