//! Jobs of hosted workflows: each runs one command that `.ci/run` runs, too, and names the version of each action.

use super::finding::Finding;
use crate::tree::{File, Tree};

/// The folder of the workflows.
const FOLDER: &str = ".github/workflows/";

/// What a change must pass, and how a job runs it.
const SCRIPT: &str = ".ci/run";
const WHOLE: &str = "bash .ci/run";

/// What may come before the command: a toolchain.
const SETUP: &str = "rustup toolchain install ";

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let script = tree.file(SCRIPT).map_or("", |file| file.text.as_str());
    tree.ending(".yml")
        .filter(|file| file.path.starts_with(FOLDER))
        .flat_map(|file| workflow(file, script))
        .collect()
}

/// The commands of all jobs, as tests ask for them.
#[cfg(test)]
pub(crate) fn commands(tree: &Tree) -> Vec<String> {
    let files = tree.ending(".yml").filter(|file| file.path.starts_with(FOLDER));
    let lines = files.flat_map(|file| file.text.lines());
    lines.filter_map(|line| value(line, "run")).map(str::to_owned).collect()
}

fn workflow(file: &File, script: &str) -> Vec<Finding> {
    let mut out = Vec::new();
    let mut finding = |line, what: String| out.push(Finding::new(&file.path, line, what));
    // The job that is being read: its line, its name, and its number of commands.
    let mut job: Option<(usize, &str, usize)> = None;
    let mut in_jobs = false;
    let lines = (1_usize..).zip(file.text.lines());
    for (number, line) in lines.chain([(0, "end:")]) {
        let code = line.trim_end();
        let indent = code.len().saturating_sub(code.trim_start().len());
        let opens = !code.trim_start().is_empty() && !code.trim_start().starts_with('#');
        if opens && indent <= 2 {
            if let Some((at, name, count)) = job.take().filter(|(.., count)| *count != 1) {
                finding(at, format!("job {name} has {count} commands, and needs one"));
            }
            in_jobs = if indent == 0 { code == "jobs:" } else { in_jobs };
            if in_jobs && indent == 2 {
                job = Some((number, code.trim().trim_end_matches(':'), 0));
            }
        }
        if let Some(action) = value(code, "uses").filter(|action| !is_pinned(action)) {
            finding(number, format!("`{action}`: name a version such as `@v1.2.3`"));
        }
        let Some(command) = value(code, "run").filter(|run| !run.starts_with(SETUP)) else {
            continue;
        };
        if let Some((_, _, count)) = &mut job {
            *count = count.saturating_add(1);
        }
        if command != WHOLE && !(command.starts_with("cargo xtask ") && runs(script, command)) {
            finding(number, format!("`{command}`: {SCRIPT} does not run it"));
        }
    }
    out
}

/// The value of a key, if the line has it.
fn value<'t>(line: &'t str, key: &str) -> Option<&'t str> {
    let line = line.trim().trim_start_matches("- ");
    line.strip_prefix(key)?.strip_prefix(':').map(str::trim)
}

/// Whether an action has a version of three numbers.
fn is_pinned(action: &str) -> bool {
    let numbers = action.split_once("@v").map_or("", |(_, version)| version);
    let parts: Vec<&str> = numbers.split('.').collect();
    parts.len() == 3 && parts.iter().all(|part| part.parse::<u32>().is_ok())
}

/// Whether a line of the script runs a command, with more arguments or without.
fn runs(script: &str, command: &str) -> bool {
    let code =
        script.lines().filter(|line| !["#", "echo"].iter().any(|w| line.trim().starts_with(w)));
    let mut rests = code.filter_map(|line| line.split_once(command)).map(|(_, rest)| rest);
    rests.any(|rest| rest.is_empty() || rest.starts_with(' '))
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::tree::Tree;

    const JOB: &str = "on:\n  push:\njobs:\n  a:\n    steps:\n      - uses: actions/checkout@v4.2.2\n      \
        - run: rustup toolchain install 1.88\n      - run: cargo xtask a --b\n";

    fn findings(workflow: &str, script: &str) -> Vec<String> {
        let files = [(".github/workflows/ci.yml", workflow), (".ci/run", script)];
        check(&Tree::planted(&files)).into_iter().map(|f| f.what).collect()
    }

    #[test]
    fn a_job_with_a_command_of_the_script_passes() {
        assert_eq!(findings(JOB, "check a cargo xtask a --b\n"), Vec::<String>::new());
        assert_eq!(findings(JOB, "cargo xtask a --b --c | tee x\n"), Vec::<String>::new());
        let whole = JOB.replace("cargo xtask a --b", "bash .ci/run");
        assert_eq!(findings(&whole, ""), Vec::<String>::new());
    }

    #[test]
    fn planted_violations_are_found() {
        let other = ["", "cargo xtask a\n", "cargo xtask a --bc\n", "# cargo xtask a --b\n"];
        for script in other {
            assert_eq!(findings(JOB, script).len(), 1, "{script}");
        }
        let script = "cargo xtask a --b\n";
        for action in ["checkout@v4", "checkout@main", "checkout", "checkout@v4.2"] {
            let moving = JOB.replace("checkout@v4.2.2", action);
            assert_eq!(findings(&moving, script).len(), 1, "{action}");
        }
        let two = format!("{JOB}      - run: cargo xtask a --b\n");
        assert_eq!(findings(&two, script), ["job a has 2 commands, and needs one"]);
        let none = JOB.replace("      - run: cargo xtask a --b\n", "  b:\n    steps:\n");
        assert_eq!(findings(&none, script).len(), 2);
        let lines = JOB.replace("cargo xtask a --b", "|");
        assert_eq!(findings(&lines, script), ["`|`: .ci/run does not run it"]);
    }
}
