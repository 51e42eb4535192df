//! The rows of `cargo xtask attack` stand for sentences that the documents have.

use std::collections::BTreeSet;
use std::path::Path;

use hmc_tests::attack::rows::ROWS;

fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn each_promise_is_a_sentence_of_its_document() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for row in ROWS {
        let text = std::fs::read_to_string(root.join(row.document)).expect("a document");
        let (text, promise) = (words(&text), words(row.promise));
        assert!(text.contains(&promise), "{}: {} has no `{promise}`", row.name, row.document);
    }
}

/// A row that is listed twice would hide another one.
#[test]
fn each_row_has_a_name_and_an_attack_of_its_own() {
    let names: BTreeSet<_> = ROWS.iter().map(|row| row.name).collect();
    assert_eq!(names.len(), ROWS.len(), "two rows have one name");
    #[allow(clippy::as_conversions, reason = "addresses of functions are compared")]
    let attacks: BTreeSet<_> = ROWS.iter().map(|row| row.attack as usize).collect();
    assert_eq!(attacks.len(), ROWS.len(), "two rows have one attack");
}
