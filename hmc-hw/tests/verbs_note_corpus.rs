//! The corpus of the fuzz target `verbs_note`: every input is run, keeps its class, and the planted bug is found.
#![allow(
    unreachable_pub,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    reason = "tests may panic"
)]

#[path = "../../hmc-core/tests/bodies/mod.rs"]
mod bodies;
#[path = "../../hmc-core/tests/bodies/corpus.rs"]
mod corpus;
#[path = "bodies/verbs_note.rs"]
mod verbs_note;

use corpus::{Corpus, Seed};

const CORPUS: Corpus =
    Corpus { name: "verbs_note", body: verbs_note::verbs_note, class: verbs_note::class };

/// Bytes of conn info before its NICs, of each NIC, and of each queue pair.
const HEAD: usize = 12;
const NIC: usize = 26;
const LANE: usize = 8;
/// Bytes of a window's keys before the keys themselves.
const KEY_HEAD: usize = 31;

fn conn_info(nics: u8, lanes: u8) -> Vec<u8> {
    let mut bytes = vec![5, 4, nics, lanes, 64];
    bytes.extend(0x1112_1314_1516_1718_u64.to_le_bytes());
    for nic in 0..nics {
        bytes.extend([2, 2, 3, 16, nic, 0]);
        bytes.extend([nic + 1; 16]);
        bytes.extend([nic, 1, 2, 3]);
    }
    for lane in 0..lanes {
        bytes.extend([lane, 1, 2, 0, 0xff, 0xfe, lane, 0]);
    }
    bytes
}

fn keys(count: u8) -> Vec<u8> {
    let mut bytes = vec![6, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 3];
    bytes.extend(0x1000_u64.to_le_bytes());
    bytes.extend(0x7fff_0000_0000_u64.to_le_bytes());
    bytes.extend([count, 0]);
    bytes.extend((0..count).flat_map(|key| [key, 1, 2, 3]));
    bytes
}

/// The seeds: name, bytes, what the class begins with.
fn seeds() -> Vec<Seed> {
    let mut all = vec![
        ("nothing".to_owned(), vec![], "nothing"),
        ("connected".to_owned(), vec![7], "another kind"),
        ("ucx".to_owned(), vec![3, 1, 2], "another kind"),
    ];
    for (nics, lanes) in [(1, 1), (1, 16), (2, 3), (8, 8), (8, 16)] {
        all.push((format!("info_{nics}_{lanes}"), conn_info(nics, lanes), "good conn info"));
    }
    for count in [0, 1, 4, 255] {
        all.push((format!("keys_{count}"), keys(count), "good keys"));
    }
    let cuts = [0, 1, 4, HEAD, HEAD + 1, HEAD + NIC, HEAD + 2 * NIC + LANE];
    for (name, whole) in [("info", conn_info(2, 3)), ("keys", keys(2))] {
        let class = if name == "info" { "bad conn info" } else { "bad keys" };
        for len in cuts.into_iter().filter(|len| len + 1 < whole.len()) {
            all.push((format!("{name}_cut_{len}"), whole[..=len].to_vec(), class));
        }
        all.push((format!("{name}_longer"), [&whole[..], &[0]].concat(), class));
    }
    // Where a byte of conn info of two NICs and three queue pairs is not what it may be.
    let lanes = HEAD + 2 * NIC;
    for (at, value) in [
        (0, 3),
        (0, 5),
        (1, 0),
        (1, 9),
        (1, 4),
        (2, 1),
        (2, 17),
        (3, 3),
        (HEAD, 0),
        (HEAD, 3),
        (HEAD + 1, 3),
        (HEAD + 2, 0),
        (HEAD + 2, 6),
        (HEAD + 3, 0),
        (HEAD + NIC, 0),
        (HEAD + NIC + 3, 0),
        (lanes + 3, 1),
        (lanes + 7, 1),
        (lanes + 2 * LANE + 7, 255),
    ] {
        let mut bytes = conn_info(2, 3);
        bytes[at + 1] = value;
        all.push((format!("info_byte_{at}_{value}"), bytes, "bad conn info"));
    }
    for (at, value) in [(12, 4), (KEY_HEAD - 2, 1), (KEY_HEAD - 1, 1)] {
        let mut bytes = keys(2);
        bytes[at + 1] = value;
        all.push((format!("keys_byte_{at}_{value}"), bytes, "bad keys"));
    }
    let mut beyond = keys(1);
    beyond[14..22].fill(0xff);
    all.push(("keys_beyond".to_owned(), beyond, "bad keys"));
    all
}

#[test]
fn every_committed_input_keeps_its_class() {
    CORPUS.keeps_its_classes(seeds());
}

#[test]
fn random_inputs_break_nothing_and_find_the_planted_bug() {
    CORPUS.finds_the_planted_bug(20_000);
}

/// Writes the seeds and the classes, after a deliberate change.
#[test]
#[ignore = "writes the corpus anew: `cargo test -p hmc-hw --test verbs_note_corpus -- --ignored`"]
fn write_corpus() {
    CORPUS.write(seeds());
}
