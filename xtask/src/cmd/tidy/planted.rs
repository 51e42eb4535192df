//! Planted bugs: each patch of one applies to the tree as it is, and the code of the libraries holds none.

use super::finding::Finding;
use crate::planted::{FOLDER, Patch, weave};
use crate::source::Source;
use crate::tree::{File, Tree};

/// The condition of code that only a build with planted bugs has.
const CONDITION: &str = "hmc_mutants";

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut out = Vec::new();
    let mut patches = Vec::new();
    for (file, name) in tree.ending(".patch").filter_map(|f| Some((f, name(f)?))) {
        match Patch::parse(name, &file.text) {
            Ok(patch) => patches.push(patch),
            Err(why) => out.push(Finding::new(&file.path, 0, why)),
        }
    }
    let text = |path: &str| tree.file(path).map(|f| f.text.as_str());
    if let Err(wrong) = weave(&patches, text) {
        out.extend(wrong.into_iter().map(|why| Finding::new(FOLDER, 0, why)));
    }
    for file in tree.rust().filter(|f| is_of_a_library(&f.path)) {
        for (line, number) in Source::split(&file.text).lines.iter().zip(1_usize..) {
            if line.code.contains(CONDITION) {
                let what = format!("`{CONDITION}`: a planted bug is a patch in {FOLDER}");
                out.push(Finding::new(&file.path, number, what));
            }
        }
    }
    out
}

/// The name of the mutant whose patch that is.
fn name(file: &File) -> Option<&str> {
    file.path.strip_prefix(FOLDER)?.strip_prefix('/')?.strip_suffix(".patch")
}

fn is_of_a_library(path: &str) -> bool {
    path.starts_with("hmc-") && path.split('/').nth(1) == Some("src")
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::tree::Tree;

    const PATCH: &str = "A call is left out.\n\nClass: loss\nShown by: test\n\n--- a/hmc-a/src/x.rs\n+++ b/hmc-a/src/x.rs\n\
                         @@ -1 +1,2 @@\n fn f() {}\n+mutant!(Lost);\n";

    fn found(patch: &str, code: &str) -> Vec<String> {
        let files = [("xtask/mutants/Lost.patch", patch), ("hmc-a/src/x.rs", code)];
        check(&Tree::planted(&files)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn patches_that_do_not_apply_are_found() {
        assert!(found(PATCH, "fn f() {}\n").is_empty());
        let stale = found(PATCH, "fn g() {}\n");
        assert!(
            stale.len() == 1 && stale[0].contains("Lost: hunk 1 of hmc-a/src/x.rs does not apply")
        );
        let broken = found(&PATCH.replace("Class", "Kind"), "fn f() {}\n");
        assert!(
            broken.len() == 1 && broken[0].starts_with("xtask/mutants/Lost.patch:0: "),
            "{broken:?}"
        );
    }

    #[test]
    fn bugs_in_the_code_of_a_library_are_found() {
        let code = "fn f() {}\n#[cfg(hmc_mutants)]\nfn g() {}\n";
        assert!(found(PATCH, code)[0].starts_with("hmc-a/src/x.rs:2: `hmc_mutants`"));
        assert!(found(PATCH, "fn f() {}\n// hmc_mutants\n").is_empty(), "a word about it");
        let elsewhere = Tree::planted(&[("tests/src/x.rs", code), ("hmc-a/tests/x.rs", code)]);
        assert!(check(&elsewhere).is_empty());
    }
}
