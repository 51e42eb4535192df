//! `cargo xtask api`: the public items of the libraries, compared with the texts in `xtask/api/`.
//!
//! The items come from rustdoc JSON, which only a nightly toolchain writes. A difference is a failure: `--bless` writes the texts anew, and
//! their diff shows a reviewer what a change does to the users of the library. `--against COMMIT` compares the texts with those of a
//! release, and checks that the version says whether something was removed or changed.

mod bindings;
mod functions;
mod listing;
mod release;
mod snapshot;

use crate::tools;
use crate::tree;
use crate::verdict::Verdict;
use listing::Listing;
use snapshot::{FOLDER, LIBRARIES, Snapshot};
use std::path::Path;

/// The toolchain that the texts were written with.
const NIGHTLY: &str = "nightly-2026-05-20";

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Write the texts anew
    #[arg(long)]
    bless: bool,
    /// Compare the texts with those of COMMIT, and the difference with the versions
    #[arg(long, value_name = "COMMIT", conflicts_with = "bless")]
    against: Option<String>,
    /// The toolchain that writes rustdoc JSON [default: that of the texts, or else `nightly`]
    #[arg(long)]
    toolchain: Option<String>,
}

/// Lists the public items, and compares or writes the texts.
pub(crate) fn run(options: &Options) -> Verdict {
    let root = tree::root();
    if let Some(commit) = &options.against {
        return Verdict::from_result(release::compare(&root, commit));
    }
    let toolchains = options.toolchain.as_deref().map_or(vec![NIGHTLY, "nightly"], |t| vec![t]);
    let Some(toolchain) = toolchains.iter().find(|t| tools::has_toolchain(t)) else {
        return Verdict::skipped(
            format!("{} is not installed", toolchains.join(" or ")),
            format!("`rustup toolchain install {NIGHTLY} --profile minimal`"),
        );
    };
    let listings = LIBRARIES.iter().map(|library| Listing::of(&root, library, toolchain));
    let listings: Vec<Listing> = match listings.collect() {
        Ok(listings) => listings,
        Err(why) => return Verdict::Failed(why),
    };
    for (library, listing) in LIBRARIES.iter().zip(&listings) {
        println!("{library}: {} public items", listing.items.len());
        if *library == "hmc-std" {
            println!("{}", functions::summary(&listing.items));
        }
    }
    if options.bless {
        return Verdict::from_result(bless(&root, &listings));
    }
    compare(&root, &listings)
}

fn bless(root: &Path, listings: &[Listing]) -> Result<(), String> {
    for (library, listing) in LIBRARIES.iter().zip(listings) {
        let path = root.join(Snapshot::path(library));
        std::fs::write(&path, Snapshot::text(library, listing))
            .map_err(|e| format!("{}: {e}", path.display()))?;
    }
    println!("written: {FOLDER}");
    Ok(())
}

fn compare(root: &Path, listings: &[Listing]) -> Verdict {
    let mut changed = Vec::new();
    for (library, listing) in LIBRARIES.iter().zip(listings) {
        let path = root.join(Snapshot::path(library));
        let snapshot = match std::fs::read_to_string(&path) {
            Ok(text) => Snapshot::parse(&text),
            Err(e) => return Verdict::failed(format!("{}: {e}", path.display())),
        };
        if snapshot.format != Some(listing.format) {
            return Verdict::skipped(
                format!(
                    "{} has {}, and this toolchain writes format {}",
                    path.display(),
                    snapshot.format.map_or("no format".to_owned(), |f| format!("format {f}")),
                    listing.format
                ),
                format!("`rustup toolchain install {NIGHTLY} --profile minimal`"),
            );
        }
        let difference = snapshot::difference(&snapshot.items, &listing.items);
        if !difference.is_empty() {
            println!("{library}:\n{difference}");
            changed.push(*library);
        }
    }
    if changed.is_empty() {
        return Verdict::Passed;
    }
    Verdict::failed(format!(
        "the public API of {} is not that of {FOLDER}: `cargo xtask api --bless`, and CHANGELOG.md says what a user has to do",
        changed.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::NIGHTLY;
    use crate::cmd::tidy::jobs;
    use crate::tree::{self, Tree};

    #[test]
    fn the_hosted_job_has_the_toolchain_of_the_texts() {
        let commands = jobs::commands(&Tree::read(&tree::root()).unwrap());
        let install = format!("rustup toolchain install {NIGHTLY} --profile minimal");
        assert!(commands.contains(&install), "{commands:?}");
    }
}
