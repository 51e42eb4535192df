//! Nothing is said of peers that are well, however busy the machine is.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "tests may panic"
)]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use hmc_std::ConnType;
use hmc_tests::pair::{Pair, pattern};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

const LONG: Duration = Duration::from_secs(30);
const MIB: u64 = 1 << 20;
const MESSAGES: u64 = 60;

/// Collects warnings of the library.
#[derive(Clone, Default)]
struct Warnings(Arc<Mutex<Vec<String>>>);

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        if field.name() == "message" {
            self.0 = format!("{value:?}");
        }
    }
}

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut text = Text(String::new());
        event.record(&mut text);
        self.0.lock().unwrap().push(text.0);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// A peer that has no processor is not one that is stopped: to be so for some milliseconds while it enters a message is
/// what happens on any busy machine.
#[test]
#[ignore = "needs UCX: cargo xtask test-hw"]
fn messages_of_healthy_peers_warn_of_nothing() {
    let warnings = Warnings::default();
    tracing::subscriber::set_global_default(warnings.clone()).unwrap();
    for lanes in ["posix,cma,self", "sysv,cma,self", "tcp,self", "all"] {
        let pair = Pair::with(ConnType::Ucx, 4 * MIB, |part| part.ucx_key("TLS", lanes));
        std::thread::scope(|s| {
            let sent = s.spawn(|| {
                for n in 0..MESSAGES {
                    pair.a.send_data(&pattern(n * MIB / 4 + 1, n)).unwrap();
                }
            });
            let mut got = vec![0; 16 << 20];
            for n in 0..MESSAGES {
                let len = pair.b.recv_data(&mut got).unwrap();
                assert_eq!(len, n * MIB / 4 + 1);
                let len = usize::try_from(len).unwrap();
                assert!(got[..len] == pattern(n * MIB / 4 + 1, n), "{lanes}, message {n}");
            }
            sent.join().unwrap();
        });
        for session in pair.sessions {
            session.shutdown(LONG).unwrap();
        }
        let said = std::mem::take(&mut *warnings.0.lock().unwrap());
        println!("{lanes}: {} warnings", said.len());
        assert!(said.is_empty(), "over {lanes}, {} warnings: {said:?}", said.len());
    }
}
