//! `cargo xtask documents`: runs each command block of the documents, word by word.
//!
//! The language of a fence says where its commands run: `sh` at the root of the repository, `console` in a folder that is empty at
//! the start of the document, with the command `hmc` in the path. The comment of a command may end in `[needs WHAT]`: it is not
//! run, and the reason is printed; or in `[takes TIME]`: only its arguments are checked, by `--help`, which is printed, too. Other
//! programs have checks of their own: a `rust` block must be a doctest, `python` blocks are run by `hmc-py/tests/test_docs.py`,
//! `json` must parse, and no other fence may hold commands.

mod blocks;
mod terminal;

use crate::shell;
use crate::step_result::{Counts, StepResult};
use crate::tree::{self, Tree};
use crate::verdict::Verdict;
use blocks::{Block, Command, Mark};
use std::path::{Path, PathBuf};
use terminal::Terminal;

#[derive(clap::Args, Debug, Default)]
pub(crate) struct Options {
    /// Only the documents whose path contains TEXT
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
}

/// Runs the blocks as a command.
pub(crate) fn run(options: &Options) -> Verdict {
    step(options).verdict
}

/// Runs the blocks as a step of a test run, with the numbers of commands.
pub(crate) fn step(options: &Options) -> StepResult {
    let mut counts = Counts::default();
    let verdict = Verdict::from_result(all(options, &mut counts));
    StepResult { verdict, counts }
}

fn all(options: &Options, counts: &mut Counts) -> Result<(), String> {
    let root = tree::root();
    let tree = Tree::read(&root)?;
    let only = options.only.as_deref().unwrap_or_default();
    let documents: Vec<_> = tree.ending(".md").filter(|file| file.path.contains(only)).collect();
    let mut hmc = shell::cargo();
    let hmc = shell::built(
        hmc.current_dir(&root).args(["build", "--quiet", "--release", "--locked"]),
        "hmc-cli",
        &["hmc"],
    )?;
    let mut failures = Vec::new();
    for document in documents {
        let blocks = blocks::of(&document.text).map_err(|e| format!("{}: {e}", document.path))?;
        for block in blocks.iter().filter(|block| block.commands.is_empty()) {
            if let Err(why) = other(&tree, &document.path, block) {
                failures.push(format!("{}:{}: {why}", document.path, block.line));
            }
        }
        let mut place = Place { root: &root, hmc: &hmc, folder: Folder::new()?, console: None };
        for block in blocks.iter().filter(|block| !block.commands.is_empty()) {
            failures.extend(place.run(&document.path, block, counts));
        }
    }
    println!("{} commands ran, {} skipped", counts.passed, counts.skipped);
    if failures.is_empty() { Ok(()) } else { Err(failures.join("\n")) }
}

/// Checks a block without commands.
fn other(tree: &Tree, path: &str, block: &Block) -> Result<(), String> {
    match block.language.as_str() {
        "json" => block.lines.iter().try_for_each(|line| {
            let parsed = serde_json::from_str::<serde_json::Value>(line);
            parsed.map(drop).map_err(|e| format!("not JSON: {e}: {line}"))
        }),
        "rust" => {
            let name = Path::new(path).file_name().unwrap_or_default().to_string_lossy();
            let included = format!("{name}\")]");
            let is_doctest = |text: &str| {
                text.lines()
                    .any(|l| l.starts_with("#[doc = include_str!(") && l.ends_with(&included))
            };
            let found = tree.rust().any(|file| is_doctest(&file.text));
            found.then_some(()).ok_or_else(|| format!("no crate has `{name}` as a doctest"))
        }
        // hmc-py/tests/test_docs.py fails if a block of these documents is not run there.
        "python" if path == "README.md" || path == "docs/python.md" => Ok(()),
        // A drawing.
        "" if block.lines.iter().all(|line| !line.starts_with("$ ")) => Ok(()),
        language => Err(format!("nothing tests a block of `{language}` here")),
    }
}

/// Where the commands of one document run.
struct Place<'p> {
    root: &'p Path,
    hmc: &'p Path,
    folder: Folder,
    /// The shell of its `console` blocks.
    console: Option<Terminal>,
}

impl Place<'_> {
    /// Runs a block up to its first failure, which it returns.
    fn run(&mut self, path: &str, block: &Block, counts: &mut Counts) -> Option<String> {
        let mut sh = None;
        for command in &block.commands {
            let at = format!("{path}:{}: {}", command.line, command.text);
            let result = match &command.mark {
                Mark::Needs(what) => {
                    println!("skipped, needs {what}: {at}");
                    counts.skipped = counts.skipped.saturating_add(1);
                    continue;
                }
                Mark::Takes(time) => {
                    println!("only the arguments, takes {time}: {at}");
                    arguments(command).and_then(|text| self.shell(&mut sh, block)?.run(&text, &[]))
                }
                Mark::None => {
                    println!("run: {at}");
                    let shell = self.shell(&mut sh, block);
                    shell.and_then(|shell| shell.run(&command.text, &command.output))
                }
            };
            if let Err(why) = result {
                counts.failed = counts.failed.saturating_add(1);
                return Some(format!("{at}: {why}"));
            }
            counts.passed = counts.passed.saturating_add(1);
        }
        None
    }

    /// The shell of a block: one of its own at the root, or that of the document in its folder.
    fn shell<'s>(
        &'s mut self,
        sh: &'s mut Option<Terminal>,
        block: &Block,
    ) -> Result<&'s mut Terminal, String> {
        let work = self.folder.0.join("work");
        let (shell, work) = match block.language.as_str() {
            "sh" => (sh, self.root),
            _ => (&mut self.console, work.as_path()),
        };
        match shell {
            Some(shell) => Ok(shell),
            none => Ok(none.insert(Terminal::start(
                work,
                self.hmc,
                &self.folder.0,
                &self.root.join("target"),
            )?)),
        }
    }
}

/// A command of ours that checks its arguments and prints its help.
fn arguments(command: &Command) -> Result<String, String> {
    let code = command.text.split(" #").next().unwrap_or_default().trim();
    let (ours, rest) = match code.split_once(" -- ") {
        Some((ours, rest)) => (ours, format!(" -- {rest}")),
        None => (code, String::new()),
    };
    if !ours.starts_with("cargo xtask ") {
        return Err("`[takes ..]` is for `cargo xtask` alone: use `[needs ..]`".to_owned());
    }
    Ok(format!("{ours} --help{rest}"))
}

/// A folder for one document, with an empty one for its commands. It is removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Result<Self, String> {
        let path = std::env::temp_dir().join(format!("hmc-documents-{}", std::process::id()));
        let made = std::fs::create_dir_all(path.join("work"));
        made.map_err(|e| format!("{}: {e}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Nothing else can be done about a folder that stays.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::{arguments, blocks, other};
    use crate::tree::Tree;

    #[test]
    fn a_block_that_nothing_tests_is_a_failure() {
        let tree = Tree::planted(&[
            ("a/src/lib.rs", "#[doc = include_str!(\"../../README.md\")]\nstruct Readme;\n"),
            ("README.md", ""),
        ]);
        let check = |path: &str, fence: &str, text: &str| {
            let blocks = blocks::of(&format!("```{fence}\n{text}\n```\n")).unwrap();
            other(&tree, path, &blocks[0])
        };
        assert!(check("README.md", "rust", "fn main() {}").is_ok());
        assert!(check("docs/OTHER.md", "rust", "fn main() {}").is_err());
        assert!(check("README.md", "python", "1").is_ok());
        assert!(check("docs/cli.md", "python", "1").is_err());
        assert!(check("docs/cli.md", "json", "{}").is_ok());
        assert!(check("docs/cli.md", "json", "{").is_err());
        assert!(check("docs/cli.md", "", "a picture").is_ok());
        assert!(check("docs/cli.md", "", "$ rm file").is_err());
        assert!(check("docs/cli.md", "toml", "a = 1").is_err());
    }

    #[test]
    fn long_commands_check_the_arguments_before_a_guest() {
        let of = |line: &str| {
            let blocks = blocks::of(&format!("```sh\n{line}\n```\n")).unwrap();
            arguments(&blocks[0].commands[0])
        };
        assert_eq!(
            of("cargo xtask sim --full  # [takes hours]").unwrap(),
            "cargo xtask sim --full --help"
        );
        assert_eq!(
            of("cargo xtask vm -- sh -c 'a'").unwrap(),
            "cargo xtask vm --help -- sh -c 'a'"
        );
        assert!(of("cargo publish  # [takes long]").is_err());
    }
}
