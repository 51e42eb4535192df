//! `cargo xtask packages`: the packages of a release, and programs that are built against them alone and run.
//!
//! `cargo package` writes the packages, `tar` unpacks them below `target/`, into a project of its own. The examples are its
//! programs: one names all libraries by version, the others `hmc-std` alone, as programs of somebody else do. The command `hmc` is built from
//! its package beside them. hmc-core's package has more tests in `cargo xtask nostd`.

use crate::manifest::Manifest;
use crate::shell;
use crate::tree::{self, Tree};
use crate::verdict::Verdict;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The package of a command: nothing depends on it.
const COMMAND: &str = "hmc-cli";

/// The programs: the package, its example, the one library that it depends on (all of them without one), and what it needs
/// of other projects.
const PROGRAMS: [(&str, &str, Option<&str>, &str); 7] = [
    // Puts, a window that is taken back, and two processes.
    ("program", "examples/kv_pages.rs", None, ""),
    ("small", "examples/two_sessions.rs", Some("hmc-std"), ""),
    ("awaits", "examples/async_sessions.rs", Some("hmc-std"), ""),
    ("awaits-tokio", "examples/async_tokio.rs", Some("hmc-std"), TOKIO),
    ("awaits-smol", "examples/async_smol.rs", Some("hmc-std"), "smol = \"2\"\n"),
    ("serves", "examples/window_server.rs", Some("hmc-std"), ""),
    ("many", "examples/many_peers.rs", Some("hmc-std"), ""),
];

const TOKIO: &str = "tokio = { version = \"1\", features = [\"macros\", \"rt\"] }\n";

/// Time for a program, the build of all libraries included.
const LIMIT: Duration = Duration::from_secs(900);

/// The project that the packages are unpacked into.
#[derive(Debug)]
struct Project {
    root: PathBuf,
    folder: PathBuf,
    /// The names of the packages, and the version of all.
    packages: Vec<String>,
    version: String,
}

/// Makes the packages, and builds and runs the programs.
pub(crate) fn run() -> Verdict {
    let project = match Project::of(&tree::root()) {
        Ok(project) => project,
        Err(why) => return Verdict::Failed(why),
    };
    if let Err(verdict) = project.unpack() {
        return verdict;
    }
    Verdict::from_result(project.write().and_then(|()| project.runs()))
}

impl Project {
    fn of(root: &Path) -> Result<Self, String> {
        let tree = Tree::read(root)?;
        let top = tree.file("Cargo.toml").ok_or("no Cargo.toml at the root")?;
        let version = Manifest::parse(&top.text)
            .get("workspace.package", "version")
            .ok_or("Cargo.toml states no workspace.package.version")?
            .to_owned();
        let published = tree.crates().into_iter().filter(tree::Crate::is_published);
        let packages = published.map(|c| c.name).collect();
        let folder = root.join("target/packages/project");
        Ok(Self { root: root.to_path_buf(), folder, packages, version })
    }

    /// Where a package is unpacked, from the folder of the project.
    fn place(&self, package: &str) -> String {
        format!("packages/{package}-{}", self.version)
    }

    /// Packages what is published, and unpacks the packages.
    ///
    /// # Errors
    /// The verdict: failed, or skipped if there is no `tar`.
    fn unpack(&self) -> Result<(), Verdict> {
        let target = self.root.join("target/packages");
        let archives = target.join("package");
        for older in [&archives, &self.folder] {
            if older.exists() {
                std::fs::remove_dir_all(older).map_err(|e| Verdict::Failed(at(older, &e)))?;
            }
        }
        let packages = self.folder.join("packages");
        std::fs::create_dir_all(&packages).map_err(|e| Verdict::Failed(at(&packages, &e)))?;
        let mut command = shell::cargo();
        command.current_dir(&self.root).args(["package", "--quiet", "--allow-dirty"]);
        // Not verified one by one: the project builds them all.
        command.args(["--locked", "--offline", "--no-verify", "--target-dir"]).arg(&target);
        self.packages.iter().for_each(|package| _ = command.args(["--package", package]));
        let out = shell::capture(&mut command).map_err(Verdict::Failed)?;
        if !out.success {
            return Err(Verdict::failed(format!("cargo package: {}", out.stderr)));
        }
        for package in &self.packages {
            let archive = archives.join(format!("{package}-{}.crate", self.version));
            let mut tar = Command::new("tar");
            // With the time of now: cargo builds only what is newer than its last build, and packages are from 2006.
            tar.arg("-xmzf").arg(&archive).arg("-C").arg(&packages);
            let out = shell::capture(&mut tar).map_err(|why| {
                Verdict::skipped(
                    format!("{package} was not unpacked: {why}"),
                    "install tar and gzip",
                )
            })?;
            if !out.success {
                return Err(Verdict::failed(format!("{}: {}", archive.display(), out.stderr)));
            }
            complete(&self.folder.join(self.place(package))).map_err(Verdict::Failed)?;
        }
        println!("packages of {}: {}", self.version, self.packages.join(", "));
        Ok(())
    }

    /// Writes the project: the programs as packages of one workspace, with the command's package.
    fn write(&self) -> Result<(), String> {
        let libraries = || self.packages.iter().filter(|package| *package != COMMAND);
        let members: Vec<String> = PROGRAMS
            .iter()
            .map(|(name, ..)| (*name).to_owned())
            .chain([self.place(COMMAND)])
            .collect();
        let mut text =
            format!("[workspace]\nresolver = \"3\"\nmembers = {members:?}\n\n[patch.crates-io]\n");
        for library in libraries() {
            text.push_str(&format!("{library} = {{ path = {:?} }}\n", self.place(library)));
        }
        write(&self.folder.join("Cargo.toml"), &text)?;
        for (name, source, only, others) in PROGRAMS {
            let mut text = format!(
                "[package]\nname = \"{name}\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n[dependencies]\n"
            );
            for library in libraries().filter(|library| only.is_none_or(|o| *library == o)) {
                text.push_str(&format!("{library} = \"{}\"\n", self.version));
            }
            text.push_str(others);
            let code = self.folder.join(name).join("src");
            std::fs::create_dir_all(&code).map_err(|e| at(&code, &e))?;
            write(&self.folder.join(name).join("Cargo.toml"), &text)?;
            copy(&self.root.join(source), &code.join("main.rs"))?;
        }
        // The same versions of other crates as here: they have been downloaded.
        copy(&self.root.join("Cargo.lock"), &self.folder.join("Cargo.lock"))
    }

    /// Builds and runs the programs and the command, and looks which packages they use.
    fn runs(&self) -> Result<(), String> {
        for (name, source, ..) in PROGRAMS {
            self.start(name, &[]).map_err(|why| format!("{source} {why}"))?;
        }
        self.start(COMMAND, &["--version"]).map_err(|why| format!("{COMMAND} {why}"))?;
        let mut tree = shell::cargo();
        tree.current_dir(&self.folder).args([
            "tree",
            "--workspace",
            "--offline",
            "--prefix",
            "none",
            "--format",
            "{p}",
        ]);
        let out = shell::capture(&mut tree)?;
        if !out.success {
            return Err(format!("cargo tree: {}", out.stderr));
        }
        let packages = self.folder.join("packages");
        match foreign(&out.stdout, &packages.to_string_lossy()) {
            Some(line) => Err(format!("the programs use {line}, which is no package")),
            None => Ok(()),
        }
    }

    fn start(&self, package: &str, arguments: &[&str]) -> Result<(), String> {
        let mut command = shell::cargo();
        command
            .current_dir(&self.folder)
            .args(["run", "--quiet", "--offline", "--package", package, "--target-dir"])
            .arg(self.root.join("target/packages/built"))
            .arg("--")
            .args(arguments)
            .env_remove("RUSTFLAGS");
        let out = shell::stream(&mut command, LIMIT)?;
        if out.success { Ok(()) } else { Err(format!("with the packages alone: {}", out.why())) }
    }
}

/// The first of our libraries in the output of `cargo tree` that does not lie in the folder of the packages.
fn foreign<'t>(tree: &'t str, packages: &str) -> Option<&'t str> {
    tree.lines().find(|line| line.starts_with("hmc-") && !line.contains(packages))
}

/// Whether a package has the texts of its licenses and its page.
fn complete(folder: &Path) -> Result<(), String> {
    let files = ["LICENSE-APACHE", "LICENSE-MIT", "README.md"];
    match files.iter().find(|file| !folder.join(file).is_file()) {
        Some(file) => Err(format!("{} has no {file}", folder.display())),
        None => Ok(()),
    }
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    std::fs::write(path, text).map_err(|e| at(path, &e))
}

fn copy(from: &Path, to: &Path) -> Result<(), String> {
    std::fs::copy(from, to).map(drop).map_err(|e| at(from, &e))
}

fn at(path: &Path, e: &std::io::Error) -> String {
    format!("{}: {e}", path.display())
}

#[cfg(test)]
mod tests {
    use super::foreign;

    #[test]
    fn a_library_that_is_no_package_is_found() {
        let package = "small v0.0.0 (/p/small)\nhmc-std v0.2.0 (/p/packages/hmc-std-0.2.0)\n";
        assert_eq!(foreign(package, "/p/packages"), None);
        let beside = format!("{package}hmc-core v0.2.0 (/hmc/hmc-core)\n");
        assert_eq!(foreign(&beside, "/p/packages"), Some("hmc-core v0.2.0 (/hmc/hmc-core)"));
        assert_eq!(foreign("hmc-core v0.2.0\n", "/p/packages"), Some("hmc-core v0.2.0"));
    }
}
