//! Words that code of this project does not use, and where some of them are allowed.

use super::finding::Finding;
use crate::source::Source;
use crate::tree::Tree;

/// A word and the paths (prefixes) where it may stand, with the reason.
struct Word {
    code: &'static str,
    why: &'static str,
    homes: &'static [&'static str],
}

/// Front ends and development crates, which print for a person; the suite prints its report.
const TALKERS: [&str; 7] =
    ["hmc-conformance/", "hmc-cli/", "tests/", "benches/", "examples/", "xtask/", "fuzz/"];

/// Where the environment is read: configuration, front ends, development; seeds and the knobs of
/// fakes that a test cannot pass otherwise.
const ENVIRONMENT: [&str; 11] = [
    "hmc-std/src/base/config.rs",
    "hmc-cli/",
    "tests/",
    "benches/",
    "xtask/",
    "examples/",
    "hmc-sim/tests/",
    "hmc-sim/src/vendor/",
    "fuzz/",
    "hmc-core/tests/bodies/",
    "hmc-mem/tests/",
];

const WORDS: [Word; 12] = [
    Word {
        code: "thread::sleep",
        why: "a sleep is no synchronisation: wait for the event",
        homes: &[],
    },
    Word { code: "todo!", why: "finish it or leave it out", homes: &[] },
    Word { code: "unimplemented!", why: "finish it or leave it out", homes: &[] },
    Word { code: "dbg!", why: "left over from a search", homes: &[] },
    Word { code: "println!", why: "a library never prints; use tracing", homes: &TALKERS },
    Word { code: "eprintln!", why: "a library never prints; use tracing", homes: &TALKERS },
    Word { code: "print!", why: "a library never prints; use tracing", homes: &TALKERS },
    Word { code: "eprint!", why: "a library never prints; use tracing", homes: &TALKERS },
    Word {
        code: "env::var",
        why: "the environment is read in hmc-std/src/base/config.rs and passed down",
        homes: &ENVIRONMENT,
    },
    Word {
        code: "env::var_os",
        why: "the environment is read in hmc-std/src/base/config.rs and passed down",
        homes: &ENVIRONMENT,
    },
    Word {
        code: "SystemTime",
        why: "the wall clock jumps: only the monotonic clock is compared",
        // It names lives and files, and says since when memory is held; nothing is ever compared with it.
        homes: &["hmc-std/src/base/clock.rs", "hmc-std/src/quarantine", "hmc-cli/"],
    },
    Word {
        code: "process::exit",
        why: "only a main function ends a process",
        // A second Ctrl-C ends the program although its main function waits.
        homes: &["hmc-cli/src/signal.rs"],
    },
];

/// Words that no comment holds: unfinished work belongs into an issue.
const NOTES: [&str; 3] = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut out = Vec::new();
    for file in tree.rust() {
        let source = Source::split(&file.text);
        for ((line, raw), number) in source.lines.iter().zip(file.text.lines()).zip(1_usize..) {
            if file.path.contains("tests/") && hides_a_skip(&line.code, raw) {
                out.push(Finding::new(
                    &file.path,
                    number,
                    "the harness keeps what a test prints that passes: say by `skipped` that it was not run, and it is counted",
                ));
            }
            for w in &WORDS {
                // Tests and examples of a library may print.
                let is_home = w.homes.iter().any(|h| file.path.starts_with(h))
                    || (w.code.ends_with("print!") || w.code.ends_with("println!"))
                        && (file.path.contains("/examples/") || file.path.contains("/tests/"))
                    || w.code == "process::exit" && file.path.ends_with("/main.rs");
                if !is_home && holds(&line.code, w.code) {
                    out.push(Finding::new(&file.path, number, format!("`{}`: {}", w.code, w.why)));
                }
            }
            for note in NOTES {
                if holds(&line.comment, note) {
                    out.push(Finding::new(
                        &file.path,
                        number,
                        format!("`{note}`: finish it or open an issue"),
                    ));
                }
            }
        }
    }
    out
}

/// Whether a line prints that something was skipped where nobody sees it.
fn hides_a_skip(code: &str, raw: &str) -> bool {
    let prints = ["println!", "eprintln!", "print!", "eprint!"].iter().any(|p| holds(code, p));
    prints && raw.to_ascii_lowercase().contains("skipped")
}

/// Whether the text holds the word with no further letter at either end.
fn holds(text: &str, word: &str) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(word).any(|(at, _)| {
        let before = text.get(..at).and_then(|t| t.chars().next_back());
        let after = text.get(at.saturating_add(word.len())..).and_then(|t| t.chars().next());
        !before.is_some_and(is_word) && !after.is_some_and(is_word)
    })
}

#[cfg(test)]
mod tests {
    use super::{NOTES, check};
    use crate::tree::Tree;

    fn findings(path: &str, text: &str) -> usize {
        check(&Tree::planted(&[(path, text)])).len()
    }

    #[test]
    fn planted_violations_are_found() {
        assert_eq!(findings("hmc-std/src/a.rs", "std::thread::sleep(d);"), 1);
        assert_eq!(findings("xtask/src/a.rs", "todo!();\nunimplemented!();\ndbg!(x);"), 3);
        assert_eq!(findings("hmc-mem/src/a.rs", "println!();\neprintln!();\neprint!();"), 3);
        assert_eq!(findings("hmc-std/src/a.rs", "std::env::var(\"A\");\nenv::var_os(\"B\");"), 2);
        assert_eq!(findings("hmc-std/src/a.rs", "let t = SystemTime::now();"), 1);
        assert_eq!(findings("hmc-cli/src/cmd.rs", "std::process::exit(1);"), 1);
        assert_eq!(findings("hmc-cli/src/cmd.rs", &format!("// {}: later", NOTES[0])), 1);
        assert_eq!(findings("hmc-mem/tests/a.rs", "println!(\"Skipped: {why}\");\nreturn;"), 1);
        assert_eq!(findings("tests/tests/a.rs", "    eprintln!(\"skipped\");"), 1);
    }

    #[test]
    fn homes_and_literals_are_left_alone() {
        assert_eq!(findings("hmc-std/src/base/config.rs", "std::env::var(\"A\");"), 0);
        assert_eq!(findings("hmc-cli/src/main.rs", "std::process::exit(1);\nprintln!();"), 0);
        assert_eq!(findings("hmc-mem/examples/speed.rs", "println!();"), 0);
        assert_eq!(findings("tests/tests/a.rs", "skipped(\"x\");\nprintln!(\"x\"); // no skip"), 0);
        assert_eq!(findings("hmc-std/src/a.rs", "f(\"todo!\"); // dbg! is a macro"), 0);
    }
}
