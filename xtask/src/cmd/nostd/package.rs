//! The package of hmc-core, and the embedding (`examples/embedded`) built and run against it.
//!
//! `cargo package` writes the package, `tar` unpacks it below `target/`. The unpacked folder has to hold the files that belong into
//! it and no other. An embedding that is built against the folder sees what an integrator sees: no workspace, no file beside it.

use crate::manifest::Manifest;
use crate::shell::{self, Outcome};
use crate::verdict::Verdict;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The crate that is packaged, and its folder.
const CORE: &str = "hmc-core";

/// The project that is built against the package.
const EMBEDDED: &str = "examples/embedded/Cargo.toml";

/// The files of the package beside the code and the tests.
const BESIDE: [&str; 6] =
    ["Cargo.lock", "Cargo.toml", "Cargo.toml.orig", "LICENSE-APACHE", "LICENSE-MIT", "README.md"];

/// The commit, which cargo adds in a checkout of git.
const COMMIT: &str = ".cargo_vcs_info.json";

/// Tests that need a folder beside hmc-core's: they are not packaged.
const LEFT_OUT: [&str; 2] = ["tests/fuzz_corpus.rs", "tests/fuzz_seeds/"];

/// What the manifest of a package says of it.
const DESCRIBED: [&str; 4] = ["description", "license", "repository", "readme"];

/// The unpacked package.
#[derive(Debug)]
pub(super) struct Package {
    root: PathBuf,
    folder: PathBuf,
}

impl Package {
    /// Packages hmc-core, unpacks the package and compares its files with the folder's.
    ///
    /// # Errors
    /// The verdict: failed, or skipped if there is no `tar`.
    pub(super) fn make(root: &Path) -> Result<Self, Verdict> {
        let target = root.join("target/nostd");
        let packages = target.join("package");
        // An older package may have another name.
        if packages.exists() {
            std::fs::remove_dir_all(&packages).map_err(|e| at(&packages, &e))?;
        }
        // Not verified: that builds it for a machine with an operating system. What it needs of a registry is there since the build
        // of this program.
        let mut command = shell::cargo();
        command
            .current_dir(root)
            .args(["package", "--quiet", "--package", CORE, "--allow-dirty", "--no-verify"])
            .args(["--locked", "--offline", "--target-dir"])
            .arg(&target);
        passed(&mut command, "hmc-core cannot be packaged").map_err(Verdict::Failed)?;
        let archive = only(&packages, |path| path.extension() == Some(OsStr::new("crate")))?;
        let mut tar = Command::new("tar");
        // With the time of now: cargo builds only what is newer than its last build, and packages are from 2006.
        tar.arg("-xmzf").arg(&archive).arg("-C").arg(&packages);
        let out = shell::capture(&mut tar).map_err(|why| {
            Verdict::skipped(
                format!("the package of hmc-core was not unpacked: {why}"),
                "install tar and gzip",
            )
        })?;
        if !out.success {
            return Err(Verdict::failed(format!("{}: {}", archive.display(), out.stderr)));
        }
        let folder = only(&packages, |path| path.join("Cargo.toml").exists())?;
        let package = Self { root: root.to_path_buf(), folder };
        package.compare().map_err(Verdict::Failed)?;
        Ok(package)
    }

    /// Compares the files with those of the folder that was packaged, and reads the manifest.
    fn compare(&self) -> Result<(), String> {
        let found = files(&self.folder)?;
        let differences = differences(&found, &files(&self.root.join(CORE))?);
        if !differences.is_empty() {
            return Err(format!("the package of hmc-core {}", differences.join(", ")));
        }
        let path = self.folder.join("Cargo.toml");
        let text =
            std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        let manifest = Manifest::parse(&text);
        match DESCRIBED.iter().find(|key| manifest.get("package", key).is_none()) {
            Some(key) => Err(format!("the package of hmc-core does not state its {key}")),
            None => {
                println!("the package of hmc-core has {} files, all that belong", found.len());
                Ok(())
            }
        }
    }

    /// A cargo command on the embedding, with the package as its hmc-core.
    fn cargo(&self, verb: &str) -> Command {
        let mut command = shell::cargo();
        command
            .current_dir(&self.root)
            .args([verb, "--quiet", "--locked", "--manifest-path", EMBEDDED, "--config"])
            .arg(format!("patch.crates-io.{CORE}.path={:?}", self.folder.to_string_lossy()))
            .env_remove("RUSTFLAGS");
        command
    }

    /// Runs the tests and the program of the embedding on this machine.
    pub(super) fn runs(&self) -> Result<(), String> {
        let out = passed(
            self.cargo("tree").args(["--prefix", "none", "--format", "{p}"]),
            "the embedding does not accept the package of hmc-core",
        )?;
        let folder = self.folder.to_string_lossy();
        if !out.stdout.lines().any(|l| l.starts_with("hmc-core ") && l.contains(&*folder)) {
            return Err(format!("the embedding was to use {folder}:\n{}", out.stdout));
        }
        // Crates from elsewhere were built there for the workspace.
        let target = self.root.join("target");
        passed(
            self.cargo("test").arg("--target-dir").arg(&target),
            "the embedding's tests fail against the package of hmc-core",
        )?;
        let out = passed(
            self.cargo("run").arg("--target-dir").arg(&target),
            "the embedding does not run with the package of hmc-core",
        )?;
        print!("with the package of hmc-core: {}", out.stdout);
        Ok(())
    }

    /// Builds the embedding for a target without an operating system.
    pub(super) fn builds_for(&self, target: &str) -> Result<(), String> {
        passed(
            self.cargo("build")
                .args(["--release", "--lib", "--target", target, "--target-dir"])
                .arg(self.root.join("target/nostd")),
            &format!("the embedding does not build for {target} with the package of hmc-core"),
        )?;
        println!("the package of hmc-core and the embedding build for {target}");
        Ok(())
    }
}

fn passed(command: &mut Command, otherwise: &str) -> Result<Outcome, String> {
    let out = shell::capture(command)?;
    if out.success {
        return Ok(out);
    }
    eprintln!("{}{}", out.stdout, out.stderr);
    Err(otherwise.to_owned())
}

fn at(path: &Path, e: &std::io::Error) -> Verdict {
    Verdict::failed(format!("{}: {e}", path.display()))
}

/// The one entry of a folder that is wanted.
fn only(folder: &Path, wanted: impl Fn(&Path) -> bool) -> Result<PathBuf, Verdict> {
    let entries = std::fs::read_dir(folder).map_err(|e| at(folder, &e))?;
    let mut found = entries.flatten().map(|e| e.path()).filter(|path| wanted(path));
    match (found.next(), found.next()) {
        (Some(one), None) => Ok(one),
        _ => Err(Verdict::failed(format!("{} does not hold one package", folder.display()))),
    }
}

/// The files below a folder, from there.
fn files(folder: &Path) -> Result<BTreeSet<String>, String> {
    let mut out = BTreeSet::new();
    let mut left = vec![folder.to_path_buf()];
    while let Some(inside) = left.pop() {
        let entries =
            std::fs::read_dir(&inside).map_err(|e| format!("{}: {e}", inside.display()))?;
        for path in entries.flatten().map(|e| e.path()) {
            if path.is_dir() {
                left.push(path);
            } else if let Ok(short) = path.strip_prefix(folder) {
                out.insert(short.to_string_lossy().replace('\\', "/"));
            }
        }
    }
    Ok(out)
}

/// What a package lacks, and what does not belong there, as ends of a sentence.
fn differences(package: &BTreeSet<String>, folder: &BTreeSet<String>) -> Vec<String> {
    let belongs = |path: &str| {
        let code = path.starts_with("src/") && path.ends_with(".rs");
        let test = path.starts_with("tests/") && !LEFT_OUT.iter().any(|out| path.starts_with(out));
        code || test
    };
    let own = folder.iter().map(String::as_str).filter(|path| belongs(path));
    let wanted: BTreeSet<&str> = own.chain(BESIDE).collect();
    let found: BTreeSet<&str> =
        package.iter().map(String::as_str).filter(|path| *path != COMMIT).collect();
    let lacking = wanted.difference(&found).map(|path| format!("lacks {path}"));
    lacking.chain(found.difference(&wanted).map(|path| format!("has {path}"))).collect()
}

#[cfg(test)]
mod tests {
    use super::{BESIDE, differences};
    use std::collections::BTreeSet;

    fn found(package: &[&str]) -> Vec<String> {
        let folder = ["Cargo.toml", "README.md", "src/a.rs", "src/a.orig", "tests/b/c.txt"];
        let left_out = ["tests/fuzz_corpus.rs", "tests/fuzz_seeds/mod.rs", "notes"];
        let set = |paths: &[&str]| paths.iter().map(|p| (*p).to_owned()).collect::<BTreeSet<_>>();
        differences(
            &set(&[&BESIDE, package].concat()),
            &set(&[&folder[..], &left_out[..]].concat()),
        )
    }

    #[test]
    fn a_package_holds_the_code_and_its_tests() {
        assert_eq!(found(&["src/a.rs", "tests/b/c.txt"]), Vec::<String>::new());
        let commit = [".cargo_vcs_info.json", "src/a.rs", "tests/b/c.txt"];
        assert_eq!(found(&commit), Vec::<String>::new());
    }

    #[test]
    fn what_lacks_and_what_does_not_belong_is_named() {
        assert_eq!(found(&["src/a.rs"]), ["lacks tests/b/c.txt"]);
        assert_eq!(found(&["tests/b/c.txt", "notes"]), ["lacks src/a.rs", "has notes"]);
        let more = ["src/a.rs", "tests/b/c.txt", "tests/fuzz_corpus.rs"];
        assert_eq!(found(&more), ["has tests/fuzz_corpus.rs"]);
    }
}
