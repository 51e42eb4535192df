//! `cargo xtask certify`: the claims made for hmc-core, the result of each, and the figure.
//!
//! One table. A claim is proved, has failed, or was not run; what a machine lacks a tool for is never
//! counted as proved. Without `--full` the two scores that take long (coverage and mutants) are left
//! out and say so. The exit status is 0 when all that was asked for is proved, 1 when something
//! failed, 77 when a tool is missing. What each claim means is in docs/SAFETY.md.

mod claim_result;
mod measured;
mod portable;
mod source;
mod stack;

pub(crate) use measured::{lines_under, listed};

use crate::cmd;
use crate::tree::{self, Tree};
use crate::verdict::Verdict;
use claim_result::ClaimResult;
use std::path::Path;
use std::time::Instant;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Also measure line coverage (a minute) and the mutation score (an hour or more)
    #[arg(long)]
    full: bool,
    /// Only claims whose name contains this
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
}

/// The arguments of a check.
struct CheckContext<'a> {
    root: &'a Path,
    tree: &'a Tree,
}

/// A claim, whether only `--full` looks at it, and the look at it.
struct Claim {
    name: &'static str,
    full: bool,
    check: fn(&CheckContext<'_>) -> ClaimResult,
}

const CLAIMS: [Claim; 12] = [
    Claim { name: "no panic is reachable", full: false, check: no_panic },
    Claim { name: "core only, no allocator", full: false, check: core_only },
    Claim { name: "no unsafe", full: false, check: |g| source::no_unsafe(g.tree) },
    Claim { name: "no floating point", full: false, check: |g| source::no_float(g.tree) },
    Claim { name: "bounded stack, no recursion", full: false, check: |g| stack::check(g.root) },
    Claim {
        name: "lints without exceptions",
        full: false,
        check: |g| source::lints(g.root, g.tree),
    },
    Claim { name: "bare metal, 32 bit", full: false, check: |g| portable::bare_metal(g.root) },
    Claim { name: "tests on 32 bit", full: false, check: |g| portable::narrow(g.root) },
    Claim { name: "tests on big-endian", full: false, check: |g| portable::big_endian(g.root) },
    Claim { name: "requirements traced to tests", full: false, check: |g| traced(g.tree) },
    Claim { name: "every line covered", full: true, check: |g| measured::coverage(g.root, g.tree) },
    Claim { name: "mutants caught", full: true, check: |g| measured::mutants(g.root) },
];

/// Looks at all claims and prints the table.
pub(crate) fn run(options: &Options) -> Verdict {
    let root = tree::root();
    let tree = match Tree::read(&root) {
        Ok(tree) => tree,
        Err(why) => return Verdict::Failed(why),
    };
    let context = CheckContext { root: &root, tree: &tree };
    let wanted = |name: &str| options.only.as_ref().is_none_or(|only| name.contains(only));
    let mut table = Vec::new();
    for claim in CLAIMS.iter().filter(|c| wanted(c.name)) {
        println!("\n=== {} ===", claim.name);
        let begun = Instant::now();
        let result = if claim.full && !options.full {
            ClaimResult::LeftOut
        } else {
            (claim.check)(&context)
        };
        println!("--- {}: {}", claim.name, result.word());
        table.push((claim.name, result, begun.elapsed()));
    }
    println!("\n{:<30} {:<8} {:>7}  figure", "claim about hmc-core", "verdict", "seconds");
    for (name, result, time) in &table {
        println!(
            "{name:<30} {:<8} {:>7.1}  {}",
            result.word(),
            time.as_secs_f64(),
            result.detail()
        );
    }
    let results: Vec<ClaimResult> = table.into_iter().map(|(_, result, _)| result).collect();
    let (line, verdict) = sum(&results);
    println!("{line}");
    verdict
}

/// The last line, and what the command answers.
fn sum(results: &[ClaimResult]) -> (String, Verdict) {
    let count = |word: &str| results.iter().filter(|a| a.word() == word).count();
    let (failed, not_run) = (count("FAILED"), count("not run"));
    let line = format!("{} proved, {failed} failed, {not_run} not run", count("proved"));
    let lacking = results.iter().find_map(|a| match a {
        ClaimResult::NotRun { reason, remedy } => Some(Verdict::skipped(reason, remedy)),
        _ => None,
    });
    let verdict = if failed > 0 {
        Verdict::failed(format!("{failed} claims do not hold"))
    } else if results.is_empty() {
        Verdict::failed("no claim has that name")
    } else if count("proved") == 0 && lacking.is_none() {
        Verdict::skipped("every claim of that name was left out", "`cargo xtask certify --full`")
    } else {
        lacking.unwrap_or(Verdict::Passed)
    };
    (line, verdict)
}

fn no_panic(context: &CheckContext<'_>) -> ClaimResult {
    let verdict = cmd::nopanic::run(&cmd::nopanic::Options::default());
    ClaimResult::with_figure(verdict, || {
        format!(
            "{} public functions link without a panic symbol; a planted panic does not",
            cmd::nopanic::called(context.tree)
        )
    })
}

fn core_only(context: &CheckContext<'_>) -> ClaimResult {
    ClaimResult::with_figure(cmd::nostd::embedding(context.root), || {
        "a static program without std, libc and allocator links and runs".to_owned()
    })
}

fn traced(tree: &Tree) -> ClaimResult {
    let (traced, findings) = cmd::tidy::trace::trace(tree);
    for f in &findings {
        println!("{f}");
    }
    if findings.is_empty() {
        ClaimResult::Proved(format!(
            "{} rules of the wire, {} of {} faults and {} assumptions of use name {} tests; \
             {} wait for their transport",
            traced.rules,
            traced.faults,
            traced.faults.saturating_add(traced.later),
            traced.assumptions,
            traced.tests,
            traced.later
        ))
    } else {
        ClaimResult::Failed(format!("{} gaps", findings.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::{ClaimResult, sum};
    use crate::verdict::Verdict;

    #[test]
    fn what_was_not_run_is_never_counted_as_proved() {
        let proved = ClaimResult::Proved("1".into());
        let lacking = ClaimResult::not_run("no tool", "get it");
        let (line, verdict) = sum(&[proved.clone(), lacking.clone(), ClaimResult::LeftOut]);
        assert_eq!(line, "1 proved, 0 failed, 2 not run");
        assert_eq!(verdict, Verdict::skipped("no tool", "get it"));
        let (_, verdict) = sum(&[proved.clone(), lacking, ClaimResult::Failed("x".into())]);
        assert!(matches!(verdict, Verdict::Failed(_)));
        assert_eq!(sum(&[proved, ClaimResult::LeftOut]).1, Verdict::Passed);
        assert!(matches!(sum(&[]).1, Verdict::Failed(_)));
        assert!(matches!(sum(&[ClaimResult::LeftOut]).1, Verdict::Skipped { .. }));
    }
}
