//! Nothing is said of peers that are well, however busy the machine is.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "tests may panic"
)]

use std::sync::Mutex;
use std::time::Duration;

use hmc_std::ConnType;
use hmc_tests::events::Events;
use hmc_tests::links::note;
use hmc_tests::pair::{Pair, pattern};
use tracing::Level;
use tracing::field::{Field, Visit};

const LONG: Duration = Duration::from_secs(30);
const MIB: u64 = 1 << 20;
const MESSAGES: u64 = 60;

/// Warnings of the library.
static WARNINGS: Mutex<Vec<String>> = Mutex::new(Vec::new());

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        if field.name() == "message" {
            self.0 = format!("{value:?}");
        }
    }
}

/// A peer that has no processor is not one that is stopped: to be so for some milliseconds while it enters a message is
/// what happens on any busy machine.
#[test]
#[ignore = "needs UCX: cargo xtask test-hw"]
fn messages_of_healthy_peers_warn_of_nothing() {
    let warnings = Events::new(Level::DEBUG, |event| {
        note(event);
        if *event.metadata().level() > Level::WARN {
            return;
        }
        let mut text = Text(String::new());
        event.record(&mut text);
        WARNINGS.lock().unwrap().push(text.0);
    });
    tracing::subscriber::set_global_default(warnings).unwrap();
    for lanes in ["posix,cma,self", "sysv,cma,self", "tcp,self", "all"] {
        let pair = Pair::with(ConnType::Ucx, 4 * MIB, |part| part.ucx_key("TLS", lanes));
        std::thread::scope(|s| {
            let sent = s.spawn(|| {
                for n in 0..MESSAGES {
                    pair.a.send_data(&pattern(n * MIB / 4 + 1, n)).wait().unwrap();
                }
            });
            let mut got = vec![0; 16 << 20];
            for n in 0..MESSAGES {
                let len = pair.b.recv_data(&mut got).wait().map(|d| d.bytes).unwrap();
                assert_eq!(len, n * MIB / 4 + 1);
                let len = usize::try_from(len).unwrap();
                assert!(got[..len] == pattern(n * MIB / 4 + 1, n), "{lanes}, message {n}");
            }
            sent.join().unwrap();
        });
        for session in pair.sessions {
            session.shutdown().within(LONG).wait().unwrap();
        }
        let said = std::mem::take(&mut *WARNINGS.lock().unwrap());
        println!("{lanes}: {} warnings", said.len());
        assert!(said.is_empty(), "over {lanes}, {} warnings: {said:?}", said.len());
    }
}
