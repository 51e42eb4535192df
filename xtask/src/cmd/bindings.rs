//! `cargo xtask bindings`: writes `hmc-hw/src/ucx/sys/{constants,types}.rs` and `functions.rs` beside it from UCX's
//! headers, and the layout of each structure in them by a C compiler.
//!
//! Two sets of headers: the newest one is what is declared; the oldest one proves that the same
//! declarations serve an older library (every function declared alike, and a layout to compare with).
//! With `--check` nothing is written: a difference is a failure. What is missing on this machine is
//! a visible skip.

mod declare;
mod headers;
mod items;
mod layout;
mod wanted;

use crate::shell;
use crate::tree;
use crate::verdict::Verdict;
use headers::{BINDGEN, Headers, Trouble};
use items::Item;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The version whose headers are declared, and the oldest one that they are compared with.
const NEWEST: &str = "1.22.0";
const OLDEST: &str = "1.13.1";

/// Where the written files live.
const HOME: &str = "hmc-hw/src/ucx";

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Write nothing; fail where the committed files differ
    #[arg(long)]
    check: bool,
    /// The folder that holds `ucp/api/ucp.h` of UCX 1.22.0
    #[arg(long, value_name = "DIR", default_value = "/usr/include")]
    headers: PathBuf,
    /// The folder that holds `ucp/api/ucp.h` of UCX 1.13.1
    #[arg(long, value_name = "DIR", default_value = "/usr/include")]
    old_headers: PathBuf,
}

/// Makes all files, then writes or compares them.
pub(crate) fn run(options: &Options) -> Verdict {
    let root = tree::root();
    let work = root.join("target/bindings");
    if let Err(e) = std::fs::create_dir_all(&work) {
        return Verdict::failed(format!("{}: {e}", work.display()));
    }
    if let Some(skipped) = tools() {
        return skipped;
    }
    let newest = match Headers::open(&options.headers, NEWEST) {
        Ok(headers) => headers,
        Err(why) => return Verdict::skipped(why, wheel()),
    };
    let (mut files, declared) = match current(&newest, &root, &work) {
        Ok(made) => made,
        Err(trouble) => return trouble.into(),
    };
    let skipped = match Headers::open(&options.old_headers, OLDEST) {
        Ok(oldest) => match earlier(&oldest, &declared, &root, &work) {
            Ok(file) => {
                files.push(file);
                None
            }
            Err(trouble) => return trouble.into(),
        },
        Err(why) => Some(Verdict::skipped(
            format!("{why}: nothing was compared with version {OLDEST}"),
            format!("install libucx-dev {OLDEST}, or name the folder with --old-headers"),
        )),
    };
    let done = if options.check { compare(&root, &files) } else { write(&root, &files) };
    match (done, skipped) {
        (Ok(()), None) => Verdict::Passed,
        (Ok(()), Some(skipped)) => skipped,
        (Err(why), _) => Verdict::Failed(why),
    }
}

/// What one has to do for the newest headers.
fn wheel() -> String {
    format!(
        "unpack the Python wheel libucx-cu12=={NEWEST} (`pip install --target DIR`) and say \
         --headers DIR/libucx/include"
    )
}

/// A skip, where a program is missing.
fn tools() -> Option<Verdict> {
    let version = |program: &str| {
        shell::capture(Command::new(program).arg("--version"))
            .map(|out| out.stdout.trim().to_owned())
            .unwrap_or_default()
    };
    let found = version("bindgen");
    if found != format!("bindgen {BINDGEN}") {
        let found = if found.is_empty() { "none" } else { &found };
        return Some(Verdict::skipped(
            format!("bindgen {BINDGEN} is needed, {found} was found"),
            format!("`cargo install --locked bindgen-cli --version {BINDGEN}`, and libclang"),
        ));
    }
    if version("rustfmt").is_empty() {
        return Some(Verdict::skipped("rustfmt is missing", "`rustup component add rustfmt`"));
    }
    None
}

/// A file to be committed: its name in [`HOME`], and its text.
type Made = (String, String);

/// The declarations and their layout.
fn current(headers: &Headers, root: &Path, work: &Path) -> Result<(Vec<Made>, Vec<Item>), Trouble> {
    let items = headers.items(root)?;
    let mut files = Vec::new();
    for (name, text) in declare::texts(&items, NEWEST)? {
        files.push((name.to_owned(), headers::formatted(&text, root, work)?));
    }
    files.push((layout_name(NEWEST), headers.printed(&items, work)?));
    Ok((files, items))
}

/// The layout by the oldest headers, after a comparison of the functions.
fn earlier(
    headers: &Headers,
    declared: &[Item],
    root: &Path,
    work: &Path,
) -> Result<Made, Trouble> {
    let items = headers.items(root)?;
    let differences = declare::differences(declared, &items);
    if !differences.is_empty() {
        return Err(Trouble::Failed(format!(
            "UCX {OLDEST} declares these functions otherwise: {}",
            differences.join(", ")
        )));
    }
    println!("every wanted function of UCX {OLDEST} is declared as in {NEWEST}");
    Ok((layout_name(OLDEST), headers.printed(&items, work)?))
}

fn layout_name(release: &str) -> String {
    format!("layout-{release}.txt")
}

fn write(root: &Path, files: &[Made]) -> Result<(), String> {
    for (name, text) in files {
        let path = root.join(HOME).join(name);
        std::fs::write(&path, text).map_err(|e| format!("{}: {e}", path.display()))?;
        println!("wrote {HOME}/{name}: {} lines", text.lines().count());
    }
    Ok(())
}

fn compare(root: &Path, files: &[Made]) -> Result<(), String> {
    let mut broken = Vec::new();
    for (name, text) in files {
        let path = root.join(HOME).join(name);
        let committed =
            std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        match first_difference(&committed, text) {
            None => println!("ok: {HOME}/{name}"),
            Some(line) => broken.push(format!("{HOME}/{name}:{line}")),
        }
    }
    if broken.is_empty() {
        return Ok(());
    }
    Err(format!(
        "not what the headers say: {}; run `cargo xtask bindings` and look at the change",
        broken.join(", ")
    ))
}

/// The first line, from 1, in which two texts differ.
fn first_difference(a: &str, b: &str) -> Option<usize> {
    if a == b {
        return None;
    }
    let same = a.lines().zip(b.lines()).take_while(|(a, b)| a == b).count();
    Some(same.saturating_add(1))
}

#[cfg(test)]
mod tests {
    use super::first_difference;

    #[test]
    fn the_first_difference_is_found() {
        assert_eq!(first_difference("a\nb\n", "a\nb\n"), None);
        assert_eq!(first_difference("a\nb\n", "a\nc\n"), Some(2));
        assert_eq!(first_difference("a\n", "a\nb\n"), Some(2));
        assert_eq!(first_difference("a\n", "a"), Some(2));
    }
}
