//! Reads of a `Cargo.toml` what the checks need: sections, keys, and plain values.
//!
//! Not a TOML parser: a key holds one line here, which this project's manifests keep to (an array
//! may go over several lines; only its first is kept). It saves the build of a parser.

/// One `key = value` under its section.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    section: String,
    key: String,
    value: String,
}

/// The entries of one manifest.
#[derive(Clone, Debug, Default)]
pub(crate) struct Manifest {
    entries: Vec<Entry>,
    sections: Vec<String>,
}

/// One dependency as a manifest names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Dependency {
    /// The crate's name.
    pub(crate) name: String,
    /// Whether it serves tests or build scripts only.
    pub(crate) dev: bool,
    /// Whether its version comes from the workspace's table.
    pub(crate) from_workspace: bool,
    /// Whether it is a path.
    pub(crate) path: bool,
}

impl Manifest {
    /// Reads a manifest's text.
    pub(crate) fn parse(text: &str) -> Self {
        let mut out = Self::default();
        let mut section = String::new();
        for line in text.lines() {
            let line = without_comment(line).trim();
            if let Some(name) = line.strip_prefix('[') {
                section = name.trim_start_matches('[').trim_end_matches(']').trim().to_owned();
                out.sections.push(section.clone());
            } else if let Some((key, value)) = line.split_once('=') {
                let plain = value.trim().trim_matches('"').to_owned();
                let key = key.trim().trim_matches('"').to_owned();
                out.entries.push(Entry { section: section.clone(), key, value: plain });
            }
        }
        out
    }

    /// The value of a key, without quotes.
    pub(crate) fn get(&self, section: &str, key: &str) -> Option<&str> {
        self.entries.iter().find(|e| e.section == section && e.key == key).map(|e| e.value.as_str())
    }

    /// Whether there is such a section.
    pub(crate) fn has_section(&self, section: &str) -> bool {
        self.sections.iter().any(|s| s == section)
    }

    /// All dependencies, of every kind and target.
    pub(crate) fn dependencies(&self) -> Vec<Dependency> {
        let mut out: Vec<Dependency> = Vec::new();
        for e in &self.entries {
            if e.section.starts_with("workspace") {
                continue;
            }
            let Some((dev, own_section)) = kind_of(&e.section) else {
                continue;
            };
            // `name.workspace = true`, `name = { .. }`, or a `[dependencies.name]` section.
            let (name, attribute) = match own_section {
                Some(name) => (name, e.key.as_str()),
                None => e.key.split_once('.').unwrap_or((e.key.as_str(), "")),
            };
            let from_workspace = attribute == "workspace" || e.value.contains("workspace = true");
            let path = attribute == "path" || e.value.contains("path =");
            match out.iter_mut().find(|d| d.name == name && d.dev == dev) {
                Some(d) => {
                    d.from_workspace |= from_workspace;
                    d.path |= path;
                }
                None => out.push(Dependency { name: name.to_owned(), dev, from_workspace, path }),
            }
        }
        out
    }
}

/// For a section of dependencies: whether it is for tests or builds, and the crate it is about.
fn kind_of(section: &str) -> Option<(bool, Option<&str>)> {
    // `target.'cfg(loom)'.dependencies`: the last part counts.
    let tail = match section.strip_prefix("target.") {
        Some(rest) => {
            let end = rest.rfind("'.").map_or(0, |i| i.saturating_add(2));
            rest.get(end..)?
        }
        None => section,
    };
    for (word, dev) in
        [("dependencies", false), ("dev-dependencies", true), ("build-dependencies", true)]
    {
        if tail == word {
            return Some((dev, None));
        }
        if let Some(name) = tail.strip_prefix(word).and_then(|t| t.strip_prefix('.')) {
            return Some((dev, Some(name)));
        }
    }
    None
}

/// The line up to a `#` that is not inside a string.
fn without_comment(line: &str) -> &str {
    let mut quoted = false;
    for (at, c) in line.char_indices() {
        match c {
            '"' => quoted = !quoted,
            '#' if !quoted => return line.get(..at).unwrap_or(line),
            _ => {}
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::{Dependency, Manifest};

    const TEXT: &str = r##"
[package]
name = "x" # a comment
description = "with # inside"
rust-version.workspace = true
[dependencies]
a.workspace = true
b = { workspace = true, optional = true }
c = "1"
[dependencies.d]
path = "../d"
[dev-dependencies]
e.workspace = true
[target.'cfg(loom)'.dependencies]
f = { path = "f" }
"##;

    fn dep(name: &str, dev: bool, from_workspace: bool, path: bool) -> Dependency {
        Dependency { name: name.to_owned(), dev, from_workspace, path }
    }

    #[test]
    fn every_way_to_name_a_dependency_is_seen() {
        let m = Manifest::parse(TEXT);
        assert_eq!(
            m.dependencies(),
            [
                dep("a", false, true, false),
                dep("b", false, true, false),
                dep("c", false, false, false),
                dep("d", false, false, true),
                dep("e", true, true, false),
                dep("f", false, false, true),
            ]
        );
    }

    #[test]
    fn values_lose_their_quotes_and_comments() {
        let m = Manifest::parse(TEXT);
        assert_eq!(m.get("package", "name"), Some("x"));
        assert_eq!(m.get("package", "description"), Some("with # inside"));
        assert_eq!(m.get("package", "rust-version.workspace"), Some("true"));
        assert!(m.has_section("dependencies.d") && !m.has_section("workspace"));
    }
}
