//! `cargo xtask packages`: the packages of the libraries, and a program that is built against them alone and runs.
//!
//! `cargo package` writes the packages, `tar` unpacks them below `target/`. The program is an example, as a project of its own that
//! names the libraries by version: it sees what a program of somebody else sees. hmc-core's package has more tests in
//! `cargo xtask nostd`.

use crate::manifest::Manifest;
use crate::shell;
use crate::tree;
use crate::verdict::Verdict;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The libraries that are published, each after those that it needs.
const LIBRARIES: [&str; 5] = ["hmc-core", "hmc-mem", "hmc-conformance", "hmc-hw", "hmc-std"];

/// What the manifest of a package says of it.
const DESCRIBED: [&str; 4] = ["description", "license", "repository", "categories"];

/// The program: puts, a window that is taken back, and two processes.
const PROGRAM: &str = "examples/kv_pages.rs";

/// Its time limit, the build of all libraries included.
const LIMIT: Duration = Duration::from_secs(900);

/// Makes the packages, and builds and runs the program.
pub(crate) fn run() -> Verdict {
    let root = tree::root();
    let unpacked = match unpack(&root) {
        Ok(unpacked) => unpacked,
        Err(verdict) => return verdict,
    };
    Verdict::from_result(program(&root, &unpacked).and_then(|project| runs(&root, &project)))
}

/// Packages the libraries and unpacks the packages. Returns their folders.
///
/// # Errors
/// The verdict: failed, or skipped if there is no `tar`.
fn unpack(root: &Path) -> Result<Vec<PathBuf>, Verdict> {
    let target = root.join("target/packages");
    let packages = target.join("package");
    if packages.exists() {
        std::fs::remove_dir_all(&packages).map_err(|e| Verdict::Failed(at(&packages, &e)))?;
    }
    let mut command = shell::cargo();
    command.current_dir(root).args([
        "package",
        "--quiet",
        "--allow-dirty",
        "--locked",
        "--offline",
    ]);
    // Not verified one by one: the program below builds them all.
    command.arg("--no-verify").arg("--target-dir").arg(&target);
    LIBRARIES.iter().for_each(|library| _ = command.args(["--package", library]));
    let out = shell::capture(&mut command).map_err(Verdict::Failed)?;
    if !out.success {
        return Err(Verdict::failed(format!("cargo package: {}", out.stderr)));
    }
    let mut folders = Vec::new();
    for library in LIBRARIES {
        let version = version(root, library).map_err(Verdict::Failed)?;
        let name = format!("{library}-{version}");
        let mut tar = Command::new("tar");
        // With the time of now: cargo builds only what is newer than its last build, and packages are from 2006.
        tar.arg("-xmzf").arg(packages.join(format!("{name}.crate"))).arg("-C").arg(&packages);
        let out = shell::capture(&mut tar).map_err(|why| {
            Verdict::skipped(format!("{name} was not unpacked: {why}"), "install tar and gzip")
        })?;
        if !out.success {
            return Err(Verdict::failed(format!("{name}: {}", out.stderr)));
        }
        let folder = packages.join(&name);
        described(&folder).map_err(Verdict::Failed)?;
        folders.push(folder);
    }
    println!("packages: {}", LIBRARIES.join(", "));
    Ok(folders)
}

/// The version of a member of the workspace.
fn version(root: &Path, library: &str) -> Result<String, String> {
    let own = manifest(&root.join(library))?;
    let shared = manifest(root)?;
    let version =
        own.get("package", "version").or_else(|| shared.get("workspace.package", "version"));
    version.map(str::to_owned).ok_or_else(|| format!("{library} has no version"))
}

fn manifest(folder: &Path) -> Result<Manifest, String> {
    let path = folder.join("Cargo.toml");
    Ok(Manifest::parse(&std::fs::read_to_string(&path).map_err(|e| at(&path, &e))?))
}

/// Whether the manifest of a package says what a registry asks for.
fn described(folder: &Path) -> Result<(), String> {
    let manifest = manifest(folder)?;
    match DESCRIBED.iter().find(|key| manifest.get("package", key).is_none()) {
        Some(key) => Err(format!("{} does not state its {key}", folder.display())),
        None => Ok(()),
    }
}

/// Writes the program as a project of its own. Returns its folder.
fn program(root: &Path, packages: &[PathBuf]) -> Result<PathBuf, String> {
    let project = root.join("target/packages/program");
    let code = project.join("src");
    std::fs::create_dir_all(&code).map_err(|e| at(&code, &e))?;
    let mut text = String::from(
        "[workspace]\n\n[package]\nname = \"program\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n[dependencies]\n",
    );
    for library in LIBRARIES {
        text.push_str(&format!("{library} = \"{}\"\n", version(root, library)?));
    }
    text.push_str("\n[patch.crates-io]\n");
    for (library, folder) in LIBRARIES.iter().zip(packages) {
        text.push_str(&format!("{library} = {{ path = {:?} }}\n", folder.to_string_lossy()));
    }
    let write = |path: PathBuf, text: &str| std::fs::write(&path, text).map_err(|e| at(&path, &e));
    write(project.join("Cargo.toml"), &text)?;
    let copy = |from: &str, to: PathBuf| {
        let from = root.join(from);
        std::fs::copy(&from, to).map(drop).map_err(|e| at(&from, &e))
    };
    // The same versions of other crates as here: they have been downloaded.
    copy("Cargo.lock", project.join("Cargo.lock"))?;
    copy(PROGRAM, code.join("main.rs"))?;
    Ok(project)
}

/// Builds and runs the program.
fn runs(root: &Path, project: &Path) -> Result<(), String> {
    let mut command = shell::cargo();
    command
        .current_dir(project)
        .args(["run", "--quiet", "--offline", "--target-dir"])
        .arg(root.join("target/packages/built"))
        .env_remove("RUSTFLAGS");
    let out = shell::stream(&mut command, LIMIT)?;
    if !out.success {
        return Err(format!("{PROGRAM} with the packages alone: {}", out.why()));
    }
    let mut tree = shell::cargo();
    tree.current_dir(project).args(["tree", "--offline", "--prefix", "none", "--format", "{p}"]);
    let out = shell::capture(&mut tree)?;
    let packages = root.join("target/packages/package");
    let packages = packages.to_string_lossy();
    let foreign = |line: &&str| line.starts_with("hmc-") && !line.contains(&*packages);
    match out.stdout.lines().find(foreign) {
        Some(line) => Err(format!("the program uses {line}, which is no package")),
        None => Ok(()),
    }
}

fn at(path: &Path, e: &std::io::Error) -> String {
    format!("{}: {e}", path.display())
}
