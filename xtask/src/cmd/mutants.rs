//! `cargo xtask mutants`: changes the code outside the core in a sample of the ways that cargo-mutants knows, and shows which test
//! notices each.
//!
//! A build for each mutant takes more than a minute, so the sample is compiled in together: in a copy of the workspace, under
//! `target/mutants/tree`, each mutant stands behind a switch that the variable `HMC_MUTATION` sets. The switches also note which
//! suites reach them, and only those run. The tree itself holds no hook. What cannot stand behind a switch has a build of its own.
//!
//! The sample is drawn by a seed: the same tree and seed give the same sample. A mutant that does not compile is replaced by the next.
//! Mutants that change nothing that can be seen are listed in `mutants/equivalent.txt`, each with its reason; a row there that names
//! no mutant, or one that a test catches, fails the command.

mod copy;
mod engine;
mod list;
mod report;
mod run;
mod settle;
mod splice;
mod suites;
#[cfg(test)]
mod tests;

use crate::cmd::certify::lines_under;
use crate::cmd::wheel;
use crate::tree;
use crate::verdict::Verdict;
use list::Mutant;
use std::path::{Path, PathBuf};
use std::time::Duration;
use suites::{Build, Kind, Suite};

/// What is mutated; the core has `certify --full`.
const PACKAGES: [&str; 4] = ["hmc-std", "hmc-hw", "hmc-mem", "hmc-cli"];
/// The same, where a Python with its packages is here.
const PYTHON: &str = "hmc-py";

/// The suites: unit tests and tests of single crates as `cargo test` builds them, process tests optimised.
const BUILDS: [Build; 2] = [
    Build {
        word: "",
        packages: &["hmc-mem", "hmc-hw", "hmc-std", "hmc-cli"],
        arguments: &["--locked"],
    },
    Build {
        word: "process",
        packages: &["hmc-tests"],
        arguments: &["--locked", "--profile", "proofs"],
    },
];

/// Seeds of the simulated clusters.
const SEEDS: &str = "500";

/// Time beyond four times its own that a suite has before it counts as hanging.
const SLACK: Duration = Duration::from_secs(10);

/// Attributes of code that no release has: models, and what joins the simulator to sessions.
const NOT_RELEASED: [&str; 2] = ["#[cfg(loom)]", "#[cfg(feature = \"testing\")]"];

/// Mutants that change nothing that can be seen.
const EQUIVALENT: &str = include_str!("mutants/equivalent.txt");

/// The suites that matter most for the files of a path, the best first; the longest path counts. The others follow.
const TABLE: [(&str, &[&str]); 25] = [
    ("hmc-mem/src/", &["conformance", "visibility", "sessions"]),
    ("hmc-mem/src/os/", &["conformance", "sessions", "peer_failure"]),
    ("hmc-mem/src/os/fork", &["fork", "fork_drops", "fork_views"]),
    ("hmc-hw/src/", &["ucp_fake", "ucp_fake_faults", "ucp_fake_sessions", "ucp_fake_random"]),
    ("hmc-hw/src/ucx/am", &["ucx_message_rules", "ucx_hostile_peer", "ucp_fake_sessions"]),
    ("hmc-hw/src/ucx/data_plane", &["ucp_fake_data_plane", "ucp_fake_memory"]),
    ("hmc-hw/src/ucx/domain", &["ucp_fake_memory", "ucp_fake_workers", "ucp_fake_sessions"]),
    ("hmc-hw/src/ucx/library", &["ucp_fake_refused", "ucp_fake"]),
    ("hmc-std/src/", &["sans_io", "clusters", "sessions", "conformance", "bindings"]),
    ("hmc-std/src/transport/ucx", &["ucp_fake_sessions", "ucp_fake_faults"]),
    ("hmc-std/src/transport/with_stream", &["ucp_fake_sessions", "ucp_fake_faults"]),
    (
        "hmc-std/src/transport/",
        &["conformance", "sans_io", "clusters", "visibility", "revoke", "peer_failure"],
    ),
    ("hmc-std/src/link/", &["sans_io", "clusters", "sessions", "peer_failure", "wait_any"]),
    ("hmc-std/src/link/rndv/", &["messages", "messages_abort", "clusters"]),
    ("hmc-std/src/api/group/", &["group", "group_failures"]),
    ("hmc-std/src/memory/", &["bindings", "owners", "sessions"]),
    ("hmc-std/src/api/peer/", &["bindings", "sessions", "messages", "wait_any"]),
    ("hmc-std/src/node/", &["sans_io", "clusters", "tags", "full_inbox"]),
    ("hmc-std/src/conn/admit", &["hostile_clients", "listeners", "connects"]),
    ("hmc-std/src/conn/accept", &["hostile_clients", "listeners", "rank_claims"]),
    ("hmc-std/src/state/pending_conns", &["hostile_clients", "listeners", "rank_claims"]),
    ("hmc-std/src/conn/proof", &["same_user"]),
    ("hmc-std/src/base/secret", &["same_user"]),
    ("hmc-std/src/quarantine", &["unfenced", "left_behind"]),
    ("hmc-std/src/ops/window", &["revoke", "unfenced", "reopen"]),
];

#[derive(clap::Args)]
pub(crate) struct Options {
    /// How many mutants are tested
    #[arg(long, value_name = "N", default_value_t = 100)]
    sample: usize,
    /// What draws them; any number
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// Only mutants whose file or change contains this
    #[arg(long, value_name = "FILE|NAME")]
    only: Option<String>,
    /// Fail when fewer are caught, in percent of those that are not equivalent
    #[arg(long, value_name = "PERCENT", default_value_t = 90, value_parser = clap::value_parser!(u8).range(0..=100))]
    at_least: u8,
    /// How many mutants run at a time; the suites wait more than they work
    #[arg(long, value_name = "J", default_value_t = 2)]
    jobs: usize,
    /// Run no more suites with a mutant after so many seconds; it counts as missed then
    #[arg(long, value_name = "SECONDS")]
    patience: Option<u64>,
    /// Write the report to FILE as JSON, too
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Leave out hmc-py and the tests of the Python package, which take minutes to build
    #[arg(long)]
    no_python: bool,
}

/// Draws, compiles, runs, and assesses.
pub(crate) fn run(options: &Options) -> Verdict {
    match report(options) {
        Ok(verdict) | Err(verdict) => verdict,
    }
}

fn report(options: &Options) -> Result<Verdict, Verdict> {
    if options.sample == 0 {
        return Err(Verdict::failed("a sample of 0 mutants shows nothing"));
    }
    list::tool()?;
    let root = tree::root();
    let work = root.join("target/mutants");
    let mut packages = PACKAGES.to_vec();
    let mut skipped = Vec::new();
    match python(options, &root) {
        Ok(()) => packages.push(PYTHON),
        Err(why) => {
            skipped.push(format!("SKIPPED: mutants of {PYTHON}, and its tests: {}", why.detail()))
        }
    }
    for line in &skipped {
        println!("{line}");
    }
    let all = list::all(&root, &packages).map_err(Verdict::Failed)?;
    let candidates: Vec<Mutant> = released(&root, &all)
        .into_iter()
        .filter(|m| options.only.as_ref().is_none_or(|only| m.key.contains(only.as_str())))
        .collect();
    println!(
        "{} mutants, {} of them in released code and asked for; a sample of {} by seed {}",
        all.len(),
        candidates.len(),
        options.sample,
        options.seed
    );
    let with_python = packages.contains(&PYTHON);
    let more = |copy: &Path, alone: Option<&Mutant>| more(copy, alone, with_python);
    let plan = engine::Plan {
        root: &root,
        work,
        packages,
        builds: BUILDS.to_vec(),
        more: &more,
        table: &TABLE,
        sample: options.sample,
        jobs: options.jobs,
        seed: options.seed,
        slack: SLACK,
        patience: options.patience.map_or(Duration::MAX, Duration::from_secs),
        equivalent: EQUIVALENT,
    };
    let mut report = engine::run(&plan, &all, candidates)?;
    // A row about a package that was left out here is not wrong for that.
    if !with_python {
        report.stale.retain(|line| !line.contains(&format!("`{PYTHON}/")));
    }
    report.skipped = skipped;
    report.print();
    if let Some(path) = &options.json {
        report.write(path).map_err(Verdict::Failed)?;
    }
    Ok(Verdict::from_result(report.assess(options.at_least)))
}

/// Whether the Python package can be tested here.
fn python(options: &Options, root: &Path) -> Result<(), Verdict> {
    if options.no_python {
        return Err(Verdict::skipped("left out by --no-python", "run without --no-python"));
    }
    wheel::ready(root)
}

/// Those in code that a release has.
fn released(root: &Path, all: &[Mutant]) -> Vec<Mutant> {
    let mut out = Vec::new();
    let mut known: (String, Vec<usize>) = Default::default();
    for mutant in all {
        if known.0 != mutant.file {
            let text = std::fs::read_to_string(root.join(&mutant.file)).unwrap_or_default();
            let lines = NOT_RELEASED.iter().flat_map(|a| lines_under(&text, a)).collect();
            known = (mutant.file.clone(), lines);
        }
        if !known.1.contains(&mutant.span.start.line) {
            out.push(mutant.clone());
        }
    }
    out
}

/// The simulator, which the build of the process tests has made, and pytest over a wheel of the copy.
fn more(copy: &Path, alone: Option<&Mutant>, with_python: bool) -> Result<Vec<Suite>, Verdict> {
    let mut suites = vec![Suite {
        name: "sim: clusters".to_owned(),
        package: "tests".to_owned(),
        kind: Kind::Status,
        program: copy.join("target/proofs/sim"),
        arguments: vec!["--seeds".to_owned(), SEEDS.to_owned()],
        folder: copy.to_path_buf(),
    }];
    // A wheel takes minutes: for one mutant alone only where it is the wheel's own.
    if with_python && alone.is_none_or(|mutant| mutant.package == PYTHON) {
        let folder = wheel::installed(copy)?;
        let tests = copy.join("hmc-py/tests").display().to_string();
        let arguments = ["-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", tests.as_str()];
        suites.push(Suite {
            name: "python: pytest".to_owned(),
            package: PYTHON.to_owned(),
            kind: Kind::Pytest,
            program: folder.join("bin/python"),
            arguments: arguments.map(str::to_owned).to_vec(),
            folder,
        });
    }
    Ok(suites)
}
