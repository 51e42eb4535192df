//! Dependencies between crates go to lower layers: a table lists the allowed dependencies of each crate.

use super::finding::Finding;
use crate::tree::Tree;

/// Our crates that a crate of a release may depend on, apart from development dependencies.
const ALLOWED: [(&str, &[&str]); 8] = [
    ("hmc-core", &[]),
    ("hmc-mem", &["hmc-core"]),
    ("hmc-conformance", &["hmc-core"]),
    ("hmc-sim", &["hmc-conformance", "hmc-core", "hmc-mem"]),
    ("hmc-hw", &["hmc-core", "hmc-mem"]),
    ("hmc-std", &["hmc-core", "hmc-mem", "hmc-hw"]),
    // The front end names ranks and kinds, which the core defines.
    ("hmc-cli", &["hmc-core", "hmc-std"]),
    ("hmc-py", &["hmc-std"]),
];

/// Crates for development only: they may depend on any layer, and no crate may depend on them.
const APART: [&str; 12] = [
    "hmc-tests",
    "hmc-testkit",
    "hmc-benches",
    "hmc-vendor-ibverbs",
    "hmc-vendor-ucp",
    "examples",
    "embedded",
    "own_transport",
    "xtask",
    "hmc-fuzz",
    "hmc-nopanic",
    "hmc-bare",
];

/// Crates for development that another of them may depend on.
const SHARED_APART: [&str; 4] = ["embedded", "hmc-testkit", "hmc-vendor-ibverbs", "hmc-vendor-ucp"];

/// Foreign crates that hmc-core may depend on.
const CORE_FOREIGN: [&str; 3] = ["bitflags", "heapless", "zerocopy"];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let crates = tree.crates();
    let ours: Vec<&str> = crates.iter().map(|c| c.name.as_str()).collect();
    let mut out = Vec::new();
    for c in &crates {
        let path = format!("{}/Cargo.toml", c.folder);
        let apart = APART.contains(&c.name.as_str());
        let row = ALLOWED.iter().find(|(name, _)| *name == c.name).map(|(_, may)| *may);
        if row.is_none() && !apart {
            out.push(Finding::new(
                &path,
                0,
                format!("crate {} is in no row of the table of dependencies", c.name),
            ));
        }
        for d in c.manifest.dependencies() {
            let name = d.name.as_str();
            // Tests of a crate may depend on more lower layers, but never on a development crate or a higher layer.
            let allowed = match row {
                Some(may) => {
                    may.contains(&name) || (d.dev && name == "hmc-sim" && c.name != "hmc-core")
                }
                None => !APART.contains(&name) || SHARED_APART.contains(&name),
            };
            if ours.contains(&name) && !allowed {
                out.push(Finding::new(&path, 0, format!("{} must not depend on {name}", c.name)));
            }
            if c.name == "hmc-core"
                && !d.dev
                && !CORE_FOREIGN.contains(&name)
                && !ours.contains(&name)
            {
                out.push(Finding::new(
                    &path,
                    0,
                    format!("hmc-core may depend on {CORE_FOREIGN:?}, not on {name}"),
                ));
            }
            // Crates outside the workspace cannot use its table of versions.
            let stands_apart = c.manifest.has_section("workspace");
            if !stands_apart && !d.from_workspace {
                out.push(Finding::new(
                    &path,
                    0,
                    format!("the version of {name} belongs in [workspace.dependencies]"),
                ));
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::tree::Tree;

    fn findings(core: &str, std: &str) -> Vec<String> {
        let core = format!("[package]\nname = \"hmc-core\"\n{core}");
        let std = format!("[package]\nname = \"hmc-std\"\n{std}");
        let tree = Tree::planted(&[
            ("hmc-core/Cargo.toml", &core),
            ("hmc-std/Cargo.toml", &std),
            ("hmc-sim/Cargo.toml", "[package]\nname = \"hmc-sim\"\n"),
            ("tests/Cargo.toml", "[package]\nname = \"hmc-tests\"\n"),
        ]);
        check(&tree).into_iter().map(|f| f.what).collect()
    }

    #[test]
    fn dependencies_on_lower_layers_pass() {
        let none: [&str; 0] = [];
        assert_eq!(
            findings(
                "[dependencies]\nbitflags.workspace = true\n",
                "[dependencies]\nhmc-core.workspace = true\n[dev-dependencies]\nhmc-sim.workspace = true\n"
            ),
            none
        );
    }

    #[test]
    fn planted_violations_are_found() {
        assert_eq!(findings("[dependencies]\nhmc-std.workspace = true\n", "").len(), 1);
        assert_eq!(findings("[dependencies]\nrand.workspace = true\n", "").len(), 1);
        assert_eq!(findings("", "[dependencies]\nhmc-sim.workspace = true\n").len(), 1);
        assert_eq!(findings("", "[dev-dependencies]\nhmc-tests.workspace = true\n").len(), 1);
        assert_eq!(findings("", "[dependencies]\nlog = \"1\"\n").len(), 1);
        let stray = Tree::planted(&[("x/Cargo.toml", "[package]\nname = \"hmc-x\"\n")]);
        assert_eq!(check(&stray).len(), 1);
    }
}
