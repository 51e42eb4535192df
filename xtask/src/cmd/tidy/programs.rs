//! The tests that run: functions with `#[test]` in files that a program of tests is compiled from, and functions of pytest;
//! each with what may keep it from showing anything.
//!
//! A program of tests is made of a root (`src/lib.rs`, `src/main.rs`, `src/bin/*.rs`, `tests/*.rs` of a member of the workspace
//! or of [`PROJECTS`]) and of the modules that it declares. A file without a declaration is not compiled.

use super::items::{Function, Items, Module};
use crate::cmd;
use crate::tree::{Crate, Tree};
use std::collections::{BTreeMap, BTreeSet};

/// The one program of tests that is built with `--cfg loom`, by a step of `test-sim`.
const LOOM: &str = "hmc-mem/tests/loom.rs";

/// The projects outside the workspace whose tests run: those of the first by `cargo xtask nostd`, against the package of hmc-core,
/// those of the second by a step of `cargo xtask test-sim`.
const PROJECTS: [&str; 2] = ["examples/embedded", "examples/own_transport"];

/// Where the helpers of tests are that crates share.
const SHARED: [&str; 2] = ["tests/src/", "hmc-conformance/src/"];

/// Macros that fail a test.
const MACROS: [&str; 9] = [
    "assert",
    "assert_eq",
    "assert_ne",
    "panic",
    "unreachable",
    "prop_assert",
    "prop_assert_eq",
    "prop_assert_ne",
    "debug_assert",
];

/// Methods that fail a test that calls them itself.
const METHODS: [&str; 4] = ["unwrap", "expect", "unwrap_err", "expect_err"];

/// What keeps a test from showing anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Flaw {
    /// It is ignored, and no command of ours runs it.
    Ignored,
    /// Nothing in it can fail.
    Hollow,
}

impl Flaw {
    /// The rest of a sentence about the test.
    pub(super) const fn words(self) -> &'static str {
        match self {
            Self::Ignored => "is ignored, and no command runs it",
            Self::Hollow => "asserts nothing",
        }
    }
}

/// The tests of a file: its path without the ending, and their names.
pub(super) type Tests = Vec<(String, BTreeMap<String, Option<Flaw>>)>;

/// All tests of the project.
pub(super) fn tests(tree: &Tree) -> Tests {
    let mut out = Tests::new();
    for loom in [false, true] {
        let files = compiled(tree, loom);
        for (path, items) in &files {
            let mut names: BTreeMap<String, Option<Flaw>> = BTreeMap::new();
            for test in items.functions.iter().filter(|f| f.is_test) {
                names.insert(test.name.clone(), flaw(path, test, items, &files));
            }
            if let Some(path) = path.strip_suffix(".rs").filter(|_| !names.is_empty()) {
                out.push((path.to_owned(), names));
            }
        }
    }
    out.extend(pytest(tree));
    out
}

/// The files that programs of tests are compiled from.
fn compiled(tree: &Tree, loom: bool) -> BTreeMap<String, Items> {
    let mut files: BTreeMap<String, Items> = BTreeMap::new();
    let mut left = roots(tree, loom);
    let mut seen = BTreeSet::new();
    while let Some((path, folder)) = left.pop() {
        let Some(file) = tree.file(&path) else { continue };
        // The same file may be a module at two places.
        if !seen.insert((path.clone(), folder.clone())) {
            continue;
        }
        let items = files.entry(path.clone()).or_insert_with(|| Items::of(&file.text, loom));
        for module in &items.modules {
            left.extend(homes(&path, &folder, module));
        }
    }
    files
}

/// Where a module may lie, and the folder of its own modules.
fn homes(path: &str, folder: &str, module: &Module) -> Vec<(String, String)> {
    let parent = |path: &str| path.rsplit_once('/').map_or("", |(folder, _)| folder).to_owned();
    if let Some(file) = &module.file {
        let home = join(&parent(path), file);
        // A file that is named by its path has its modules beside it.
        return vec![(home.clone(), parent(&home))];
    }
    let inside = join(folder, &module.path.join("/"));
    vec![(format!("{inside}.rs"), inside.clone()), (format!("{inside}/mod.rs"), inside)]
}

/// `path` seen from `folder`, without `.` and `..`.
fn join(folder: &str, path: &str) -> String {
    let mut parts: Vec<&str> = folder.split('/').filter(|p| !p.is_empty()).collect();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            name => parts.push(name),
        }
    }
    parts.join("/")
}

/// The roots of all programs of tests, each with the folder of its modules.
fn roots(tree: &Tree, loom: bool) -> Vec<(String, String)> {
    let folder = |path: &str| path.rsplit_once('/').map_or("", |(folder, _)| folder).to_owned();
    if loom {
        return vec![(LOOM.to_owned(), folder(LOOM))];
    }
    let crates = tree.crates();
    let members = members(tree);
    let mut out = Vec::new();
    for of in
        crates.iter().filter(|c| members.contains(&c.folder) || PROJECTS.contains(&&*c.folder))
    {
        for file in of.rust(tree, &crates) {
            if is_root(of, &file.path) {
                out.push((file.path.clone(), folder(&file.path)));
            }
        }
    }
    out
}

/// Whether a file of a crate is the root of a program that `cargo test` runs.
fn is_root(of: &Crate, path: &str) -> bool {
    let inside = format!("{}/", of.folder);
    let Some(path) = path.strip_prefix(&inside) else { return false };
    let is_off = |section: &str| of.manifest.get(section, "test") == Some("false");
    if path == of.manifest.get("lib", "path").unwrap_or("src/lib.rs") {
        return !is_off("lib");
    }
    if path == of.manifest.get("bin", "path").unwrap_or("src/main.rs") {
        return !is_off("bin");
    }
    let one_below = |folder: &str| {
        path.strip_prefix(folder).is_some_and(|name| match name.split_once('/') {
            None => name.ends_with(".rs"),
            Some((_, rest)) => rest == "main.rs",
        })
    };
    let automatic = |key: &str| of.manifest.get("package", key) != Some("false");
    one_below("src/bin/") && automatic("autobins") || one_below("tests/") && automatic("autotests")
}

/// The folders of the workspace's members.
fn members(tree: &Tree) -> BTreeSet<String> {
    let text = tree.file("Cargo.toml").map_or("", |f| f.text.as_str());
    let line = text.lines().find_map(|line| line.strip_prefix("members = ")).unwrap_or_default();
    line.split('"').skip(1).step_by(2).map(str::to_owned).collect()
}

fn flaw(
    path: &str,
    test: &Function,
    items: &Items,
    files: &BTreeMap<String, Items>,
) -> Option<Flaw> {
    if test.ignored.as_ref().is_some_and(|reason| !is_run(path, reason)) {
        return Some(Flaw::Ignored);
    }
    let body = items.words(&test.body);
    let asserts = test.panics
        || fails(&body)
        || body.windows(3).any(|w| matches!(w, [".", name, "("] if METHODS.contains(name)))
        || reaches(path, &body, items, files);
    (!asserts).then_some(Flaw::Hollow)
}

/// Whether the command that the reason of an `#[ignore]` names runs the ignored tests of that file.
fn is_run(path: &str, reason: &str) -> bool {
    let name = path.rsplit('/').next().and_then(|n| n.strip_suffix(".rs")).unwrap_or_default();
    let says = |command: &str| reason.contains(command);
    says("cargo xtask test-hw") && path.starts_with("tests/tests/") && cmd::test_hw::runs(name)
        || says("cargo xtask explore")
            && path.starts_with("hmc-core/tests/")
            && cmd::explore::PROGRAMS.contains(&name)
}

/// Whether a body has a macro that can fail. `assert!(true)` cannot.
fn fails(body: &[&str]) -> bool {
    body.windows(5).any(|w| {
        matches!(w, [name, "!", "(", first, next]
            if MACROS.contains(name) && !(*first == "true" && matches!(*next, ")" | ",")))
    }) || matches!(body, [.., name, "!", "(", ")"] if MACROS.contains(name))
}

/// Whether a body calls, however indirectly, a helper that can fail: one of the same file, of the same tests, or of those
/// that crates share.
fn reaches(path: &str, body: &[&str], items: &Items, files: &BTreeMap<String, Items>) -> bool {
    let folder = path.split_once("/tests/").map(|(of, _)| format!("{of}/tests/"));
    let is_helper = |other: &str| {
        folder.as_ref().is_some_and(|folder| other.starts_with(folder))
            || SHARED.iter().any(|shared| other.starts_with(shared))
    };
    let helpers: Vec<&Items> =
        files.iter().filter(|(other, _)| is_helper(other)).map(|(_, items)| items).collect();
    let mut known: BTreeSet<String> = BTreeSet::new();
    let mut left: Vec<String> = called(body);
    while let Some(name) = left.pop() {
        if !known.insert(name.clone()) {
            continue;
        }
        let here = items.functions.iter().filter(|f| f.name == name).map(|f| (items, f));
        let mut found: Vec<(&Items, &Function)> = here.collect();
        if found.is_empty() {
            let there = helpers
                .iter()
                .flat_map(|items| items.functions.iter().map(move |function| (*items, function)));
            found = there.filter(|(_, function)| function.name == name).collect();
        }
        for (items, function) in found {
            let body = items.words(&function.body);
            if fails(&body) {
                return true;
            }
            left.extend(called(&body));
        }
    }
    false
}

/// The names of what a body may call: `name(..)`, `name!(..)`, `name::<..>(..)`, and a name that is passed on.
fn called(body: &[&str]) -> Vec<String> {
    let names = body.windows(2).filter_map(|w| match w {
        [name, "(" | "!" | ":" | "," | ")"] => Some((*name).to_owned()),
        _ => None,
    });
    names.collect()
}

/// Tests of the Python package: `def test_..` of a file `test_..`, without a mark that skips them always.
fn pytest(tree: &Tree) -> Tests {
    let is_test = |path: &str| {
        path.rsplit_once('/')
            .is_some_and(|(folder, name)| folder == "hmc-py/tests" && name.starts_with("test_"))
    };
    let shared = tree.file("hmc-py/tests/conftest.py").map_or("", |f| f.text.as_str());
    let shared = definitions(shared);
    let mut out = Tests::new();
    for file in tree.ending(".py").filter(|f| is_test(&f.path)) {
        let own = definitions(&file.text);
        let mut names = BTreeMap::new();
        for (name, body) in own.iter().filter(|(name, _)| name.starts_with("test_")) {
            let helper = own.iter().chain(&shared).any(|(helper, text)| {
                helper != name && body.contains(&format!("{helper}(")) && is_negative(text)
            });
            let flaw = if body.starts_with("@pytest.mark.skip(") {
                Some(Flaw::Ignored)
            } else {
                (!helper && !is_negative(body)).then_some(Flaw::Hollow)
            };
            names.insert(name.clone(), flaw);
        }
        out.extend(file.path.strip_suffix(".py").map(|path| (path.to_owned(), names)));
    }
    out
}

/// Whether a function of Python can fail a test.
fn is_negative(text: &str) -> bool {
    ["assert ", "raises(", "raise ", "pytest.fail("].iter().any(|word| text.contains(word))
}

/// The functions of a file, and the text of each: a mark that skips it, and the lines of its body without comments.
fn definitions(text: &str) -> Vec<(String, String)> {
    /// A function: its name, its text, and how far it is indented while it is open.
    type Open = (String, String, Option<usize>);
    let mut out: Vec<Open> = Vec::new();
    let mut mark = String::new();
    let mut quoted = false;
    for line in text.lines() {
        let code = line.trim_start();
        let depth = line.len().saturating_sub(code.len());
        let inside = quoted;
        quoted ^= code.matches("\"\"\"").count() % 2 == 1;
        if !inside && (code.is_empty() || code.starts_with('#')) {
            continue;
        }
        if !inside && !code.starts_with(')') {
            // What stands as far left as a definition ends it.
            for (_, _, open) in &mut out {
                *open = open.filter(|own| depth > *own);
            }
        }
        if !inside && code.starts_with("@pytest.mark.skip(") {
            code.clone_into(&mut mark);
        }
        for (_, body, _) in out.iter_mut().filter(|(_, _, open)| open.is_some()) {
            body.push_str(code);
            body.push('\n');
        }
        let code = code.strip_prefix("async ").unwrap_or(code);
        if let Some(rest) = code.strip_prefix("def ").filter(|_| !inside) {
            let name = rest.split('(').next().unwrap_or_default().to_owned();
            out.push((name, std::mem::take(&mut mark), Some(depth)));
        }
    }
    out.into_iter().map(|(name, body, _)| (name, body)).collect()
}

#[cfg(test)]
mod tests_of_programs {
    use super::{Flaw, tests};
    use crate::tree::Tree;

    const MANIFEST: &str = "[workspace]\nmembers = [\"a\", \"hmc-core\", \"tests\"]\n";

    /// What is known of the test `t` of `files`; `None`: it is in no program of tests.
    fn known(files: &[(&str, &str)]) -> Option<Option<Flaw>> {
        let fixed = [
            ("Cargo.toml", MANIFEST),
            ("a/Cargo.toml", "[package]\nname = \"a\"\n"),
            ("b/Cargo.toml", "[package]\nname = \"b\"\n"),
            ("examples/embedded/Cargo.toml", "[package]\nname = \"embedded\"\n"),
            ("hmc-core/Cargo.toml", "[package]\nname = \"hmc-core\"\n"),
            ("tests/Cargo.toml", "[package]\nname = \"hmc-tests\"\n"),
        ];
        let tree = Tree::planted(&[&fixed[..], files].concat());
        tests(&tree).into_iter().find_map(|(_, names)| names.get("t").copied())
    }

    const TEST: &str = "#[test]\nfn t() { assert_eq!(a(), 1); }\n";

    #[test]
    fn a_test_counts_where_a_program_is_compiled_from_its_file() {
        for (files, is_compiled) in [
            (&[("a/tests/x.rs", TEST)][..], true),
            (&[("a/tests/x/main.rs", TEST)], true),
            (&[("a/src/lib.rs", TEST)], true),
            (&[("a/src/bin/x.rs", TEST)], true),
            (&[("a/src/lib.rs", "mod x;"), ("a/src/x.rs", TEST)], true),
            (&[("a/src/lib.rs", "mod x;"), ("a/src/x/mod.rs", TEST)], true),
            (&[("a/src/lib.rs", "mod x;"), ("a/src/x.rs", "mod y;"), ("a/src/x/y.rs", TEST)], true),
            (&[("a/tests/x.rs", "mod y;"), ("a/tests/y/mod.rs", TEST)], true),
            (&[("a/tests/x.rs", "#[path = \"z/q.rs\"] mod y;"), ("a/tests/z/q.rs", TEST)], true),
            (&[("a/src/lib.rs", ""), ("a/src/x.rs", TEST)], false),
            (&[("a/src/lib.rs", "#[cfg(x)]\nmod x;"), ("a/src/x.rs", TEST)], false),
            (&[("a/src/lib.rs", "// mod x;"), ("a/src/x.rs", TEST)], false),
            (&[("a/tests/deep/x.rs", TEST)], false),
            (&[("a/benches/x.rs", TEST)], false),
            (&[("b/src/lib.rs", TEST)], false),
            (&[("examples/embedded/src/lib.rs", TEST)], true),
            (&[("hmc-mem/tests/loom.rs", TEST)], true),
        ] {
            assert_eq!(known(files), is_compiled.then_some(None), "{files:?}");
        }
    }

    #[test]
    fn a_crate_whose_tests_are_off_has_none() {
        let off = "[package]\nname = \"a\"\nautotests = false\n[lib]\ntest = false\n";
        let tree = |path: &str| {
            let files = [("Cargo.toml", MANIFEST), ("a/Cargo.toml", off), (path, TEST)];
            tests(&Tree::planted(&files))
        };
        assert_eq!(tree("a/src/lib.rs"), []);
        assert_eq!(tree("a/tests/x.rs"), []);
        assert_eq!(tree("a/src/main.rs").len(), 1);
    }

    #[test]
    fn an_ignored_test_needs_a_command_that_runs_it() {
        let of = |path, reason: &str| {
            let text = format!("#[test]\n#[ignore{reason}]\nfn t() {{ assert!(a()); }}");
            known(&[(path, text.as_str())])
        };
        let hw = " = \"needs UCX: cargo xtask test-hw\"";
        assert_eq!(of("tests/tests/ucx_lanes.rs", hw), Some(None));
        assert_eq!(of("tests/tests/messages.rs", hw), Some(None));
        let explore = " = \"minutes: `cargo xtask explore`\"";
        assert_eq!(of("hmc-core/tests/explore_windows.rs", explore), Some(None));
        for (path, reason) in [
            ("tests/tests/ucx_lanes.rs", ""),
            ("tests/tests/ucx_lanes.rs", " = \"by hand\""),
            ("tests/tests/other.rs", hw),
            ("a/tests/ucx_lanes.rs", hw),
            ("hmc-core/tests/other.rs", explore),
        ] {
            assert_eq!(of(path, reason), Some(Some(Flaw::Ignored)), "{path} {reason}");
        }
    }

    #[test]
    fn a_test_in_which_nothing_can_fail_is_hollow() {
        for (text, is_hollow) in [
            ("fn t() {}", true),
            ("fn t() { let a = b(); c.d(); }", true),
            ("fn t() { assert!(true); }", true),
            ("fn t() { assert!(true, \"x\"); }", true),
            ("fn t() { println!(\"assert_eq!(1, 2)\"); }", true),
            ("fn t() { a(); }\nfn a() { b(); }\nfn b() { a(); }", true),
            ("fn t() { a(); }\nmod x { fn b() { panic!() } }", true),
            ("fn t() { assert!(a()); }", false),
            ("fn t() { if a() { panic!() } }", false),
            ("fn t() { a().unwrap(); }", false),
            ("fn t() { a(|x| prop_assert_eq!(x, 1)); }", false),
            ("fn t() { a(); }\nfn a() { b(1); }\nfn b(x: u8) { assert_eq!(x, 2); }", false),
            ("fn t() { run(1, a); }\nfn a() { assert_eq!(x, 2); }", false),
        ] {
            let text = format!("#[test]\n{text}\n");
            let want = is_hollow.then_some(Flaw::Hollow);
            assert_eq!(known(&[("a/tests/x.rs", &text)]), Some(want), "{text}");
        }
        let panics = "#[test]\n#[should_panic]\nfn t() { a(); }";
        assert_eq!(known(&[("a/tests/x.rs", panics)]), Some(None));
    }

    #[test]
    fn helpers_of_the_same_tests_and_shared_ones_count() {
        let test = ("a/tests/x.rs", "mod common;\n#[test]\nfn t() { help(); }\n");
        let help = "pub fn help() { assert!(a()); }";
        assert_eq!(known(&[test, ("a/tests/common/mod.rs", help)]), Some(None));
        let shared = [test, ("tests/src/lib.rs", "mod y;"), ("tests/src/y.rs", help)];
        assert_eq!(known(&shared), Some(None));
        // The code that is tested is no helper: its assertions are not about the test.
        let code = [test, ("a/src/lib.rs", help)];
        assert_eq!(known(&code), Some(Some(Flaw::Hollow)));
    }

    #[test]
    fn tests_of_python_are_checked_alike() {
        let of = |path: &str, text: &str| {
            let conftest =
                ("hmc-py/tests/conftest.py", "def run():\n    assert 1\ndef idle():\n    x = 1\n");
            let tree = Tree::planted(&[(path, text), conftest]);
            tests(&tree).into_iter().find_map(|(_, names)| names.get("test_t").copied())
        };
        let home = "hmc-py/tests/test_x.py";
        for (text, want) in [
            ("def test_t(a):\n    assert a\n", Some(None)),
            ("def test_t():\n    with pytest.raises(E):\n        f()\n", Some(None)),
            ("def test_t():\n    run()\n", Some(None)),
            ("def test_t():\n    own()\ndef own():\n    assert f()\n", Some(None)),
            ("def test_t():\n    pass\ndef test_b():\n    assert f()\n", Some(Some(Flaw::Hollow))),
            ("def test_t():\n    idle()\n    # assert f()\n", Some(Some(Flaw::Hollow))),
            ("def test_t():\n    run(\"\"\"\nx = 1\n\"\"\", 2)\n", Some(None)),
            (
                "@pytest.mark.skip(\"x\")\ndef test_t():\n    assert f()\n",
                Some(Some(Flaw::Ignored)),
            ),
        ] {
            assert_eq!(of(home, text), want, "{text}");
        }
        assert_eq!(of("hmc-py/tests/other.py", "def test_t():\n    assert 1\n"), None);
        assert_eq!(of("hmc-py/test_x.py", "def test_t():\n    assert 1\n"), None);
    }
}
