//! The corpus of the fuzz target `config`: every input is run, keeps its class, and the planted bug is found.
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
#[path = "bodies/config.rs"]
mod config;
#[path = "../../hmc-core/tests/bodies/corpus.rs"]
mod corpus;

use corpus::{Corpus, Seed};

const CORPUS: Corpus = Corpus { name: "config", body: config::config, class: config::class };

/// Addresses that must be refused.
const REFUSED: [&str; 39] = [
    "",
    "host",
    "host:",
    "host:99999",
    "host:65536",
    "host:-1",
    "host:0x50",
    "host:80 ",
    "uds://",
    "tcp://",
    "tcp://1.2.3.4",
    "tcp://:",
    "tcp://host",
    "tcp://[::1]",
    "[::1]",
    "[::1",
    "1.2.3.4",
    "1.2.3.4:",
    "1.2.3.4:65536",
    "tcp://1.2.3.4:80:",
    "uds:",
    "uds",
    "tcp:",
    "tcp:1.2.3.4",
    "::1",
    "fe80::1%eth0",
    "a b",
    "\u{0}",
    "tcp://host:port",
    "UDS",
    ":80",
    "host:+80",
    "[::1:80",
    "0.0.0.0:0",
    "host:0",
    "tcp://[::1]:0",
    "http://a/b",
    "UDS://x",
    "://",
];

/// Addresses that must be understood.
const GOOD: [&str; 19] = [
    "tcp://127.0.0.1:5001",
    "127.0.0.1:9",
    "tcp://[::1]:80",
    "[::1]:80",
    "[fe80::1%3]:80",
    "0.0.0.0:1",
    "255.255.255.255:65535",
    "uds:///run/hmc",
    "uds://relative",
    "/run/hmc",
    "a/b",
    "./x",
    "uds:///a:b:1/c",
    "./UDS://x",
    "uds://http://a/b",
    "uds://uds://x",
    "uds:///run/hmc#127.0.0.1:5000",
    "/run/hmc#[::1]:80",
    "uds:///run/a#b",
];

/// The seeds: name, bytes, what the class begins with.
fn seeds() -> Vec<Seed> {
    let text = |kind: u8, body: &[u8]| [&[kind][..], body].concat();
    let mut all = Vec::new();
    for (i, s) in REFUSED.iter().enumerate() {
        all.push((format!("refused_{i:02}"), text(b'A', s.as_bytes()), "InvalidConfig"));
    }
    for (i, s) in GOOD.iter().enumerate() {
        all.push((format!("good_{i:02}"), text(b'A', s.as_bytes()), "good"));
    }
    for (i, s) in
        ["host:80", "tcp://host:80", "1.2.3:80", "256.1.1.1:1", "host:01"].iter().enumerate()
    {
        all.push((format!("name_{i:02}"), text(b'A', s.as_bytes()), "name"));
    }
    // `/hmc_ctrl_rank_258.sock` has 23 bytes.
    for (n, want) in [
        (0, "good"),
        (83, "good"),
        (84, "good"),
        (85, "Invalid"),
        (86, "Invalid"),
        (500, "Invalid"),
    ] {
        let dir = [&[1, 2][..], &vec![b'd'; n]].concat();
        all.push((format!("path_{n:03}"), text(b'P', &dir), want));
    }
    all.push(("path_slash".into(), text(b'P', &[&[0, 0][..], b"/run/hmc/"].concat()), "good"));
    all.push(("path_latin".into(), text(b'P', &[0, 0, b'/', 0xE9]), "good"));
    let environments: [&[u8]; 9] = [
        b"",
        b"/run/x\n20\n1\n/run/user/1",
        b"\n\n\n",
        b"\n-1\n0",
        b"\n+5\n1 ",
        b"\n18446744073709551615\n1",
        b"\n18446744073709551616\n11",
        b"\n 7\n\n/run",
        b"\xFF\n\xFF\n\xFF\n\xFF",
    ];
    for (i, e) in environments.iter().enumerate() {
        all.push((format!("environment_{i}"), text(b'E', e), "good"));
    }
    all
}

#[test]
fn every_committed_input_keeps_its_class() {
    CORPUS.keeps_its_classes(seeds());
}

#[test]
fn random_inputs_break_nothing_and_find_the_planted_bug() {
    CORPUS.finds_the_planted_bug(10_000);
}

/// Writes the seeds and the classes, after a deliberate change.
#[test]
#[ignore = "writes the corpus anew: `cargo test -p hmc-std --test config_corpus -- --ignored`"]
fn write_corpus() {
    CORPUS.write(seeds());
}
