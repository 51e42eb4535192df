//! A record of the links of a test: the transport of each, and the bytes that it moved.
//!
//! `cargo xtask test-hw` names the file by `HMC_TEST_LINKS` and counts a test as one over UCX or RDMA verbs only if this
//! record shows bytes that UCX or a NIC moved. Without that variable nothing is recorded.

use std::fmt::Debug;
use std::fs::File;
use std::io::Write as _;
use std::sync::OnceLock;

use tracing::field::{Field, Visit};
use tracing::{Event, Level};

use crate::events::Events;

/// Names the file that records are added to.
const VARIABLE: &str = "HMC_TEST_LINKS";

/// Records the links of this process from now on, if that is asked for. A test that has a subscriber of its own gives its
/// events to [`note`].
pub fn record() {
    static BEGUN: OnceLock<()> = OnceLock::new();
    BEGUN.get_or_init(|| {
        if std::env::var_os(VARIABLE).is_some() {
            // A test that has set its own is the one that calls `note`.
            let _ = tracing::subscriber::set_global_default(Events::new(Level::DEBUG, note));
        }
    });
}

/// Records an event of a link that is over; passes over others.
pub fn note(event: &Event<'_>) {
    if event.metadata().target() != "hmc_std::link" {
        return;
    }
    let mut end = End::default();
    event.record(&mut end);
    let bytes = match end.conn.as_str() {
        "ucx" | "rdma" => end.offloaded,
        _ => end.out.saturating_add(end.into),
    };
    moved(&end.conn, bytes);
}

/// Adds a line `CONN BYTES` to the record, if there is one.
///
/// # Panics
/// When it cannot be written: a test that is not recorded would look like one that moved nothing.
pub fn moved(conn: &str, bytes: u64) {
    let Some(path) = std::env::var_os(VARIABLE) else { return };
    let file = File::options().create(true).append(true).open(&path);
    // In one piece: other processes of the test write there too.
    let line = format!("{conn} {bytes}\n");
    file.and_then(|mut file| file.write_all(line.as_bytes())).expect("a record of links");
}

/// What the event of a link's end says.
#[derive(Default)]
struct End {
    conn: String,
    out: u64,
    into: u64,
    offloaded: u64,
}

impl Visit for End {
    fn record_u64(&mut self, field: &Field, value: u64) {
        match field.name() {
            "bytes_out" => self.out = value,
            "bytes_in" => self.into = value,
            "bytes_by_ucx" => self.offloaded = value,
            _ => {}
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "conn" {
            value.clone_into(&mut self.conn);
        }
    }

    fn record_debug(&mut self, _: &Field, _: &dyn Debug) {}
}
