//! Refused clients are reported in the log, and cannot fill it. Alone in its file: it has the process's subscriber of
//! `tracing`.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use hmc_core::wire::reject::RejectReason;
use hmc_std::Session;
use hmc_tests::env::TempDir;
use hmc_tests::events::Events;
use hmc_tests::listening::Listening as _;
use hmc_tests::raw_frames::{dial, hello, read_reject, send_raw};
use tracing::Level;

const CLIENTS: usize = 200;
static WARNINGS: AtomicUsize = AtomicUsize::new(0);

#[test]
fn many_refused_clients_are_few_warnings() {
    let count = Events::new(Level::WARN, |_| {
        WARNINGS.fetch_add(1, Ordering::Relaxed);
    });
    tracing::subscriber::set_global_default(count).unwrap();
    let dir = TempDir::new();
    let server = Session::builder(1).tcp("127.0.0.1:0").secret_file(dir.path().join("secret"));
    let server = server.start().unwrap();
    let begun = Instant::now();
    for _ in 0..CLIENTS {
        let mut s = dial(server.tcp_addr().unwrap());
        assert!(send_raw(&mut s, &hello(2, 0, 1)));
        assert_eq!(read_reject(&mut s), Some(RejectReason::NotAuthorised));
    }
    let seconds = begun.elapsed().as_secs_f64();
    assert!(begun.elapsed() < Duration::from_secs(60), "too slow to show anything: {seconds} s");
    let warnings = WARNINGS.load(Ordering::Relaxed);
    assert!(warnings >= 1, "no warning at all");
    #[expect(clippy::cast_precision_loss, reason = "a small number")]
    #[expect(clippy::as_conversions, reason = "a small number")]
    let most = warnings as f64;
    assert!(most <= seconds + 1.0, "{warnings} warnings in {seconds} s");
}
