//! The public items of a library, one line each, as rustdoc and `public-api` find them.

use super::bindings;
use crate::shell;
use public_api::Builder;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;

/// Traits of the compiler that are not listed: no program says them of a type of ours.
const UNLISTED: [&str; 6] = [
    "core::marker::Freeze",
    "core::marker::StructuralPartialEq",
    "core::marker::Unpin",
    "core::marker::UnsafeUnpin",
    "core::panic::unwind_safe::RefUnwindSafe",
    "core::panic::unwind_safe::UnwindSafe",
];

/// The public items of a library.
#[derive(Debug)]
pub(super) struct Listing {
    /// The format of the rustdoc JSON that they come from.
    pub(super) format: u64,
    /// Their declarations, grouped by type.
    pub(super) items: Vec<String>,
}

impl Listing {
    /// Lists the items of a library with its default features.
    ///
    /// # Errors
    /// Words: it does not build, or its JSON cannot be read.
    pub(super) fn of(root: &Path, library: &str, toolchain: &str) -> Result<Self, String> {
        let target = root.join("target/api");
        let mut command = shell::cargo_of(toolchain);
        command
            .current_dir(root)
            .args(["rustdoc", "--quiet", "--locked", "--lib", "--package", library])
            .arg("--target-dir")
            .arg(&target)
            .args(["--", "-Z", "unstable-options", "--output-format", "json", "--cap-lints=allow"])
            .env_remove("RUSTDOCFLAGS")
            .env_remove("RUSTFLAGS");
        let out = shell::capture(&mut command)?;
        if !out.success {
            return Err(format!("{library}: {}\n{}", out.why(), out.stderr));
        }
        let json = target.join("doc").join(format!("{}.json", library.replace('-', "_")));
        let text =
            std::fs::read_to_string(&json).map_err(|e| format!("{}: {e}", json.display()))?;
        let value: Value =
            serde_json::from_str(&text).map_err(|e| format!("{}: {e}", json.display()))?;
        let format = value.get("format_version").and_then(Value::as_u64);
        let format = format.ok_or_else(|| format!("{} has no format_version", json.display()))?;
        let read = |derived: bool| -> Result<Vec<String>, String> {
            let items = Builder::from_rustdoc_json(&json)
                .omit_blanket_impls(true)
                .omit_auto_trait_impls(!derived)
                .omit_auto_derived_impls(!derived)
                .build()
                .map_err(|e| format!("{} (format {format}): {e}", json.display()))?;
            Ok(items.items().map(|item| bindings::sorted(&item.to_string())).collect())
        };
        Ok(Self { format, items: merge(read(true)?, &read(false)?) })
    }
}

/// All items without those that derived and automatic implementations bring: of such an implementation only its first line.
fn merge(all: Vec<String>, written: &[String]) -> Vec<String> {
    let written: BTreeSet<&str> = written.iter().map(String::as_str).collect();
    let is_listed = |item: &String| {
        written.contains(item.as_str())
            || item.starts_with("impl") && !UNLISTED.iter().any(|name| item.contains(name))
    };
    all.into_iter().filter(is_listed).collect()
}

#[cfg(test)]
mod tests {
    use super::merge;

    #[test]
    fn derived_implementations_are_one_line_each() {
        let all = [
            "pub struct a::B",
            "impl core::clone::Clone for a::B",
            "pub fn a::B::clone(&self) -> a::B",
            "impl core::marker::Send for a::B",
            "impl core::marker::Unpin for a::B",
            "pub fn a::B::c(&self)",
        ];
        let written = ["pub struct a::B", "pub fn a::B::c(&self)"];
        let merged = merge(all.map(str::to_owned).to_vec(), &written.map(str::to_owned));
        assert_eq!(merged, [all[0], all[1], all[3], all[5]]);
    }
}
