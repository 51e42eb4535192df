//! `cargo xtask tidy`: the house rules that a compiler does not know.
//!
//! Each rule is a function from the [`Tree`] to findings, with a test that plants a violation.
//! Formatting and lints are rustfmt's and clippy's business, not this command's.

mod arrows;
mod borrows;
mod code_lines;
mod documents;
mod finding;
mod items;
mod layers;
mod length;
mod modules;
mod offsets;
mod paths;
mod programs;
mod promises;
mod retired;
mod rooms;
mod roots;
mod state;
pub(crate) mod trace;
mod unsafety;
mod variables;
mod words;

use crate::tree::{self, Tree};
use crate::verdict::Verdict;
use finding::Finding;

type Rule = fn(&Tree) -> Vec<Finding>;

const RULES: [(&str, Rule); 15] = [
    ("layers", layers::check),
    ("crate arrows", arrows::check),
    ("room arrows of hmc-core", rooms::check),
    ("no import through a crate's root", roots::check),
    ("file length", length::check),
    ("unsafe", unsafety::check),
    ("documents", documents::check),
    ("words", words::check),
    ("retired words", retired::check),
    ("process-wide state", state::check),
    ("who adds offsets", offsets::check),
    ("who borrows bytes of Python", borrows::check),
    ("requirements and their tests", trace::check),
    ("promises and their tests", promises::check),
    ("variables of the environment", variables::check),
];

/// Runs all rules over the project and prints what they found.
pub(crate) fn run() -> Verdict {
    match Tree::read(&tree::root()) {
        Ok(tree) => judge(&tree),
        Err(why) => Verdict::Failed(why),
    }
}

fn judge(tree: &Tree) -> Verdict {
    let mut total = 0_usize;
    for (name, rule) in RULES {
        let findings = rule(tree);
        println!("{}: {name}", if findings.is_empty() { "ok" } else { "BROKEN" });
        for f in &findings {
            println!("  {f}");
        }
        total = total.saturating_add(findings.len());
    }
    println!("{}", layers::summary(tree));
    println!("unsafe per crate: {}", unsafety::summary(tree));
    println!("{}", code_lines::summary(tree));
    if total == 0 {
        Verdict::Passed
    } else {
        Verdict::failed(format!("{total} places break the house rules"))
    }
}
