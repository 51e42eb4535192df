//! Finds the files of fake libraries, and makes copies that lack symbols.

use std::path::{Path, PathBuf};

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

#[cfg(test)]
mod tests {
    use std::path::Path;

    #[test]
    fn a_symbol_or_a_library_that_is_not_there_is_an_error() {
        let nowhere = Path::new("/nowhere");
        let symbol = super::without(Path::new("/proc/self/exe"), &["no_such_symbol\n"], nowhere);
        assert!(symbol.is_err_and(|e| e.contains("has no symbol")));
        assert!(
            super::beside("no_such_library").is_err_and(|e| e.contains("libno_such_library.so"))
        );
    }
}
