//! Packages of a release: each manifest says what a registry asks for, and the version is the same wherever it stands.

use super::finding::Finding;
use crate::manifest::Manifest;
use crate::tree::{Crate, Tree};

/// The manifest with the version.
const ROOT: &str = "Cargo.toml";

/// The module of the Python package that names the version, and how.
const PYTHON: (&str, &str) = ("hmc-py/python/hmc/__init__.py", "__version__ = ");

/// The page with what is new in each version.
const CHANGES: &str = "CHANGELOG.md";

/// What a registry asks for, and shows.
const ASKED: [&str; 7] =
    ["description", "license", "repository", "readme", "keywords", "categories", "rust-version"];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut out = Vec::new();
    let Some(root) = tree.file(ROOT).map(|file| Manifest::parse(&file.text)) else {
        return vec![Finding::new(ROOT, 0, "the manifest of the workspace is missing")];
    };
    let Some(version) = root.get("workspace.package", "version") else {
        return vec![Finding::new(ROOT, 0, "state workspace.package.version")];
    };
    for c in tree.crates().iter().filter(|c| c.is_published()) {
        described(c, &mut out);
        let own = format!("version = \"{version}\"");
        let named = root.get("workspace.dependencies", &c.name);
        // Only what other members depend on has a row there.
        if named.is_some_and(|row| !row.contains(&own)) {
            out.push(Finding::new(ROOT, 0, format!("{}: its row needs `{own}`", c.name)));
        }
    }
    let (path, before) = PYTHON;
    let python = format!("{before}\"{version}\"");
    if tree.file(path).is_some_and(|file| !file.text.lines().any(|line| line == python)) {
        out.push(Finding::new(path, 0, format!("it has to say `{python}`")));
    }
    let heading = format!("## [{version}]");
    if tree.file(CHANGES).is_some_and(|f| !f.text.lines().any(|l| l.starts_with(&heading))) {
        out.push(Finding::new(CHANGES, 0, format!("there is no section `{heading}`")));
    }
    out
}

fn described(c: &Crate, out: &mut Vec<Finding>) {
    let has = |key: &&str| {
        let inherited = format!("{key}.workspace");
        [key, inherited.as_str()].iter().any(|k| c.manifest.get("package", k).is_some())
    };
    for key in ASKED.iter().filter(|key| !has(key)) {
        let path = format!("{}/Cargo.toml", c.folder);
        out.push(Finding::new(&path, 0, format!("state `{key}`, or `publish = false`")));
    }
}

#[cfg(test)]
mod tests {
    use super::{CHANGES, PYTHON, check};
    use crate::tree::Tree;

    const ROOT: &str = "[workspace.package]\nversion = \"1.2.0\"\n\
        [workspace.dependencies]\na = { path = \"a\", version = \"1.2.0\" }\n";
    const MEMBER: &str = "[package]\nname = \"a\"\ndescription = \"A.\"\nlicense.workspace = true\n\
        repository.workspace = true\nreadme = \"README.md\"\nkeywords = [\"a\"]\n\
        categories = [\"b\"]\nrust-version.workspace = true\n";
    const MODULE: &str = "__version__ = \"1.2.0\"\n";
    const PAGE: &str = "## [1.2.0] - 2026-01-01\n";

    fn findings(files: [&str; 4]) -> usize {
        let [root, member, module, page] = files;
        let files =
            [("Cargo.toml", root), ("a/Cargo.toml", member), (PYTHON.0, module), (CHANGES, page)];
        check(&Tree::planted(&files)).len()
    }

    #[test]
    fn a_release_with_one_version_and_complete_manifests_passes() {
        assert_eq!(findings([ROOT, MEMBER, MODULE, PAGE]), 0);
        let internal = "[package]\nname = \"a\"\npublish.workspace = true\n";
        assert_eq!(findings([ROOT, internal, MODULE, PAGE]), 0);
    }

    #[test]
    fn planted_violations_are_found() {
        let other = |text: &str| text.replace("1.2.0", "1.1.0");
        let row = ROOT.replace("version = \"1.2.0\" }", "version = \"1.1.0\" }");
        assert_eq!(findings([&row, MEMBER, MODULE, PAGE]), 1);
        assert_eq!(findings([ROOT, MEMBER, &other(MODULE), PAGE]), 1);
        assert_eq!(findings([ROOT, MEMBER, MODULE, &other(PAGE)]), 1);
        let silent = MEMBER.replace("keywords", "words").replace("readme", "note");
        assert_eq!(findings([ROOT, &silent, MODULE, PAGE]), 2);
    }
}
