//! Why links ended, as the log tells it.

use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::{Condvar, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use tracing::Level;
use tracing::field::{Field, Visit};

use crate::events::Events;

/// The reasons that came so far, by the peer's rank.
#[derive(Debug, Default)]
struct Losses {
    reasons: Mutex<HashMap<u64, String>>,
    came: Condvar,
}

/// One event.
#[derive(Default)]
struct Loss {
    is_one: bool,
    peer: u64,
    why: String,
}

impl Visit for Loss {
    fn record_u64(&mut self, field: &Field, value: u64) {
        if field.name() == "peer" {
            self.peer = value;
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "why" {
            value.clone_into(&mut self.why);
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.is_one |= field.name() == "message" && format!("{value:?}") == "peer lost";
    }
}

/// The subscriber of this process is set at the first call.
fn losses() -> &'static Losses {
    static LOSSES: OnceLock<Losses> = OnceLock::new();
    static SUBSCRIBED: OnceLock<()> = OnceLock::new();
    let losses = LOSSES.get_or_init(Losses::default);
    SUBSCRIBED.get_or_init(|| {
        let events = Events::new(Level::INFO, |event| {
            let mut loss = Loss::default();
            event.record(&mut loss);
            if loss.is_one {
                let mut reasons = losses.reasons.lock().unwrap_or_else(PoisonError::into_inner);
                reasons.insert(loss.peer, loss.why);
                losses.came.notify_all();
            }
        });
        tracing::subscriber::set_global_default(events).expect("no other subscriber");
    });
    losses
}

/// Listens to the log of this process from now on.
pub fn listen() {
    losses();
}

/// Whether the link to that rank has ended without a goodbye.
#[must_use]
pub fn has_lost(rank: u32) -> bool {
    let reasons = losses().reasons.lock().unwrap_or_else(PoisonError::into_inner);
    reasons.contains_key(&u64::from(rank))
}

/// Waits until the link to that rank has ended, and says why; `None` when it does not.
#[must_use]
pub fn wait_for(rank: u32, limit: Duration) -> Option<String> {
    let losses = losses();
    let reasons = losses.reasons.lock().unwrap_or_else(PoisonError::into_inner);
    let missing = |reasons: &mut HashMap<u64, String>| !reasons.contains_key(&u64::from(rank));
    let waited = losses.came.wait_timeout_while(reasons, limit, missing);
    let (reasons, _) = waited.unwrap_or_else(PoisonError::into_inner);
    reasons.get(&u64::from(rank)).cloned()
}
