//! The checks that there are, as the sources have them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The words of all checks of the data streams of hmc-std.
///
/// # Panics
/// When two have the same words, or one has none.
#[must_use]
pub fn of_streams() -> BTreeSet<String> {
    words("hmc-std/src", "DataCloseReason::Protocol(")
}

/// The words of all checks of the messages over UCX.
///
/// # Panics
/// As [`of_streams`].
#[must_use]
pub fn of_messages() -> BTreeSet<String> {
    words("hmc-hw/src/ucx", "Violation(")
}

/// The texts that follow `maker` in the Rust files of a folder of the project.
fn words(folder: &str, maker: &str) -> BTreeSet<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the project's folder");
    let mut files = Vec::new();
    find(&root.join(folder), &mut files);
    let mut all = BTreeSet::new();
    // A function with a mutant stands in the sources twice.
    let twice = std::env::var_os("HMC_MUTATION").is_some();
    for file in files {
        let text = std::fs::read_to_string(&file).expect("a source file");
        for (at, _) in text.match_indices(maker) {
            let rest = text[at + maker.len()..].trim_start();
            let literal = rest.strip_prefix('"').and_then(|rest| rest.split_once('"'));
            let Some((words, _)) = literal else {
                // A pattern, or the definition of the type.
                // `malformed_frames_end_the_link` is the case of MALFORMED.
                let named = ["_)", "what)", "MALFORMED)", "pub(super) &'static str)"];
                assert!(
                    named.iter().any(|n| rest.starts_with(n)),
                    "{}: {rest:.40}",
                    file.display()
                );
                continue;
            };
            let first = all.insert(words.to_owned());
            assert!(first || twice, "two checks say {words:?}: {}", file.display());
        }
    }
    assert!(!all.is_empty(), "no check in {folder}");
    all
}

fn find(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder of the project") {
        let path = entry.expect("an entry").path();
        let of_tests = path.file_stem().is_some_and(|name| name == "tests" || name == "testing");
        if of_tests {
            // What tests expect is no check.
        } else if path.is_dir() {
            find(&path, files);
        } else if path.extension().is_some_and(|end| end == "rs") {
            files.push(path);
        }
    }
}
