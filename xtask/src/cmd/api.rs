//! `cargo xtask api`: the public items of the libraries, compared with the texts in `xtask/api/`.
//!
//! The items come from rustdoc JSON, which only a nightly toolchain writes. A difference is a failure: `--bless` writes the texts anew, and
//! their diff shows a reviewer what a change does to the users of the library. `--against COMMIT` compares the texts with those of a
//! release, and checks that the version says whether something was removed or changed.

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

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Write the texts anew
    #[arg(long)]
    bless: bool,
    /// Compare the texts with those of COMMIT, and the difference with the versions
    #[arg(long, value_name = "COMMIT", conflicts_with = "bless")]
    against: Option<String>,
    /// The toolchain that writes rustdoc JSON
    #[arg(long, default_value = "nightly")]
    toolchain: String,
}

/// Lists the public items, and compares or writes the texts.
pub(crate) fn run(options: &Options) -> Verdict {
    let root = tree::root();
    if let Some(commit) = &options.against {
        return Verdict::from_result(release::compare(&root, commit));
    }
    if !tools::has_toolchain(&options.toolchain) {
        return Verdict::skipped(
            format!("{} is not installed", options.toolchain),
            "`rustup toolchain install nightly`",
        );
    }
    let listings = LIBRARIES.iter().map(|library| Listing::of(&root, library, &options.toolchain));
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
                "`--toolchain` of that format, or `--bless` with this one and no other change",
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
