//! What a process has once, whatever its sessions: exactly what invariant 8 of ARCHITECTURE.md lists.

use super::finding::Finding;
use crate::source::Source;
use crate::tree::Tree;

/// Crates that applications link.
const LIBRARIES: [&str; 5] =
    ["hmc-core/src/", "hmc-mem/src/", "hmc-hw/src/", "hmc-std/src/", "hmc-py/src/"];

/// Where there is some, and what it is.
const KNOWN: [(&str, &str, &str); 23] = [
    ("hmc-hw/src/ucx/library.rs", "LOADED", "a vendor's library, once it is loaded"),
    ("hmc-hw/src/ucx/log.rs", "SINK", "the hook for UCX's messages"),
    ("hmc-hw/src/opencl/library.rs", "LOADED", "a vendor's library, once it is loaded"),
    ("hmc-hw/src/opencl/tests/faults.rs", "", "a thread's own script, in tests alone"),
    ("hmc-hw/src/verbs/library.rs", "LOADED", "a vendor's library, once it is loaded"),
    ("hmc-mem/src/copy/x86_64/cpu.rs", "CACHE", "what the processor can do"),
    ("hmc-mem/src/crc.rs", "SHIFT", "a table of numbers"),
    ("hmc-mem/src/os/fork.rs", "", "the handler of forks, and what it reserves in a child"),
    ("hmc-py/src/data.rs", "DEFERRED", "objects that were released without the interpreter's lock"),
    ("hmc-py/src/dlpack/import.rs", "NEWEST", "an object of the interpreter, made once"),
    ("hmc-py/src/errors.rs", "MODULE", "a module of the interpreter"),
    ("hmc-py/src/errors.rs", "RAISED", "a thread's own exception"),
    ("hmc-py/src/lazy.rs", "PLAIN_ARRAY", "a class of the interpreter"),
    ("hmc-py/src/lazy.rs", "PLAIN", "what torch said last of a plain tensor"),
    (
        "hmc-std/src/callbacks/deferred_drops.rs",
        "DEFERRED",
        "what a thread hands over at the end of its turn",
    ),
    ("hmc-std/src/base/clock.rs", "", "a thread's own time, in tests alone"),
    ("hmc-std/src/base/identity.rs", "GENERATIONS", "the counters that names are drawn from"),
    ("hmc-std/src/base/identity.rs", "NEXT", "the counters that names are drawn from"),
    ("hmc-std/src/quarantine/mod.rs", "QUARANTINE", "memory that is not fenced yet"),
    ("hmc-std/src/quarantine/mod.rs", "LOOKS", "a test's own"),
    ("hmc-std/src/quarantine/park.rs", "LOOKS", "a test's own"),
    ("hmc-std/src/transport/stream/send.rs", "ZEROS", "zeros"),
    ("hmc-std/src/base/wait_limit.rs", "ASKED", "a test's own"),
];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut out = Vec::new();
    for file in tree.rust().filter(|f| LIBRARIES.iter().any(|l| f.path.starts_with(l))) {
        for (line, number) in Source::split(&file.text).lines.iter().zip(1_usize..) {
            let Some(name) = declared(&line.code) else { continue };
            let is_known =
                |k: &&(&str, &str, &str)| k.0 == file.path && (k.1 == name || k.1.is_empty());
            if KNOWN.iter().find(is_known).is_none() {
                let what = format!(
                    "`{name}` is state of the whole process: move it into a session, or list it here (xtask/src/cmd/tidy/state.rs) \
                     and in invariant 8 of ARCHITECTURE.md"
                );
                out.push(Finding::new(&file.path, number, what));
            }
        }
    }
    out
}

/// The static that a line declares.
fn declared(code: &str) -> Option<&str> {
    let code = code.trim_start();
    let code = ["pub ", "pub(crate) ", "pub(super) "]
        .iter()
        .find_map(|p| code.strip_prefix(p))
        .unwrap_or(code);
    let rest = code.strip_prefix("static ")?;
    let rest = rest.strip_prefix("mut ").unwrap_or(rest);
    rest.split(|c: char| !c.is_alphanumeric() && c != '_').next()
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::tree::Tree;

    fn findings(path: &str, text: &str) -> usize {
        check(&Tree::planted(&[(path, text)])).len()
    }

    #[test]
    fn what_is_listed_passes_and_so_do_lifetimes_and_other_crates() {
        assert_eq!(findings("hmc-std/src/quarantine/mod.rs", "static QUARANTINE: u8 = 0;"), 0);
        assert_eq!(findings("hmc-std/src/a.rs", "fn f(x: &'static str) -> &'static str { x }"), 0);
        assert_eq!(findings("hmc-std/src/a.rs", "// static A: u8 = 0;"), 0);
        assert_eq!(findings("tests/src/a.rs", "static A: u8 = 0;"), 0);
    }

    #[test]
    fn planted_violations_are_found() {
        assert_eq!(findings("hmc-std/src/a.rs", "    static A: Mutex<u8> = Mutex::new(0);"), 1);
        assert_eq!(findings("hmc-mem/src/a.rs", "pub(crate) static A: AtomicU8 = X;"), 1);
        assert_eq!(findings("hmc-std/src/quarantine/mod.rs", "static OTHER: u8 = 0;"), 1);
        assert_eq!(findings("hmc-py/src/a.rs", "static mut A: u8 = 0;"), 1);
    }
}
