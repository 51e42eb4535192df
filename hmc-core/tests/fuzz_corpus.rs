//! The committed corpora: every input is run through its body, every malformed one keeps its class, and
//! every body finds the bug that is planted for it.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    reason = "tests may panic"
)]

mod bodies;
mod common;
mod fuzz_seeds;

use bodies::mutate::{self, Rng};
use bodies::{Subject, TARGETS, Target};
use std::collections::{BTreeMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;

/// Random inputs for each target. A debug build runs some 20,000 of them a second.
const RANDOM: usize = 10_000;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../fuzz")
}

/// The committed inputs of a target, by name.
fn corpus(target: &str) -> BTreeMap<String, Vec<u8>> {
    std::fs::read_dir(root().join("corpus").join(target))
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            (entry.file_name().into_string().unwrap(), std::fs::read(entry.path()).unwrap())
        })
        .collect()
}

/// The classes of a target's inputs, as they are stored: `name: class`.
fn classes(target: &str) -> String {
    std::fs::read_to_string(root().join(format!("classes/{target}.txt"))).unwrap()
}

/// The classes as the code has them now. Inputs that a fuzzer added are classified too.
fn table(target: &Target) -> String {
    let class = target.class.unwrap();
    corpus(target.name).iter().map(|(name, b)| format!("{name}: {}\n", class(b))).collect()
}

#[test]
fn every_committed_input_breaks_nothing() {
    for target in &TARGETS {
        let inputs = corpus(target.name);
        assert!(inputs.len() >= 20, "{}: {} inputs", target.name, inputs.len());
        for (name, bytes) in inputs {
            assert!(bytes.len() <= 4096, "{name}: a committed input is small");
            (target.body)(&bytes, Subject::Real);
        }
    }
}

#[test]
fn every_committed_input_keeps_its_class() {
    for target in TARGETS.iter().filter(|t| t.class.is_some()) {
        let (stored, now) = (classes(target.name), table(target));
        for (s, n) in stored.lines().zip(now.lines()) {
            assert_eq!(n, s, "{}", target.name);
        }
        assert_eq!(now.lines().count(), stored.lines().count(), "{}", target.name);
    }
}

/// What the rules know is in the stored classes. A class is of no use if it is only what the code says.
#[test]
fn the_rules_agree_with_the_stored_classes() {
    let mut malformed = HashSet::new();
    let mut wrong = Vec::new();
    for target in TARGETS.iter().filter(|t| t.class.is_some()) {
        let stored = classes(target.name);
        let class: BTreeMap<&str, &str> =
            stored.lines().map(|l| l.split_once(": ").unwrap()).collect();
        for seed in fuzz_seeds::all().into_iter().filter(|s| s.target == target.name) {
            let Some(want) = seed.want else { continue };
            let found = class[seed.name.as_str()];
            if !found.contains(&want) {
                wrong.push(format!("{}/{}: {found}, not {want}", seed.target, seed.name));
            }
            malformed.insert((seed.target, seed.bytes));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    println!("{} malformed inputs, each with its class", malformed.len());
    assert!(malformed.len() >= 500, "{} malformed inputs", malformed.len());
}

#[test]
fn every_seed_is_committed() {
    for seed in fuzz_seeds::all() {
        let stored = std::fs::read(root().join("corpus").join(seed.target).join(&seed.name));
        let at = format!("{}/{}: run `write_corpus`", seed.target, seed.name);
        assert_eq!(stored.ok(), Some(seed.bytes), "{at}");
    }
}

#[test]
fn random_inputs_break_nothing() {
    let mut rng = Rng::announced(1);
    for target in &TARGETS {
        let inputs: Vec<_> = corpus(target.name).into_values().collect();
        for i in 0..RANDOM {
            let bytes = mutate::input(&inputs, &mut rng);
            let outcome = catch_unwind(AssertUnwindSafe(|| (target.body)(&bytes, Subject::Real)));
            assert!(outcome.is_ok(), "{} input {i}: {}", target.name, common::hex(&bytes));
        }
    }
}

/// Each body finds its planted bug: in the corpus, or among as many random inputs as are tried above.
#[test]
fn every_body_finds_its_planted_bug() {
    // The finding is expected; its text is not printed.
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let mut report = String::new();
    let mut missed = Vec::new();
    for target in &TARGETS {
        let inputs: Vec<_> = corpus(target.name).into_values().collect();
        let mut rng = Rng::new(7);
        let finds = |b: &[u8]| {
            catch_unwind(AssertUnwindSafe(|| (target.body)(b, Subject::Broken))).is_err()
        };
        let by_corpus = inputs.iter().filter(|b| finds(b)).count();
        // A fuzzer that starts with nothing has to find it too.
        let alone = (1..=RANDOM).find(|_| finds(&mutate::input(&inputs, &mut rng)));
        report.push_str(&format!("{}: {by_corpus} inputs, random {alone:?}\n", target.name));
        if by_corpus == 0 || alone.is_none() {
            missed.push(target.name);
        }
    }
    std::panic::set_hook(hook);
    print!("{report}");
    assert!(missed.is_empty(), "not found: {missed:?}\n{report}");
}

/// Writes the seeds and all classes, after a deliberate change of the format. Look at the difference.
#[test]
#[ignore = "writes the corpus anew: `cargo test -p hmc-core --test fuzz_corpus -- --ignored`"]
fn write_corpus() {
    std::fs::create_dir_all(root().join("classes")).unwrap();
    for seed in fuzz_seeds::all() {
        let folder = root().join("corpus").join(seed.target);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join(seed.name), seed.bytes).unwrap();
    }
    for target in TARGETS.iter().filter(|t| t.class.is_some()) {
        let path = root().join(format!("classes/{}.txt", target.name));
        std::fs::write(path, table(target)).unwrap();
    }
}
