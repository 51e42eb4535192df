//! Builds fake libraries at test time, with the cargo that runs the test.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Builds the fake library of that name and returns its file. Cargo builds it once and then checks only for changes; it is built beside the running test, and needs no network.
///
/// # Errors
/// The output of cargo.
pub fn build(name: &str) -> Result<PathBuf, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let test = std::env::current_exe().map_err(|e| e.to_string())?;
    // target/PROFILE/deps/test
    let profile = test.ancestors().nth(2).ok_or("the test is not in a target folder")?;
    let target = profile.parent().ok_or("the test is not in a target folder")?;
    let mut command = Command::new(cargo);
    command
        .args(["build", "--offline", "--locked", "--message-format=json-render-diagnostics"])
        .args(["--package", "hmc-sim", "--example", name, "--target-dir"])
        .arg(target)
        .arg("--manifest-path")
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml"));
    // The folder is named after the profile, but for the one of development.
    let folder = profile.file_name().unwrap_or_default();
    command.arg("--profile").arg(if folder == "debug" { "dev".as_ref() } else { folder });
    let out = command.output().map_err(|e| format!("cannot run cargo: {e}"))?;
    if !out.status.success() {
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        return Err(format!("cargo did not build the fake library {name}:\n{said}"));
    }
    let messages = String::from_utf8_lossy(&out.stdout).into_owned();
    let file = format!("/lib{name}.so");
    // The messages are JSON; a file name stands between quotes there.
    let path = messages.split('"').find(|word| word.ends_with(&file));
    path.map(PathBuf::from).ok_or_else(|| format!("cargo built no {file}"))
}

/// Returns the file of a fake library that is a package of its own and a dependency of the running program: it is beside
/// the program, or in the folder of dependencies there.
///
/// # Errors
/// The paths without it.
pub fn beside(name: &str) -> Result<PathBuf, String> {
    let program = std::env::current_exe().map_err(|e| e.to_string())?;
    let file = format!("lib{name}.so");
    // target/PROFILE/deps/test, or target/PROFILE/program
    let folders = program.ancestors().skip(1).take(2);
    // Where dependencies are built first: a copy beside the program may be of an earlier build.
    let places = folders.flat_map(|f| [f.join("deps").join(&file), f.join(&file)]);
    let mut tried = Vec::new();
    for place in places {
        if place.exists() {
            return Ok(place);
        }
        tried.push(place.display().to_string());
    }
    Err(format!("the fake library {file} is not there: {}", tried.join(", ")))
}

/// Writes a copy of a library to `folder` in which some symbols cannot be found, as in an older
/// release of a vendor's.
///
/// # Errors
/// A symbol that the library does not have, or a file that cannot be read or written.
pub fn without(library: &Path, symbols: &[&str], folder: &Path) -> Result<PathBuf, String> {
    let mut bytes = std::fs::read(library).map_err(|e| format!("{}: {e}", library.display()))?;
    for symbol in symbols {
        // In the table of strings a name stands between zeros. One with another first letter has
        // another hash, so a search finds neither.
        let name = [&[0], symbol.as_bytes(), &[0]].concat();
        let places: Vec<_> = bytes
            .windows(name.len())
            .enumerate()
            .filter(|(_, window)| *window == name)
            .map(|(at, _)| at)
            .collect();
        if places.is_empty() || symbol.is_empty() {
            return Err(format!("{} has no symbol {symbol:?}", library.display()));
        }
        for at in places {
            if let Some(letter) = bytes.get_mut(at.saturating_add(1)) {
                *letter = b'~';
            }
        }
    }
    let name = library.file_name().ok_or("the library has no name")?;
    let copy = folder.join(name);
    std::fs::write(&copy, bytes).map_err(|e| format!("{}: {e}", copy.display()))?;
    Ok(copy)
}
