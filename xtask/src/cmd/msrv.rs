//! `cargo xtask msrv`: the minimum Rust version is stated once, everywhere the same, and true.
//!
//! Every manifest takes it from the workspace or states the same number; clippy works with that
//! number (`incompatible_msrv` finds a newer function); where that toolchain is installed, it
//! checks the workspace and the projects of `examples/` that stand apart.

use crate::manifest::Manifest;
use crate::shell;
use crate::tools;
use crate::tree::{self, Tree};
use crate::verdict::Verdict;
use std::time::Duration;

/// Time for a check of the whole workspace by a cold toolchain.
const CHECK: Duration = Duration::from_secs(1200);

/// What that toolchain checks. The last two are no members of the workspace.
const CHECKED: [(&str, &[&str]); 3] = [
    ("the workspace", &["--workspace"]),
    ("the embedding", &["--manifest-path", "examples/embedded/Cargo.toml"]),
    ("the transport from elsewhere", &["--manifest-path", "examples/own_transport/Cargo.toml"]),
];

/// Compares the manifests, then tries the toolchain.
pub(crate) fn run() -> Verdict {
    let root = tree::root();
    let version = match Tree::read(&root).and_then(|tree| agreed(&tree)) {
        Ok(version) => version,
        Err(why) => return Verdict::Failed(why),
    };
    println!("every manifest states Rust {version}, and clippy works with it");
    if !tools::has_toolchain(&version) {
        return Verdict::skipped(
            format!(
                "Rust {version} is not installed (clippy's incompatible_msrv covers the library calls)"
            ),
            format!("`rustup toolchain install {version} --profile minimal`"),
        );
    }
    for (what, arguments) in CHECKED {
        let mut command = shell::cargo_of(&version);
        command
            .current_dir(&root)
            .args(["check", "--locked", "--target-dir"])
            .arg(root.join("target/msrv"))
            .args(arguments);
        match shell::stream(&mut command, CHECK) {
            Ok(out) if out.success => {}
            Ok(out) => {
                let why = out.why();
                return Verdict::failed(format!(
                    "{what} does not check with Rust {version}: {why}"
                ));
            }
            Err(why) => return Verdict::Failed(why),
        }
    }
    Verdict::Passed
}

/// The version on which all manifests, and clippy, agree.
fn agreed(tree: &Tree) -> Result<String, String> {
    let top = tree.file("Cargo.toml").ok_or("no Cargo.toml at the root")?;
    let stated = Manifest::parse(&top.text)
        .get("workspace.package", "rust-version")
        .ok_or("Cargo.toml states no workspace.package.rust-version")?
        .to_owned();
    for c in tree.crates() {
        let inherits = c.manifest.get("package", "rust-version.workspace") == Some("true");
        let own = c.manifest.get("package", "rust-version");
        if !inherits && own != Some(&stated) {
            return Err(format!("{}/Cargo.toml states {own:?}, the workspace {stated}", c.folder));
        }
    }
    // Without `msrv` clippy takes rust-version of the manifest.
    for name in ["clippy.toml", ".clippy.toml"] {
        let Some(file) = tree.file(name) else {
            continue;
        };
        if let Some(other) = Manifest::parse(&file.text).get("", "msrv").filter(|v| *v != stated) {
            return Err(format!("{name} states {other}, the workspace {stated}"));
        }
    }
    Ok(stated)
}

#[cfg(test)]
mod tests {
    use super::agreed;
    use crate::tree::Tree;

    fn verdict(member: &str, clippy: &str) -> Result<String, String> {
        let member = format!("[package]\nname = \"a\"\n{member}");
        agreed(&Tree::planted(&[
            ("Cargo.toml", "[workspace.package]\nrust-version = \"1.88\"\n"),
            ("a/Cargo.toml", &member),
            ("clippy.toml", clippy),
        ]))
    }

    #[test]
    fn agreement_passes_and_planted_differences_do_not() {
        assert_eq!(verdict("rust-version.workspace = true\n", ""), Ok("1.88".to_owned()));
        assert_eq!(
            verdict("rust-version = \"1.88\"\n", "msrv = \"1.88\"\n"),
            Ok("1.88".to_owned())
        );
        assert!(verdict("", "").is_err());
        assert!(verdict("rust-version = \"1.90\"\n", "").is_err());
        assert!(verdict("rust-version.workspace = true\n", "msrv = \"1.70\"\n").is_err());
    }
}
