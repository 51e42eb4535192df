//! Debian packages: look-up and download by apt, extraction by dpkg-deb. Nothing is installed.

use crate::shell;
use crate::verdict::Verdict;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Time limit of a look-up.
const LOOK_UP: Duration = Duration::from_secs(120);
/// Time limit of the download of several packages.
const DOWNLOAD: Duration = Duration::from_secs(1800);
/// Time limit of the extraction of a package.
const EXTRACT: Duration = Duration::from_secs(300);

/// Packages that are never extracted: libc must match the dynamic loader of the host.
const NEVER: [&str; 3] = ["libc6", "libc-bin", "libcrypt1"];

/// A version of a package.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Package {
    /// The name of the package.
    pub(super) name: String,
    /// The version.
    pub(super) version: String,
}

impl Package {
    /// Returns its file name up to the architecture.
    fn file_prefix(&self) -> String {
        format!("{}_{}_", self.name, self.version.replace(':', "%3a"))
    }

    /// Returns its file in a folder, if present.
    fn file_in(&self, folder: &Path) -> Option<PathBuf> {
        let prefix = self.file_prefix();
        std::fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path()).find(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            name.starts_with(&prefix) && name.ends_with(".deb")
        })
    }
}

/// Returns the packages that the installation of `names` would install or upgrade on this machine.
///
/// # Errors
/// A verdict with a remedy.
pub(super) fn missing(names: &[&str]) -> Result<Vec<Package>, Verdict> {
    let mut command = apt("apt-get");
    command.args(["--quiet", "--simulate", "--no-install-recommends", "install"]).args(names);
    look_up(&mut command).map(|text| parse_simulation(&text))
}

/// Returns the candidate versions of packages, installed or not.
///
/// # Errors
/// A verdict with a remedy.
pub(super) fn candidates(names: &[&str]) -> Result<Vec<Package>, Verdict> {
    let mut command = apt("apt-cache");
    command.args(["show", "--no-all-versions"]).args(names);
    let found = parse_descriptions(&look_up(&mut command)?);
    match names.iter().find(|name| !found.iter().any(|package| package.name == **name)) {
        Some(name) => Err(unknown(name)),
        None => Ok(found),
    }
}

/// Returns the name of the kernel package of this Debian release.
///
/// # Errors
/// A verdict with a remedy.
pub(super) fn kernel() -> Result<String, Verdict> {
    let newest = "linux-image-amd64";
    let mut command = apt("apt-cache");
    command.args(["depends", newest]);
    let text = look_up(&mut command)?;
    parse_kernel(&text).map(str::to_owned).ok_or_else(|| unknown(newest))
}

/// Downloads the packages that are not in `folder` yet. Returns the files of all.
///
/// # Errors
/// A verdict with a remedy.
pub(super) fn download(packages: &[Package], folder: &Path) -> Result<Vec<PathBuf>, Verdict> {
    let failed = |what: &Path, e| Verdict::failed(format!("{}: {e}", what.display()));
    std::fs::create_dir_all(folder).map_err(|e| failed(folder, e))?;
    let lacking: Vec<&Package> =
        packages.iter().filter(|package| package.file_in(folder).is_none()).collect();
    if !lacking.is_empty() {
        eprintln!("vm: downloading {} packages to {}", lacking.len(), folder.display());
        // Incomplete files never reach the folder.
        let partial = folder.join(format!("partial-{}", std::process::id()));
        std::fs::create_dir_all(&partial).map_err(|e| failed(&partial, e))?;
        let done = fetch(&lacking, &partial).and_then(|()| {
            for package in &lacking {
                let file = package.file_in(&partial).ok_or_else(|| {
                    Verdict::failed(format!(
                        "apt-get has not downloaded {}*.deb",
                        package.file_prefix()
                    ))
                })?;
                let name = file.file_name().unwrap_or_default();
                std::fs::rename(&file, folder.join(name)).map_err(|e| failed(&file, e))?;
            }
            Ok(())
        });
        // A leftover folder has no effect.
        let _ = std::fs::remove_dir_all(&partial);
        done?;
    }
    let file = |package: &Package| {
        let lost = || Verdict::failed(format!("{}*.deb is gone", package.file_prefix()));
        package.file_in(folder).ok_or_else(lost)
    };
    packages.iter().map(file).collect()
}

fn fetch(packages: &[&Package], folder: &Path) -> Result<(), Verdict> {
    let mut command = apt("apt-get");
    // As root, apt downloads as the user `_apt`, who may lack access to the folder.
    command.args(["--quiet", "-o", "APT::Sandbox::User=root", "download"]).current_dir(folder);
    command.args(packages.iter().map(|p| format!("{}={}", p.name, p.version)));
    let out = shell::within(&mut command, DOWNLOAD).map_err(no_apt)?;
    if out.success {
        return Ok(());
    }
    Err(Verdict::skipped(
        format!("the packages cannot be downloaded ({}): {}", out.why(), errors(&out.stderr)),
        "a network, and `apt-get update` as root, since package lists may be older than the archive",
    ))
}

/// Extracts package files into a folder.
///
/// # Errors
/// A verdict with a remedy.
pub(super) fn extract(files: &[PathBuf], folder: &Path) -> Result<(), Verdict> {
    std::fs::create_dir_all(folder)
        .map_err(|e| Verdict::failed(format!("{}: {e}", folder.display())))?;
    for file in files {
        let mut command = Command::new("dpkg-deb");
        command.arg("--extract").arg(file).arg(folder);
        let out = shell::within(&mut command, EXTRACT).map_err(no_apt)?;
        if !out.success {
            let why = format!("{}: {}: {}", file.display(), out.why(), out.stderr.trim());
            return Err(Verdict::failed(format!("{why}; remove that file and try again")));
        }
    }
    Ok(())
}

fn apt(program: &str) -> Command {
    let mut command = Command::new(program);
    command.env("LC_ALL", "C").env("DEBIAN_FRONTEND", "noninteractive");
    command
}

/// Returns the output of a look-up.
fn look_up(command: &mut Command) -> Result<String, Verdict> {
    let out = shell::within(command, LOOK_UP).map_err(no_apt)?;
    if out.success {
        return Ok(out.stdout);
    }
    let why = format!("`{}`: {}: {}", shell::shown(command), out.why(), errors(&out.stderr));
    Err(Verdict::skipped(why, "`apt-get update` as root"))
}

fn no_apt(why: String) -> Verdict {
    Verdict::skipped(why, "a Debian system or container, since the VM consists of Debian packages")
}

fn unknown(name: &str) -> Verdict {
    let remedy = "`apt-get update` as root; the package lists must be those of Debian";
    Verdict::skipped(format!("apt knows no package `{name}`"), remedy)
}

/// Returns the lines with errors of apt's output.
fn errors(text: &str) -> String {
    let lines: Vec<&str> =
        text.lines().filter(|line| line.starts_with("E:") || line.starts_with("Err:")).collect();
    if lines.is_empty() { text.trim().to_owned() } else { lines.join("; ") }
}

/// Parses the output of `apt-get --simulate install`: lines `Inst NAME [OLD] (VERSION ORIGIN [ARCHITECTURE])`.
fn parse_simulation(text: &str) -> Vec<Package> {
    let package = |line: &str| {
        let (name, rest) = line.strip_prefix("Inst ")?.split_once(' ')?;
        let (_, rest) = rest.split_once('(')?;
        let version = rest.split_whitespace().next()?;
        Some(Package { name: name.to_owned(), version: version.to_owned() })
    };
    let mut found: Vec<Package> = text.lines().filter_map(package).collect();
    found.retain(|package| !NEVER.contains(&package.name.as_str()));
    found.sort();
    found
}

/// Parses the output of `apt-cache show`.
fn parse_descriptions(text: &str) -> Vec<Package> {
    let field = |paragraph: &str, name: &str| {
        let mut lines = paragraph.lines();
        lines.find_map(|line| line.strip_prefix(name)).map(|value| value.trim().to_owned())
    };
    let package = |paragraph: &str| {
        let (name, version) = (field(paragraph, "Package:")?, field(paragraph, "Version:")?);
        Some(Package { name, version })
    };
    text.split("\n\n").filter_map(package).collect()
}

/// Parses the output of `apt-cache depends linux-image-amd64`. Kernels of the flavour `cloud` lack the RDMA modules.
fn parse_kernel(text: &str) -> Option<&str> {
    text.lines().filter_map(|line| line.trim().strip_prefix("Depends: ")).find(|name| {
        let version = name.strip_prefix("linux-image-").unwrap_or_default();
        version.starts_with(|c: char| c.is_ascii_digit())
            && version.ends_with("-amd64")
            && !version.contains("cloud")
    })
}

#[cfg(test)]
mod tests {
    use super::{Package, candidates, errors, parse_descriptions, parse_kernel, parse_simulation};
    use crate::verdict::Verdict;

    fn package(name: &str, version: &str) -> Package {
        Package { name: name.to_owned(), version: version.to_owned() }
    }

    #[test]
    fn the_packages_of_a_simulated_installation_are_parsed() {
        let text = "Reading package lists...\n\
            Remv qemu-utils [1:10.0.2]\n\
            Inst seabios (1.16.2-1 Debian:12.15/oldstable [all])\n\
            Inst libc6 [2.36-8] (2.36-9 Debian:12.15/oldstable [amd64])\n\
            Inst libaio1 [0.3.112] (0.3.113-4 Debian:12.15/oldstable [amd64]) []\n\
            Conf seabios (1.16.2-1 Debian:12.15/oldstable [all])\n";
        let expected = [package("libaio1", "0.3.113-4"), package("seabios", "1.16.2-1")];
        assert_eq!(parse_simulation(text), expected);
        assert_eq!(parse_simulation("libibverbs1 is already the newest version.\n"), []);
    }

    #[test]
    fn versions_are_parsed() {
        let text = "Package: a\nSource: x\nVersion: 1:1.35.0-4+b1\nDescription: y\n Version: no\n\n\
            Package: b\nVersion: 2\n";
        assert_eq!(parse_descriptions(text), [package("a", "1:1.35.0-4+b1"), package("b", "2")]);
        assert_eq!(parse_descriptions(""), []);
    }

    #[test]
    fn a_cloud_kernel_is_never_taken() {
        let text = "linux-image-amd64\n  Depends: linux-image-6.1.0-56-amd64\n";
        assert_eq!(parse_kernel(text), Some("linux-image-6.1.0-56-amd64"));
        for other in ["linux-image-6.1.0-56-cloud-amd64", "linux-image-amd64", "linux-base"] {
            assert_eq!(parse_kernel(&format!("x\n  Depends: {other}\n")), None, "{other}");
        }
    }

    #[test]
    fn a_file_is_found_by_name_and_version() {
        let folder = std::env::temp_dir().join(format!("hmc-vm-debs-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("a_1%3a2-3_amd64.deb");
        std::fs::write(&file, "").unwrap();
        assert_eq!(package("a", "1:2-3").file_in(&folder), Some(file));
        assert_eq!(package("a", "1:2").file_in(&folder), None);
        assert_eq!(package("b", "1:2-3").file_in(&folder), None);
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn an_unknown_package_is_named_with_a_remedy() {
        // The test also passes on machines without apt.
        let Err(Verdict::Skipped { reason, remedy }) = candidates(&["no-such-package-of-hmc"])
        else {
            panic!("apt has found it");
        };
        assert!(reason.contains("no-such-package-of-hmc") || reason.contains("apt-cache"));
        assert!(remedy.contains("Debian") || remedy.contains("apt-get update"), "{remedy}");
        assert_eq!(errors("W: x\nE: one\nE: two\n"), "E: one; E: two");
        assert_eq!(errors(" words\n"), "words");
    }
}
