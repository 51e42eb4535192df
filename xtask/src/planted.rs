//! Bugs that are planted on purpose, to prove that the simulated world and the attacks find bugs.
//!
//! Each is a patch in `xtask/mutants`. The tree holds none of them: they are applied, all together, to a copy of the workspace under
//! `target/planted/tree`, where `hmc_core::mutant` switches one on at run time. A patch that does not apply, or whose mutant is not
//! in the program that was built, is an error.

mod patch;
mod weave;

pub(crate) use patch::{Patch, Shown};
pub(crate) use weave::weave;

use crate::copy::TreeCopy;
use crate::shell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where the patches lie.
pub(crate) const FOLDER: &str = "xtask/mutants";

/// The module that says which mutant is on, without the list of them, and where it goes.
const SWITCH: (&str, &str) = ("hmc-core/src/mutant.rs", include_str!("planted/switch.txt"));

/// The crate root that gets it.
const ROOT: &str = "hmc-core/src/lib.rs";

/// What cargo does in the copy. Lints are no errors there: what is added need not be in our style.
const CONFIGURATION: &str =
    "[build]\nrustflags = [\"--cap-lints=warn\", \"--cfg\", \"hmc_mutants\"]\n";

/// The workspace with all mutants in it.
pub(crate) struct Planted {
    copy: TreeCopy,
    patches: Vec<Patch>,
}

impl Planted {
    /// Copies the tree at `root`, and applies all patches.
    ///
    /// # Errors
    /// Words: which patch does not apply, and where.
    pub(crate) fn new(root: &Path) -> Result<Self, String> {
        let patches = read(root)?;
        let mut texts = BTreeMap::new();
        for path in patches.iter().flat_map(Patch::files).chain([ROOT]) {
            // One that is not there is named with the patch that wants it.
            if let Ok(text) = std::fs::read_to_string(root.join(path)) {
                texts.insert(path, text);
            }
        }
        let text = |path: &str| texts.get(path).map(String::as_str);
        let mut changed = weave(&patches, text).map_err(|wrong| wrong.join("\n"))?;
        let lib = changed
            .entry(ROOT.to_owned())
            .or_insert_with(|| text(ROOT).unwrap_or_default().to_owned());
        lib.push_str("\npub mod mutant;\n");
        changed.insert(SWITCH.0.to_owned(), format!("{}\n{}", SWITCH.1, list(&patches)));
        let copy = TreeCopy::new(root, &root.join("target/planted"), CONFIGURATION)?;
        copy.bring(|path| changed.contains_key(path))?;
        for (path, text) in &changed {
            copy.write(path, text)?;
        }
        Ok(Self { copy, patches })
    }

    /// A cargo in the copy.
    pub(crate) fn cargo(&self) -> Command {
        self.copy.cargo()
    }

    /// Builds programs of a package, and looks whether each mutant that `shown` picks is in the first of them. Where that is.
    ///
    /// # Errors
    /// Words.
    pub(crate) fn build(
        &self,
        package: &str,
        programs: &[&str],
        shown: impl Fn(Shown) -> bool,
    ) -> Result<PathBuf, String> {
        let mut command = self.cargo();
        let program =
            shell::built(command.args(["build", "--profile", "proofs"]), package, programs)?;
        let bytes = std::fs::read(&program).map_err(|e| format!("{}: {e}", program.display()))?;
        check_built(&bytes, self.patches.iter().filter(|p| shown(p.shown)))
            .map_err(|why| format!("{}: {why}", program.display()))?;
        Ok(program)
    }
}

/// Reads all patches, in the order of their names.
///
/// # Errors
/// Which is wrong, and why.
fn read(root: &Path) -> Result<Vec<Patch>, String> {
    let folder = root.join(FOLDER);
    let entries = std::fs::read_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let mut patches = Vec::new();
    for entry in entries.flatten() {
        let path = entry.path();
        if path.extension().is_some_and(|end| end == "patch") {
            let text =
                std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let patch =
                Patch::parse(&name, &text).map_err(|why| format!("{}: {why}", path.display()))?;
            patches.push(patch);
        }
    }
    patches.sort_by(|a, b| a.name.cmp(&b.name));
    if patches.is_empty() { Err(format!("{}: no patch", folder.display())) } else { Ok(patches) }
}

/// Whether each of the mutants is in a program: where one is asked for, its mark is part of the code.
fn check_built<'p>(program: &[u8], patches: impl Iterator<Item = &'p Patch>) -> Result<(), String> {
    let is_built = |patch: &&Patch| {
        let mark = format!("hmc-mutant:{};", patch.name);
        !program.windows(mark.len()).any(|bytes| bytes == mark.as_bytes())
    };
    let missing: Vec<&str> = patches.filter(is_built).map(|p| p.name.as_str()).collect();
    match missing.as_slice() {
        [] => Ok(()),
        names => Err(format!("these mutants are not built: {}", names.join(" "))),
    }
}

/// The list of mutants, as the switch wants it.
fn list(patches: &[Patch]) -> String {
    let rows = |wanted: fn(Shown) -> bool| {
        let rows = patches.iter().zip(1_usize..).filter(|(patch, _)| wanted(patch.shown));
        rows.map(|(patch, number)| patch.row(number)).collect::<String>()
    };
    format!(
        "mutants! {{\n    simulated {{\n{}    }}\n    attacked {{\n{}    }}\n}}\n",
        rows(|shown| shown != Shown::Attack),
        rows(|shown| shown == Shown::Attack)
    )
}

#[cfg(test)]
mod tests {
    use super::{FOLDER, Patch, Planted, check_built};
    use crate::copy::update;
    use std::path::PathBuf;

    const PATCH: &str = "A call is left out.\n\nClass: loss\nShown by: simulation\n\n--- a/hmc-core/src/x.rs\n\
                         +++ b/hmc-core/src/x.rs\n@@ -1,3 +1,6 @@\n pub fn f() -> u32 {\n+    if crate::mutant!(Lost) {\n\
                         +        return 0;\n+    }\n     7\n }\n";

    const PROGRAM: &str = "fn main() {\n    let mutant = std::env::args().nth(1);\n    #[cfg(hmc_mutants)]\n    \
                           hmc_core::mutant::activate(mutant.as_deref().and_then(hmc_core::mutant::named));\n    \
                           println!(\"{} {}\", hmc_core::x::f(), mutant.is_some());\n}\n";

    /// A workspace with a core and a program.
    struct Fixture(PathBuf);

    impl Fixture {
        fn new(name: &str, patch: &str, program: &str) -> Self {
            let root =
                std::env::temp_dir().join(format!("hmc-planted-{name}-{}", std::process::id()));
            let _ = std::fs::remove_dir_all(&root);
            let package = |name: &str, rest: &str| {
                format!(
                    "[package]\nname = \"{name}\"\nversion = \"0.1.0\"\nedition = \"2024\"\n{rest}"
                )
            };
            let files = [
                (
                    "Cargo.toml",
                    "[workspace]\nresolver = \"3\"\nmembers = [\"hmc-core\", \"p\"]\n[profile.proofs]\ninherits = \"dev\"\n"
                        .to_owned(),
                ),
                ("hmc-core/Cargo.toml", package("hmc-core", "")),
                ("hmc-core/src/lib.rs", "#![no_std]\npub mod x;\n".to_owned()),
                ("hmc-core/src/x.rs", "pub fn f() -> u32 {\n    7\n}\n".to_owned()),
                ("p/Cargo.toml", package("p", "[dependencies]\nhmc-core = { path = \"../hmc-core\" }\n")),
                ("p/src/main.rs", program.to_owned()),
                (&format!("{FOLDER}/Lost.patch"), patch.to_owned()),
            ];
            for (path, text) in files {
                update(&root.join(path), text.as_bytes()).unwrap();
            }
            Self(root)
        }

        fn build(&self) -> Result<PathBuf, String> {
            Planted::new(&self.0)?.build("p", &["p"], |_| true)
        }
    }

    impl Drop for Fixture {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn one_build_has_the_mutant_and_is_sound_without_it() {
        let fixture = Fixture::new("good", PATCH, PROGRAM);
        let program = fixture.build().unwrap();
        let said = |arguments: &[&str]| {
            let out = std::process::Command::new(&program).args(arguments).output().unwrap();
            String::from_utf8(out.stdout).unwrap()
        };
        assert_eq!(said(&[]), "7 false\n");
        assert_eq!(said(&["Lost"]), "0 true\n");
        let there = std::fs::read_to_string(fixture.0.join("hmc-core/src/x.rs")).unwrap();
        assert!(!there.contains("mutant"), "the tree itself is never changed");
    }

    #[test]
    fn a_patch_that_does_not_apply_fails_before_anything_is_built() {
        let why = Fixture::new("stale", &PATCH.replace("     7\n", "     8\n"), PROGRAM)
            .build()
            .unwrap_err();
        assert_eq!(
            why,
            "Lost: hunk 1 of hmc-core/src/x.rs does not apply: its lines are not there"
        );
        let why =
            Fixture::new("nowhere", &PATCH.replace("/x.rs", "/z.rs"), PROGRAM).build().unwrap_err();
        assert_eq!(why, "Lost: hmc-core/src/z.rs is not there");
        let why =
            Fixture::new("other", &PATCH.replace("(Lost)", "(Last)"), PROGRAM).build().unwrap_err();
        assert!(why.contains("Lost.patch: asks for the switch of another"), "{why}");
    }

    #[test]
    fn a_mutant_that_is_not_in_the_program_fails() {
        // It applies to code that this build leaves out.
        let absent = PATCH
            .replace("+    if crate", "+    #[cfg(windows)]\n+    if crate")
            .replace("+1,6", "+1,7");
        let why = Fixture::new("absent", &absent, PROGRAM).build().unwrap_err();
        assert!(why.ends_with("these mutants are not built: Lost"), "{why}");
        let patch = Patch::parse("Lost", PATCH).unwrap();
        assert!(check_built(b"..hmc-mutant:Lost;..", [&patch].into_iter()).is_ok());
        assert!(check_built(b"..hmc-mutant:LostToo;..", [&patch].into_iter()).is_err());
    }
}
