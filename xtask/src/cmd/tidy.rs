//! `cargo xtask tidy`: the rules of this project that a compiler does not check.
//!
//! Each rule is a function from the [`Tree`] to findings, with a test that plants a violation.
//! rustfmt and clippy check formatting and lints.

mod borrows;
mod code_lines;
mod crate_deps;
mod docs;
mod finding;
mod imports;
mod items;
pub(crate) mod jobs;
mod layers;
mod length;
mod module_deps;
mod modules;
mod offsets;
mod paths;
mod planted;
mod programs;
mod promises;
mod release;
mod retired;
mod state;
pub(crate) mod trace;
mod unsafety;
mod variables;
mod walkthroughs;
mod words;

use crate::tree::{self, Tree};
use crate::verdict::Verdict;
use finding::Finding;

type Rule = fn(&Tree) -> Vec<Finding>;

const RULES: [(&str, Rule); 19] = [
    ("layers", layers::check),
    ("dependencies of crates", crate_deps::check),
    ("dependencies of modules of hmc-core", module_deps::check),
    ("no import through a crate's root", imports::check),
    ("file length", length::check),
    ("unsafe", unsafety::check),
    ("documents", docs::check),
    ("walkthroughs", walkthroughs::check),
    ("words", words::check),
    ("retired words", retired::check),
    ("process-wide state", state::check),
    ("planted bugs", planted::check),
    ("who adds offsets", offsets::check),
    ("who borrows bytes of Python", borrows::check),
    ("requirements and their tests", trace::check),
    ("promises and their tests", promises::check),
    ("variables of the environment", variables::check),
    ("packages of a release", release::check),
    ("jobs of workflows", jobs::check),
];

/// Runs all rules over the project and prints their findings.
pub(crate) fn run() -> Verdict {
    match Tree::read(&tree::root()) {
        Ok(tree) => check(&tree),
        Err(why) => Verdict::Failed(why),
    }
}

fn check(tree: &Tree) -> Verdict {
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
        Verdict::failed(format!("{total} places break the rules of the project"))
    }
}
