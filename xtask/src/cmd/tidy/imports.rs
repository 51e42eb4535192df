//! No import through a crate's root: a name is imported from the module that defines it.
//!
//! One exception: hmc-std's root is the facade for applications, and only applications use it.

use super::finding::Finding;
use super::paths::below;
use crate::source::Source;
use crate::tree::Tree;

/// The crate whose root is a facade.
const FACADE: &str = "hmc-std";

/// Crates that may use the facade: front ends, and code in the role of an application.
const APPLICATIONS: [&str; 8] = [
    "hmc-cli",
    "hmc-py",
    "hmc-tests",
    "hmc-testkit",
    "hmc-benches",
    "examples",
    "own_transport",
    "xtask",
];

/// A module that only the copy with planted bugs has, and its crate.
const PLANTED: (&str, &str) = ("hmc-core", "mutant");

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let crates = tree.crates();
    let roots: Vec<(&str, String, Vec<String>)> = crates
        .iter()
        .filter_map(|c| {
            let lib = c.manifest.get("lib", "path").unwrap_or("src/lib.rs");
            let file = tree.file(&format!("{}/{lib}", c.folder))?;
            let word = c.manifest.get("lib", "name").unwrap_or(&c.name).replace('-', "_");
            let mut modules = modules(&file.text);
            if c.name == PLANTED.0 {
                modules.push(PLANTED.1.to_owned());
            }
            Some((c.name.as_str(), word, modules))
        })
        .collect();
    let mut out = Vec::new();
    for c in &crates {
        for file in c.rust(tree, &crates) {
            let source = Source::split(&file.text);
            let own = roots.iter().find(|(name, ..)| *name == c.name);
            let inside = file.path.starts_with(&format!("{}/src/", c.folder));
            for (name, word, modules) in &roots {
                // Tests and examples of hmc-std are applications too.
                let facade = *name == FACADE
                    && (APPLICATIONS.contains(&c.name.as_str()) || (c.name == FACADE && !inside));
                if !facade {
                    check_file(&file.path, &source, word, modules, &mut out);
                }
            }
            if let Some((.., modules)) = own.filter(|_| inside) {
                check_file(&file.path, &source, "crate", modules, &mut out);
            }
        }
    }
    out
}

fn check_file(path: &str, source: &Source, root: &str, modules: &[String], out: &mut Vec<Finding>) {
    for p in below(source, root) {
        let Some(first) = p.segments.first() else {
            continue;
        };
        if p.imported && !modules.contains(first) {
            out.push(Finding::new(
                path,
                p.line,
                format!("import `{first}` from the module that defines it, not from `{root}`"),
            ));
        }
    }
}

/// The modules that a root declares.
fn modules(text: &str) -> Vec<String> {
    let tokens = Source::split(text).tokens();
    tokens
        .windows(2)
        .filter_map(|pair| match pair {
            [word, name] if word.text == "mod" => Some(name.text.clone()),
            _ => None,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::tree::Tree;

    fn findings(path: &str, text: &str) -> usize {
        check(&Tree::planted(&[
            ("hmc-core/Cargo.toml", "[package]\nname = \"hmc-core\"\n"),
            ("hmc-core/src/lib.rs", "pub mod range;\nmod inner;\n"),
            ("hmc-std/Cargo.toml", "[package]\nname = \"hmc-std\"\n"),
            ("hmc-std/src/lib.rs", "pub mod session;\npub use crate::session::Session;\n"),
            ("hmc-cli/Cargo.toml", "[package]\nname = \"hmc-cli\"\n"),
            (path, text),
        ]))
        .len()
    }

    #[test]
    fn imports_from_modules_and_the_facade_pass() {
        assert_eq!(findings("hmc-core/src/range.rs", "use crate::inner::X;\nuse core::fmt;"), 0);
        assert_eq!(
            findings(
                "hmc-cli/src/main.rs",
                "use hmc_std::Session;\nuse hmc_std::{Peer, session::Link};"
            ),
            0
        );
        assert_eq!(
            findings("hmc-std/src/session.rs", "use hmc_core::range::{ByteRange, Extent};"),
            0
        );
        assert_eq!(findings("hmc-std/tests/a.rs", "use hmc_std::Session;"), 0);
    }

    #[test]
    fn planted_violations_are_found() {
        assert_eq!(
            findings("hmc-std/src/session.rs", "use hmc_core::{Extent, range::ByteRange};"),
            1
        );
        assert_eq!(findings("hmc-std/src/session.rs", "use crate::Session;"), 1);
        assert_eq!(findings("hmc-std/src/session.rs", "use hmc_core::*;"), 1);
        assert_eq!(findings("hmc-core/tests/a.rs", "use hmc_core::Extent;"), 1);
    }
}
